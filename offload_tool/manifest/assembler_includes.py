r"""Files that the assembler reads for statements in C++ sources: no depfile lists them.

::

    asm(".incbin \"table.bin\"");        R"(.INCLUDE "macros.s")"

The assembler searches the working directory, then the search path, in an order other than the
command's: all files of that name count. Included files are followed. Directives ignore case, and
C++ has escapes (``.inc\x62in``). If macros compose a name, the inputs are not known. Nor are they
if strings, macros or the assembler's macros may compose the statement itself, or if a flag holds
it.

Text cannot show everything that macros can do. The patterns match pieces of the two directives
where a statement begins; instructions, also those with operands of macros, have none.

Source: clang 22.1.8, observed: of ``-isystem a -I b`` its integrated assembler takes `b`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from offload_tool.clang.argument_files import all_args, possible_files
from offload_tool.io.file_digests import cached_by_stat, content_of, file_stat
from offload_tool.toolchain.identity import has_configuration

# For lower-case text. Each begins with a dot or a word, which is fast to find.
_BLANKS = r"(?:\s|\\[tn])*"
_STATEMENT = re.compile(rf'\.i(?:ncbin|nclude{_BLANKS}(?:\\?"|/[*/]))'.encode())
_NAMED = re.compile(rf'\.i(?:ncbin|nclude){_BLANKS}\\?"([^"\\\n]+)\\?"'.encode())
_BEGUN = r'\.i(?<=["\s;:/nt]\.i)(?:n(?:c(?:b(?:in?)?|l(?:u(?:de?)?)?)?)?)?'
"""The beginning of a directive, where a statement may begin."""
_GOES_ON = r'\s*(?:["#a-z_]|/[*/])'
"""A string, an argument or a macro, after a string."""
_ASM = r"asm(?<![a-z0-9]asm)(?:__)?\b"
_COMPOSED = tuple(
    re.compile(pattern.encode())
    for pattern in (
        # a name apart from its dot, and names or parts of them as arguments of macros
        r"incbin(?<![\w./]incbin)\b(?!\.)",
        r"include(?:(?<=[(,]include)|(?<=[(,] include))\s*(?:[,)]|\\n)",
        r"\.in(?<=\(\.in)(?:c(?:[bl][a-z]*)?)?\s*\)",
        r"\.in(?:(?<=[(,]\.in)|(?<=[(,] \.in))(?:c(?:[bl][a-z]*)?)?\s*,\s*[bcln][a-z]*\s*[,)]",
        # a string, maybe a raw one, that ends within a name
        rf'{_BEGUN}(?:\)[^\s()\\"]{{0,16}})?"(?:[ \t]*(?:[\r\n]|\Z)|{_GOES_ON})',
        rf'{_ASM}[^;{{}}]{{0,400}}?(?:\(\s*"|\\[nt]"\s*"|\\[nt]|;)\s*\."{_GOES_ON}',
        # arguments of the assembler's macros, in strings and raw strings
        rf"{_BEGUN}\\\\[\w@(]",
        r"\.(?<=[;nt]\.)\\\\[\w@(]",
        r'\.inc(?<=["\s;:/nt]\.inc)[a-z]*\\[a-mo-qsu-z@(]',
        # the text of an expression, and letters by their names
        rf"{_ASM}(?:\s|volatile|__volatile__|__volatile|goto|inline)*\(\s*\(",
        r"\\n\{(?:full stop|latin (?:small|capital) letter [incblude])\}",
    )
)
"""Patterns of statements that may be composed."""
_LETTER = "(?:2[eE]|[46][1-9a-fA-F]|[57][0-9aA])"
_ESCAPE = re.compile(
    rf"\\(?:(?:x\{{?0*|u00|u\{{0*|U000000)({_LETTER})(?![0-9a-fA-F])\}}?"
    r"|o?\{?0*(56|1[0-7]{2})\}?)".encode()
)
"""Escapes of letters and dots."""
_CONTINUED = re.compile(rb"\\\r?\n")
_MAX_FOLLOWED = 1000

_LARGEST = 1 << 20
"""Size limit, in bytes, of a file that a flag names and that may hold flags."""


class UnknownReadsError(Exception):
    """The file that a statement reads is not known; the message names the file or argument."""


def has_assembler_include(text: bytes) -> bool:
    """Return whether a text may have such a statement."""
    return _names(text) != ()


def assembler_reads(
    files: Iterable[str], folders: Sequence[str], args: Iterable[str] = ()
) -> list[str]:
    """Return the files that statements in `files` read, recursively.

    The search covers the working directory and `folders`. `args` are the command's arguments.

    :raises UnknownReadsError: a file is not known.
    """
    _check_args(tuple(args))
    waiting = list(files)
    seen = set(waiting)
    found: list[str] = []
    while waiting:
        file = waiting.pop()
        for raw in _names_in(file):
            name = os.fsdecode(raw)
            paths = (os.path.join(folder, name) for folder in ("", *folders))
            existing = list(filter(os.path.isfile, paths))
            if not existing or len(found) > _MAX_FOLLOWED:
                raise UnknownReadsError(file)  # such as a comment, or text for another program
            new = [path for path in existing if path not in seen]
            seen.update(new)
            found += new
            waiting += new
    return found


def _check_args(args: tuple[str, ...]) -> None:
    """Check that no macro of a command, nor of a file that it names, is such a statement.

    :raises UnknownReadsError: one is.
    """
    for arg in all_args(args):
        if has_assembler_include(os.fsencode(arg)):
            raise UnknownReadsError(arg)
    if has_configuration(args):
        for name in possible_files(args):
            status = file_stat(name)
            if status is not None and status.size < _LARGEST and _names_in(name):
                raise UnknownReadsError(name)


def _names_in(file: str) -> tuple[bytes, ...]:
    """Return the names in a file's statements.

    :raises UnknownReadsError: a statement has no plain name.
    """
    names = _names_as_written(file)
    if names is None:
        raise UnknownReadsError(file)
    return names


@cached_by_stat
def _names_as_written(file: str) -> tuple[bytes, ...] | None:
    return _names(content_of(file))


def _names(text: bytes) -> tuple[bytes, ...] | None:
    """Return the names in a text's statements; None if a statement has no plain name."""
    if b"\\\n" in text or b"\\\r\n" in text:
        text = _CONTINUED.sub(b"", text)
    if b"\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
    small = text.lower()
    if any(pattern.search(small) for pattern in _COMPOSED):
        return None
    names = tuple(text[slice(*found.span(1))] for found in _NAMED.finditer(small))
    return names if len(names) == len(_STATEMENT.findall(small)) else None


def _unescaped(escape: re.Match[bytes]) -> bytes:
    digits, octal = escape.groups()
    return bytes([int(digits, 16) if digits else int(octal, 8)])
