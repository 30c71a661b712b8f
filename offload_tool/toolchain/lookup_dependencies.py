"""On what each answer of a compiler depends, whatever it was asked, but for what the answer names.

An answer that is kept (`disk_cache`) holds while all of this looks as it did:

- the programs of the command, their shared libraries, and where the loader looked before
- folders in which a program may appear that would be run in its place: those of PATH and
  COMPILER_PATH, what ``-B`` names, and the compiler's own
- configuration files, and the folders in which others may appear
- the folders of GCC's installations

Variables that have a say in it are part of each question: `heeded.ASKED_VARIABLES`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence

from offload_tool.clang.environment import ASKED_VARIABLES

CONFIGURATION_FOLDERS = ("/etc/clang", "~/.config/clang")
"""Where clang looks for them, beside its own folder."""
_CONFIGURATION = ".cfg"
_CONFIGURATION_FOLDER = ("--config-user-dir=", "--config-system-dir=")
_CONFIGURATION_FILE = ("--config=", "-config=")
_PREFIXES = ("-B", "--prefix=", "--prefix")
_GCC = ("lib/gcc", "lib64/gcc", "lib/gcc-cross")
_ROOTS = ("--sysroot=", "--gcc-toolchain=", "--gcc-install-dir=")


def asked_in(environment: Mapping[str, str]) -> list[str]:
    """Return what the answer to any question depends on beside files: variables, as text.

    The working directory is part of it where one of them names a folder that is relative to it.
    """
    values = [environment.get(name, "") for name in ASKED_VARIABLES]
    places = (place for value in filter(None, values) for place in value.split(os.pathsep))
    relative = not all(place.startswith("/") for place in places)
    return [*values, os.getcwd() if relative else ""]


def places_asked(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Return the files and folders on which all answers of a command depend."""
    from offload_tool.clang.response_file import expand_command
    from offload_tool.toolchain.programs import LIBRARY_PATH, program_places

    expanded = expand_command(words)
    yield from expanded.files
    words = expanded.words
    yield from _program_folders(words, environment)
    folders = [*map(os.path.expanduser, CONFIGURATION_FOLDERS)]
    for word in itertools.takewhile(lambda word: not word.startswith(("-", "@")), words):
        yield from (file for file in _looked_up(word, environment))
        program = next(filter(_is_program, _looked_up(word, environment)), "")
        if program:
            yield from program_places(program, environment.get(LIBRARY_PATH, ""))
            real = os.path.realpath(program)
            yield real
            folders += (os.path.dirname(name) for name in (program, real))
    folders += _values(words, _CONFIGURATION_FOLDER)
    for folder in folders:
        yield folder
        if os.path.isdir(folder):
            names = os.listdir(folder)
            yield from (f"{folder}/{name}" for name in names if name.endswith(_CONFIGURATION))
    yield from _values(words, _CONFIGURATION_FILE)
    for root in ("/usr", *_values(words, _ROOTS)):
        yield from (f"{root}/{place}" for below in ("", "usr/") for place in _below(below))
        yield root


def _below(folder: str) -> Iterator[str]:
    return (f"{folder}{name}" for name in _GCC)


def _values(words: Sequence[str], options: tuple[str, ...]) -> list[str]:
    return [word.partition("=")[2] for word in words if word.startswith(options)]


def _looked_up(word: str, environment: Mapping[str, str]) -> list[str]:
    """Return the names under which a program is looked for, in this order."""
    if "/" in word:
        return [word]
    return [f"{folder}/{word}" for folder in _folders(environment, "PATH")]


def _is_program(name: str) -> bool:
    return os.path.isfile(name) and os.access(name, os.X_OK)


def _folders(environment: Mapping[str, str], name: str) -> list[str]:
    given = environment.get(name, os.defpath if name == "PATH" else "")
    return list(filter(None, given.split(os.pathsep)))


def _program_folders(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Return the folders in which clang looks for programs, but for its own.

    Source: clang 22.1.8, ``Driver::GetProgramPath``: what ``-B`` and COMPILER_PATH give may be the
    beginning of a path, too.
    """
    yield from _folders(environment, "PATH")
    prefixes = _folders(environment, "COMPILER_PATH")
    for word, behind in itertools.zip_longest(words, words[1:], fillvalue=""):
        option = next(filter(word.startswith, _PREFIXES), None)
        if option is not None:
            prefixes.append(word.removeprefix(option) or behind)
    for prefix in prefixes:
        yield prefix
        if not os.path.isdir(prefix):
            yield os.path.dirname(prefix) or "."
