"""The identity of a program: the content of its file and of its shared libraries.

The code of a compiler may be in libraries (``libLLVM.so``, ``libclang-cpp.so``). Replacing one
changes neither the version text nor the program's file. The loader lists them::

    LD_DEBUG=libs <the program's interpreter> --list <program>

It knows RPATH, ``$ORIGIN``, ``LD_LIBRARY_PATH`` and its cache, and prints failed lookups. System
libraries count, too: LLVM computes constants with the ``sin`` of its own libm. A file counts by its
content, as an edit keeps the build ID. ``LD_PRELOAD``, which ``fakeroot`` sets, does not count.

Source: glibc 2.36 and 2.43, observed: ``trying file=`` is written before each file is opened.
``search path=`` lists directories, which the loader skips after they were found missing. If a
loader writes neither, the directories of the libraries are used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from offload_tool.clang.driver import query
from offload_tool.errors import CompilerError, OffloadError
from offload_tool.io.file_digests import cached_by_stat, content_of, digest_of
from offload_tool.toolchain.disk_cache import cached_result

if TYPE_CHECKING:
    from pathlib import Path  # slow to load

LIBRARY_PATH = "LD_LIBRARY_PATH"
"""The loader's first search path."""
_SCRIPT = b"#!"
_FOR_THE_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.preload")
# Compiled on first use, as results are cached.
_LIBRARY = r"\s+(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$"
_MISSING = r"\s+(\S+) => not found$"
_NO_FILE = r".*shared libraries: (\S+): .*$"
_SEARCH_LINE = r"\s*\d+:\s"
_TRIED = r"\s*\d+:\s+trying file=(.+)$"
_SEARCHED = r"\s*\d+:\s+search path=(\S+)"


class Loaded(NamedTuple):
    """The libraries that the loader finds for a program."""

    libraries: list[str]
    """The loader first."""
    missing: list[str]
    """Names of missing libraries, or the loader's error."""
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
    """Return the first command that prints its version, and the last line of that.

    :raises CompilerError: one `named` by a variable does not; `advice` is for the message.
    """
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
