r"""Depfiles: Makefile rules that list the files which a compile has read, clang's and our own.

Source: clang 22.1.8, observed: clang escapes blanks and ``#`` with a backslash, doubles ``$``, and
continues long rules after a backslash at the end of a line. It leaves ``:`` as it is. Ninja 1.13
and GNU Make 4.3 both read these escapes, and ``\:`` for a colon.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from offload_tool.clang.options import STAGE, TEMPORARIES, does
from offload_tool.errors import FileError, UnsupportedError, UsageError
from offload_tool.io.paths import StrPath

_SPECIAL = re.compile(r"(\\*) |[#:$]")
_MISREAD_ALONE = ("=", ";", "%")
"""Make misreads a rule for a name that holds one of these."""
_CLANG_WIDTH = 75
"""Columns after which clang continues a rule in the next line."""


def depfile_command(compile_command: Sequence[str]) -> list[str]:
    """Return a command that writes only a compile's depfile; its last argument is the source."""
    # With --save-temps each job writes a depfile, and the last of them names no source.
    args = [arg for arg in compile_command if not does(arg, STAGE | TEMPORARIES)]
    args[args.index("-o") + 1] = os.devnull
    return [*args[:-1], "-E", "-Qunused-arguments", args[-1]]


def read_depfile(path: StrPath) -> list[str]:
    """Return the prerequisites of a depfile's first rule; raise FileError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return parse_depfile(os.fsdecode(file.read()))
    except OSError as error:
        raise FileError(path, error) from error


def parse_depfile(text: str) -> list[str]:
    """Return the prerequisites of the first rule in `text`, unescaped, in order."""
    rule = text.replace("\\ ", "\0").replace("\\\n", " ").partition("\n")[0]
    names = rule.partition(": ")[2].split()
    return [name.replace("\0", " ").replace("\\#", "#").replace("$$", "$") for name in names]


def clang_depfile(targets: Iterable[str], names: Iterable[str], *, phony: bool) -> bytes:
    """Return clang's depfile for read files, the source first; UnsupportedError for backslashes.

    Source: clang's ``DependencyFileGenerator``; clang 19 to 23, observed.
    """
    out: list[bytes] = []
    column = 0
    for target in map(os.fsencode, targets):
        is_wrapped = bool(column) and column + len(target) + 2 > _CLANG_WIDTH
        out += [b" \\\n  " if is_wrapped else b" " * bool(column), target]
        column = len(target) + (2 if is_wrapped else column + bool(column))
    out.append(b":")
    column += 1
    files = [*map(os.fsencode, names)]
    escaped = [re.sub(rb"[ #]", rb"\\\g<0>", name).replace(b"$", b"$$") for name in files]
    for name, text in zip(files, escaped, strict=True):
        if b"\\" in name:
            raise UnsupportedError("depfiles replace its backslashes", path=os.fsdecode(name))
        if column + len(name) + 3 > _CLANG_WIDTH:
            out.append(b" \\\n ")
            column = 2
        out.append(b" " + text)
        column += len(name) + 1
    rules = [text + b":\n" for text in escaped[1:]] if phony else []
    return b"".join([*out, b"\n", *rules])


def depfile_text(output: str, names: Iterable[str]) -> str:
    """Return a rule, and an empty one for each name (``-MP``); raise UsageError for line breaks."""
    escaped = [_escape(name) for name in names]
    lines = [" \\\n  ".join([f"{_escape(output)}:", *escaped])]
    lines += (f"{name}:" for name in escaped if not any(mark in name for mark in _MISREAD_ALONE))
    return "\n".join(lines) + "\n"


def _escape(name: str) -> str:
    if "\n" in name or "\r" in name:
        raise UsageError(f"{name!r} holds a line break, which a depfile cannot; rename it")
    return _SPECIAL.sub(_escaped_match, name)


def _escaped_match(match: re.Match[str]) -> str:
    if match[0] == "$":
        return "$$"
    # Double the backslashes before an escaped blank, or they would escape one another.
    return f"{match[1]}{match[1]}\\ " if match[0].endswith(" ") else f"\\{match[0]}"
