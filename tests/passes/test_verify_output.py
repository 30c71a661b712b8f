"""The checks after a compile, on what real compilers and misled launchers give."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.errors import CodeObjectError, UsageError
from offload_tool.formats.objects.elf.reader import EM_CUDA
from offload_tool.formats.targets.compile_target import parse_target
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.passes.languages import compile_pass
from offload_tool.passes.verify_output import check_code_object, check_cubin, check_host_object
from offload_tool.toolchain.probe import Toolchain
from tests.conftest import found_toolchain
from tests.formats.object_files import elf_header
from tests.passes.test_compile_pass import folder as folder
from tests.passes.test_compile_pass import run


@pytest.fixture
def compiled(compiler: Toolchain, folder: Path) -> Callable[[str], Path]:
    """Return a function that compiles for a target, or for the host."""

    def compile_for(target: str) -> Path:
        stage, device = ("device", parse_target(target)) if target else ("host", None)
        return run(compiler, compile_pass("hip", stage, "13", device), folder / "k.hip")

    return compile_for


def check(output: Path, target: str, cuid: str = "13") -> None:
    """Check an output as the code object of a target ID, or as a host object."""
    if target:
        check_code_object(output, TargetID.parse(target), cuid)
    else:
        check_host_object(output, cuid)


@pytest.mark.parametrize(
    "target",
    [
        *("gfx906", "gfx906:sramecc-", "gfx90a:sramecc+:xnack-", "gfx942", "gfx950:xnack+"),
        *("gfx1100", "gfx1201", "gfx900:xnack-", "gfx9-4-generic", "gfx11-generic", "gfx1250", ""),
    ],
)
def test_right_outputs_pass(compiled: Callable[[str], Path], target: str) -> None:
    """What the compiler makes for a target ID, or the host, passes the check for it."""
    check(compiled(target), target)


@pytest.mark.parametrize(
    ("made", "asked", "cuid", "message"),
    [
        ("gfx906", "gfx908", "13", "expected processor gfx908 .* found 0x2f"),
        ("gfx90a:xnack+", "gfx90a", "13", "expected xnack any for gfx90a, found xnack on"),
        ("gfx90a", "gfx90a:xnack-", "13", "expected xnack off .* found xnack any"),
        ("gfx906", "gfx906", "14", "-cuid=14, found __hip_cuid_ea124c110e41cc5"),
        ("", "gfx906", "13", "found ELF machine 62"),  # as of distcc
        ("", "", "14", "found __hip_fatbin_ea124c110e41cc5"),
        ("gfx906", "", "13", "found AMDGPU code"),
    ],
    ids=["processor", "feature-set", "feature-open", "cuid", "host", "host-cuid", "device"],
)
def test_code_of_another_pass(
    compiled: Callable[[str], Path], made: str, asked: str, cuid: str, message: str
) -> None:
    """The output of another target, feature setting, source or side is refused by name."""
    with pytest.raises(CodeObjectError, match=message):
        check(compiled(made), asked, cuid)


def test_bundle_instead(compiled: Callable[[str], Path]) -> None:
    """A bundle, as of the driver without --no-gpu-bundle-output, is not a code object."""
    output = compiled("gfx906")
    output.write_bytes(b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8))
    with pytest.raises(CodeObjectError, match="found an offload bundle"):
        check(output, "gfx906")


@pytest.mark.llvm
def test_empty_code_object(tmp_path: Path, llvm) -> None:
    """Preprocessed text compiles to an empty code object with status 0; that is refused."""
    (tmp_path / "k.hipi").write_text("int variable;\n")
    job = compile_pass("hip", "device", "13", parse_target("gfx906"))
    flags = ["-x", "hip-cpp-output", *job.flags(found_toolchain())[3:], "-nogpulib", "k.hipi"]
    command = [llvm("clang"), *flags, "-o", "out"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    with pytest.raises(CodeObjectError, match="from nothing"):
        check(tmp_path / "out", "gfx906")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "found an empty file"), (b"text file", "found b'text fil'"), (b"\x7fELF", "broken ELF")],
    ids=["empty", "text", "cut"],
)
def test_no_elf(tmp_path: Path, content: bytes, message: str) -> None:
    """An output that is not an ELF file is refused with what it is."""
    output = tmp_path / "out"
    output.write_bytes(content)
    with pytest.raises(CodeObjectError, match=message):
        check(output, "gfx906")


def test_spirv(tmp_path: Path) -> None:
    """For amdgcnspirv, a SPIR-V module passes and anything else does not."""
    module = tmp_path / "module"
    module.write_bytes(b"\x03\x02\x23\x07" + bytes(16))
    check(module, "amdgcnspirv")
    module.write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(CodeObjectError, match="expected a SPIR-V module for amdgcnspirv"):
        check(module, "amdgcnspirv")


@pytest.mark.parametrize("rdc", [False, True])
def test_cubins_to_link_and_to_load(tmp_path: Path, rdc: bool) -> None:
    """A cubin that is one to be linked is none to be loaded, and the reverse."""
    (tmp_path / "k.cubin").write_bytes(elf_header(1 if rdc else 2, EM_CUDA))
    check_cubin(tmp_path / "k.cubin", rdc=rdc)
    what = ("to be linked", "to be loaded")
    with pytest.raises(CodeObjectError, match=f"is one {what[rdc]}, found one {what[not rdc]}$"):
        check_cubin(tmp_path / "k.cubin", rdc=not rdc)


def test_openmp_without_host_ir(tmp_path: Path) -> None:
    """A device pass is not taken for checked without the host IR that its entries come from."""
    job = compile_pass("openmp", "device", "13", parse_target("gfx906"))
    with pytest.raises(UsageError, match="needs the host IR"):
        job.check(tmp_path / "k.bc")
