"""Embedding in-process: the bundles that host files refer to, and rejected inputs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from offload_tool import EmbedOptions, embed_bundle
from offload_tool.errors import CodeObjectError, UsageError
from offload_tool.formats.bitcode.llvmlite import compile_object
from offload_tool.formats.cuda.object_section import PLACEHOLDER
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.embed import embed_cuda_fatbin, read_host_files, write_cuda_fatbin
from tests.conftest import Tool, run_tool
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


@pytest.mark.llvm
def test_entries_in_bitcode(tmp_path: Path, llvm: Tool) -> None:
    for name in (".offloading.entry.x", "x"):
        (tmp_path / "x.ll").write_text(
            f'target triple = "{TRIPLE}"\n@"{name}" = weak global i8 0\n'
        )
        run_tool(llvm("clang"), "-c", "-emit-llvm", tmp_path / "x.ll", "-o", tmp_path / "x.bc")
        assert read_host_files([tmp_path / "x.bc"]).has_entries == name.startswith(".")


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
