"""Libraries of relocatable CUDA code, and the registrations in host objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.containers.relocatable import relocatable_kinds
from offload_tool.errors import OffloadError
from offload_tool.formats.host_symbols import CudaHostCode, cuda_host_code, union
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.formats.offload_binary import ImageKind
from offload_tool.operations.embed import write_cuda_fatbin
from offload_tool.operations.package import PackagedImage, package_images
from offload_tool.operations.unarchive_cuda import linked_entries, unbundle_cuda_library
from tests.conftest import Tool, run_tool
from tests.formats.cuda_images import images_of
from tests.formats.object_files import make_cubin
from tests.operations.archives import members_of

Make = Callable[..., Path]
PTX = b".version 8.8\n.target sm_80\n.address_size 64\n"


@pytest.fixture
def assemble(tmp_path: Path, llvm: Tool) -> Make:
    """Return a function that assembles lines to an object, or links them to a library."""

    def make(name: str, *lines: str, shared: bool = False) -> Path:
        made = tmp_path / name
        source = made.with_suffix(".s")
        source.write_text("\n".join([*lines, ""]))
        flags = ["-shared", "-nostdlib"] if shared else ["-c"]
        run_tool(llvm("clang"), "--target=x86_64-linux-gnu", *flags, source, "-o", made)
        return made

    return make


@pytest.fixture
def fatbin(tmp_path: Path) -> Path:
    """Return a fat binary: cubins of two processors, PTX of one."""
    images = []
    contents = {"sm_80": make_cubin(80), "sm_90": make_cubin(90), "compute_90": PTX}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        images.append((name, tmp_path / name))
    write_cuda_fatbin(images, tmp_path / "all.fatbin")
    return tmp_path / "all.fatbin"


@pytest.fixture
def offload_binary(tmp_path: Path, fatbin: Path) -> Path:
    (tmp_path / "sm_86").write_bytes(make_cubin(86))
    images = [
        PackagedImage(
            str(tmp_path / name),
            {"triple": "nvptx64-nvidia-cuda", "arch": name},
            "cuda",
            ImageKind.OBJECT,
        )
        for name in ("sm_80", "sm_86", "sm_90")
    ]
    package_images(images, tmp_path / "images")
    return tmp_path / "images"


def of_nvcc(path: Path) -> str:
    return f'.section __nv_relfatbin,"a"\n.balign 8\n.incbin "{path}"'


def of_clang(path: Path) -> str:
    return f'.section .llvm.offloading,"e",@0x6fff4c0b\n.balign 8\n.incbin "{path}"'


def members(path: Path) -> dict[str, bytes]:
    found = members_of(path)
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.llvm
def test_of_both_compilers(
    tmp_path: Path, assemble: Make, fatbin: Path, offload_binary: Path, llvm: Tool
) -> None:
    """A library's archive for a processor has the entries that a link for it takes."""
    objects = [assemble("a.o", of_nvcc(fatbin)), assemble("b.o", of_clang(offload_binary))]
    objects.append(assemble("host.o", ".text"))
    library = tmp_path / "lib.a"
    run_tool(llvm("llvm-ar"), "rcs", library, *objects)
    assert relocatable_kinds(library) == {"cuda"}
    for processor, kept, number in (("sm_86", "sm_80", 86), ("sm_90", "sm_90", 90)):
        unbundle_cuda_library(library, tmp_path / "out.a", processor)
        found = members(tmp_path / "out.a")
        assert list(found) == ["a.o.fatbin", "b.o.cubin"]
        images = images_of(found["a.o.fatbin"])
        assert [image.processor for image in images] == [kept]
        assert found["b.o.cubin"] == make_cubin(number)
    # For a later processor, only the PTX fits, and none of clang's code.
    unbundle_cuda_library(library, tmp_path / "out.a", "sm_120")
    assert list(members(tmp_path / "out.a")) == ["a.o.fatbin"]


@pytest.mark.llvm
def test_nothing_that_fits(tmp_path: Path, assemble: Make, offload_binary: Path) -> None:
    """A library without code for a processor is rejected, unless allowed; so is one object."""
    made = assemble("b.o", of_clang(offload_binary))
    with pytest.raises(OffloadError, match="no member has relocatable CUDA code for sm_75"):
        unbundle_cuda_library(made, tmp_path / "out.a", "sm_75")
    assert not (tmp_path / "out.a").exists()
    unbundle_cuda_library(made, tmp_path / "out.a", "sm_75", allow_missing=True)
    assert members(tmp_path / "out.a") == {}
    before = (tmp_path / "out.a").stat().st_mtime_ns
    unbundle_cuda_library(made, tmp_path / "out.a", "sm_75", allow_missing=True)
    assert (tmp_path / "out.a").stat().st_mtime_ns == before


@pytest.mark.llvm
def test_what_is_linked_is_not_relocatable(tmp_path: Path, assemble: Make, fatbin: Path) -> None:
    """A shared library of nvcc keeps such a section, but its code is not linked again."""
    assert relocatable_kinds(assemble("a.o", of_nvcc(fatbin)))
    assert not relocatable_kinds(assemble("a.so", of_nvcc(fatbin), shared=True))
    (tmp_path / "text").write_text("no object\n")
    assert relocatable_kinds(tmp_path / "text") == frozenset()


@pytest.mark.parametrize(
    ("names", "processor", "taken"),
    [
        (["sm_80", "compute_86"], "sm_86", ["compute_86"]),
        (["compute_80", "sm_80"], "sm_89", ["sm_80"]),
        (["sm_90", "sm_90a"], "sm_90a", ["sm_90a"]),
        (["sm_90a", "compute_90a"], "sm_90", []),
        (["sm_100", "sm_100f"], "sm_103", ["sm_100f"]),
        (["compute_100f", "compute_90"], "sm_120", ["compute_90"]),
        (["sm_80", "lto_80", "lto_86"], "sm_80", ["sm_80", "lto_80"]),
        (["kind 32", "sm_80"], "sm_80", ["sm_80"]),
        (["sm_80"], "gfx90a", []),
    ],
)
def test_entries_that_a_link_takes(names: list[str], processor: str, taken: list[str]) -> None:
    """The highest compatible number wins, then cubins, then a letter (as in nvlink)."""
    assert linked_entries(names, processor) == taken


@pytest.mark.llvm
def test_host_code(assemble: Make) -> None:
    """Module IDs, referenced and defined, entries of CUDA, and kernels without either."""

    def read(*lines: str) -> CudaHostCode:
        path = assemble("host.o", *lines)
        return cuda_host_code(read_elf_tables(memoryview(path.read_bytes()), path=path))

    needs = read(".globl f", "f: call __cudaRegisterLinkedBinary_1_one", ".text")
    defines = read(
        ".globl __cudaRegisterLinkedBinary_1_one", "__cudaRegisterLinkedBinary_1_one: ret"
    )
    assert needs.unresolved == ["_1_one"]
    assert union(needs, defines).unresolved == []
    entry = '.section {},"aw"\n.quad 0\n.short 1, {}\n.zero 44'
    assert read(entry.format("llvm_offload_entries", 2)).has_entries
    assert not read(entry.format("llvm_offload_entries", 4)).has_entries
    assert read(entry.format("cuda_offloading_entries", 0)).has_entries
    stub = "_Z21__device_stub__kernelv"
    assert read(f".globl {stub}", f"{stub}: ret").unregistered == {stub}
    registers = read(f".globl {stub}", f"{stub}: call __cudaRegisterFatBinary")
    assert not registers.unregistered
