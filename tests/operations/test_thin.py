"""Thinned files: fewer images, all else unchanged, and programs that still run."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from offload_tool import Compression, embed_bundle, list_images
from offload_tool.errors import FormatError, LimitError, UnsupportedError, UsageError
from offload_tool.formats.hip_fatbin import fatbin_symbol
from offload_tool.formats.objects.elf.reader import ElfTables, read_elf_tables
from offload_tool.operations.match import Device, NoImageError
from offload_tool.operations.merge import merge_files
from offload_tool.operations.thin import thin_file
from tests.conftest import Tool, run_tool, try_tool
from tests.formats.compressed import compressed
from tests.formats.object_files import make_code_object, make_coff, make_elf
from tests.operations.archives import archive, archive_of, members_of, thin_archive
from tests.operations.fatbins import (
    HOST,
    RUNTIME,
    code,
    load,
    make_bundle,
    make_package,
    run,
    started,
    zip_of,
)
from tests.operations.split_programs import LINKS, build_objects, link

TARGETS = ["gfx906", "gfx90a:xnack+", "gfx90a:xnack-", "gfx1030"]
IMAGES = {HOST: b"", **{target: code(target, 9000 + len(target)) for target in TARGETS}}
KEPT = {HOST: b"", "gfx90a:xnack+": IMAGES["gfx90a:xnack+"]}
KEEP = [Device.parse("gfx90a:sramecc+:xnack+")]


def thin(path: Path, *devices: str) -> Path:
    out = path.with_name(f"thin-{path.name}")
    thin_file(path, out, keep=[Device.parse(text) for text in devices] or KEEP)
    return out


def embedded(path: Path, bundle: Path, cuid: str = "x") -> Path:
    embed_bundle(bundle, path, cuid=cuid, host_triple="x86_64-linux-gnu")
    return path


TEXTS: list[dict[str, Any]] = [{"file_type": file_type} for file_type in ("ii", "s", "ll")]
FORMS: list[dict[str, Any]] = [
    *({"alignment": alignment} for alignment in (1, 8, 4096, 16384)),
    *TEXTS,
    {"file_type": "o"},
    *(
        {"file_type": file_type, "compression": Compression(method, version=version)}
        for file_type in ("bc", "s")
        for version in (2, 3)
        for method in ("zstd", "zlib")
    ),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_bundle(tmp_path: Path, form: dict[str, Any]) -> None:
    """A thinned bundle of any form equals a bundle of the kept images; it may be thinned in place.

    Compressed bundles stay compressed: by the same method, in the same version. Text around a
    bundle stays.
    """
    whole, expected = (
        make_bundle(tmp_path / "b", {**images, HOST: make_elf()}, **form).read_bytes()
        for images in (IMAGES, KEPT)
    )
    path = tmp_path / "b"
    path.write_bytes(whole)
    report = thin_file(path, path, keep=KEEP)
    assert path.read_bytes() == expected
    assert (report.kept, report.removed) == (1, 3)
    assert (report.size_before, report.size_after) == (len(whole), len(expected))
    if form in TEXTS:
        path.write_bytes(b"before" + whole + b"after")
        assert thin(path).read_bytes() == b"before" + expected + b"after"


def test_several_bundles(tmp_path: Path) -> None:
    plain = make_bundle(tmp_path / "p", IMAGES).read_bytes()
    packed = make_bundle(tmp_path / "c", IMAGES, compression=Compression()).read_bytes()
    path = tmp_path / "all"
    path.write_bytes(
        packed + bytes(-len(packed) % 4096) + plain + bytes(-len(plain) % 4096) + plain
    )
    images = list_images(thin(path))
    assert [i.target_id for i in images] == ["", "gfx90a:xnack+"] * 3
    assert [i.container for i in images[::2]] == ["compressed-bundle", "bundle", "bundle"]
    assert {(i.container_offset or 0) % 4096 for i in images} == {0}


@pytest.mark.parametrize("is_object", [False, True])
def test_nothing_to_remove(tmp_path: Path, *, is_object: bool) -> None:
    path = make_bundle(tmp_path / "b", KEPT)
    path = embedded(tmp_path / "x.o", path) if is_object else path
    path.chmod(0o751)
    out = thin(path)
    assert out.read_bytes() == path.read_bytes()
    assert out.stat().st_mode & 0o777 == 0o751
    report = thin_file(path, tmp_path / "again", keep=KEEP)
    assert report.size_before == report.size_after == path.stat().st_size


def test_no_entries_left(tmp_path: Path) -> None:
    """One of several bundles may lose all entries: it stays a bundle."""
    first = make_bundle(tmp_path / "1", {"gfx906": b"1"}).read_bytes()
    path = tmp_path / "two"
    path.write_bytes(first + make_bundle(tmp_path / "2", {"gfx1030": b"2"}).read_bytes())
    out = thin(path, "gfx1030")
    assert out.read_bytes()[:32] == b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8)
    assert [(i.index, i.target_id) for i in list_images(out)] == [(1, "gfx1030")]


def test_archive(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle.o", {**IMAGES, HOST: make_elf()}, file_type="o")
    packed = make_bundle(tmp_path / "packed.bc", IMAGES, compression=Compression())
    inner = archive(tmp_path / "inner.a", packed)
    members = {"bundle.o": bundle.read_bytes(), "plain.o": make_elf(), "readme": b"odd"}
    members |= {"packed.bc": packed.read_bytes(), "inner.a": inner.read_bytes()}
    out = thin(archive_of(tmp_path / "lib.a", members))
    assert [(i.member, i.target_id) for i in list_images(out)] == [
        (member, target)
        for member in ("bundle.o", "packed.bc", "inner.a(packed.bc)")
        for target in ("", "gfx90a:xnack+")
    ]
    stored = dict(members_of(out))
    assert list(stored) == list(members)
    assert (stored["plain.o"], stored["readme"]) == (make_elf(), b"odd")


def test_archives_too_deep(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "m", {HOST: b"", "gfx906": b"a"})
    for _ in range(300):
        path = archive(tmp_path / "x.a", path)
    with pytest.raises(LimitError, match="expected at most 8 nested files"):
        thin_file(path, tmp_path / "out", keep=[Device.parse("gfx906")])
    with pytest.raises(LimitError, match="expected at most 8 nested files"):
        merge_files([path, path], tmp_path / "out")


@pytest.mark.llvm
def test_offload_binaries(tmp_path: Path, llvm: Tool) -> None:
    images = [(target, IMAGES[target]) for target in TARGETS]
    kept = [images[0], images[-1]]
    package, expected = (
        make_package(tmp_path / name, rows, "openmp")
        for name, rows in (("package", images), ("expected", kept))
    )
    assert thin(package, "gfx1030", "gfx906").read_bytes() == expected.read_bytes()
    (tmp_path / "host.c").write_text("int host;\n")
    for path in (package, expected):
        embed = ["-Xclang", f"-fembed-offload-object={path}", tmp_path / "host.c"]
        run_tool(llvm("clang"), "-c", *embed, "-o", path.with_suffix(".o"))
    thinned = thin(package.with_suffix(".o"), "gfx1030", "gfx906")
    assert [(i.target_id, i.size) for i in list_images(thinned)] == [(t, len(c)) for t, c in kept]
    assert thinned.stat().st_size == expected.with_suffix(".o").stat().st_size
    run_tool(llvm("llvm-offload-binary"), thinned, f"--image=arch=gfx1030,file={tmp_path / 'x'}")
    assert (tmp_path / "x").read_bytes() == IMAGES["gfx1030"]


def test_refused(tmp_path: Path) -> None:
    """What cannot be thinned is named, and no output appears."""
    bundle = make_bundle(tmp_path / "b", IMAGES)
    whole, all_kept = bundle.read_bytes(), ["gfx90a:sramecc+:xnack+"]
    (tmp_path / "text").write_text("hello")
    (tmp_path / "v1").write_bytes(compressed(whole, 1))
    (tmp_path / "member").write_bytes(whole[:-1])
    (tmp_path / "more").write_bytes(whole + bytes(100) + b"who needs this?")
    more = embedded(tmp_path / "more.o", tmp_path / "more")
    broken = archive(tmp_path / "lib.a", tmp_path / "member")
    for path, devices, error, message in (
        (zip_of(tmp_path / "x.zip", {"b": bundle}), all_kept, UsageError, "a zip file, but no whe"),
        (thin_archive(tmp_path / "thin.a", ["b"]), all_kept, UsageError, "is a thin archive"),
        (bundle, [], UsageError, "no devices to keep"),
        (bundle, ["gfx1100"], NoImageError, "no image for gfx1100; images found: hipv4"),
        (bundle, ["gfx906", "gfx942"], NoImageError, "no image for gfx942; images found: hipv4"),
        (tmp_path / "text", all_kept, NoImageError, "images found: none"),
        (tmp_path / "v1", all_kept, UnsupportedError, "version 1 can be read, but not written"),
        (more, all_kept, UnsupportedError, "expected bundles and zeros in section 1"),
        (broken, all_kept, FormatError, r"lib\.a\(member\)"),
    ):
        with pytest.raises(error, match=message):
            thin_file(path, tmp_path / "out", keep=[Device.parse(name) for name in devices])
    assert not (tmp_path / "out").exists()


def test_embedding_coff_file(tmp_path: Path) -> None:
    """A PE file is refused by name; in a folder, it is copied unchanged."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.dll"
    whole = make_bundle(tmp_path / "b", IMAGES).read_bytes()
    path.write_bytes(make_coff({b".hip_fat": whole}))
    with pytest.raises(UnsupportedError, match=r"a\.dll.*only ELF files are changed"):
        thin_file(path, tmp_path / "out", keep=KEEP)
    thin_file(tmp_path / "in", tmp_path / "out", keep=KEEP)
    assert (tmp_path / "out" / "a.dll").read_bytes() == path.read_bytes()


def test_linked_offload_binaries(tmp_path: Path) -> None:
    """A linked program's offload binaries stay: with a report in a folder, else with an error."""
    make_package(tmp_path / "package", [(n, code(n)) for n in ("gfx906", "gfx942")], "openmp")
    data = bytearray(make_elf(extra={b".llvm.offloading": (tmp_path / "package").read_bytes()}))
    data[16] = 2  # ET_EXEC
    path = tmp_path / "in/program"
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(UnsupportedError, match="link it again for fewer targets"):
        thin(path, "gfx906")
    report = thin_file(path.parent, tmp_path / "out", keep=[Device.parse("gfx906")])
    assert report.untouched == ((f"{path}, .llvm.offloading", 2),)
    assert (tmp_path / "out/program").read_bytes() == data


def test_code_for_each_setting(tmp_path: Path) -> None:
    """A folder keeps the code for each setting of a feature that the ID leaves open."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    targets = ["gfx90a", "gfx90a:xnack+", "gfx90a:xnack-"]
    for target in (*targets, "gfx942"):
        make_bundle(folder / target, {target: b"1"})
    report = thin_file(folder, out, keep=[Device.parse("gfx90a")])
    assert (report.kept, report.removed) == (3, 1)
    assert [image.target_id for image in list_images(out)] == targets
    (folder / "gfx90a").unlink()
    assert thin_file(folder, out, keep=[Device.parse("gfx90a")]).kept == 2
    (folder / "gfx90a:xnack-").unlink()
    with pytest.raises(NoImageError, match=r"no image for gfx90a:sramecc\+:xnack-, gfx"):
        thin_file(folder, out, keep=[Device.parse("gfx90a")])


@pytest.mark.parametrize("in_place", [True, False], ids=["in-place", "copy"])
def test_code_objects(tmp_path: Path, *, in_place: bool) -> None:
    """Code objects that no device to keep loads are removed from folders, wheels and archives."""
    folder = tmp_path / "in"
    folder.mkdir()
    codes = {f"{name}.co": make_code_object(name) for name in ("gfx906", "gfx942")}
    for name, content in codes.items():
        (folder / name).write_bytes(content)
    archive_of(folder / "lib.a", {"gfx906.co": codes["gfx906.co"], "text": b"stays"})
    wheel = zip_of(folder / "a-1-py3-none-any.whl", codes)
    out = folder if in_place else tmp_path / "out"
    report = thin_file(folder, out, keep=[Device.parse("gfx942")])
    assert (report.kept, len(report.left_out)) == (2, 3)
    assert {path.name for path in out.iterdir()} == {wheel.name, "gfx942.co", "lib.a"}
    assert members_of(out / "lib.a") == [("text", b"stays")]
    with zipfile.ZipFile(out / wheel.name) as made:
        assert made.namelist() == ["gfx942.co"]
    assert thin(out / "gfx942.co", "gfx942").read_bytes() == codes["gfx942.co"]


@pytest.mark.llvm
def test_bitcode(tmp_path: Path, llvm: Tool) -> None:
    package = make_package(tmp_path / "package", [("gfx906", b"code"), ("gfx1030", b"code")])
    (tmp_path / "host.c").write_text("int x;")
    command = [llvm("clang"), "-c", "-emit-llvm", "-Xclang", f"-fembed-offload-object={package}"]
    run_tool(*command, tmp_path / "host.c", "-o", tmp_path / "host.bc")
    with pytest.raises(UnsupportedError, match="images cannot be taken out of bitcode"):
        thin_file(tmp_path / "host.bc", tmp_path / "out", keep=[Device.parse("gfx906")])
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, llvm: Tool) -> Path:
    """Return a folder with objects of three HIP sources for four targets, and a runtime."""
    folder = tmp_path_factory.mktemp("build")
    return build_objects(folder, llvm("clang"), dict.fromkeys((1, 2, 3), TARGETS), RUNTIME)


def only(lines: list[str], targets: list[str]) -> list[str]:
    """Return the result of `registered` without the entries of other targets."""
    kept = []
    for line in lines:
        entries = [entry for entry in line.split(";") if entry]
        kept.append(
            [e for e in entries if "host-" in e or e.split()[0].rpartition("--")[2] in targets]
        )
    return ["".join(f"{entry};" for entry in entries) for entries in kept]


@pytest.mark.llvm
@pytest.mark.parametrize("name", LINKS)
def test_linked(name: str, build: Path, llvm: Tool, tmp_path: Path) -> None:
    """Programs and libraries become smaller, run, and find the kept images in memory.

    Thinning a thinned file works as well, and so does stripping it; LLVM lists what remains.
    """
    path = link(build, llvm("clang"), tmp_path / name, name)
    before = started(path)
    assert len(before) == 3
    assert all(len(line.split(";")) == 6 for line in before)
    two = tmp_path / f"{name}-two"
    one = tmp_path / f"{name}-one"
    report = thin_file(path, two, keep=[Device.parse("gfx90a:xnack+"), Device.parse("gfx1030")])
    assert (report.kept, report.removed) == (6, 6)
    assert started(two) == only(before, ["gfx90a:xnack+", "gfx1030"])
    thin_file(two, one, keep=[Device.parse("gfx90a:xnack+")])
    assert started(one) == only(before, ["gfx90a:xnack+"])
    assert path.stat().st_size - two.stat().st_size >= 3 * 4096
    assert one.stat().st_size <= two.stat().st_size
    listed = run_tool(llvm("llvm-objdump"), "--offloading", one.name, cwd=tmp_path)
    found = [line.partition("hipv4-")[2] for line in listed.splitlines() if "hipv4-" in line]
    assert found == ["amdgcn-amd-amdhsa--gfx90a:xnack+"] * 3
    shown = try_tool(llvm("llvm-readelf"), "-a", "-W", one)
    assert (shown.returncode, shown.stderr) == (0, "")
    if name == "library-lld":
        for stripper in ("llvm-objcopy", "llvm-strip"):
            run_tool(llvm(stripper), one)
            assert started(one) == only(before, ["gfx90a:xnack+"])


@pytest.mark.llvm
@pytest.mark.parametrize("name", ["library-lld", "library-bfd", "program-lld"])
def test_compressed_in_a_program(name: str, build: Path, llvm: Tool, tmp_path: Path) -> None:
    path = link(build, llvm("clang"), tmp_path / name, name, "z")
    out = tmp_path / f"{name}-thin"
    thin_file(path, out, keep=[Device.parse("gfx90a:xnack+")])
    images = list_images(out)
    assert [i.target_id for i in images] == ["", "gfx90a:xnack+"] * 3
    data = out.read_bytes()
    lines = []
    for image in images[::2]:
        assert image.container == "compressed-bundle"
        start = image.container_offset or 0
        content = data[start : start + image.container_size]
        lines.append(f"CCOB {len(content)} {sum(content)}")
    assert started(out) == lines


@pytest.mark.llvm
def test_symbols(build: Path, llvm: Tool, tmp_path: Path) -> None:
    path = link(build, llvm("clang"), tmp_path / "library", "library-lld")
    out = thin(path, "gfx906")

    def symbols(file: Path) -> list[str]:
        return run_tool(llvm("llvm-nm"), "--numeric-sort", file).split("\n")

    assert symbols(out) == symbols(path)
    old, new = (read_elf_tables(memoryview(file.read_bytes())) for file in (path, out))
    for number, name in enumerate(old.names):
        assert new.names[number] == name
        assert new.sections[number].sh_addr == old.sections[number].sh_addr
        if name != b".hip_fatbin" and old.sections[number].sh_flags & 2:
            assert bytes(new.content(number)) == bytes(old.content(number)), name
    assert set(new.names[len(old.names) :]) == {b".hip_fatbin"}


@pytest.mark.llvm
@pytest.mark.parametrize("prefix", ["k", "z"])
def test_objects(prefix: str, build: Path, llvm: Tool, tmp_path: Path) -> None:
    objects = [build / f"{prefix}{number}.o" for number in (1, 2, 3)]
    clang = llvm("clang")
    thinned = []
    for path in objects:
        thinned.append(tmp_path / path.name)
        thin_file(path, thinned[-1], keep=[Device.parse("gfx906")])
        assert thinned[-1].stat().st_size < path.stat().st_size
    expected = started(link(build, clang, tmp_path / "program-1", "program-lld", objects=thinned))
    assert len(expected) == 3
    if prefix == "k":
        whole = link(build, clang, tmp_path / "program-0", "program-lld")
        assert expected == only(started(whole), ["gfx906"])
    merged, lib = tmp_path / "merged.o", tmp_path / "lib.a"
    run_tool(llvm("ld.lld"), "-r", *objects, "-o", merged)
    run_tool(llvm("llvm-ar"), "rcs", lib, *objects)
    for path in (merged, lib):
        out = tmp_path / f"program-{path.name}"
        link(build, clang, out, "program-bfd", objects=[thin(path, "gfx906")])
        assert started(out) == expected


_MACHINES = {
    "i386-linux-gnu": 4096,
    "x86_64-linux-gnu": 4096,
    "riscv64-linux-gnu": 4096,
    "s390x-linux-gnu": 4096,
    "aarch64-linux-gnu": 65536,
    "powerpc64le-linux-gnu": 65536,
}
"""Triples, and each machine's largest page size."""


def memory(path: Path) -> tuple[bytes, bytes]:
    """Load a file like a loader; return its memory, and a 1 for each byte that is loaded."""
    tables = read_elf_tables(memoryview(path.read_bytes()))
    segments = [segment for segment in tables.segments if segment.p_type == 1]
    size = max(segment.p_vaddr + segment.p_memsz for segment in segments)
    content, loaded = bytearray(size), bytearray(size)
    for segment in segments:
        assert (segment.p_vaddr - segment.p_offset) % segment.p_align == 0
        start, end = segment.p_offset, segment.p_offset + segment.p_filesz
        there = slice(segment.p_vaddr, segment.p_vaddr + segment.p_filesz)
        content[there] = tables.data[start:end]
        loaded[segment.p_vaddr : segment.p_vaddr + segment.p_memsz] = b"\1" * segment.p_memsz
    return bytes(content), bytes(loaded)


@pytest.mark.llvm
@pytest.mark.parametrize("triple", _MACHINES)
def test_other_machines(triple: str, llvm: Tool, tmp_path: Path) -> None:
    """On every machine, kept content keeps its address, and whole pages are removed."""
    page = _MACHINES[triple]
    images = {HOST: b"", "gfx906": code("keep", 5000), "gfx90a": code("go", 4 * page)}
    kept = make_bundle(tmp_path / "kept", {HOST: b"", "gfx906": images["gfx906"]}).read_bytes()
    bundle = make_bundle(tmp_path / "bundle", images).read_bytes()
    (tmp_path / "x.s").write_text(
        '.section .hip_fatbin,"a",@progbits\n.p2align 12\nfirst: .incbin "bundle"\n'
        '.p2align 12\n.size first, .-first\nsecond: .incbin "bundle"\n'
        '.section .rodata,"a",@progbits\n.ascii "before"\n'
        '.section .zdata,"a",@progbits\n.ascii "after"\n'
        '.data\n.globl pointers\npointers: .ascii "data"\n.bss\n.space 100\n'
    )
    command = [llvm("clang"), f"--target={triple}", "-shared", "-nostdlib", "-fuse-ld=lld", "x.s"]
    run_tool(*command, "-o", "library", cwd=tmp_path)
    path = tmp_path / "library"
    out = thin(path, "gfx906")
    old, new = (read_elf_tables(memoryview(file.read_bytes())) for file in (path, out))
    number = old.names.index(b".hip_fatbin")
    section = old.sections[number]
    expected, was_loaded = memory(path)
    content, is_loaded = memory(out)
    assert len(content) == len(expected)
    end = section.sh_addr + section.sh_size
    for part in (slice(headers(old), section.sh_addr), slice(end, None)):
        assert content[part] == expected[part]
        assert is_loaded[part] == was_loaded[part]
    for start in (section.sh_addr, section.sh_addr + len(bundle) + -len(bundle) % 4096):
        assert content[start : start + len(kept)] == kept
        assert is_loaded[start : start + len(kept)] == b"\1" * len(kept)
    gone = was_loaded.count(1) - is_loaded.count(1)
    assert gone >= 2 * 2 * page
    assert gone % page == 0
    # One more section header, for the second piece of .hip_fatbin.
    assert path.stat().st_size - out.stat().st_size == gone - new.elf_class.section.size
    assert [i.target_id for i in list_images(out)] == ["", "gfx906"] * 2
    thin_file(out, tmp_path / "again", keep=[Device.parse("gfx906")])
    assert (tmp_path / "again").read_bytes() == out.read_bytes()


def headers(tables: ElfTables) -> int:
    """Return the address where the ELF header and the old program headers end."""
    return tables.header.e_phoff + tables.elf_class.segment.size * len(tables.segments)


@pytest.mark.llvm
def test_library_of_many_small_bundles(tmp_path: Path, llvm: Tool) -> None:
    """If no gap has room for the program header table, it goes to the library's end."""
    count = 400
    images = {HOST: b"", "gfx906": b"x", "gfx90a": code("b", 9000)}
    bundle = make_bundle(tmp_path / "b", images)
    objects = [embedded(tmp_path / f"{at}.o", bundle, f"{at}") for at in range(count)]
    library = tmp_path / "library"
    run_tool(llvm("clang"), "-shared", "-fuse-ld=lld", *objects, "-o", library)
    report = thin_file(library, tmp_path / "thin", keep=[Device.parse("gfx906")])
    assert report.size_before - report.size_after > count * 8192 - 65536
    assert load(tmp_path / "thin") == ["loaded"]
    assert len(list_images(tmp_path / "thin")) == 2 * count
    tables = read_elf_tables(memoryview((tmp_path / "thin").read_bytes()))
    start = tables.header.e_phoff
    table = [start, start + tables.elf_class.segment.size * len(tables.segments)]
    own = max(tables.segments, key=lambda segment: (segment.p_type == 1, segment.p_vaddr))
    assert [own.p_offset, own.p_offset + own.p_filesz] == table  # all of it is loaded
    assert own.p_memsz == own.p_filesz
    thin_file(tmp_path / "thin", tmp_path / "thinner", keep=[Device.parse(HOST)])
    assert load(tmp_path / "thinner") == ["loaded"]


@pytest.mark.llvm
def test_many_bundles(tmp_path: Path, llvm: Tool) -> None:
    clang = llvm("clang")
    count, sources = 120, []
    for number in range(count):
        bundle = make_bundle(
            tmp_path / f"b{number}",
            {HOST: b"", "gfx906": code("a", 5000), "gfx90a": code(f"b{number}", 9000)},
        )
        sources.append(embedded(tmp_path / f"b{number}.o", bundle, f"{number}"))

    names = [fatbin_symbol(f"{number}") for number in range(count)]
    declarations = "".join(f"extern const char {name}[];\n" for name in names)
    rows = ",\n".join(f"{{0x48495046, 1, {name}, 0}}" for name in names)
    (tmp_path / "main.c").write_text(
        f"{declarations}struct w {{ unsigned m, v; const char *b; void *u; }} all[] = {{{rows}}};\n"
        "void **__hipRegisterFatBinary(const struct w *);\n"
        f"int main(void) {{ for (int i = 0; i < {count}; i++) __hipRegisterFatBinary(&all[i]); }}\n"
    )
    (tmp_path / "runtime.c").write_text(RUNTIME)
    path = tmp_path / "program"
    run_tool(clang, "-w", tmp_path / "main.c", tmp_path / "runtime.c", *sources, "-o", path)
    out = tmp_path / "program-thin"
    report = thin_file(path, out, keep=[Device.parse("gfx906")])
    assert run([str(out)]) == only(run([str(path)]), ["gfx906"])
    tables = read_elf_tables(memoryview(out.read_bytes()))
    assert len(tables.segments) <= 73
    assert report.size_after < report.size_before - 50 * 8192


def test_embedded_object(tmp_path: Path) -> None:
    """A thinned object equals an object with the thinned bundle, including the symbol's size."""
    path = embedded(tmp_path / "x.o", make_bundle(tmp_path / "b", IMAGES))
    other = embedded(tmp_path / "e.o", make_bundle(tmp_path / "e", KEPT))
    made, expected = (read_elf_tables(memoryview(f.read_bytes())) for f in (thin(path), other))
    assert made.names == expected.names
    for number in range(1, len(made.names)):
        assert bytes(made.content(number)) == bytes(expected.content(number))
