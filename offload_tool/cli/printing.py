"""The one printer: all text of all commands, on both streams, goes through here.

Each line is one line: what came out of a file or a name cannot break it, nor send anything to
the terminal (`offload_tool.util.escape`). A stream that is closed or full is an error of its own.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from offload_tool.util.escape import one_line

if TYPE_CHECKING:
    from offload_tool.errors import OffloadError

_MOST_PROBLEMS = 1000
"""Lines; a million broken members are said by their number."""
_MOST_NOTES = 20
_ENCODED_AT_ONCE = 1024
"""Lines."""
_ROWS_AT_ONCE = 256
"""Objects of JSON: never all of a list are in memory as text."""


class StreamError(Exception):
    """Standard output cannot be written: closed, or on a full disk.

    No `OffloadError`, so that no command takes it for one of its own and goes on.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror or error}; the result is incomplete")


class _Lost:
    """Whether something could not be said on standard error."""

    anything = False


def reserve_streams() -> None:
    """Take the places of standard streams that are closed, so that no file gets them.

    What is written there fails, as it would without.
    """
    for number, name, flags in (
        (0, "stdin", os.O_WRONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_RDONLY),
    ):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            if number:
                stream = open(number, "w", closefd=False)  # noqa: SIM115 - stays
                setattr(sys, name, stream)
    _Lost.anything = False


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines, to standard error unless told; names that are not Unicode as they are.

    :raises StreamError: standard output is closed or full.
    """
    room: list[str] = []
    for line in lines:
        room.append(one_line(line))
        if len(room) == _ENCODED_AT_ONCE:
            print_text("\n".join([*room, ""]), stream)
            room.clear()
    if room:
        print_text("\n".join([*room, ""]), stream)


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print text with line ends and styles of our own; all else in it was made `printable`."""
    pass_on(text.encode("utf-8", "surrogateescape"), stream)


def pass_on(data: bytes, stream: TextIO | None = None) -> None:
    """Print what another program has said (a compiler), as it is."""
    out = sys.stderr if stream is None else stream
    try:
        out.flush()
        buffer = getattr(out, "buffer", None)
        if buffer is None:  # a caller's stand-in, which is of text alone
            out.write(data.decode("utf-8", "surrogateescape"))
            return
        buffer.write(data)
        if out is sys.stderr:
            buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon(out)
        if out is not sys.stderr:
            raise StreamError(error) from error
        _Lost.anything = True


def print_json_list(rows: Iterable[Mapping[str, object]], *, indent: int | None = None) -> None:
    """Print on standard output what `json.dumps` gives for a list of objects.

    Without `indent`, each of them is one line, which is three times as fast.
    """
    import json  # no drop-in needs it

    texts = (json.dumps(row, indent=indent) for row in rows)
    before = "["
    while part := list(itertools.islice(texts, _ROWS_AT_ONCE)):
        text = ",\n".join(part)
        print_text(before + ("\n" + text).replace("\n", "\n  "), sys.stdout)
        before = ","
    print_text("[]\n" if before == "[" else "\n]\n", sys.stdout)


def print_notes(notes: Sequence[str]) -> None:
    """Print what is no error, but not to be passed over in silence."""
    print_lines(f"offload-tool: note: {note}" for note in notes[:_MOST_NOTES])
    if len(notes) > _MOST_NOTES:
        print_lines([f"offload-tool: note: and {len(notes) - _MOST_NOTES} more such places"])


def print_problems(problems: Iterable[OffloadError]) -> int:
    """Print errors that did not end the command; return its exit status."""
    found = list(problems)
    rest = len(found) - _MOST_PROBLEMS
    print_lines(f"offload-tool: error: {problem}" for problem in found[:_MOST_PROBLEMS])
    if rest > 0:
        print_lines([f"offload-tool: error: and {rest} more files that cannot be read"])
    return 1 if found else 0


def finish(status: int) -> int:
    """Write what is still kept; return the exit status: 1 where something could not be said.

    :raises StreamError: standard output is full.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon(sys.stdout)
        raise StreamError(error) from error
    return status or int(_Lost.anything)


def abandon(stream: TextIO) -> None:
    """Forget what could not be written: the interpreter would try again when it ends."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()
