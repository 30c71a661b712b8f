r"""What the text of a pass's files says of inputs that no depfile lists.

**Names that** ``__has_include`` **and** ``__has_embed`` **test.** A depfile lists the files that
they find; those they miss appear only in the text of the files::

    #if __has_include(<x.h>)                                x.h
    #define HAS(n) __has_include(n)    #if HAS("x.h")       x.h
    #define HAS __has_include          #if HAS(<x.h>)       x.h
    #define NAME <x.h>    #if __has_include(NAME)           unknown: the preprocessor must run
    #if PASTE(__has_, include)(<x.h>)                       unknown

Names in angles within a macro's body or argument are unknown, too, as macros may change them. In
files outside of the working directory, as of an installed toolkit, they count as spelled.

**Statements by which the assembler reads files**::

    asm(".incbin \"table.bin\"");        R"(.INCLUDE "macros.s")"

As in ccache, nothing searches for the file: a pass whose text may have such a statement is never
reused. Adjacent strings, macros, escapes (``.inc\x62in``) and the assembler's own macros may
compose one, so the patterns match pieces of the two directives where a statement may begin.
Instructions have none. Text cannot show everything that macros can do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from offload_tool.clang.argument_files import all_args, possible_files
from offload_tool.clang.environment import pasted_pieces
from offload_tool.io.file_digests import content_of, digest_of, file_stat
from offload_tool.toolchain.disk_cache import kept_by_stat
from offload_tool.toolchain.identity import has_configuration

# Compiled on first use: the check of an unchanged build needs none.
_COMMENT = rb"(?s)(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*"
_CONTINUATION = rb"\\\r?\n"
_BACKSLASH = rb"(?:\\|\?\?/)[ \t\f\v\r]*"
_SPLICE = _BACKSLASH + rb"\n"
_NOT_IN_NAME = rb"(?<![\w$\x80-\xff])"
_UNCLEAR = (
    _NOT_IN_NAME + rb"(?:u8|[uUL])?R(?:%b)*\"" % _SPLICE,
    rb"//[^\n]*?" + _SPLICE,
    rb"/" + _SPLICE,
    rb"/\*(?:[^*]|\*(?!/))*?\*(?:%b)+/" % _SPLICE,
    _BACKSLASH + rb"/[/*]",
)
_CODE = (
    rb"^[ \t]*\#[ \t]*(?:include(?:_next)?|import)[ \t]*<[^>\n]*>",
    _NOT_IN_NAME + rb"\.?\d(?:[eEpP][+-]|'\w|[\w.])*",
    rb"\"(?:\\.|[^\"\\\n])*\"",
    rb"'(?:\\.|[^'\\\n])*'",
)
_LEXED = rb"(?sm)(?P<unclear>%b)|(?P<code>%b)|/\*.*?\*/|//[^\n]*|(?P<lone>[\"']|/\*)" % (
    b"|".join(_UNCLEAR),
    b"|".join(_CODE),
)
"""Comments, code that may look like one, and what may hide where one begins or ends."""
_DIRECTIVE = rb"(?m)^[ \t]*(?:#|%:|\?\?=)[ \t]*(if|elif|define)\b([^\n]*)"
_EMBED = rb"(?:#|%:|\?\?=)(?:\s|/\*.*?\*/)*embed\b"
_DEFINITION = rb"\s*\w*(\([^)]*\))?(.*)"
_TEST = rb"\b__has_(?:include(?:_next)?|embed)\b"
_MACROS = (b"__has_include", b"__has_include_next", b"__has_embed")
_OF_MACROS = set[bytes]().union(*(pasted_pieces(macro, len(macro) - 3) for macro in _MACROS))
_PIECES = rb"\b(?:%b)\b" % b"|".join(_OF_MACROS.difference(_MACROS))
_OF_PIECES = (b"__ha", b"as_include", b"as_embed")
_ARGUMENT = rb"\s*\(\s*(?:\"([^\"\n]+)\"|<([^>\n]+)>)"
_WRAPPER = rb"\s*(\w+)(?:\(\s*(\w+)\s*\)\s*" + _TEST + rb"\s*\(\s*\2\s*\)|\s+" + _TEST + rb")\s*"


class HasIncludeNames(NamedTuple):
    """The names that one file tests."""

    names: Sequence[str] = ()
    unknown: bool = False
    wrappers: Sequence[str] = ()
    """Macros that only pass their argument on, defined by the file."""
    aliases: Sequence[str] = ()
    """Macros that are the test itself."""


def has_include_names(read: Iterable[str]) -> dict[str, HasIncludeNames]:
    """Return the names that each of the files tests."""
    found = {path: HasIncludeNames(*_names_in(path, _TEST)) for path in read}
    wrappers = {name for each in found.values() for name in each.wrappers}
    aliases = {name for each in found.values() for name in each.aliases}
    for macros, is_literal in ((wrappers, False), (aliases, True)):
        test = rb"\b(?:%b)\b" % "|".join(sorted(macros)).encode()
        for path, known in found.items() if macros else ():
            more = HasIncludeNames(*_names_in(path, test, is_literal=is_literal))
            unknown = known.unknown or more.unknown
            found[path] = known._replace(names=(*known.names, *more.names), unknown=unknown)
    return found


@kept_by_stat
def _names_in(path: str, test: bytes, *, is_literal: bool = True) -> Sequence[Any]:
    """Return the names that a file tests by the macros that the pattern `test` matches.

    `is_literal`: these do not expand their argument.
    """
    text = re.sub(_CONTINUATION, b"", content_of(path))
    if test == _TEST and not any(piece in text for piece in _OF_PIECES):  # ten times as fast
        return HasIncludeNames()
    is_outside = path.startswith("/")
    is_pasted = test == _TEST and not is_outside and re.search(_PIECES, text) is not None
    if re.search(test, text) is None and not is_pasted:
        return HasIncludeNames()
    plain = re.sub(_COMMENT, lambda match: match[1] or b" ", text)
    named = (found for each in (text, plain) for found in re.finditer(test + _ARGUMENT, each))
    names = tuple(dict.fromkeys(_decoded(found[1] or found[2]) for found in named))
    wrappers: list[str] = []
    aliases: list[str] = []
    unknown = is_pasted and re.search(_PIECES, plain) is not None
    for directive in re.finditer(_DIRECTIVE, plain):
        condition = directive[2]
        is_spelled = is_literal or is_outside
        if directive[1] == b"define":
            macro = re.fullmatch(_WRAPPER, condition)
            if macro is not None:
                (wrappers if macro[2] else aliases).append(macro[1].decode())
                continue
            parameters, condition = re.findall(_DEFINITION, condition)[0]
            is_spelled = not parameters and is_outside
        condition = re.sub(rb"\bdefined\s*\(?\s*" + test, b"", condition)
        for use in re.finditer(test, condition):
            argument = re.match(_ARGUMENT, condition[use.end() :])
            unknown |= argument is None or not (argument[1] or is_spelled)
    return HasIncludeNames(names, unknown, tuple(wrappers), tuple(aliases))


@kept_by_stat
def has_embed(path: str) -> bool:
    """Return whether a file may have an ``#embed``."""
    text = re.sub(_CONTINUATION, b"", content_of(path))
    return b"embed" in text and re.search(_EMBED, text, re.DOTALL) is not None


@kept_by_stat
def code_digest(path: str) -> str:
    """Return a digest of a file without comments, empty lines, and blanks around lines.

    It has the comments, too, if it is not certain what they are.
    """
    text = content_of(path)
    if not any(each["unclear"] or each["lone"] for each in re.finditer(_LEXED, text)):
        text = re.sub(_LEXED, lambda match: match["code"] or b" ", text)
    return digest_of(b"\n".join(filter(None, map(bytes.strip, text.split(b"\n")))))


def _decoded(name: bytes) -> str:
    return os.fsdecode(name).strip()


# -- the assembler -----------------------------------------------------------------------

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
    stats = ((name, file_stat(name)) for name in named)
    configuration = (n for n, stat in stats if stat is not None and stat.size < _LARGEST)
    return next((name for name in (*files, *configuration) if _file_has_one(name)), "")


@kept_by_stat
def _file_has_one(file: str) -> bool:
    return has_assembler_include(content_of(file))
