"""The identity of programs and compilers, without paths: part of each signature.

**A program** is its file and its shared libraries: the code of a compiler may be in libraries
(``libLLVM.so``), and replacing one changes neither the version text nor the program's file. The
loader lists them::

    LD_DEBUG=libs <the program's interpreter> --list <program>

It knows RPATH, ``$ORIGIN``, ``LD_LIBRARY_PATH`` and its cache, and prints failed lookups. System
libraries count, too: LLVM computes constants with the ``sin`` of its own libm. A file counts by its
content, so that two machines with the same programs agree. ``LD_PRELOAD``, which ``fakeroot`` sets,
does not count.

**A compiler** is its version text, its programs, the other arguments in ``OFFLOAD_CLANG``, the lld
that links device code, the configuration files that clang reads by default, and the additions of a
wrapper script.

Source: glibc 2.36 and 2.43, observed: ``trying file=`` is written before each file is opened, and
``search path=`` lists directories, which the loader skips after they were found missing. If a
loader writes neither, the directories of the libraries are used.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from offload_tool.clang.argument_files import all_args, possible_files
from offload_tool.clang.driver import query, query_plan
from offload_tool.clang.options import CONFIGURATION, does, without_values
from offload_tool.clang.response_file import configuration_args, expand_command
from offload_tool.errors import CompilerError, OffloadError
from offload_tool.io.file_digests import cached_by_stat, content_of, digest_of
from offload_tool.toolchain.disk_cache import cached_result
from offload_tool.util.memoize import memoized
from offload_tool.util.which import which

if TYPE_CHECKING:
    from pathlib import Path  # slow to load

LIBRARY_PATH = "LD_LIBRARY_PATH"
CONFIGURATION_FOLDERS = ("/etc/clang", "~/.config/clang")
"""Clang's directories of configuration files, besides its own."""
_OWN_FOLDER = "<CFGDIR>"
"""Stands for a configuration file's folder, in it."""
_SCRIPT = b"#!"
_FOR_THE_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.preload")
# Compiled on first use, as results are cached.
_LIBRARY = r"\s+(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$"
_MISSING = r"\s+(\S+) => not found$"
_NO_FILE = r".*shared libraries: (\S+): .*$"
_SEARCH_LINE = r"\s*\d+:\s"
_TRIED = r"\s*\d+:\s+trying file=(.+)$"
_SEARCHED = r"\s*\d+:\s+search path=(\S+)"
_CONFIGURATION = r"(?m)^Configuration file: (?P<path>.+)$"
_PLAIN_NAME = r"clang(-\d+)?"
_MOST_INCLUDED = 64


class Loaded(NamedTuple):
    """The libraries that the loader finds for a program."""

    libraries: list[str]
    """The loader first."""
    missing: list[str]
    candidates: list[str]
    """Paths at which another library may appear."""


def is_script(program: str) -> bool:
    """Return whether a program is a script, which begins with ``#!``."""
    return content_of(program, len(_SCRIPT)) == _SCRIPT


def interpreter_of(program: str) -> str | None:
    """Return a program's loader, None if static or none; raise ContentError or FileError."""
    from offload_tool.formats.objects.elf.reader import PT_INTERP, is_elf_header, read_elf_tables
    from offload_tool.io import InputFile

    with InputFile(program) as file:
        if is_elf_header(file.data):
            for segment in read_elf_tables(file.data, path=program).segments:
                if segment.p_type == PT_INTERP:
                    end = segment.p_offset + segment.p_filesz
                    return os.fsdecode(bytes(file.data[segment.p_offset : end]).rstrip(b"\0"))
    return None


def libraries_of(
    program: str, loader: str, library_path: str = "", options: Sequence[str] = ()
) -> Loaded:
    """Query a program's loader for its libraries; raise CompilerError if it cannot be run."""
    variables = {"LD_DEBUG": "libs", **({LIBRARY_PATH: library_path} if library_path else {})}
    result = query([loader, *options, "--list", program], variables)
    errors = result.errors.splitlines()
    search = [line for line in errors if re.match(_SEARCH_LINE, line)]
    listed = [*result.output.splitlines(), *(line for line in errors if line not in search)]
    libraries = _matches(_LIBRARY, listed)
    candidates = _matches(_TRIED, search)
    if candidates:
        folders = ":".join(_matches(_SEARCHED, search)).split(":")
        candidates += (folder for folder in dict.fromkeys(folders) if not os.path.isdir(folder))
    else:
        candidates = sorted({os.path.dirname(file) for file in libraries})
    missing = _matches(_MISSING, listed) or _matches(_NO_FILE, listed)
    if result.status and not missing:
        missing = [listed[-1] if listed else "?"]
    return Loaded([loader, *libraries], missing, candidates)


def _matches(pattern: str, lines: Iterable[str]) -> list[str]:
    found = (re.match(pattern, line) for line in lines)
    return [match[1] for match in found if match]


def find_program(
    variable: str, named: str, commands: Iterable[Sequence[str]], advice: str
) -> tuple[tuple[str, ...], str] | None:
    """Return the first command with a version, and that; CompilerError if `named` has none."""
    for command in commands:
        try:
            result = query([*command, "--version"])
        except CompilerError as error:
            reason = str(error.__cause__)
        else:
            lines = result.output.strip().splitlines()
            if lines and result.status == 0:
                return tuple(command), lines[-1]
            reason = result.reason if result.status else "it prints no version"
        if named:
            advice = quoting_advice(variable, named) or advice
            raise CompilerError(f"{variable}={named!r} cannot be run: {reason}; {advice}")
    return None


def words_of(variable: str, named: str) -> tuple[str, ...]:
    """Return the words of a command in a variable; raise CompilerError for an open quote."""
    try:
        return tuple(shlex.split(named))
    except ValueError as error:
        raise CompilerError(
            f"{variable}={named!r} is not a command: {error}; quote it as a shell does"
        ) from error


def quoting_advice(variable: str, named: str) -> str:
    """Return the advice for a command in a variable, of which a file's name holds spaces; or ""."""
    words = named.split(" ")
    begins = (" ".join(words[:at]) for at in range(len(words), 1, -1))
    file = next(filter(os.path.isfile, begins), "")
    rest = named[len(file) :]
    return f"quote the name, which has a space: {variable}=\"'{file}'{rest}\"" if file else ""


def nvidia_packages() -> list[Path]:
    """Return the directories of NVIDIA's wheels in this Python's environment."""
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec("nvidia")
    return [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []


@cached_by_stat
def file_digest(path: str) -> str:
    """Return the digest of a file's content, or ``missing``."""
    from offload_tool.io import InputFile

    try:
        with InputFile(path) as file:
            return digest_of(file.data)
    except OffloadError:
        return "missing"


def files_digest(paths: Iterable[str]) -> str:
    """Return one digest of the content of files, in this order."""
    text = " ".join(map(file_digest, dict.fromkeys(paths)))
    return digest_of(text.encode(errors="surrogateescape"))


def program_identity(program: str, library_path: str = "") -> str:
    """Return the identity of a program, without paths; empty if it does not exist."""
    return str(_facts(program, library_path)["identity"])


def program_dependencies(program: str, library_path: str = "") -> list[str]:
    """Return the files of a program, and the paths at which others may appear."""
    return [program, *_facts(program, library_path)["files"]]


def _facts(program: str, library_path: str) -> dict[str, Any]:
    real = os.path.realpath(program)
    key = ["program", real, library_path]
    if library_path and not all(map(os.path.isabs, library_path.split(os.pathsep))):
        key.append(os.getcwd())

    def find() -> dict[str, Any]:
        if is_script(real):
            return {"identity": f"script {file_digest(real)}", "files": [real]}
        libraries: list[str] = []
        candidates: list[str] = []
        try:
            loader = interpreter_of(real)
            if loader is not None:
                found = libraries_of(real, loader, library_path)
                libraries, candidates = found.libraries, [*found.candidates, *_FOR_THE_LOADER]
        except OffloadError:  # such as a program of another machine
            pass
        files = list(dict.fromkeys([real, *libraries]))
        return {
            "identity": f"program {files_digest(files)}" if os.path.isfile(real) else "",
            "files": [*files, *candidates],
        }

    result: dict[str, Any] = cached_result(key, find, lambda result: result["files"])
    return result


# -- compilers ----------------------------------------------------------------------------


def identity_text(parts: Iterable[str]) -> str:
    """Join the parts into one line, escaping ``;``."""
    return "; ".join(part.replace(";", "\\;") for part in parts if part)


def configuration_files(result: str) -> list[str]:
    """Return the configuration files that clang lists, as in ``clang --version``."""
    return [match["path"].strip() for match in re.finditer(_CONFIGURATION, result)]


def command_identity(command: Sequence[str], path: str, library_path: str = "") -> list[str]:
    """Return the identity of each argument of a compiler command.

    Programs are searched in `path`, libraries in `library_path`. Names such as ``clang-22`` have no
    meaning; ``clang++`` and ``riscv64-linux-gnu-clang`` select modes and targets.
    """
    found = []
    # Clang lists the configuration files that it reads.
    for arg in without_values(expand_command(command).args, CONFIGURATION):
        program = None if arg.startswith(("-", "@")) else which(arg, path)
        parts = [arg]
        if program is not None:
            name = os.path.basename(arg)
            mode = "" if re.fullmatch(_PLAIN_NAME, name) else name
            parts = [mode, program_identity(program, library_path)]
        found.append(" ".join(filter(None, parts)))
    return [arg for arg in found if arg]


def all_configuration_files(paths: Iterable[str]) -> list[str]:
    """Return configuration files and those that they include (Clang User's Manual: ``@file``)."""
    queue = list(dict.fromkeys(paths))
    for path in queue:  # grows
        if len(queue) < _MOST_INCLUDED:
            queue += [name for name in _included(path) if name not in queue]
    return queue


def _included(path: str) -> list[str]:
    """Return the files that a configuration file includes; bare names may be anywhere."""
    folder = os.path.dirname(path)
    found: list[str] = []
    for arg in configuration_args(path):
        option, _, name = arg.partition("=")
        if arg.startswith("@"):
            name = arg[1:]
        elif option != "--config":
            continue
        elif "/" not in name:
            usual = (os.path.join(os.path.expanduser(x), name) for x in CONFIGURATION_FOLDERS)
            found += filter(os.path.isfile, usual)
        found.append(os.path.join(folder, name.replace(_OWN_FOLDER, folder)))
    return found


def has_configuration(args: Iterable[str]) -> bool:
    """Return whether flags make clang read configuration files."""
    return any(does(arg, CONFIGURATION) for arg in all_args(args))


def _named_in(configuration: str) -> tuple[str, ...]:
    """Return the names in a configuration file that may be files, but no configuration files."""
    folder = os.path.dirname(configuration)
    args = (arg.replace(_OWN_FOLDER, folder) for arg in configuration_args(configuration))
    return possible_files(arg for arg in args if not arg.startswith("@"))


@memoized(64)
def configuring_files(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configuration files that a compile reads, with what they name; if flags name any.

    The driver is queried, as it searches several directories for a bare name, and its mode and
    target select further files there. `command` is the compile, without its source and options for
    outputs. Files in the working directory have relative names, so that a `CacheDir` serves other
    checkouts.
    """
    if not has_configuration(command):
        return ()
    try:
        result = query_plan([*command, "-c", "-x", "c++", os.devnull], environment)
    except CompilerError:
        return ()
    found = all_configuration_files(configuration_files(result.output + result.errors))
    found += [name for file in found for name in _named_in(file)]
    prefixes = [f"{folder}/" for folder in (os.getcwd(), environment.get("PWD")) if folder]
    return tuple(name.removeprefix(next(filter(name.startswith, prefixes), "")) for name in found)
