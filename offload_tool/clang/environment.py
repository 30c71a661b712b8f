"""Inputs of a compile other than its command and its files.

These are environment variables, the working directory, and the processor of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from offload_tool.clang.options import NATIVE, does

_WHERE = (
    *("CCC_OVERRIDE_OPTIONS", "CLANG_CONFIG_PATH", "CLANG_NO_DEFAULT_CONFIG"),
    *("COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("CUDA_PATH", "HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH"),
)
HEEDED_VARIABLES = (*_WHERE, "LLD_VERSION", "LLVM_OVERRIDE_PRODUCER", "SOURCE_DATE_EPOCH")
"""Environment variables that change the result of a compile.

Source: clang and lld 22.1.8, whose calls of ``getenv`` were observed in passes of HIP, CUDA and
OpenMP. Their other variables change messages, temporary files or Objective-C. CUDA_PATH is this
package's; clang reads CLANG_CONFIG_PATH for z/OS targets. Clang writes ``LLVM_OVERRIDE_PRODUCER``
into bitcode, and lld ``LLD_VERSION`` into ``.comment`` of code objects."""
KEY_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "GCC_EXEC_PREFIX", *_WHERE)
"""Environment variables that change a compiler's answers about itself and the machine."""
OWN_INSTALLATIONS = ("OFFLOAD_ROCM_PATH", "OFFLOAD_DEVICE_LIB_PATH", "OFFLOAD_CUDA_PATH")
INSTALLATIONS = (
    *OWN_INSTALLATIONS,
    *("ROCM_PATH", "HIP_PATH", "HIP_DEVICE_LIB_PATH", "CUDA_PATH", "CUDA_HOME"),
)
"""Variables that name installations: this package's own, which exclude others, and the shell's."""

_TELLING = (
    ("-debug-info-kind=", "-fdebug-compilation-dir=", "-fdebug-prefix-map="),
    ("-fcoverage-mapping", "-fcoverage-compilation-dir=", "-fcoverage-prefix-map="),
)
"""Front-end options with which the output tells the working directory; that name it; that replace
its name."""
_FILES = ("-coverage-data-file=", "-coverage-notes-file=", "-object-file-name=")


class Surroundings(NamedTuple):
    """The inputs that a compiler finds by itself, the same for all sources."""

    folders: tuple[str, ...] = ()
    """The header search path, including missing directories; empty if it is not known."""
    tells_folder: bool = False
    """The output holds the working directory, or may hold it."""
    libraries: tuple[str, ...] = ()
    """Device libraries that are linked in."""


def tells_folder(job: Sequence[str], folders: Iterable[str]) -> bool:
    """Return whether a front-end command puts the working directory into its output.

    `folders` are the names of that directory. Source: clang 22.1.8, observed: the driver names the
    directory in every command; the front end uses it with debug information and coverage alone. A
    prefix map of the whole name replaces it.
    """
    folders = [name for name in folders if name]
    begins = [
        naming
        for telling, naming, mapping in _TELLING
        if any(arg.startswith(telling) for arg in job) and not _is_mapped(job, mapping, folders)
    ]
    named = [next((w for w in reversed(job) if w.startswith(begin)), "") for begin in begins]
    named += [arg for arg in job if arg.startswith(_FILES)]
    values = [f"{arg.partition('=')[2]}/" for arg in named]
    # Without an option, clang takes the working directory of the process.
    return "" in named or any(value.startswith(f"{x}/") for value in values for x in folders)


def _is_mapped(job: Sequence[str], option: str, folders: Sequence[str]) -> bool:
    """Return whether prefix maps replace every name of the working directory as a whole.

    The last map of a prefix counts. Source: clang 22.1.8, observed.
    """
    old = [w[len(option) :].rpartition("=")[0] for w in job if w.startswith(option)]
    found = [next((o for o in reversed(old) if f.startswith(o)), "") for f in folders]
    return bool(found) and found == [*folders]


_PROCESSORS = "/proc/cpuinfo"
_TELLING_PROCESSORS = (
    *("vendor_id", "cpu family", "model", "stepping", "flags", "Features"),
    *("CPU implementer", "CPU variant", "CPU part", "CPU revision", "cpu", "isa"),
)
"""The fields that determine ``native``; others hold speeds and numbers."""


def processor_of(args: Iterable[str]) -> str:
    """Return the description of this machine's processor if flags have ``native``, else ""."""
    if not any(does(arg, NATIVE) for arg in args):
        return ""
    try:
        with open(_PROCESSORS, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return "unknown"
    told = {line for line in lines if line.partition(":")[0].strip() in _TELLING_PROCESSORS}
    return "\n".join(sorted(told))


def folder_meant(args: Iterable[str]) -> list[str]:
    """Return the working directory if an argument names something relative to it, else nothing.

    The result belongs into the key of a cached query. Arguments without relative names mean the
    same in every directory.
    """
    for arg in args:
        for name in (arg, arg.partition("=")[2], arg.removeprefix("-isysroot")):
            is_name = "/" in name or name is not arg
            if is_name and name and not name.startswith(("/", "-")) and os.path.lexists(name):
                return [os.getcwd()]
    return []
