"""The text bundle: source files between comment lines.

::

    (empty line)
    // __CLANG_OFFLOAD_BUNDLE____START__ <bundle entry ID>
    content, unchanged; it may lack a final line feed, or be empty
    // __CLANG_OFFLOAD_BUNDLE____END__ <bundle entry ID>

for each entry; ``//`` stands for the file type's line comment. A marker includes the line feeds
before and after it, so they are not part of the content. There is no table, size or escape: a
content with an end marker cannot be stored.

Source: the ClangOffloadBundler documentation ("Bundled Text File Layout"), and
clang-offload-bundler 22.1.8 for unusual files. Text between entries is ignored, a CR before the
line feed belongs to the ID or the content, and the first end marker ends an entry, whatever its ID.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.bundle.binary import BundleEntry
from offload_tool.io import StrPath
from offload_tool.io.write_plan import FilePlan, Part

COMMENT_MARKS: dict[str, str] = {
    "i": "//",
    "ii": "//",
    "cui": "//",
    "hipi": "//",
    "d": "#",
    "s": "#",
    "ll": ";",
}
"""The line comment of each file type that is bundled as text."""

START = "__CLANG_OFFLOAD_BUNDLE____START__"
END = "__CLANG_OFFLOAD_BUNDLE____END__"


def marker(comment: str, keyword: str, entry_id: str) -> bytes:
    """Return the text before or after an entry's content; raise UsageError for a line feed."""
    if "\n" in entry_id:
        raise UsageError(f"bundle entry ID {entry_id!r} holds a line feed; it must be one line")
    return f"\n{comment} {keyword} {entry_id}\n".encode("utf-8", "surrogateescape")


def check_text_content(data: memoryview, comment: str, *, path: StrPath | None = None) -> None:
    """Raise FormatError if `data` contains an end marker, so that it cannot be bundled."""
    if found := _pattern(comment, END).search(data):
        raise FormatError(
            "expected text without bundle markers, found an end marker, which would end this "
            "entry early; the file may be a bundle already: unbundle it first",
            path=path,
            offset=found.start() + 1,
        )


def plan_text_bundle(items: Iterable[tuple[str, Part]], comment: str) -> FilePlan:
    """Return a plan of the bundle of (bundle entry ID, content) items, in order."""
    parts: list[Part] = []
    for entry_id, content in items:
        parts += (marker(comment, START, entry_id), content, marker(comment, END, entry_id))
    return FilePlan.of(parts)


def read_text_bundle(
    data: memoryview,
    comment: str,
    *,
    wanted: Callable[[str], bool] | None = None,
    path: StrPath | None = None,
) -> tuple[BundleEntry, ...]:
    """Read a text bundle's entries, if any; raise FormatError at an unfinished one.

    Only entries `wanted` by their IDs are returned; markers in the others count then. Without it
    all are listed, and contents are not searched.
    """
    start, end = _pattern(comment, START), _pattern(comment, END)
    entries = []
    position = 0
    while opened := start.search(data, position):
        entry_id = opened["id"].decode("utf-8", "surrogateescape")
        position = opened.end()
        if position == opened.end("id"):
            raise _unfinished(entry_id, "a line feed after the ID", opened.start(), path)
        if wanted is not None and not wanted(entry_id):
            continue
        closed = end.search(data, position)
        if closed is None:
            raise _unfinished(entry_id, "an end marker", opened.start(), path)
        entries.append(BundleEntry(entry_id, position, closed.start() - position))
        position = closed.end()
    return tuple(entries)


def _pattern(comment: str, keyword: str) -> re.Pattern[bytes]:
    return re.compile(b"\n" + re.escape(f"{comment} {keyword} ".encode()) + rb"(?P<id>[^\n]*)\n?")


def _unfinished(entry_id: str, expected: str, offset: int, path: StrPath | None) -> FormatError:
    return FormatError(
        f"expected {expected}, found the end of the file; it may be cut short",
        path=path,
        offset=offset + 1,
        field=f"entry {entry_id!r}",
    )
