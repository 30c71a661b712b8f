"""Installations that look real to clang, made for tests: HIP's headers, and device libraries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conftest import run_tool

ISA = ("906", "90a", "942", "1100")
STATES = ("daz_opt", "unsafe_math", "finite_only", "correctly_rounded_sqrt", "wavefrontsize64")

HEADER = """\
#pragma once
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
"""


def write_rocm(root: Path, *, version: str = "6.4.1", header: str = HEADER) -> Path:
    """Write HIP's headers, as clang and its wrapper headers want them."""
    major, minor, patch = version.split(".")
    include = root / "include/hip"
    include.mkdir(parents=True)
    (include / "hip_runtime.h").write_text(header)
    (include / "hip_version.h").write_text(f"#define HIP_VERSION_MAJOR {major}\n")
    (root / "share/hip").mkdir(parents=True)
    (root / "share/hip/version").write_text(
        f"HIP_VERSION_MAJOR={major}\nHIP_VERSION_MINOR={minor}\nHIP_VERSION_PATCH={patch}\n"
    )
    return root


def write_bitcode(clang: Sequence[str], output: Path, text: str = "", *flags: str) -> None:
    """Compile C as a device library, or as a part of one."""
    args = ["--target=amdgcn-amd-amdhsa", "-nogpulib", *flags, "-x", "c", "-emit-llvm", "-c", "-"]
    run_tool(*clang, *args, "-o", output, input=text)


def write_device_libraries(
    folder: Path, clang: str | Sequence[str], isa: tuple[str, ...] = ISA
) -> Path:
    """Write device libraries: modules of the compiler's own, with nothing in them."""
    folder.mkdir(parents=True)
    empty = folder / "ockl.bc"
    programs = [clang] if isinstance(clang, str) else clang
    write_bitcode(programs, empty, "", "-Xclang", "-mcode-object-version=none")
    names = [f"oclc_{option}_{state}" for option in STATES for state in ("on", "off")]
    names += [f"oclc_isa_version_{number}" for number in isa]
    names += [f"oclc_abi_version_{number}" for number in (400, 500, 600)]
    for name in ("ocml", "hip", "opencl", "asanrtl", *names):
        (folder / f"{name}.bc").write_bytes(empty.read_bytes())
    return folder


class Rocm(NamedTuple):
    """A folder laid out as ROCm's, with headers and device libraries of a few lines."""

    folder: Path
    clang: str

    @classmethod
    def make(cls, folder: Path, clang: str) -> Rocm:
        made = cls(write_rocm(folder, header="#define SEEN_RUNTIME 1\n"), clang)
        write_device_libraries(made.libraries, clang)
        made.set_answer(41)
        return made

    @property
    def libraries(self) -> Path:
        return self.folder / "amdgcn" / "bitcode"

    def set_answer(self, value: int) -> None:
        """Let the device library's function ``lib_answer`` return `value`."""
        text = f"int __attribute__((const)) lib_answer(void) {{ return {value}; }}"
        write_bitcode([self.clang], self.libraries / "ocml.bc", text, "-O1")
