"""What a program is: its file, and the shared libraries that the loader gives it, by content.

The code of a compiler may be in libraries (``libLLVM.so``, ``libclang-cpp.so``), whose replacement
changes neither what it says of its version nor its own file. The loader is asked for them::

    LD_DEBUG=libs <the program's interpreter> --list <program>

It knows RPATH, ``$ORIGIN``, ``LD_LIBRARY_PATH`` and its cache, and says where it looked in vain.
All libraries count, those of the system as well: LLVM computes constants with the ``sin`` of its
own libm. A file counts by its content: its build ID stays when it is edited. ``LD_PRELOAD`` does
not count, which is how ``fakeroot`` is run.

Source: glibc 2.36 and 2.43, observed: ``trying file=`` is written before each file is opened, and
``search path=`` has folders in which it looks no more once they were not there. Where a loader
writes neither, the folders of the libraries stand for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from offload_tool.clang.driver import ask
from offload_tool.errors import CompilerError, OffloadError
from offload_tool.toolchain.disk_cache import cached_answer

LIBRARY_PATH = "LD_LIBRARY_PATH"
"""The variable that says where the loader looks first."""
_SCRIPT = b"#!"
_FOR_THE_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.preload")
# Compiled when they are needed: the answers are kept.
_LIBRARY = r"\s+(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$"
_MISSING = r"\s+(\S+) => not found$"
_NO_FILE = r".*shared libraries: (\S+): .*$"
_OF_SEARCH = r"\s*\d+:\s"
_TRIED = r"\s*\d+:\s+trying file=(.+)$"
_SEARCHED = r"\s*\d+:\s+search path=(\S+)"


class Loaded(NamedTuple):
    """What the loader says of a program."""

    libraries: list[str]
    """The loader first."""
    missing: list[str]
    """Names of those that it does not find, or why it cannot tell."""
    places: list[str]
    """Where another library may appear."""


def is_script(program: str) -> bool:
    """Check whether a program is a text for another program to run."""
    try:
        with open(program, "rb") as opened:
            return opened.read(len(_SCRIPT)) == _SCRIPT
    except OSError:
        return False


def interpreter_of(program: str) -> str | None:
    """Return the path of the loader that a program asks for; None for a static one, or no program.

    :raises ContentError: it is a broken ELF file.
    :raises FileError: it cannot be read.
    """
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
    """Return what the loader of a program says of the libraries that it would give it.

    :raises CompilerError: the loader cannot be run.
    """
    variables = {"LD_DEBUG": "libs", **({LIBRARY_PATH: library_path} if library_path else {})}
    answer = ask([loader, *options, "--list", program], variables)
    errors = answer.errors.splitlines()
    search = [line for line in errors if re.match(_OF_SEARCH, line)]
    said = [*answer.output.splitlines(), *(line for line in errors if line not in search)]
    libraries = _matches(_LIBRARY, said)
    places = _matches(_TRIED, search)
    if places:
        folders = ":".join(_matches(_SEARCHED, search)).split(":")
        places += (folder for folder in dict.fromkeys(folders) if not os.path.isdir(folder))
    else:
        places = sorted({os.path.dirname(file) for file in libraries})
    missing = _matches(_MISSING, said) or _matches(_NO_FILE, said)
    if answer.status and not missing:
        missing = [said[-1] if said else "?"]
    return Loaded([loader, *libraries], missing, places)


def _matches(pattern: str, lines: Iterable[str]) -> list[str]:
    found = (re.match(pattern, line) for line in lines)
    return [match[1] for match in found if match]


def find_program(
    variable: str, named: str, commands: Iterable[Sequence[str]], advice: str
) -> tuple[tuple[str, ...], str] | None:
    """Return the first of some commands that tells its version, and the last line of that.

    What a user has `named` by a variable is the one to take; `advice` is for where it fails.

    :raises CompilerError: it cannot be run.
    """
    for command in commands:
        try:
            answer = ask([*command, "--version"])
            reason = answer.reason if answer.status else ""
        except CompilerError as error:
            reason = str(error.__cause__)
        else:
            if not reason:
                return tuple(command), answer.output.strip().splitlines()[-1]
        if named:
            raise CompilerError(f"{variable}={named!r} cannot be run: {reason}; {advice}")
    return None


def nvidia_packages() -> list[Path]:
    """Return the folders of NVIDIA's wheels in this Python's environment."""
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec else []


def program_identity(program: str, library_path: str = "") -> str:
    """Return what tells a program from others, without paths; empty where there is none."""
    return str(_facts(program, library_path)["identity"])


def program_places(program: str, library_path: str = "") -> list[str]:
    """Return the files that make a program what it is, and those places where others may appear."""
    return [program, *_facts(program, library_path)["places"]]


def _facts(program: str, library_path: str) -> dict[str, Any]:
    real = os.path.realpath(program)
    question = ["program", real, library_path]
    if library_path and not all(map(os.path.isabs, library_path.split(os.pathsep))):
        question.append(os.getcwd())

    def find() -> dict[str, Any]:
        from offload_tool.toolchain.identity import file_digest, text_digest

        if is_script(real):
            return {"identity": f"script {file_digest(real)}", "places": [real]}
        libraries: list[str] = []
        places: list[str] = []
        try:
            loader = interpreter_of(real)
            if loader is not None:
                found = libraries_of(real, loader, library_path)
                libraries, places = found.libraries, [*found.places, *_FOR_THE_LOADER]
        except OffloadError:  # of another machine, say
            pass
        files = list(dict.fromkeys([real, *libraries]))
        digest = text_digest(" ".join(map(file_digest, files)))
        is_there = os.path.isfile(real)
        return {
            "identity": f"program {digest}" if is_there else "",
            "places": [*files, *places],
        }

    def witnesses(answer: Any) -> list[str]:
        return [*answer["places"]]

    answer = cached_answer(question, find, witnesses)
    is_right = isinstance(answer, dict) and isinstance(answer.get("places"), list)
    return answer if is_right and "identity" in answer else find()
