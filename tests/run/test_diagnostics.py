"""Which messages of compilers and linkers are followed by a hint."""

from __future__ import annotations

import pytest

from offload_tool.run.diagnostics import advice_for

LINK = ["clang++", "-o", "prog", "k.o"]
COMPILE = ["clang++", "-o", "main.o", "-c", "main.cpp"]
DEVICE = ["clang++", "--cuda-device-only", "-c", "-o", "k.co", "k.hip"]
PTXAS = ["ptxas", "-o", "k.cubin", "k.ptx"]
ROCM, CUDA = "env.MergeFlags(env.OffloadRocmFlags())", "env.MergeFlags(env.OffloadCudaFlags())"
LIBRARY = f"the command lacks CUDA's runtime library, cudart; {CUDA}"
HEADERS = f"the command lacks the flags of CUDA; {CUDA}"


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        (LINK, "k.hip:(.text+0x1f): undefined reference to `hipLaunchKernel'", ROCM),
        (LINK, "ld.lld: error: undefined symbol: __hipRegisterFatBinary", ROCM),
        (LINK, "ld.lld: error: undefined symbol: cudaLaunchKernel", LIBRARY),
        ([*LINK, "-lcudart"], "/usr/bin/ld: cannot find -lcudart: No such file", CUDA),
        ([*LINK, "-lamdhip64"], "ld.lld: error: unable to find library -lamdhip64", ROCM),
        ([*LINK, "-lamdhip64"], "undefined reference to `hipGraphNew'", ""),
        (LINK, "undefined reference to `hippocampus()'", ""),
        (COMPILE, "h.h:66:2: error: (\"Must define exactly one of __HIP_PLATFORM_AMD__\")", ROCM),
        (COMPILE, "main.cpp:1:10: fatal error: 'hip/hip_runtime.h' file not found", ROCM),
        (COMPILE, "main.cpp:1:10: fatal error: 'cuda_runtime.h' file not found", HEADERS),
        (COMPILE, "main.cpp:1:1: error: unknown type name 'hip'", ""),
        (DEVICE, "ld.lld: error: undefined symbol: other(int)", "set OFFLOAD_RDC=True"),
        (DEVICE, "lld: error: undefined hidden symbol: other(int)", "set OFFLOAD_RDC=True"),
        (PTXAS, "ptxas fatal   : Unresolved extern function '_Z5otheri'", "set OFFLOAD_RDC=True"),
        (DEVICE, "lld: error: undefined symbol: __ocml_sin_f32", "remove that flag"),
    ],
)  # fmt: skip
def test_hints(command: list[str], message: str, expected: str) -> None:
    """A line names what is compiled or linked, and what to write; other messages get none."""
    found = advice_for(command, f"{message}\nafter\n".encode())
    assert bool(found) == bool(expected)
    assert expected in found
    name = "prog" if command[-1] not in ("main.cpp", "k.hip", "k.ptx") else command[-1]
    assert not found or (found.startswith(f"offload: {name}: ") and found.count("\n") == 1)
