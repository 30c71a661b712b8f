r"""The names that ``__has_include`` and ``__has_embed`` test, in all spellings.

A depfile lists the files that they find; those they miss appear only in the text of the files::

    #if __has_include(<x.h>)                              x.h
    #define NAME <x.h>      #if __has_include(NAME)       x.h, if all definitions are such
    #define HAS(n) __has_include(n)    #if HAS(<x.h>)     x.h
    #define HAS(n) __has_include(<n/x.h>), and others     unknown: the preprocessor must run

In files of the system, names count as spelled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from offload_tool.clang.argument_files import all_args
from offload_tool.clang.options import CONFIGURATION, does
from offload_tool.io.file_digests import cached_by_stat, content_of, is_system_path

# Compiled on first use: the check of an unchanged build needs none.
_NAMED = rb"__has_(?:include(?:_next)?|embed)\s*\(\s*(?:\"([^\"\n]+)\"|<([^>\n]+)>)"
_COMMENT = rb"(?s)(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*"
_CONTINUATION = rb"\\\r?\n"
_DIRECTIVE = rb"(?m)^[ \t]*(?:#|%:|\?\?=)[ \t]*(if|elif|define)\b([^\n]*)"
_DEFINED = rb"\bdefined\s*\(?\s*__has_\w+"
_TEST = rb"__has_(?:include(?:_next)?|embed)\b"
_ARGUMENT = rb"\s*\(\s*(?:\"([^\"]+)\"|<([^>]+)>|(\w+))"
_DEFINITION = rb"\s*(\w+)(\([^)]*\))?(.*)"
_IDENTIFIER = rb"[A-Za-z_]\w*"
_QUOTED = rb"\s*(?:\"([^\"]+)\"|<([^<>]+)>)\s*"
_MAX_MACRO_DEPTH = 8


class HasIncludeNames:
    """The names in one file."""

    def __init__(self, text: bytes, plain: bytes) -> None:
        """Parse a text; `plain` is the same without comments."""
        found = (match for version in (text, plain) for match in re.finditer(_NAMED, version))
        self.names = tuple(dict.fromkeys(_decoded(match[1] or match[2]) for match in found))
        self.in_macros: list[bytes] = []
        """Names in macros' bodies, which other macros may change."""
        self.macros: list[bytes] = []
        """Macros that expand to a name."""
        self.wrappers: list[bytes] = []
        """Macros that pass their argument on."""
        self.unknown = False
        for directive in re.finditer(_DIRECTIVE, plain):
            if b"__has_" in directive[2]:
                self._add(directive[1], directive[2])

    def _add(self, directive: bytes, condition: bytes) -> None:
        macro, parameters = b"", set[bytes]()
        if directive == b"define":
            definition = re.match(_DEFINITION, condition)
            if definition is None or definition[1].startswith(b"__has_"):
                return
            macro, condition = definition[1], definition[3]
            parameters = {*re.findall(_IDENTIFIER, definition[2] or b"")}
        condition = re.sub(_DEFINED, b"", condition)
        for test in re.finditer(_TEST, condition):
            argument = re.match(_ARGUMENT, condition[test.end() :])
            if argument is None or parameters & {*re.findall(_IDENTIFIER, argument[2] or b"")}:
                self.unknown = True
            elif argument[2] and macro:
                self.in_macros.append(argument[2])
            elif argument[3] in parameters:
                self.wrappers.append(macro)
            elif argument[3]:
                self.macros.append(argument[3])


class _UnknownNameError(Exception):
    """A name is not spelled out anywhere."""


def has_include_names(read: Sequence[str], args: Iterable[str]) -> tuple[list[str], bool]:
    """Return the names that the files test, and whether there may be more.

    `args` are the command's arguments, which may define macros.
    """
    tested = [(path, has_include_names_in(path)) for path in read]
    names = [name for _, found in tested for name in found.names]
    if any(found.unknown for _, found in tested):
        return names, True
    outside_system = [found for path, found in tested if not is_system_path(path)]
    in_macros = [name for found in outside_system for name in found.in_macros]
    macros = {name for _, found in tested for name in found.macros}
    wrappers = {name for _, found in tested for name in found.wrappers}
    if not (in_macros or macros or wrappers):
        return names, False
    try:
        definitions = _Definitions(read, args)
        for name in in_macros:
            definitions.check(name)
        for macro in macros:
            names += definitions.names_of(macro)
        for wrapper in wrappers:
            names += definitions.arguments_of(wrapper)
    except _UnknownNameError:
        return names, True
    return names, False


class _Definitions:
    """The macros of some files and a command."""

    def __init__(self, read: Sequence[str], args: Iterable[str]) -> None:
        self._read = read
        self._bodies: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for path in read:
            for name, parameters, body in _definitions_in(path):
                self._bodies.setdefault(name, []).append((parameters, body))
        before = ""
        for arg in all_args(args):
            if does(arg, CONFIGURATION):
                raise _UnknownNameError  # it may define macros
            definition = arg if before == "-D" else arg[2:] if arg.startswith("-D") else ""
            name, _, body = definition.encode(errors="surrogateescape").partition(b"=")
            if name:
                self._bodies.setdefault(name, []).append((b"", body))
            before = arg

    def check(self, name: bytes) -> None:
        """Check that no macro is expanded in a name."""
        if any(token in self._bodies for token in re.findall(_IDENTIFIER, name)):
            raise _UnknownNameError

    def names_of(self, macro: bytes, depth: int = _MAX_MACRO_DEPTH) -> Iterator[str]:
        """Yield the names that a macro expands to."""
        bodies = self._bodies.get(macro)
        if not bodies or not depth:
            raise _UnknownNameError
        for parameters, body in bodies:
            quoted = re.fullmatch(_QUOTED, body)
            if parameters or (quoted is None and re.fullmatch(_IDENTIFIER, body.strip()) is None):
                raise _UnknownNameError
            if quoted is None:
                yield from self.names_of(body.strip(), depth - 1)
                continue
            if quoted[2]:
                self.check(quoted[2])
            yield _decoded(quoted[1] or quoted[2])

    def arguments_of(self, wrapper: bytes) -> Iterator[str]:
        """Yield the names that directives pass to a macro."""
        for path in self._read:
            for quoted, spelled in _uses_in(path, wrapper):
                if not quoted and not spelled:
                    raise _UnknownNameError
                self.check(spelled)
                yield _decoded(quoted or spelled)


@cached_by_stat
def has_include_names_in(path: str) -> HasIncludeNames:
    """Return the names that a file tests."""
    text = _text(path)
    return HasIncludeNames(text, _without_comments(text)) if b"__has_" in text else _NOTHING


_NOTHING = HasIncludeNames(b"", b"")


@cached_by_stat
def _definitions_in(path: str) -> tuple[tuple[bytes, bytes, bytes], ...]:
    """Return the macros that a file defines: name, parameters, body."""
    found = []
    for directive in re.finditer(_DIRECTIVE, _without_comments(_text(path))):
        definition = re.match(_DEFINITION, directive[2]) if directive[1] == b"define" else None
        if definition is not None:
            found.append((definition[1], definition[2] or b"", definition[3]))
    return tuple(found)


@cached_by_stat
def _uses_in(path: str, macro: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return a macro's arguments in a file: quoted, in angles; both empty if unknown."""
    text = _text(path)
    if macro not in text:
        return ()
    found = []
    for directive in re.finditer(_DIRECTIVE, _without_comments(text)):
        condition = re.sub(rb"\bdefined\s*\(?\s*" + macro + rb"\b", b"", directive[2])
        if directive[1] == b"define":
            condition = re.sub(rb"^\s*" + macro + rb"\b", b"", condition)
        for use in re.finditer(rb"\b" + macro + rb"\b", condition):
            argument = re.match(_ARGUMENT, condition[use.end() :])
            quoted = (argument[1] or b"", argument[2] or b"") if argument else (b"", b"")
            found.append(quoted)
    return tuple(found)


def _text(path: str) -> bytes:
    return re.sub(_CONTINUATION, b"", content_of(path))


def _without_comments(text: bytes) -> bytes:
    return re.sub(_COMMENT, lambda match: match[1] or b" ", text)


def _decoded(name: bytes) -> str:
    return name.decode(errors="surrogateescape").strip()
