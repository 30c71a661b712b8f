"""A precompiled header (PCH): what it is made of, and the names of its headers in objects.

Clang uses the absolute name of a header in a PCH, however it was spelled. ``__builtin_FILE()``,
``std::source_location``, ``assert`` of glibc 2.43, and the types of lambdas contain it::

    -Iinclude  #include <a/h.h>      plain:      include/a/h.h
                                     PCH:        /home/x/include/a/h.h
    -fmacro-prefix-map=/home/x/include/a/=include/a/   and it is include/a/h.h again

So each folder with a relative spelling gets an option that maps it back. If no such options restore
every name, there is no PCH.

Source: clang 19.1, 21, 22.1 and 23, observed: if two folders are prefixes, the longer one applies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from offload_tool.clang.argument_files import all_args, include_folders
from offload_tool.clang.environment import ImplicitInputs
from offload_tool.io.file_digests import DigestCache
from offload_tool.io.paths import is_same_file, remove, sibling
from offload_tool.io.process import capture
from offload_tool.manifest.inputs import files_in_depfile, not_listed
from offload_tool.manifest.output_state import Work
from offload_tool.passes.command import dependency_flags
from offload_tool.pch.eligibility import RULES
from offload_tool.pch.include_prefix import SearchPath, absolute_name, without_dots

SHARED_OPTIONS = ("-Xclang", "-fno-pch-timestamp", "-Xclang", "-fvalidate-ast-input-files-content")
"""The options that a PCH and a pass with it share. With only one of the two, clang misses edits of
equal size and time, or rejects a touched header with ``#pragma once``. Source: clang 22.1.8,
observed."""
MAP = "-fmacro-prefix-map="
"""The option that replaces beginnings of names in macros."""
_OF_DRIVER = ("-Xclang", "-fsyntax-only")
_KEEP_DOTS = "-fno-file-reproducible"
"""Without this option, such a map also strips ``./``."""


class Names(NamedTuple):
    """The folder of a PCH's quoted header, which the PCH's text includes by its absolute name.

    Without a PCH, such a header and its quoted includes have names in a relative folder::

        src/norm.cuh    #include "common.cuh"                 src/common.cuh
        text of a PCH   #include "/home/x/src/common.cuh"     /home/x/src/common.cuh
    """

    folder: str = ""
    """The absolute folder of the header, with a trailing slash."""
    spelled: str = ""
    """The folder as spelled without a PCH."""

    @staticmethod
    def of(headers: Sequence[str], folder: str) -> Names:
        """Return the names of a PCH's headers."""
        for each in headers:
            if each[0] == '"':
                spelled = each[1:-1]
                return Names(_folder_of(absolute_name(spelled, folder)), _folder_of(spelled))
        return Names()

    @property
    def options(self) -> list[str]:
        """The options that restore the headers' names in macros."""
        if self.folder == self.spelled:
            return []
        return [_KEEP_DOTS, f"{MAP}{self.folder}={self.spelled}"]

    def restored(self, name: str) -> str:
        """Return a name that the compiler reports, as it is without a PCH."""
        if self.folder and name.startswith(self.folder):
            return self.spelled + name.removeprefix(self.folder)
        return name

    def shown(self, name: str) -> str:
        """Return the name as in depfiles and messages."""
        return without_dots(self.restored(name))


def options_for(entered: Iterable[str], folder: str) -> tuple[list[str], str]:
    """Return options that restore files' names, and the first that they do not restore."""
    names = {name: absolute_name(name, folder) for name in entered}
    maps: dict[str, str] = {}
    for name, absolute in names.items():
        maps.setdefault(_folder_of(absolute), _folder_of(name))
    changed = [absolute for absolute, name in maps.items() if absolute != name]
    needed = [
        f"{MAP}{absolute}={name}"
        for absolute, name in sorted(maps.items())
        if any(absolute.startswith(other) for other in changed)
    ]
    args = [_KEEP_DOTS, *needed] if needed else []
    mapped = ((name, mapped_name(absolute, args)) for name, absolute in names.items())
    return args, next((name for name, found in mapped if found != name), "")


def write_options(file: str, args: Sequence[str], *, is_guarded: bool) -> None:
    """Write a PCH's options, and whether its headers are guarded; raise FileError."""
    from offload_tool.io import replace_file

    with replace_file(file) as out:
        out.write(json.dumps([is_guarded, *args]).encode())


def read_options(file: str) -> tuple[tuple[str, ...], bool] | None:
    """Return what `write_options` wrote; None if the file is missing or invalid."""
    try:
        with open(file, "rb") as opened:
            is_guarded, *args = json.load(opened)
            return tuple(map(str, args)), is_guarded is True
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _folder_of(name: str) -> str:
    return name[: name.rfind("/") + 1]


def mapped_name(absolute: str, args: Sequence[str]) -> str:
    """Return the name that clang gives a file with these options."""
    maps = [arg.removeprefix(MAP).partition("=") for arg in args if arg.startswith(MAP)]
    for old, _, new in sorted(maps, reverse=True):
        if absolute.startswith(old):
            return new + absolute.removeprefix(old)
    return absolute


def front_end_args(args: Iterable[str]) -> list[str]:
    """Return arguments for the driver as those of the front end's own command.

    That allows no second action; without any, it is ``-fsyntax-only``.
    """
    return [arg.removeprefix("-Xclang=") for arg in args if arg not in _OF_DRIVER]


class PchRecipe(NamedTuple):
    """A PCH, and the passes that it is for."""

    file: str
    stage: str
    """``device`` or ``host``."""
    args: tuple[str, ...]
    """The common command of these passes, for the driver or for the front end (``-cc1``): see
    `args_without_source`."""
    program_args: int
    """How many arguments name the compiler."""
    environment: Mapping[str, str]
    compiler_identity: str
    implicit_inputs: Callable[[], ImplicitInputs]
    """Returns the header search path of these passes."""
    version: Callable[[], str] = str
    """As `Work.version`."""
    digests: Callable[[], DigestCache] = DigestCache
    """Returns known digests of files."""

    @property
    def text_file(self) -> str:
        """The file with the PCH's text."""
        return sibling(self.file, ".includes")

    @property
    def names_file(self) -> str:
        """The file with the options that restore the headers' names."""
        return sibling(self.file, ".names")

    @property
    def tokens_file(self) -> str:
        """The file with the tokens in the headers, written when needed."""
        return sibling(self.file, ".words")

    @property
    def folder(self) -> str:
        """The working directory, as clang spells it.

        Source: LLVM's ``sys::fs::current_path``: ``PWD`` if that is the folder.
        """
        given = self.environment.get("PWD", "")
        return given if os.path.isabs(given) and is_same_file(given, ".") else os.getcwd()

    @property
    def depfile(self) -> str:
        """The compiler's depfile for the PCH."""
        return sibling(self.file, ".d")

    @property
    def search_path(self) -> SearchPath:
        """The header search path of these passes."""
        user_folders = include_folders(all_args(self.args), ("-I", "-iquote"))
        return SearchPath(self.folder, self.implicit_inputs().folders, user_folders)

    def with_args(self, *more: str) -> list[str]:
        """Return the common command with further arguments, given as for the driver."""
        is_front_end = self.args[self.program_args : self.program_args + 1] == ("-cc1",)
        return [*self.args, *(front_end_args(more) if is_front_end else more)]

    def command(self, names: Names) -> list[str]:
        """Return the command that makes the PCH of headers with such names."""
        making = ("-emit-pch", "-o", self.file, "-header-include-file", self.names_file)
        args = [part for arg in making for part in ("-Xclang", arg)]
        options = (*SHARED_OPTIONS, *names.options, *dependency_flags(self.depfile))
        return self.with_args("-fsyntax-only", *args, *options, self.text_file)

    def work(self) -> Work:
        """Return its description for the manifest."""
        return Work(
            self.file,
            [*self.args, "-fsyntax-only", self.text_file],
            self.environment,
            # A PCH holds absolute names of headers, so a copied folder needs its own.
            f"{self.compiler_identity}, in {self.folder}, rules {RULES}",
            (self.text_file,),
            self.implicit_inputs,
            self._files_read,
            self._preprocess,
            version=self.version,
        )

    def _files_read(self) -> list[str]:
        if (read := self._listed()) is None:
            raise not_listed(self.depfile, self.text_file)
        return read

    def _listed(self) -> list[str] | None:
        return files_in_depfile(self.depfile, self.text_file, self.args)

    def _preprocess(self) -> list[str] | None:
        args = ("-w", "-fsyntax-only", "-Xclang", "-Eonly", *dependency_flags(self.depfile))
        try:
            remove(self.depfile)
            status = capture(self.with_args(*args, self.text_file), self.environment).status
            return self._listed() if status == 0 else None
        except OSError:
            return None
        finally:
            remove(self.depfile)
