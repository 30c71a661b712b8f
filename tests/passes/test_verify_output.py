"""The checks after a compile, on what real compilers and misled launchers give."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from offload_tool.errors import CodeObjectError
from offload_tool.formats.objects.elf.reader import EM_CUDA
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.passes.hip import device_flags, host_flags
from offload_tool.passes.verify_output import check_code_object, check_cubin, check_host_object
from offload_tool.toolchain.probe import Toolchain

SOURCE = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(int* p) { *p = 1; }
"""
PLAIN = ["-nogpuinc", "-nogpulib"]


@pytest.fixture
def compiled(compiler: Toolchain, tmp_path: Path):
    """Give a function that runs the compiler on the source (or another text)."""

    def run(flags: list[str], text: str = SOURCE) -> Path:
        source = tmp_path / "k.hip"
        source.write_text(text)
        output = tmp_path / "out"
        command = [*compiler.clang, *compiler.local_flags, *flags, "-c", source, "-o", output]
        subprocess.run(command, check=True, capture_output=True)
        return output

    return run


@pytest.mark.parametrize(
    "text",
    [
        *("gfx906", "gfx906:sramecc-", "gfx90a:sramecc+:xnack-", "gfx942", "gfx950:xnack+"),
        *("gfx1100", "gfx1201", "gfx900:xnack-", "gfx9-4-generic", "gfx11-generic", "gfx1250"),
    ],
)
def test_right_code_objects_pass(compiled, text: str) -> None:
    """What the compiler makes for a target ID passes the check for that target ID."""
    target = TargetID.parse(text)
    check_code_object(compiled(device_flags(str(target), "13") + PLAIN), target, "13")


@pytest.mark.parametrize(
    ("made", "asked", "cuid", "message"),
    [
        ("gfx906", "gfx908", "13", "expected processor gfx908 .* found 0x2f"),
        ("gfx90a:xnack+", "gfx90a", "13", "expected xnack any for gfx90a, found xnack on"),
        ("gfx90a", "gfx90a:xnack-", "13", "expected xnack off .* found xnack any"),
        ("gfx906", "gfx906", "14", "-cuid=14, found __hip_cuid_ea124c110e41cc5"),
    ],
    ids=["processor", "feature-set", "feature-open", "cuid"],
)
def test_code_for_another_target(compiled, made: str, asked: str, cuid: str, message: str) -> None:
    """A code object of another target, feature setting or source is refused by name."""
    output = compiled(device_flags(made, "13") + PLAIN)
    with pytest.raises(CodeObjectError, match=message):
        check_code_object(output, TargetID.parse(asked), cuid)


def test_host_object_instead(compiled) -> None:
    """A launcher that compiled for the host (distcc does) is found out."""
    output = compiled([*host_flags("13"), *PLAIN])
    with pytest.raises(CodeObjectError, match="found ELF machine 62"):
        check_code_object(output, TargetID.parse("gfx906"), "13")


def test_bundle_instead(compiled) -> None:
    """The driver's own bundle, without --no-gpu-bundle-output, is not a code object."""
    flags = [f for f in device_flags("gfx906", "1") if "bundle" not in f]
    if subprocess.run(["sh", "-c", "command -v clang-offload-bundler"], check=False).returncode:
        magic = b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8)
        output = compiled([*flags, "--no-gpu-bundle-output", *PLAIN])
        output.write_bytes(magic)
    else:
        output = compiled(flags + PLAIN)
    with pytest.raises(CodeObjectError, match="found an offload bundle"):
        check_code_object(output, TargetID.parse("gfx906"), "1")


@pytest.mark.llvm
def test_empty_code_object(tmp_path: Path, llvm) -> None:
    """Preprocessed text compiles to an empty code object with status 0; that is refused."""
    target = TargetID.parse("gfx906")
    (tmp_path / "k.hipi").write_text("int variable;\n")
    flags = ["-x", "hip-cpp-output", *device_flags("gfx906", "13")[3:], "-nogpulib", "-c", "k.hipi"]
    command = [llvm("clang"), *flags, "-o", "out"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    with pytest.raises(CodeObjectError, match="from nothing"):
        check_code_object(tmp_path / "out", target, "13")


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
        check_code_object(output, TargetID.parse("gfx906"), "13")


def test_spirv(tmp_path: Path) -> None:
    """For amdgcnspirv, a SPIR-V module passes and anything else does not."""
    module = tmp_path / "module"
    module.write_bytes(b"\x03\x02\x23\x07" + bytes(16))
    target = TargetID.parse("amdgcnspirv")
    check_code_object(module, target, "13")
    module.write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(CodeObjectError, match="expected a SPIR-V module for amdgcnspirv"):
        check_code_object(module, target, "13")


def test_host_object(compiled) -> None:
    """A host object passes with its own CUID, and only with that."""
    output = compiled([*host_flags("13"), *PLAIN])
    check_host_object(output, "13")
    with pytest.raises(CodeObjectError, match="found __hip_fatbin_ea124c110e41cc5"):
        check_host_object(output, "14")


def test_device_code_instead_of_host(compiled) -> None:
    """Device code in place of the host object is refused."""
    output = compiled(device_flags("gfx906", "13") + PLAIN)
    with pytest.raises(CodeObjectError, match="found AMDGPU code"):
        check_host_object(output, "13")


@pytest.mark.parametrize("rdc", [False, True])
def test_cubins_to_link_and_to_load(tmp_path: Path, rdc: bool) -> None:
    """A cubin that is one to be linked is none to be loaded, and the reverse."""
    header = bytearray(64)
    header[:7] = b"\x7fELF\2\1\1"
    header[16:20] = (1 if rdc else 2).to_bytes(2, "little") + EM_CUDA.to_bytes(2, "little")
    header[52:54] = (64).to_bytes(2, "little")
    (tmp_path / "k.cubin").write_bytes(header)
    check_cubin(tmp_path / "k.cubin", rdc=rdc)
    what = ("to be linked", "to be loaded")
    with pytest.raises(CodeObjectError, match=f"is one {what[rdc]}, found one {what[not rdc]}$"):
        check_cubin(tmp_path / "k.cubin", rdc=not rdc)
