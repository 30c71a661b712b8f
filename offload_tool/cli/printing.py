"""Prints the text of all commands, on both streams.

Escaping (`offload_tool.util.escape`) keeps each line one line: content of a file or name cannot
break it or control the terminal. A closed or full stream raises its own error.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from offload_tool.errors import CompilerError
from offload_tool.io.paths import StrPath, is_standard_output, reserve_streams
from offload_tool.util.escape import one_line

if TYPE_CHECKING:
    from offload_tool.errors import OffloadError

_MOST_PROBLEMS = 1000
"""Lines; a count stands for the rest of a million broken members."""
_MOST_NOTES = 20
_ENCODED_AT_ONCE = 1024
"""Lines."""
_ROWS_AT_ONCE = 256
"""Objects of JSON; a whole list is never in memory as text."""


class StreamError(Exception):
    """Standard output is closed or full; no `OffloadError`, so that no command continues."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror or error}; the result is incomplete")


class _StandardError:
    has_failed = False
    """Whether a write failed."""


def begin() -> None:
    """Make writes to closed streams fail, and forget those that have failed."""
    reserve_streams(writes_fail=True)
    _StandardError.has_failed = False


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines, names unchanged, by default to standard error; raise StreamError."""
    batch: list[str] = []
    for line in lines:
        batch.append(one_line(line))
        if len(batch) == _ENCODED_AT_ONCE:
            print_text("\n".join([*batch, ""]), stream)
            batch.clear()
    if batch:
        print_text("\n".join([*batch, ""]), stream)


def print_report(lines: Iterable[str], output: StrPath) -> None:
    """Print lines about a written output: to standard error if it went to standard output."""
    print_lines(lines, sys.stderr if is_standard_output(output) else sys.stdout)


def print_error(prefix: str, error: BaseException) -> None:
    """Print an error to standard error: one line, or those of a compiler's message or of a list."""
    text = f"{prefix}: error: {error}"
    print_lines(text.split("\n") if isinstance(error, CompilerError) else [text])


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print text with our own line ends and styles; the caller escaped the rest by `printable`."""
    print_bytes(text.encode("utf-8", "surrogateescape"), stream)


def print_bytes(data: bytes, stream: TextIO | None = None) -> None:
    """Print another program's output (a compiler's) unchanged."""
    out = sys.stderr if stream is None else stream
    try:
        out.flush()
        buffer = getattr(out, "buffer", None)
        if buffer is None:  # a caller's stand-in for text only
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
        _StandardError.has_failed = True


def print_json_list(rows: Iterable[Mapping[str, object]], *, indent: int | None = None) -> None:
    """Print a list of JSON objects; without `indent`, one per line, three times as fast."""
    import json  # drop-ins do not need it

    texts = (json.dumps(row, indent=indent) for row in rows)
    before = "["
    while part := list(itertools.islice(texts, _ROWS_AT_ONCE)):
        text = ",\n".join(part)
        print_text(before + ("\n" + text).replace("\n", "\n  "), sys.stdout)
        before = ","
    print_text("[]\n" if before == "[" else "\n]\n", sys.stdout)


def print_notes(notes: Sequence[str]) -> None:
    """Print notes, which are not errors."""
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
    """Flush the streams; return the exit status, 1 after a failed write. Raise StreamError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon(sys.stdout)
        raise StreamError(error) from error
    return status or int(_StandardError.has_failed)


def abandon(stream: TextIO) -> None:
    """Discard unwritten output, which the interpreter would try to write again at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()
