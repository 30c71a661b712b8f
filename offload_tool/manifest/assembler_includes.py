r"""Statements by which the assembler reads files that no depfile lists.

::

    asm(".incbin \"table.bin\"");        R"(.INCLUDE "macros.s")"

As in ccache, nothing searches for the file: a pass whose text may have such a statement is never
reused. Adjacent strings, macros, escapes (``.inc\x62in``) and the assembler's own macros may
compose a statement. So the patterns match pieces of the two directives where a statement may begin.
Instructions, also those with operands of macros, have none. Text cannot show everything that macros
can do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from offload_tool.clang.argument_files import all_args, possible_files
from offload_tool.io.file_digests import cached_by_stat, content_of, file_stat
from offload_tool.toolchain.identity import has_configuration

_FIRST = r'(?:(?<=["\s;:/]\.)|(?<=\\[nt]\.))'
"""Behind a dot: a statement may begin with it."""
_GOES_ON = r'\s*(?:["#a-z_]|/[*/])'
"""A string, an argument or a macro, after a string."""
_ASM = r"asm(?<![a-z0-9]asm)(?:__)?\b"
_PATTERNS = tuple(
    re.compile(pattern.encode())
    for pattern in (
        # a name, maybe apart from its dot
        r"incbin\b(?!\s*[.(])",
        (
            r'include(?:(?:(?<=[.}]include)|(?<=(?:2e|56)include))(?:\s|\\[tn])*(?:\\?"|/[*/])'
            r"|(?:(?<=[(,]include)|(?<=[(,] include))\s*(?:[,)]|\\n))"
        ),
        # a part of a name as a macro's argument
        r"\.(?:in(?:(?<=[(,]\.in)|(?<=[(,] \.in))(?:c(?:[bl][a-z]*)?)?\s*(?:\)|,\s*[bcln])"
        # a part at the end of a string, maybe a raw one, or before a backslash
        rf"|{_FIRST}i(?:n(?:c(?:b(?:in?)?|l(?:u(?:de?)?)?)?)?)?"
        r'(?:(?:\)[^\s()\\"]{0,16})?"(?:[ \t]*(?:[\r\n]|\Z)|' + _GOES_ON + r')|\\(?:n\{|[^nrt"]))'
        rf"|{_FIRST}\\[xuo0-7]"
        r"|(?:(?<=[\n;]\.)|(?<=\\[nt]\.))\\(?:\\[\w@(]|[a-mo-qsu-z@(]))",
        # only the dot, or the text of an expression
        (
            rf'{_ASM}(?:[^;{{}}]{{0,400}}?(?:\(\s*"|\\[nt]"\s*"|\\[nt]|;)\s*\."{_GOES_ON}'
            r"|(?:\s|volatile|__volatile__|__volatile|goto|inline)*\(\s*\()"
        ),
    )
)
"""For lower-case text. Each begins with a dot or a word, which is fast to find."""

_LARGEST = 1 << 20
"""Size limit, in bytes, of a file that a flag names and that may hold flags."""


def has_assembler_include(text: bytes) -> bool:
    """Return whether a text may have such a statement."""
    small = text.lower()
    return any(pattern.search(small) for pattern in _PATTERNS)


def assembler_include(files: Iterable[str], args: Iterable[str]) -> str:
    """Return the file or argument that may have such a statement, of those read or named; or ""."""
    args = tuple(args)
    for arg in all_args(args):
        if has_assembler_include(os.fsencode(arg)):
            return arg
    named = possible_files(args) if has_configuration(args) else ()
    configuration = filter(_may_hold_flags, named)
    return next((name for name in (*files, *configuration) if _file_has_one(name)), "")


def _may_hold_flags(name: str) -> bool:
    status = file_stat(name)
    return status is not None and status.size < _LARGEST


@cached_by_stat
def _file_has_one(file: str) -> bool:
    return has_assembler_include(content_of(file))
