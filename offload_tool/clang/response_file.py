r"""Response files: an argument ``@FILE`` stands for the arguments that FILE holds.

LLVM's tools and clang's driver share these rules. Blanks and line ends separate arguments; single
and double quotes keep them. A backslash escapes the next character, also within quotes. An open
quote ends with the file, a NUL an argument; an empty one cannot be written. A file may begin with a
byte order mark of UTF-8 or UTF-16. It may name further ones, relative to the working directory.
Without the file, the argument stays unchanged.

Configuration files of clang also have comments and continued lines. A file that they include is
relative to their own directory.

Source: LLVM 22.1.8, ``cl::TokenizeGNUCommandLine`` and ``cl::tokenizeConfigFile``, and its
programs: clang 15 to 23 and clang-offload-bundler were run.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from offload_tool.errors import FileError, UsageError
from offload_tool.io.file_digests import cached_by_stat
from offload_tool.io.limits import effective_budget

if TYPE_CHECKING:
    import re

    _Identity: TypeAlias = tuple[int, int]
    _Found: TypeAlias = tuple[Iterable[str], _Identity]

# Compiled and imported only for command lines with a response file, as both are slow.
_ARGUMENT = rb"""(?sx)(?: \\. | '(?:\\.|[^'])*'? | "(?:\\.|[^"])*"? | [^\ \t\r\n'"] )+"""
_QUOTED = rb"""(?s)\\(.)|'((?:\\.|[^'])*)'?|"((?:\\.|[^"])*)"?"""
_ESCAPE = rb"(?s)\\(.)"
_LINE = rb"(?s)[ \t\r\n]+|\#[^\n]*|((?:\\\r\n|\\.|[^\n])+)"
_CONTINUED = rb"(?s)\\(?:\r?\n|(.))"
_ARGUMENTS = 16
"""The approximate memory of an argument, in bytes for each of its bytes."""
_OTHER_QUOTING = ("--rsp-quoting=windows", "--driver-mode=cl")


class Expansion(NamedTuple):
    """A command after the expansion of its response files."""

    args: tuple[str, ...]
    files: tuple[str, ...] = ()
    """The response files that it was expanded from."""


def expand_response_files(arguments: Iterable[str]) -> list[str]:
    """Replace each ``@FILE`` by its arguments; raise UsageError if unreadable or recursive."""
    return list(_expand(arguments, _read_once, []))


def expand_command(args: Iterable[str]) -> Expansion:
    """Return a compile command's arguments with its response files expanded; raise UsageError."""
    arguments = tuple(args)
    if not any(arg.startswith("@") for arg in arguments):
        return Expansion(arguments)
    check_quoting(arguments)
    files: list[str] = []
    return Expansion(tuple(_expand(arguments, _read_cached, files)), tuple(dict.fromkeys(files)))


def check_quoting(args: Sequence[str]) -> None:
    """Raise UsageError if an option selects another quoting of response files than POSIX's."""
    for arg in args:
        if arg in _OTHER_QUOTING:
            raise UsageError(f"'{arg}': response files of Windows are not read; quote as POSIX")


def configuration_args(name: str) -> list[str]:
    """Return the arguments in a configuration file; none if it cannot be read."""
    import re

    try:
        with open(name, "rb") as file:
            content = _decoded(file.read())
    except (OSError, UsageError):
        return []
    lines = (found[1] for found in re.finditer(_LINE, content) if found[1])
    joined = (re.sub(_CONTINUED, lambda found: found[0] if found[1] else b"", x) for x in lines)
    return [arg.partition("\0")[0] for line in joined for arg in _split(line)]


def _expand(
    arguments: Iterable[str], read: Callable[[str], _Found | None], files: list[str]
) -> Iterator[str]:
    # An explicit stack, as a long chain of files must not hit the recursion limit.
    stack: list[tuple[Iterator[str], str, _Identity | None]] = [(iter(arguments), "", None)]
    limits = effective_budget()
    seen: set[_Identity] = set()
    while stack:
        arg = next(stack[-1][0], None)
        if arg is None:
            stack.pop()
            continue
        arg = arg.partition("\0")[0]
        opened = read(arg[1:]) if arg.startswith("@") else None
        if opened is None:
            yield arg
            continue
        inner, identity = opened
        if identity in seen:  # only the first read of a file is free of the limit
            limits.reread(_ARGUMENTS * _size_of(arg[1:]), arg[1:])
        seen.add(identity)
        for _, name, open_identity in stack:
            if identity == open_identity:
                raise UsageError(f"recursive expansion of: '{_absolute(name)}'")
        files.append(arg[1:])
        stack.append((iter(inner), arg[1:], identity))


def _size_of(name: str) -> int:
    try:
        return os.stat(name or ".").st_size
    except OSError:
        return 0


def _read_once(name: str) -> _Found | None:
    """Return the arguments in a file and its identity, or None if it does not exist."""
    from offload_tool.io.input_file import open_regular, read_all

    try:
        descriptor, _ = open_regular(name or ".")
        try:
            status = os.fstat(descriptor)
            content = read_all(name, descriptor)
        finally:
            os.close(descriptor)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        # This is LLVM's message.
        reason = f"cannot not open file '{_absolute(name)}': {error.reason}"
        raise UsageError(reason) from error
    return _split(_decoded(content)), (status.st_dev, status.st_ino)


@cached_by_stat
def _arguments_in(name: str) -> tuple[list[str], _Identity] | None:
    found = _read_once(name)
    return None if found is None else (list(found[0]), found[1])


def _read_cached(name: str) -> _Found | None:
    """Return the result of `_read_once` for a regular file, from memory while it is unchanged."""
    with suppress(OSError):  # its reader reports it
        status = os.stat(name or ".")
        is_file = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        if not is_file and name != os.devnull:
            from offload_tool.io.input_file import describe_file

            raise UsageError(f"'@{name}' {describe_file(status)}; write the arguments into one")
    return _arguments_in(name)


def _absolute(name: str) -> str:
    # Unlike a Path, this keeps "./" and a final "/" as the user wrote them.
    return os.path.join(os.getcwd(), name) if name else os.getcwd()


def _decoded(content: bytes) -> bytes:
    """Convert UTF-16 with a byte order mark to UTF-8; remove a UTF-8 byte order mark."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return content.decode("utf-16").encode()
        except UnicodeError as error:
            raise UsageError("Could not convert UTF16 to UTF8") from error
    return content.removeprefix(codecs.BOM_UTF8)


def _split(content: bytes) -> Iterator[str]:
    import re

    for found in re.finditer(_ARGUMENT, content):
        argument = re.sub(_QUOTED, _unquoted, found[0])
        if argument:
            yield os.fsdecode(argument)


def _unquoted(piece: re.Match[bytes]) -> bytes:
    escaped, single, double = piece.groups()
    if escaped is not None:
        return bytes(escaped)
    import re

    return re.sub(_ESCAPE, rb"\1", double if single is None else single)
