"""Check user flags that would swallow our arguments, or set a file name that we set.

Clang takes the argument after ``-Xclang`` whatever it is: at the end of the flags, that is our
first argument. Such a compile would succeed with a wrong output.
"""

from __future__ import annotations

from collections.abc import Sequence

from offload_tool.clang.options import DEPFILE_ON, OTHER_JOB, SIDE, TARGETS, does, takes_next
from offload_tool.clang.response_file import expand_command
from offload_tool.errors import UsageError

_TARGETS = "targets are those of OFFLOAD_ARCH, or --target-id of 'offload-tool compile'"
_FOREIGN_FLAGS = {
    "-fgpu-rdc": "relocatable device code is OFFLOAD_RDC=True, or --rdc of 'offload-tool compile'",
    **dict.fromkeys(
        (
            *("-gencode", "--generate-code", "-arch=", "--gpu-a", "--amdgpu-target"),
            *("-fopenmp-targets", "--offload-targets", "-march=gfx", "-march=sm_", "-mcpu=gfx"),
        ),
        _TARGETS,
    ),
    "--offload-compress": "compression is OFFLOAD_COMPRESS='zstd', and OFFLOAD_COMPRESS_LEVEL",
    "-Xopenmp-target": "flags of one target are OFFLOAD_ARCH_FLAGS, of all OFFLOAD_FLAGS; "
    "targets are those of OFFLOAD_ARCH",
    **dict.fromkeys(
        ("-rdc=", "--relocatable-device-code", "-dc", "--device-c", "-dlink", "--device-link"),
        "is nvcc's: relocatable device code is OFFLOAD_RDC=True",
    ),
    **dict.fromkeys(
        ("-Xptxas", "--ptxas-options", "-maxrregcount", "--maxrregcount"),
        "is nvcc's: flags of ptxas are OFFLOAD_PTXAS_FLAGS, clang's are behind -Xcuda-ptxas",
    ),
    **dict.fromkeys(
        (
            *("--expt-relaxed-constexpr", "--expt-extended-lambda", "--extended-lambda"),
            *("-extended-lambda", "-cudart", "--cudart", "-diag-", "--diag-", "--threads"),
            *("-forward-unknown-", "--forward-unknown-", "-compress-mode", "--compress-mode"),
        ),
        "is nvcc's: clang needs no flag for that; remove it",
    ),
    **dict.fromkeys(
        ("-use_fast_math", "--use_fast_math"),
        "is nvcc's: write -ffast-math and -fgpu-flush-denormals-to-zero",
    ),
    **dict.fromkeys(
        ("-ccbin", "--compiler-bindir"),
        "is nvcc's: clang compiles host code itself; remove it, and set OFFLOAD_CLANG",
    ),
    **dict.fromkeys(("-lineinfo", "--generate-line-info"), "is nvcc's: write -gline-tables-only"),
    "-G": "is nvcc's: write -g, and --cuda-noopt-device-debug for CUDA",
    "all-warnings": "is nvcc's: write -Werror alone",
    **dict.fromkeys(("-fmad=", "--fmad="), "is nvcc's: write -ffp-contract=off for false"),
    **dict.fromkeys(("-ftz=", "--ftz="), "is nvcc's: write -fgpu-flush-denormals-to-zero for true"),
    **dict.fromkeys(
        ("-default-stream", "--default-stream"),
        "is nvcc's: write -Xclang -fgpu-default-stream=per-thread",
    ),
    **dict.fromkeys(
        ("-Xcompiler", "--compiler-options"),
        "is nvcc's: flags of the host compile are OFFLOAD_HOST_FLAGS",
    ),
}
_REFUSED = {
    TARGETS: _TARGETS,
    SIDE: "which pass is run is the builder's choice: OffloadDeviceObject, OffloadHostObject",
    OTHER_JOB: "the compiler would make no object; run it by hand for that",
}
_OPEN_FILES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Files that can be read only once, or that are other files in the compiler's process."""


def check_flags(flags: Sequence[str], *, rdc: bool = False) -> None:
    """Raise UsageError if a user's flags would change the pass; with `rdc`, its flag may stay."""
    option, allowed = "", "-fgpu-rdc" if rdc else None
    args, files = expand_command(flags)
    for arg in (*files, *args):
        if any(name in arg for name in _OPEN_FILES):
            raise UsageError(
                f"'{arg}' among the flags is a file that is open already; give it a name"
            )
        hint = next((text for flag, text in _FOREIGN_FLAGS.items() if arg.startswith(flag)), "")
        hint = hint or next((text for what, text in _REFUSED.items() if does(arg, what)), "")
        if option:
            option = ""
        elif arg.startswith("-") and ";-" in arg:
            raise UsageError(f"'{arg}' among the flags is a list of CMake's; write ' ' for ';'")
        elif hint and arg != allowed:
            raise UsageError(f"'{arg}' among the flags: {hint}")
        elif arg == "-o":
            raise UsageError("'-o' among the flags: the output has its name already; remove it")
        elif takes_next(arg):
            option = arg
    if option:
        raise UsageError(
            f"'{option}' at the end of the flags wants a value; add the value, or remove the flag"
        )


def check_depfile_flags(flags: Sequence[str], depfile: str | None) -> None:
    """Raise UsageError if flags set another depfile than `depfile`."""
    before = ""
    for arg in expand_command(flags).args:
        wanted = arg if before == "-MF" else arg[3:] if arg.startswith("-MF") else ""
        if (wanted and wanted != depfile) or (does(arg, DEPFILE_ON) and depfile is None):
            flag = "-MF" if wanted else arg
            raise UsageError(f"'{flag}' among the flags; name the depfile by --depfile")
        before = arg
