"""HDA to DSAs: clang-offload-bundler's archives, byte for byte, and no partial outputs."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool import BundleEntryID
from offload_tool.cli.llvm.bundler import run_bundler
from offload_tool.errors import FormatError, OffloadError
from offload_tool.operations import unarchive
from offload_tool.operations.unarchive import (
    ArchiveOptions,
    NotAnArchiveError,
    unbundle_archive,
)
from tests.cli.side_by_side import Bench
from tests.conftest import Tool, identity, program, run_tool
from tests.formats.bundle.test_binary import bundle_of
from tests.formats.compressed import ZLIB, ZSTD, compressed
from tests.formats.object_files import make_elf
from tests.formats.object_files import member_header as header
from tests.operations.archives import archive_of, members_of
from tests.operations.fatbins import make_bundle

HOST = "host-x86_64-unknown-linux-gnu-"
GPU = "hip-amdgcn-amd-amdhsa--"
OMP = "openmp-amdgcn-amd-amdhsa--"
CUDA = "openmp-nvptx64-nvidia-cuda--"
TARGETS = [
    *(GPU + name for name in ("gfx906", "gfx90a:xnack+", "gfx90a:xnack-", "gfx9-4-generic")),
    *(OMP + name for name in ("gfx906", "gfx1010:xnack-")),
    *(CUDA + name for name in ("sm_70", "sm_90a")),
    "openmp-x86_64-pc-linux-gnu-",
]
ONE = BundleEntryID.parse(GPU + "gfx906")


def bundle(folder: Path, entries: dict[str, bytes], **options: object) -> bytes:
    return make_bundle(folder / "made", entries, alignment=1, **options).read_bytes()  # type: ignore[arg-type]


def names(path: Path) -> list[str]:
    return [name for name, _ in members_of(path)]


def images_in(path: Path) -> list[bytes]:
    return [image for _, image in members_of(path)]


@pytest.fixture
def contents(tmp_path: Path, llvm: Tool) -> dict[str, bytes]:
    """Return contents for members: a host object, bitcode, and code objects."""
    source = tmp_path / "s.c"
    source.write_text(
        "int global = 1; static int hidden; int f(void) { return global + hidden; }\n"
    )
    made = {}
    for name, flags in {
        "host": ["-c"],
        "bitcode": ["-c", "-emit-llvm"],
        "device": ["-c", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx906", "-nogpulib"],
    }.items():
        run_tool(llvm("clang"), *flags, source, "-o", tmp_path / name, cwd=tmp_path)
        made[name] = (tmp_path / name).read_bytes()
    archive_of(tmp_path / "nested.a", {"m.o": bundle(tmp_path, {GPU + "gfx906": b"x"})})
    made["archive"] = (tmp_path / "nested.a").read_bytes()
    return made | {"text": b"no object at all", "empty": b""}


def random_member(
    rnd: random.Random, folder: Path, contents: dict[str, bytes], dialect: str
) -> bytes:
    """Make an object bundle, a binary bundle, a compressed one, or something else."""
    layout = rnd.choice(["object", "binary", "compressed", "compressed object", "other"])
    if layout == "other":
        return contents[rnd.choice(["host", "text", "bitcode", "empty", "archive"])]
    kinds = ["bitcode", "device", "host", "text", "empty"]
    # For two entries of one target in a binary bundle, LLVM's order is that of a hash table.
    chosen = {text.partition("-")[2]: text for text in rnd.sample(TARGETS, rnd.randint(1, 5))}
    texts = list(chosen.values())
    if "object" in layout:
        texts += [f"hipv4-{text[4:]}" for text in texts if text.startswith(GPU)]
    entries = {text: contents[rnd.choice(kinds)] for text in texts}
    host = contents["host"] if "object" in layout else rnd.choice([b"", contents["host"]])
    file_type = "o" if "object" in layout else "bc"
    data = bundle(folder, {HOST: host, **entries}, file_type=file_type)
    if "compressed" in layout:
        # Darwin pads members. Version 1 stores no size, and LLVM ignores the size of all
        # versions, so that zstd fails.
        darwin = dialect == "darwin"
        versions, methods = ([2, 3], [ZLIB]) if darwin else ([1, 2, 3], [ZLIB, ZSTD])
        data = compressed(data, rnd.choice(versions), rnd.choice(methods))
    return data


DIALECTS = ["own", "gnu", "bsd", "darwin", "coff", "64-bit", "thin"]


def random_hda(rnd: random.Random, bench: Bench, contents: dict[str, bytes], llvm: Tool) -> None:
    folder = bench.folder / "theirs"
    hda, dialect = folder / "hda.a", rnd.choice(DIALECTS)
    members = {}
    for index in range(rnd.randint(0, 6)):
        stem = rnd.choice(["m", "long_member_name_", "a.b.c", ".hidden", "x y"]) + str(index)
        name = stem + rnd.choice([".o", ".bc", "", ".cubin"])
        members[name] = random_member(rnd, bench.folder, contents, dialect)
    hda.unlink(missing_ok=True)
    if dialect == "own" or not members:
        archive_of(hda, members)
        return
    (folder / "members").mkdir(exist_ok=True)
    for name, data in members.items():
        (folder / "members" / name).write_bytes(data)
    names = [f"members/{name}" for name in members]
    flags = ["qcsT"] if dialect == "thin" else ["qcs"]
    flags += [f"--format={dialect if dialect in ('bsd', 'darwin', 'coff') else 'gnu'}"]
    limit = {"SYM64_THRESHOLD": "1"} if dialect == "64-bit" else {}
    run_tool(llvm("llvm-ar"), *flags, "hda.a", *names, cwd=folder, env={**os.environ, **limit})


@pytest.fixture
def bench(tmp_path: Path, llvm: Tool, capfdbinary) -> Bench:
    return Bench(run_bundler, tmp_path / "both", llvm("clang-offload-bundler"), capfdbinary)


def assert_same(bench: Bench, targets: Sequence[str], flags: Sequence[str]) -> None:
    """Unbundle ``hda.a`` in LLVM's folder by both programs; compare what comes of it."""
    shutil.copytree(bench.folder / "theirs", bench.folder / "ours", dirs_exist_ok=True)
    outputs = [f"out{index}.a" for index in range(len(targets))]
    args = ["-type=a", "-unbundle", f"-targets={','.join(targets)}", "-input=hda.a", *flags]
    bench.assert_same([*args, *(f"-output={name}" for name in outputs)], outputs)


@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(24))
def test_random_archives(bench: Bench, contents: dict[str, bytes], llvm: Tool, seed: int) -> None:
    """From random archives, both write the same members, names, order, index and messages."""
    rnd = random.Random(seed)
    allowed = ["-allow-missing-bundles", "-check-input-archive", "-hip-openmp-compatible"]
    for _ in range(4):
        random_hda(rnd, bench, contents, llvm)
        targets = rnd.sample([HOST, *TARGETS], rnd.randint(1, 5))
        # Two targets of one kind, processor and triple conflict if one has fewer features.
        targets = [t for t in targets if t.replace(OMP, GPU) not in targets or t.startswith(GPU)]
        flags = [flag for flag in allowed if rnd.random() < 0.5]
        if rnd.random() < 0.5:
            flags = sorted({*flags, "-allow-missing-bundles"})
        assert_same(bench, targets, flags)


@pytest.mark.llvm
def test_conflicting_members(tmp_path: Path, bench: Bench) -> None:
    """-check-input-archive names the conflicting entries, member and archive, as LLVM does."""
    good = bundle(tmp_path, {GPU + "gfx906": b"x"})
    made = bundle(tmp_path, {GPU + "gfx908:xnack+": b"x", GPU + "gfx908:xnack-": b"y"})
    bad = made.replace(b"xnack-", b"srame-")  # a set that bundlers reject
    hda = archive_of(bench.folder / "theirs/hda.a", {"good.o": good, "bad.o": bad})
    assert_same(bench, [GPU + "gfx906"], ["-check-input-archive"])
    with pytest.raises(FormatError, match=r"conflicting TargetIDs \[.*\] found in bad.o of .*hda"):
        unbundle_archive(hda, {ONE: tmp_path / "out.a"}, options=ArchiveOptions(check=True))


def test_several_entries_for_one_target(tmp_path: Path) -> None:
    kinds = ["hip", "hipv4"]
    data = bundle(tmp_path, {f"{k}{GPU[3:]}gfx906": k.encode() for k in kinds})
    hda = archive_of(tmp_path / "hda.a", {"m.o": data})
    wanted = BundleEntryID.parse(GPU + "gfx906:xnack+")
    unbundle_archive(hda, {wanted: tmp_path / "out.a"})
    assert names(tmp_path / "out.a") == [f"m-{k}{GPU[3:]}gfx906m.bc" for k in kinds]


@pytest.mark.llvm
def test_other_tools_read_the_result(
    tmp_path: Path, contents: dict[str, bytes], llvm: Tool
) -> None:
    """GNU ar, llvm-ar, both nm and ld.lld read a DSA, including its index."""
    device = "openmp-x86_64-pc-linux-gnu-"
    (tmp_path / "dev.c").write_text("int in_device(void) { return 1; }\n")
    run_tool(llvm("clang"), "-c", tmp_path / "dev.c", "-o", tmp_path / "dev.o")
    image = (tmp_path / "dev.o").read_bytes()
    data = bundle(tmp_path, {HOST: contents["host"], device: image}, file_type="o")
    other = bundle(tmp_path, {HOST: b"", device: contents["text"]})
    hda = archive_of(tmp_path / "hda.a", {"text.o": other, "dev.o": compressed(data)})
    unbundle_archive(hda, {BundleEntryID.parse(device): tmp_path / "dsa.a"})

    expected = [f"{stem}-{device}{stem}.o" for stem in ("text", "dev")]
    for ar in (program("ar"), llvm("llvm-ar")):
        assert run_tool(ar, "t", tmp_path / "dsa.a").split() == expected
        shown = subprocess.run([ar, "p", tmp_path / "dsa.a"], check=True, capture_output=True)
        assert shown.stdout == contents["text"] + image
    for nm in (program("nm"), llvm("llvm-nm")):
        index = run_tool(nm, "--print-armap", tmp_path / "dsa.a")
        assert f"in_device in {expected[1]}" in index
    (tmp_path / "main.c").write_text("int in_device(void); void _start(void) { in_device(); }\n")
    run_tool(llvm("clang"), "-c", "main.c", cwd=tmp_path)
    linked = tmp_path / "linked"
    run_tool(llvm("ld.lld"), tmp_path / "main.o", tmp_path / "dsa.a", "-o", linked)
    assert " T in_device" in run_tool(llvm("llvm-nm"), linked)


@pytest.mark.llvm
def test_compressed_members_of_darwin_archives(tmp_path: Path, llvm: Tool) -> None:
    """Line ends appended by Darwin's archivers do not break compressed members."""
    images = [b"x" * size for size in range(1, 9)]  # every length of padding
    for index, image in enumerate(images):
        data = bundle(tmp_path, {GPU + "gfx906": image})
        (tmp_path / f"m{index}.o").write_bytes(compressed(data, 2 + index % 2))
    names = [f"m{index}.o" for index in range(len(images))]
    run_tool(llvm("llvm-ar"), "qcs", "--format=darwin", "hda.a", *names, cwd=tmp_path)
    unbundle_archive(tmp_path / "hda.a", {ONE: tmp_path / "out.a"})
    assert images_in(tmp_path / "out.a") == images


ELF = make_elf(machine=224)
GOOD = bundle_of({HOST: b"", GPU + "gfx906": ELF})


def test_large_archives_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 40
    targets = [BundleEntryID.parse(GPU + t) for t in ("gfx906", "gfx908", "gfx942")]
    sizes = (5, 70_000, 200_000)  # gathered, and copied by the kernel
    rows = [(str(t), os.urandom(s)) for t, s in zip(targets, sizes, strict=True)]
    hda = archive_of(
        tmp_path / "hda.a", {f"m{index}": bundle_of(dict(rows)) for index in range(count)}
    )
    results = []
    for limit in (0, 1 << 40):
        monkeypatch.setattr(unarchive, "_PARALLEL", limit)
        outputs = {target: tmp_path / f"{limit}-{target.target_id}" for target in targets}
        unbundle_archive(hda, outputs)
        results.append([path.read_bytes() for path in outputs.values()])
    assert results[0] == results[1]
    for (_, data), path in zip(rows, outputs.values(), strict=True):
        assert images_in(path) == [data] * count


def test_failure_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one of the archives cannot be written, none appears, whichever thread wrote it."""
    monkeypatch.setattr(unarchive, "_PARALLEL", 0)
    targets = [BundleEntryID.parse(GPU + t) for t in ("gfx906", "gfx908")]
    data = bundle_of({str(target): os.urandom(100_000) for target in targets})
    hda = archive_of(tmp_path / "hda.a", {"m": data})
    (tmp_path / "out").mkdir()
    outputs = dict(zip(targets, (tmp_path / "out" / "one", Path("/dev/full")), strict=True))
    with pytest.raises(OffloadError, match="'/dev/full': No space left"):
        unbundle_archive(hda, outputs)
    assert list((tmp_path / "out").iterdir()) == []


def test_threads_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no memory for all of the threads, those that there are write all archives."""
    monkeypatch.setattr(unarchive, "_PARALLEL", 0)
    monkeypatch.setattr(unarchive, "usable_cores", lambda: 4)
    real, started = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    targets = [BundleEntryID.parse(GPU + t) for t in ("gfx906", "gfx908", "gfx942")]
    data = bundle_of({str(target): str(target).encode() for target in targets})
    outputs = {target: tmp_path / target.target_id for target in targets}
    unbundle_archive(archive_of(tmp_path / "hda.a", {"m": data}), outputs)
    assert started
    for target, path in outputs.items():
        assert images_in(path) == [str(target).encode()]


def test_only_changed_archives_are_replaced(tmp_path: Path) -> None:
    outputs = {BundleEntryID.parse(GPU + t): tmp_path / t for t in ("gfx906", "gfx908")}
    before = []
    for image in (b"old", b"new"):
        data = bundle_of({GPU + "gfx906": b"same", GPU + "gfx908": image})
        hda = archive_of(tmp_path / "hda.a", {"m.o": data})
        unbundle_archive(hda, outputs, keep_equal=True)
        before.append([identity(path) for path in outputs.values()])
    assert before[0][0] == before[1][0]
    assert before[0][1][0] != before[1][1][0]  # another inode
    assert images_in(tmp_path / "gfx908") == [b"new"]


def archive(*members: tuple[bytes, bytes], magic: bytes = b"!<arch>\n") -> bytes:
    return magic + b"".join(
        header(name, len(data)) + data + b"\n" * (len(data) & 1) for name, data in members
    )


def thin(name: bytes) -> bytes:
    table = name + b"/\n"
    return archive((b"//", table), magic=b"!<thin>\n") + header(b"/0", 5)


GOOD_MEMBER = (b"good.o/", GOOD)
BAD_ELF = b"\x7fELF" + ELF[4:40] + struct.pack("<Q", 1 << 40) + ELF[48:]
CORRUPT = {
    "member-cut": (archive(GOOD_MEMBER, (b"b.o/", GOOD))[:-9], r"size of member 2 \('b.o'\)"),
    "bundle-cut": (archive(GOOD_MEMBER, (b"b.o/", GOOD[:-9])), r"\(b.o\)', offset 0x56, entry 2"),
    "id-without-fields": (
        archive((b"b.o/", bundle_of({"hip-gfx906": b"x"}))),
        r"offset 0x8, member 'b.o': expected <kind>-<triple>.*'hip-gfx906'",
    ),
    "image-elf": (
        archive((b"b.o/", bundle_of({GPU + "gfx906": BAD_ELF}))),
        r"\(b.o\)', offset 0x.*section header table: expected",
    ),
    "compressed-cut": (archive((b"b.o/", compressed(GOOD)[:-9])), r"\(b.o\)', offset 0x8, total"),
    "compressed-line-ends": (
        archive((b"b.o/", compressed(GOOD) + b"\n" * 8)),
        r"\(b.o\)', offset 0x.*another bundle after a compressed one",
    ),
    "object-cut": (archive((b"b.o/", make_elf()[:-9])), r"\(b.o\)', offset 0x.*cut short"),
    "name-leads-out": (archive((b"../../evil.o/", GOOD)), r"offset 0x8, member '../../evil.o'"),
    "bsd-name-leads-out": (
        archive((b"#1/12", b"../evil.o\0\0\0" + GOOD)),
        r"offset 0x8, member '../evil.o': expected a name without '..'",
    ),
    "name-of-two-lines": (
        archive((b"#1/8", b"a\nb.o\0\0\0" + GOOD)),
        r"offset 0x8, member 'a\\nb.o': has an entry for which a member with the name 'a\\nb-",
    ),
    "thin-missing": (
        thin(b"gone.o"),
        r"offset 0x4c, member 'gone.o': '.*gone.o': No such file.*needs the files",
    ),
    "thin-itself": (thin(b"hda.a"), r"offset 0x.*, member 'hda.a': .*has itself as a member"),
    "thin-itself-by-a-link": (thin(b"link.a"), r"offset 0x.*member 'link.a': .*has itself"),
    "thin-device": (thin(b"/dev/zero"), r"member '/dev/zero': .*is not a regular file"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), CORRUPT.values(), ids=CORRUPT.keys())
@pytest.mark.parametrize("flags", [[], ["-check-input-archive"]], ids=["", "checked"])
def test_corrupt_archives(
    tmp_path: Path, capfd, data: bytes, message: str, flags: list[str]
) -> None:
    """Broken input leads to one line with archive, member and offset, and no output."""
    hda = tmp_path / "hda.a"
    hda.write_bytes(data)
    (tmp_path / "link.a").symlink_to("hda.a")
    args = ["-type=a", "-unbundle", f"-targets={GPU}gfx906", f"-input={hda}", *flags]
    assert run_bundler("tool", [*args, f"-output={tmp_path / 'out.a'}"], {}) == 1
    line = capfd.readouterr().err
    assert line.startswith(f"tool: error: '{hda}")
    assert line.count("\n") == 1
    assert "offset 0x" in line
    assert re.search(message, line)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hda.a", "link.a"]


@pytest.mark.parametrize("field", [b"/", b"/SYM64/", b"__.SYMDEF"])
def test_lying_symbol_index(tmp_path: Path, field: bytes) -> None:
    """The symbol index of an HDA is not read, so wrong contents have no effect."""
    (tmp_path / "hda.a").write_bytes(archive((field, b"\xff" * 4), GOOD_MEMBER))
    unbundle_archive(tmp_path / "hda.a", {ONE: tmp_path / "out.a"})
    assert images_in(tmp_path / "out.a") == [ELF]


def test_archive_in_an_archive(tmp_path: Path) -> None:
    """A member that is an archive has no entries; it is skipped, at any depth of nesting."""
    inner = archive(GOOD_MEMBER)
    for _ in range(50):
        inner = archive((b"in.a/", inner))
    (tmp_path / "hda.a").write_bytes(archive((b"in.a/", inner), GOOD_MEMBER))
    unbundle_archive(tmp_path / "hda.a", {ONE: tmp_path / "out.a"})
    assert names(tmp_path / "out.a") == [f"good-{GPU}gfx906good.bc"]


@pytest.mark.parametrize("data", [b"", b"!<ar", b"text that is not an archive"])
def test_no_archive(tmp_path: Path, capfd, data: bytes) -> None:
    """The error names a file without an archive's magic; the drop-in prints LLVM's message only."""
    hda, out = tmp_path / "hda.a", tmp_path / "out.a"
    hda.write_bytes(data)
    with pytest.raises(NotAnArchiveError, match=r"hda\.a', offset 0x0: expected an archive, found"):
        unbundle_archive(hda, {ONE: out})
    args = ["-type=a", "-unbundle", f"-targets={GPU}gfx906", f"-input={hda}", f"-output={out}"]
    assert run_bundler("tool", args, {}) == 1
    assert capfd.readouterr().err == "tool: error: file too small to be an archive\n"
    assert not out.exists()


def test_members_without_entries_are_named(tmp_path: Path, capfd) -> None:
    hda = archive_of(tmp_path / "hda.a", {"t.txt": b"text that is not a bundle", "good.o": GOOD})
    args = ["-type=a", "-unbundle", f"-targets={GPU}gfx906", f"-input={hda}"]
    args.append(f"-output={tmp_path / 'out.a'}")
    assert run_bundler("tool", args, {}) == 0
    assert capfd.readouterr().err == ""
    assert run_bundler("tool", [*args, "-verbose"], {}) == 0
    assert capfd.readouterr().err.splitlines()[0] == f"'{hda}(t.txt)': no bundle, skipped"


def test_names_with_folders(tmp_path: Path) -> None:
    """A member's folder, which archivers keep on request, is not part of a DSA's name."""
    hda = archive_of(tmp_path / "hda.a", {"some/folder/m.o": GOOD, "/m.o": GOOD})
    unbundle_archive(hda, {ONE: tmp_path / "out.a"})
    assert names(tmp_path / "out.a") == [f"m-{GPU}gfx906m.bc"] * 2
