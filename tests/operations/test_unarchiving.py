"""HDA to DSAs: clang-offload-bundler's archives, byte for byte, and nothing half done."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from offload_tool import BundleEntryID, Compression, bundle_files
from offload_tool.cli.bundler_command import run_bundler
from offload_tool.errors import FormatError
from offload_tool.formats.archive import NewMember, iter_members, plan_archive
from offload_tool.operations.unarchiving import MissingCodeObjectError, unbundle_archive

HOST = "host-x86_64-unknown-linux-gnu-"
GPU = "hip-amdgcn-amd-amdhsa--"
TARGETS = ["gfx906", "gfx90a:xnack+", "gfx90a:xnack-", "gfx1100", "gfx9-4-generic"]


def archive_of(path: Path, members: dict[str, bytes]) -> Path:
    layout = plan_archive([NewMember(name, len(data)) for name, data in members.items()])
    content = b"".join(
        before + data for before, data in zip(layout.before, members.values(), strict=True)
    )
    path.write_bytes(content + layout.end)
    return path


def bundle(folder: Path, entries: dict[str, bytes], **options: object) -> bytes:
    items = []
    for index, (text, data) in enumerate(entries.items()):
        file = folder / f"entry{index}"
        file.write_bytes(data)
        items.append((BundleEntryID.parse(text), file))
    bundle_files(folder / "made", items, **options)  # type: ignore[arg-type]
    return (folder / "made").read_bytes()


def names(path: Path) -> list[str]:
    data = memoryview(path.read_bytes())
    return [member.name for member in iter_members(data, path=path)]


@pytest.fixture
def contents(tmp_path: Path, llvm: Callable[[str], str]) -> dict[str, bytes]:
    """Give what members are made of: a host object, bitcode, and code objects."""
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
        command = [llvm("clang"), *flags, source, "-o", tmp_path / name]
        subprocess.run(command, check=True, cwd=tmp_path)
        made[name] = (tmp_path / name).read_bytes()
    return made | {"text": b"no object at all", "empty": b""}


def random_hda(rnd: random.Random, folder: Path, contents: dict[str, bytes]) -> Path:
    """Make an archive of object bundles, binary bundles, compressed ones, and other members."""
    members = {}
    kinds = ["bitcode", "device", "text", "empty"]
    for index in range(rnd.randint(0, 8)):
        chosen = rnd.sample(TARGETS, rnd.randint(1, 4))
        # Of two entries for one target in a member, LLVM's order is a hash table's.
        entries = {GPU + t: contents[rnd.choice(kinds)] for t in chosen}
        layout = rnd.choice(["object", "binary", "compressed", "other"])
        stem = rnd.choice(["m", "long_member_name_", "a.b.c", ".hidden", "x-y"]) + str(index)
        name = stem + rnd.choice([".o", ".bc", "", ".cubin"])
        if layout == "other":
            members[name] = contents[rnd.choice(["host", "text", "bitcode"])]
            continue
        host = contents["host"] if layout == "object" else rnd.choice([b"", contents["host"]])
        compression = Compression() if layout == "compressed" else None
        file_type = "o" if layout == "object" else "bc"
        members[name] = bundle(
            folder, {HOST: host, **entries}, file_type=file_type, compression=compression
        )
    return archive_of(folder / "hda.a", members)


def differs(
    llvm: Callable[[str], str], capfd, hda: Path, targets: Sequence[str], flags: Sequence[str]
) -> str:
    """Run both programs; say what differs, if anything."""
    folder, tool = hda.parent, llvm("clang-offload-bundler")
    arguments = ["-type=a", "-unbundle", f"-targets={','.join(targets)}", "-input=hda.a", *flags]
    results = {}
    for side in ("ours", "theirs"):
        outputs = [folder / f"{side}{index}.a" for index in range(len(targets))]
        for output in outputs:
            output.unlink(missing_ok=True)
        words = [*arguments, *(f"-output={output.name}" for output in outputs)]
        if side == "ours":
            capfd.readouterr()
            before = Path.cwd()
            os.chdir(folder)
            status = run_bundler(tool, words, {})
            os.chdir(before)
            errors = capfd.readouterr().err
        else:
            done = subprocess.run([tool, *words], cwd=folder, capture_output=True, text=True)
            status, errors = done.returncode, done.stderr
        made = [o.read_bytes() if o.exists() and not status else b"" for o in outputs]
        results[side] = (status, errors, made)
    return "" if results["ours"] == results["theirs"] else f"{arguments}: {results}"


@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(30))
def test_random_archives(
    tmp_path: Path, contents: dict[str, bytes], llvm: Callable[[str], str], capfd, seed: int
) -> None:
    """Random archives give LLVM's archives: members, names, order, symbol index, messages."""
    rnd = random.Random(seed)
    for _ in range(5):
        hda = random_hda(rnd, tmp_path, contents)
        targets = [GPU + t for t in rnd.sample(TARGETS, rnd.randint(1, 4))]
        targets += rnd.choice([[], [HOST]])
        flags = [
            f for f in ("-allow-missing-bundles", "-check-input-archive") if rnd.random() < 0.5
        ]
        assert differs(llvm, capfd, hda, targets, flags) == ""


@pytest.mark.llvm
def test_openmp_served_by_hip(
    tmp_path: Path, contents: dict[str, bytes], llvm: Callable[[str], str], capfd
) -> None:
    """-hip-openmp-compatible lets entries of one kind serve the other, as in LLVM."""
    data = bundle(tmp_path, {HOST: b"", GPU + "gfx906": contents["device"]})
    hda = archive_of(tmp_path / "hda.a", {"m.o": data})
    wanted = ["openmp-amdgcn-amd-amdhsa--gfx906"]
    for flags in ([], ["-hip-openmp-compatible"]):
        assert differs(llvm, capfd, hda, wanted, flags) == ""


@pytest.mark.llvm
def test_thin_archive(
    tmp_path: Path, contents: dict[str, bytes], llvm: Callable[[str], str], capfd
) -> None:
    """Members of a thin archive are read from their files."""
    members = tmp_path / "members"
    members.mkdir()
    data = bundle(tmp_path, {HOST: b"", GPU + "gfx906": contents["device"]})
    (members / "m.o").write_bytes(data)
    command = [llvm("llvm-ar"), "rcT", "hda.a", "members/m.o"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert differs(llvm, capfd, tmp_path / "hda.a", [GPU + "gfx906"], []) == ""


@pytest.mark.llvm
def test_conflicting_members(tmp_path: Path, llvm: Callable[[str], str], capfd) -> None:
    """-check-input-archive names the conflicting entries, member and archive, as LLVM does."""
    good = bundle(tmp_path, {GPU + "gfx906": b"x"})
    made = bundle(tmp_path, {GPU + "gfx908:xnack+": b"x", GPU + "gfx908:xnack-": b"y"})
    bad = made.replace(b"xnack-", b"srame-")  # not a set that can be bundled
    hda = archive_of(tmp_path / "hda.a", {"good.o": good, "bad.o": bad})
    assert differs(llvm, capfd, hda, [GPU + "gfx906"], ["-check-input-archive"]) == ""
    outputs = {BundleEntryID.parse(GPU + "gfx906"): tmp_path / "out.a"}
    with pytest.raises(FormatError, match=r"conflicting TargetIDs \[.*\] found in bad.o of .*hda"):
        unbundle_archive(hda, outputs, check=True)


def test_several_entries_for_one_target(tmp_path: Path) -> None:
    """All compatible entries of a member go into a target's archive, in the file's order."""
    kinds = ["hip", "hipv4"]
    data = bundle(tmp_path, {f"{k}{GPU[3:]}gfx906": k.encode() for k in kinds})
    hda = archive_of(tmp_path / "hda.a", {"m.o": data})
    wanted = BundleEntryID.parse(GPU + "gfx906:xnack+")
    unbundle_archive(hda, {wanted: tmp_path / "out.a"})
    assert names(tmp_path / "out.a") == [f"m-{k}{GPU[3:]}gfx906m.bc" for k in kinds]


def test_missing_target_leaves_no_output(tmp_path: Path) -> None:
    """A target without code objects is an error, and no target's archive is written."""
    data = bundle(tmp_path, {GPU + "gfx906": b"x"})
    hda = archive_of(tmp_path / "hda.a", {"m.o": data})
    outputs = {BundleEntryID.parse(GPU + t): tmp_path / t for t in ("gfx906", "gfx942")}
    with pytest.raises(MissingCodeObjectError, match="gfx942"):
        unbundle_archive(hda, outputs)
    assert not any(path.exists() for path in outputs.values())


def test_corrupt_member(tmp_path: Path) -> None:
    """A broken member is an error that names archive, member and offset; LLVM walks on."""
    data = bundle(tmp_path, {GPU + "gfx906": b"x" * 100})
    hda = archive_of(tmp_path / "hda.a", {"good.o": data, "cut.o": data[:-10]})
    outputs = {BundleEntryID.parse(GPU + "gfx906"): tmp_path / "out.a"}
    with pytest.raises(FormatError, match=r"hda\.a\(cut\.o\)', offset 0x20, entry 1"):
        unbundle_archive(hda, outputs)
    broken = bytearray(hda.read_bytes())
    broken[broken.index(b"cut.o") + 58] = 0
    hda.write_bytes(broken)
    with pytest.raises(FormatError, match="terminator"):
        unbundle_archive(hda, outputs)
    assert not (tmp_path / "out.a").exists()


def test_hostile_names(tmp_path: Path) -> None:
    """A member's folder does not become part of a name; an ID that would is refused."""
    data = bundle(tmp_path, {GPU + "gfx906": b"x"})
    hda = archive_of(tmp_path / "hda.a", {"../../evil.o": data})
    outputs = {BundleEntryID.parse(GPU + "gfx906"): tmp_path / "out.a"}
    unbundle_archive(hda, outputs)
    assert names(tmp_path / "out.a") == [f"evil-{GPU}gfx906evil.bc"]
