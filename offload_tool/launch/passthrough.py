"""Decides by compiler and arguments which commands may be split; most of a build's may not.

Known compilers are clang, and ROCm's ``hipcc``, which calls it. The compiler runs a rejected
command unchanged, after a millisecond. An accepted command is only a candidate: the output of the
driver query decides (`job_plan`). A misread argument therefore only costs time.

This module imports little, since it is all that a passed-through command needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from offload_tool.clang.options import DEVICE_ALONE, OTHER_JOB, REPORTS, SIDE, does
from offload_tool.util.which import program_folders, which

_LANGUAGES = ("hip", "cuda")
_SUFFIXES = (".hip", ".cu")
_HIPCC = "hipcc"
"""A wrapper of ROCm's, for which C++ sources are HIP sources."""
_TOOL = "offload-tool"
_SCRIPT = b"#!"

_GENCO = "--genco"
"""An option of hipcc: device code alone, as with ``--offload-device-only``."""
_OTHER_JOBS = ("--short", "--hipcc-func-supp")
"""Options of hipcc for other jobs than compiles."""
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/self/fd/")
"""Open files of this process: jobs have other files there, or could read them only once."""
_OTHER_VARIABLES = ("CC_PRINT_", "CC_LOG_", "CCC_", "FORCE_CLANG_", "RC_DEBUG_")
"""Prefixes of variables that make the driver itself do or print something."""


def why_not_split(compiler: str, args: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return why a command must not be split; "" if the driver query must decide."""
    if not any(does(arg, DEVICE_ALONE) or arg in ("-c", "--compile", _GENCO) for arg in args):
        return "no '-c': it is no compile of one source"
    reason = why_args_not_split(args)
    if reason:
        return reason
    for name in environ:
        if name.startswith(_OTHER_VARIABLES):
            return f"the variable {name} speaks to the driver"
    if not _is_hipcc(compiler) and not _has_device_code(args):
        return "no HIP or CUDA source, by its suffix or -x"
    return ""


def why_args_not_split(args: Sequence[str]) -> str:
    """Return which argument rules out a split; "" if none does."""
    for arg in args:
        is_other = does(arg, OTHER_JOB | SIDE | REPORTS) and not does(arg, DEVICE_ALONE)
        if arg in _OTHER_JOBS or is_other:
            return f"'{arg}' asks for something else than code of all targets"
        for name in _OPEN_FILES:
            if name in arg:
                return f"'{arg}' is a file that is open already"
    return "a source or an output is standard input or output" if "-" in args else ""


def _is_hipcc(compiler: str) -> bool:
    return compiler.rpartition("/")[2].startswith(_HIPCC)


def _has_device_code(args: Iterable[str]) -> bool:
    before = ""
    for arg in args:
        language = arg if before == "-x" else arg[2:] if arg.startswith("-x") else ""
        if language in _LANGUAGES or (arg.endswith(_SUFFIXES) and not arg.startswith("-")):
            return True
        before = arg
    return False


def find_hipcc(invoked: str, environ: Mapping[str, str]) -> str | None:
    """Return the first ``hipcc`` that is neither `invoked` nor another link to ``offload-tool``.

    It searches PATH, then ROCm's folders; None if there is none.
    """
    own = os.path.realpath(invoked)
    roots = (environ.get(name, "") for name in ("HIP_PATH", "ROCM_PATH"))
    folders = [f"{root}/bin" for root in roots if root]
    for folder in [*program_folders(environ), *folders, "/opt/rocm/bin"]:
        path = f"{folder}/{_HIPCC}"
        real = os.path.realpath(path)
        if real == own or os.path.basename(real) == _TOOL:
            continue
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def why_unknown(compiler: str, environ: Mapping[str, str]) -> str:
    """Return why a command may do more than run clang; "" for clang and hipcc."""
    if _is_hipcc(compiler):
        return ""
    path = which(compiler, environ.get("PATH"))
    if path is None:
        return "there is no such program"
    try:
        with open(path, "rb") as file:
            is_script = file.read(len(_SCRIPT)) == _SCRIPT
    except OSError as error:
        return str(error)
    if is_script:
        return f"'{path}' is a script, which may do more than to call a compiler"
    real = os.path.realpath(path)
    return "" if "clang" in os.path.basename(real) else f"'{real}' is no clang"
