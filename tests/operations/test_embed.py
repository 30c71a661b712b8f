"""Embedding: bundles that host files refer to, and the parts of separate device code."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from offload_tool import EmbedOptions, embed_bundle
from offload_tool.errors import CodeObjectError, OffloadError, UnsupportedError, UsageError
from offload_tool.formats.bitcode.llvmlite import compile_object
from offload_tool.formats.cuda.object_section import PLACEHOLDER
from offload_tool.formats.hip_fatbin import EMBEDDED, KPACKED
from offload_tool.formats.kpack.archive import SCHEMES, read_kpack, unpacked_kpack_image
from offload_tool.formats.kpack.marker import KpackMarker
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.archive import create_archive
from offload_tool.operations.embed import (
    embed_cuda_fatbin,
    interface_of,
    mark_host_file,
    pack_code_objects,
    read_host_files,
    write_cuda_fatbin,
)
from tests.conftest import Tool, program, run_tool
from tests.formats.kernel_info.code_objects import KERNEL, code_object, metadata
from tests.formats.marked_programs import marked_program
from tests.formats.object_files import make_elf
from tests.operations.archives import archive

TRIPLE = "x86_64-unknown-linux-gnu"


def referring(name: str) -> str:
    """Return the module of a host object that refers to a bundle."""
    return (
        f'target triple = "{TRIPLE}"\n'
        f"@__hip_fatbin_{name} = external global i8\n@p = global ptr @__hip_fatbin_{name}\n"
    )


@pytest.mark.llvm
def test_references(tmp_path: Path, llvm: Tool) -> None:
    """Objects, bitcode, and archives of both refer to bundles; other files to none."""
    one, two, other = tmp_path / "one.o", tmp_path / "two.bc", tmp_path / "other"
    one.write_bytes(compile_object(referring("aaaa"), TRIPLE))
    (tmp_path / "two.ll").write_text(referring("bbbb"))
    run_tool(llvm("clang"), "-c", "-emit-llvm", tmp_path / "two.ll", "-o", two)
    other.write_text("no object")
    assert sorted(read_host_files([one]).hashes) == ["aaaa"]
    assert sorted(read_host_files([two, other]).hashes) == ["bbbb"]
    library = archive(tmp_path / "lib.a", two, other, one)
    assert sorted(read_host_files([library, one]).hashes) == ["aaaa", "bbbb"]
    code = read_host_files([library])
    assert code.hashes == {"aaaa", "bbbb"}
    assert not code.has_entries
    entry = '@".offloading.entry.x" = weak global i8 0\n'
    (tmp_path / "two.ll").write_text(referring("bbbb") + entry)
    run_tool(llvm("clang"), "-c", "-emit-llvm", tmp_path / "two.ll", "-o", two)
    assert read_host_files([two]).has_entries


def test_no_references(tmp_path: Path) -> None:
    """If no host object refers to a bundle, the output has none; other files are rejected."""
    host, bundle, out = (tmp_path / name for name in ("host.o", "bundle", "out.o"))
    host.write_bytes(make_elf())
    bundle.write_bytes(b"bundle")
    for registers in (False, True):
        options = EmbedOptions(registers_entries=registers)
        embed_bundle(bundle, out, host_files=[host], host_triple=TRIPLE, options=options)
        tables = read_elf_tables(memoryview(out.read_bytes()))
        assert b".hip_fatbin" not in tables.names
        assert not [symbol for symbol in tables.named_symbols() if symbol.name]
    with pytest.raises(UsageError, match=r"no host object to embed a bundle for .*bundle'"):
        read_host_files([bundle])
    with pytest.raises(UsageError, match=r"a bundle for \(looked in no file\)"):
        read_host_files([])


def test_entries_that_nobody_registers(tmp_path: Path) -> None:
    """Entries of the new driver are rejected, unless an object that registers them is linked."""
    (tmp_path / "bundle").write_bytes(b"bundle")
    entry = struct.pack("<8xHH44x", 1, 4)  # version 1, for HIP
    (tmp_path / "new.o").write_bytes(make_elf("64le", {b"llvm_offload_entries": entry}))
    files = [tmp_path / "new.o"]
    assert read_host_files(files).has_entries
    with pytest.raises(UsageError, match="have entries of the new offload driver"):
        embed_bundle(tmp_path / "bundle", tmp_path / "out.o", host_files=files, host_triple=TRIPLE)
    assert not (tmp_path / "out.o").exists()
    embed_bundle(
        tmp_path / "bundle",
        tmp_path / "out.o",
        host_files=files,
        host_triple=TRIPLE,
        options=EmbedOptions(registers_entries=True),
    )
    assert b"bundle" in (tmp_path / "out.o").read_bytes()


def test_cuda_without_a_place(tmp_path: Path) -> None:
    """A CUDA host object without a placeholder is copied, and rejected if it has kernels."""
    host, fatbin, out = (tmp_path / name for name in ("host.o", "fatbin", "out.o"))
    kernel = f'target triple = "{TRIPLE}"\n@_Z1__device_stub__kv = global i8 0\n'
    host.write_bytes(compile_object(kernel, TRIPLE))
    fatbin.write_bytes(b"images")
    with pytest.raises(CodeObjectError, match="found none: it was not compiled with the place"):
        embed_cuda_fatbin(host, fatbin, out)
    assert not out.exists()
    host.write_bytes(make_elf())
    embed_cuda_fatbin(host, fatbin, out)
    assert out.read_bytes() == host.read_bytes()
    host.write_bytes(make_elf("64le", {b".nv_fatbin": PLACEHOLDER}))
    embed_cuda_fatbin(host, fatbin, out)
    assert bytes(read_elf_tables(memoryview(out.read_bytes())).content(5)) == b"images"


def test_no_cuda_images(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs at least one image"):
        write_cuda_fatbin([], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- kpack archives ----------------------------------------------------------------------

MARKER = KpackMarker("lib/a.so", ("../.kpack/demo_@GFXARCH@.kpack",))
MARKED = marked_program((MARKER, 0), (MARKER, 1))
UNMARKED = MARKED.replace(KPACKED, EMBEDDED)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_archive_of_code_objects(tmp_path: Path, scheme: str) -> None:
    """An archive has each file under its key, in any order of files."""
    contents = {"b#0": b"two" * 99, "a#0": b"one" * 99, "c#0": b"one" * 99}
    files = [(key, tmp_path / key) for key in contents]
    for key, path in files:
        path.write_bytes(contents[key])
    out, other = tmp_path / "out.kpack", tmp_path / "other.kpack"
    for path, rows in ((out, files), (other, files[::-1])):
        pack_code_objects(rows, path, group="demo", target_id="gfx942", scheme=scheme)
    assert out.read_bytes() == other.read_bytes()
    data = memoryview(out.read_bytes())
    found = read_kpack(data)
    assert {
        image.key: bytes(unpacked_kpack_image(data, image)) for image in found.images
    } == contents
    assert len({image.offset for image in found.images}) == 2  # equal files are stored once


def test_wrappers_are_for_markers(tmp_path: Path) -> None:
    """Each wrapper's magic changes, in objects and in archives, and no other byte does."""
    host = tmp_path / "host.o"
    host.write_bytes(UNMARKED)
    mark_host_file(host, tmp_path / "out.o")
    assert (tmp_path / "out.o").read_bytes() == MARKED
    (tmp_path / "plain.o").write_bytes(marked_program())
    create_archive([(n, tmp_path / n) for n in ("host.o", "plain.o")], tmp_path / "host.a")
    mark_host_file(tmp_path / "host.a", tmp_path / "out.a")
    whole = (tmp_path / "host.a").read_bytes()
    assert UNMARKED in whole
    assert (tmp_path / "out.a").read_bytes() == whole.replace(UNMARKED, MARKED)


def test_files_whose_wrappers_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / "host.bc").write_bytes(b"BC\xc0\xde" + bytes(60))
    (tmp_path / "host.o").write_bytes(UNMARKED)
    run_tool(program("ar"), "rcT", "host.a", "host.o", cwd=tmp_path)
    for name, message in (("host.bc", "found bitcode"), ("host.a", "thin archive")):
        with pytest.raises(UnsupportedError, match=message):
            mark_host_file(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def kernels(path: Path, **arguments: list[dict[str, object]]) -> Path:
    """Write a code object with kernels that take these arguments."""
    rows = [{**KERNEL, ".name": name, ".args": args} for name, args in arguments.items()]
    path.write_bytes(code_object(metadata(rows, printf=["a"])))
    return path


def argument(size: int, kind: str = "by_value", offset: int = 0) -> dict[str, object]:
    return {".name": "any", ".offset": offset, ".size": size, ".value_kind": kind}


def test_interface(tmp_path: Path) -> None:
    """The digest covers names and arguments, but not order or additions by the compiler."""
    hidden = argument(8, "hidden_block_count_x", 8)
    one = kernels(tmp_path / "one", a=[argument(4)], b=[argument(8), hidden])
    two = kernels(tmp_path / "two", b=[argument(8)], a=[argument(4)])
    digest = interface_of([one])
    assert interface_of([one, two]) == interface_of([two]) == digest
    others = [
        kernels(tmp_path / "3", a=[argument(8)], b=[argument(8)]),
        kernels(tmp_path / "4", a=[argument(4, "global_buffer")], b=[argument(8)]),
        kernels(tmp_path / "5", a=[argument(4)]),
        kernels(tmp_path / "6", a=[argument(4, offset=4)], b=[argument(8)]),
    ]
    assert len({interface_of([other]) for other in others} | {digest}) == 5
    for other, name in zip(others, "aaba", strict=True):
        with pytest.raises(CodeObjectError, match=f"the kernel '{name}' has not the same"):
            interface_of([one, other])


def test_interface_of_broken_code(tmp_path: Path) -> None:
    path = tmp_path / "code"
    path.write_bytes(code_object(metadata([KERNEL])[:-3]))
    with pytest.raises(OffloadError, match="metadata"):
        interface_of([path])
