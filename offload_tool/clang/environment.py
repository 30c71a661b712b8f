"""Inputs of a compile other than its command and its files.

These are environment variables, the working directory, the processor of this machine, and the
compiler's header search path, with the directories that determine parts of it.
"""

from __future__ import annotations

import functools
import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from offload_tool.clang.driver import option_values, query_front_end
from offload_tool.clang.options import FOLDER, NATIVE, does, prefixes
from offload_tool.errors import CompilerError

_WHERE = (
    *("CCC_OVERRIDE_OPTIONS", "CLANG_CONFIG_PATH", "CLANG_NO_DEFAULT_CONFIG"),
    *("COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("CUDA_PATH", "HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH"),
)
RESULT_VARIABLES = (*_WHERE, "LLD_VERSION", "LLVM_OVERRIDE_PRODUCER", "SOURCE_DATE_EPOCH")
"""Environment variables that change the result of a compile.

Source: clang and lld 22.1.8, whose calls of ``getenv`` were observed in passes of HIP, CUDA and
OpenMP. Their other variables change messages, temporary files or Objective-C. CUDA_PATH is this
package's; clang reads CLANG_CONFIG_PATH for z/OS targets. Clang writes ``LLVM_OVERRIDE_PRODUCER``
into bitcode, and lld ``LLD_VERSION`` into ``.comment`` of code objects."""
_TIME_MACROS = (b"__TIME__", b"__DATE__", b"__TIMESTAMP__")


def pasted_pieces(macro: bytes, end: int) -> set[bytes]:
    """Return a macro's beginnings from 4 bytes on, and its ends from `end` bytes on.

    Of two pieces that are pasted together, one is of these if `end` is its length less 3, or less.
    """
    size = len(macro)
    return {macro[:at] for at in range(4, size)} | {macro[-at:] for at in range(end, size)}


_TIME_PIECES = {*_TIME_MACROS}.union(*(pasted_pieces(macro, 5) for macro in _TIME_MACROS))
_TIME_NAMES = (
    rb"\b(?:__(?:DATE|TIME|TIMESTAMP)__\b|[A-Z_]{4,13}(?=[ \t]*[,)#\n]))"
    rb"|(?:(?<=##)|(?<=## ))[A-Z_]{4,13}\b"
)
"""What may be one of these: pieces are operands of ``##``, or end a macro's argument or body."""
_IN_TIME_PIECES = (b"__TI", b"__DA", b"IME__", b"ATE__", b"AMP__")
"""Each piece holds one of these."""
_TIME_PRAGMA = rb"\b(?:GCC|clang)\b(?:[^\n]|\\\r?\n)*?\bdependency\b"
KEY_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "GCC_EXEC_PREFIX", *_WHERE)
OWN_INSTALLATIONS = ("OFFLOAD_ROCM_PATH", "OFFLOAD_DEVICE_LIB_PATH", "OFFLOAD_CUDA_PATH")
MACHINE_VARIABLES = (
    *("OFFLOAD_CLANG", *OWN_INSTALLATIONS, "OFFLOAD_PTXAS", "OFFLOAD_NVLINK"),
    *("OFFLOAD_LAUNCHER", "OFFLOAD_DIST"),
)
"""All variables that name a program or folder of this machine, with one rule: an SCons build takes
the construction variable, else the one of ``env["ENV"]``, else that of the OS environment; commands
take the last."""
_OTHER_VARIABLES = ("OFFLOAD_CUTOFF", "OFFLOAD_CUTOFF_CHECK", "OFFLOAD_PCH", "OFFLOAD_TRACEBACK")
_OTHER_PREFIXES = (
    *("OFFLOAD_BUNDLER_", "OFFLOAD_LAUNCH_", "OFFLOAD_MAX_"),
    *("OFFLOAD_TRACK_", "OFFLOAD_TEST_"),
)
"""Of our commands, of LLVM's runtime and of our tests."""
INSTALLATIONS = (
    *OWN_INSTALLATIONS,
    *("ROCM_PATH", "HIP_PATH", "HIP_DEVICE_LIB_PATH", "CUDA_PATH", "CUDA_HOME"),
)
"""Variables that name installations: this package's own, which exclude others, and the shell's."""


def has_time_macro(text: bytes) -> bool:
    """Return whether a source or an argument names a macro of the time, or pastes it together.

    ``#pragma GCC dependency "FILE"`` compares the times of two files, so it counts as one.
    """
    if b"dependency" in text and re.search(_TIME_PRAGMA, text):
        return True
    may_have_one = any(part in text for part in _IN_TIME_PIECES)  # five times as fast
    return may_have_one and not _TIME_PIECES.isdisjoint(re.findall(_TIME_NAMES, text))


def unread_variables(environ: Iterable[str]) -> list[str]:
    """Return the names of an OS environment that look like this package's, and that it ignores."""
    return sorted(
        name
        for name in environ
        if name.startswith("OFFLOAD_")
        and name not in (*MACHINE_VARIABLES, *_OTHER_VARIABLES)
        and not name.startswith(_OTHER_PREFIXES)
    )


_DIRECTORY_OPTIONS = (
    ("-debug-info-kind=", "-fdebug-compilation-dir=", "-fdebug-prefix-map="),
    ("-fcoverage-mapping", "-fcoverage-compilation-dir=", "-fcoverage-prefix-map="),
)
"""Front-end options that put the working directory into the output; that name it; that replace its
name."""
_RECORDED, _RECORDED_DEBUG = "-record-command-line", "-dwarf-debug-flags"
"""Front-end options whose next argument, the driver's command, is put into the output; with debug
information alone."""
_EMBEDDED = ("-fembed-bitcode=all", "-fembed-bitcode=marker")
"""Front-end options that put the front end's own command into the output; amdgcnspirv has one."""
_NOT_EMBEDDED = frozenset({"-o", "-x", "-main-file-name"})
_FILES = ("-coverage-data-file=", "-coverage-notes-file=", "-object-file-name=")


class ImplicitInputs(NamedTuple):
    """The inputs that a compiler finds by itself, the same for all sources."""

    folders: tuple[str, ...] = ()
    """The header search path, including missing directories; empty if it is not known."""
    embeds_folder: bool = False
    """The output contains the working directory, or may contain it."""
    libraries: tuple[str, ...] = ()


def embeds_folder(job: Sequence[str], folders: Iterable[str]) -> bool:
    """Return whether a front-end command puts the working directory into its output.

    `folders` are the names of that directory. Source: clang 22.1.8, observed: the driver names the
    directory in every command; the front end uses it with debug information and coverage alone. A
    prefix map of the whole name replaces it. A command in the output is not mapped.
    """
    folders = [name for name in folders if name]
    if any(name in text for text in commands_in_output(job) for name in folders):
        return True
    naming = [
        name
        for embedding, name, mapping in _DIRECTORY_OPTIONS
        if any(arg.startswith(embedding) for arg in job) and not _is_mapped(job, mapping, folders)
    ]
    named = [next((arg for arg in reversed(job) if arg.startswith(name)), "") for name in naming]
    named += [arg for arg in job if arg.startswith(_FILES)]
    values = [f"{arg.partition('=')[2]}/" for arg in named]
    # Without an option, clang takes the working directory of the process.
    return "" in named or any(value.startswith(f"{x}/") for value in values for x in folders)


def commands_in_output(job: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a front-end command that its output contains."""
    is_embedded = any(arg in _EMBEDDED for arg in job)
    debug = any(arg.startswith(_DIRECTORY_OPTIONS[0][0]) for arg in job)
    recorded = (_RECORDED, _RECORDED_DEBUG) if debug else (_RECORDED,)
    for option, arg in itertools.pairwise(("", *job)):
        if option in recorded or (is_embedded and option not in _NOT_EMBEDDED):
            yield arg


def _is_mapped(job: Sequence[str], option: str, folders: Sequence[str]) -> bool:
    """Return whether prefix maps (the last one of each counts) replace the working directory."""
    old = [arg[len(option) :].rpartition("=")[0] for arg in job if arg.startswith(option)]
    found = [next((o for o in reversed(old) if f.startswith(o)), "") for f in folders]
    return bool(found) and found == [*folders]


_PROCESSORS = "/proc/cpuinfo"
_PROCESSOR_FIELDS = (
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
    fields = {line for line in lines if line.partition(":")[0].strip() in _PROCESSOR_FIELDS}
    return "\n".join(sorted(fields))


def folder_key(args: Iterable[str]) -> list[str]:
    """Return the working directory, as part of a cache key, if arguments may be relative to it."""
    for arg in args:
        for name in (arg, arg.partition("=")[2], arg.removeprefix("-isysroot")):
            is_name = "/" in name or name is not arg
            if is_name and name and not name.startswith(("/", "-")) and os.path.lexists(name):
                return [os.getcwd()]
    return []


# -- the header search path ---------------------------------------------------------------

_FOLDER_OPTIONS = frozenset(prefixes(FOLDER))
"""In the front end's job the directory is the next argument."""
_ATTACHED = ("-I", "--embed-dir=")
"""Directories of ``CPATH`` share one argument with their option."""
_GCC = "/usr/lib/gcc"
_GCC_FOLDERS = ("gcc", "gcc-cross")
_UP = "/../"


def front_end_of(command: Sequence[str], environment: Mapping[str, str]) -> ImplicitInputs:
    """Return a compile's header search path, and whether its output names the directory.

    `command` is the compile up to its input, without options for outputs. If the driver's query
    fails, nothing is known. `driver_cache.device_libraries` finds the libraries. Source: clang
    22.1.8, observed: ``-###`` prints each front end's command, with every directory as an option,
    those of ``CPATH`` (in one argument with ``-I``) and of configuration files included. Without a
    language, an empty file is not a source. C++ searches all directories of C.
    """
    jobs = query_front_end(with_language(command), environment).jobs
    directory = (os.getcwd(), environment.get("PWD", ""))
    return ImplicitInputs(
        tuple(dict.fromkeys(folder for job in jobs for folder in folders_of_job(job))),
        not jobs or any(embeds_folder(job, directory) for job in jobs),
    )


def with_language(command: Sequence[str]) -> list[str]:
    """Return the command that `front_end_of` queries."""
    return [*command] if "-x" in command else [*command, "-x", "c++"]


def searched_folders(report: str, program: str) -> list[str]:
    """Return the search path that ``-E -v`` prints; raise CompilerError, naming `program`."""
    _, _, rest = report.partition("#include <...> search starts here:\n")
    folders, end, _ = rest.partition("End of search list.")
    if not end:
        raise CompilerError(f"{program} -E -v did not print its header folders")
    return [line.strip() for line in folders.splitlines()]


def folders_of_job(job: Sequence[str]) -> Iterator[str]:
    """Yield the header search path in a front-end command."""
    root = next(reversed([*option_values(job, "-isysroot")]), "")
    prefix = ""
    for option, value in itertools.pairwise(job):
        if option == "-iprefix":
            prefix = value
        elif option in ("-iwithprefix", "-iwithprefixbefore"):
            yield f"{prefix}{value}"
        elif option == "-iwithsysroot":
            yield f"{root}{value}" if value.startswith("/") else value
        elif option in _FOLDER_OPTIONS:
            yield _in_root(value, root)
        for attached in _ATTACHED:
            if option.startswith(attached) and option != attached:
                yield _in_root(option.removeprefix(attached), root)


def _in_root(folder: str, root: str) -> str:
    """Return a directory as clang reads it: ``=`` stands for the root of the system's headers."""
    return f"{root}{folder[1:]}" if root and folder.startswith("=") else folder


@functools.lru_cache(maxsize=4096)
def origins(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories whose entries decide the compiler's own directories among `folders`.

    Source: clang 22.1.8, observed: it uses the GCC installation of the highest version, and spells
    the directories of its C++ headers from there, such as
    ``/usr/lib/gcc/x86_64-linux-gnu/12/../../../../include/c++/12``.
    """
    found = {_GCC: None}
    for folder in folders:
        version, up, _ = folder.partition(_UP)
        triple = posixpath.dirname(version)
        installed = posixpath.dirname(triple)
        if up and posixpath.basename(installed) in _GCC_FOLDERS:
            found.update(dict.fromkeys((installed, triple, posixpath.dirname(folder))))
    return tuple(found)
