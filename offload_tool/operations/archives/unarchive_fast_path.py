"""Members of an archive whose bundles have the entries of the one before, a million of them.

Such a member is a header of ``ar``, a table of known form and contents::

    header     table of the bundle: sizes and offsets vary, the IDs do not      contents
    m17.o/ ..  __CLANG_OFFLOAD_BUNDLE__ n  (offset size length ID) ...          ...

What is made of one entry of it needs one step for each of these, and no object that stays. What
is not so, or not sound, is left to those who read all sorts of members and say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from offload_tool.errors import FormatError
from offload_tool.formats.bundle.binary import TableForm
from offload_tool.formats.objects.ar import ArchiveReader, GrowingArchive, behind
from offload_tool.formats.objects.ar_symbols import OBJECTS_BEGIN, member_symbols
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.io import InputFile

_AT_ONCE = 4096
"""Members, after which others have their turn."""
_BYTES_AT_ONCE = 8 << 20
_SLASH, _NUL, _LINE_END = b"/\0\n"  # numbers: bytes are looked for in bytes much more slowly


@frozen
class Service:
    """What an entry's ID means for this run."""

    targets: tuple[int, ...]
    """Those that it serves, by their number."""
    infix: bytes
    """What stands in a new member's name behind the stem of the old one."""
    extension: bytes | None
    """Of the new member; None: that of the old one."""

    def name(self, member: bytes) -> bytes:
        """Name what is made of such an entry of a member.

        :raises FormatError: no member can have that name.
        """
        base = member.rpartition(b"/")[2]
        stem, dot, rest = base.rpartition(b".")
        if not dot or base in (b".", b".."):
            stem, dot, rest = base, b"", b""  # unlike in Python's splitext, ``.x`` is all extension
        extension = dot + rest if self.extension is None else self.extension
        # The stem stands there twice, as LLVM has it.
        name = stem + self.infix + stem + extension
        if _SLASH in name or _NUL in name or _LINE_END in name:
            text = name.decode("utf-8", "surrogateescape").replace(":", "_")
            message = f"has an entry for which a member with the name {text!r} would be made"
            raise FormatError(message)
        return name.replace(b":", b"_")


class AlikeMembers:
    """The members that are like the last one, of the archive `source`.

    `entries` are the IDs of their bundles' entries, in order, with what each means. What is made of
    them is added to `archives`, which services name by their number.
    """

    def __init__(
        self,
        source: InputFile,
        entries: Sequence[tuple[str, Service]],
        archives: Sequence[GrowingArchive],
        warn: Callable[[bytes, str], None],
    ) -> None:
        self.source = source
        self.form = TableForm([name for name, _ in entries])
        self.wanted = [
            (index, service, [archives[target] for target in service.targets])
            for index, (_, service) in enumerate(entries)
            if service.targets
        ]
        self.warn = warn

    def take(self, reader: ArchiveReader) -> int:
        """Take members from `reader` as long as they are alike, but not too many at once.

        Give how many were taken.
        """
        data, form, plain = self.source.data, self.form, reader.plain
        position = reader.position
        last = position + _BYTES_AT_ONCE
        count = 0
        while count < _AT_ONCE and position < last:
            found = plain(position)
            if found is None:
                break
            name, start, size = found
            rows = form.read(data, start, start + size)
            if rows is None or name.find(b"..") >= 0 or _NUL in name:
                break
            reasons: list[tuple[bytes, str]] = []
            try:
                made = self._made_of(data, name, rows, reasons)
            except FormatError:  # which is said of the member when it is opened
                break
            for new, reason in reasons:
                self.warn(new, reason)
            for archives, new, offset, length, symbols in made:
                for archive in archives:
                    archive.add(new, self.source, offset, length, symbols)
            count += 1
            position = behind(position, size)
        reader.pass_by(count, position)
        return count

    def _made_of(
        self,
        data: memoryview,
        name: bytes,
        rows: Sequence[tuple[int, int]],
        reasons: list[tuple[bytes, str]],
    ) -> list[tuple[list[GrowingArchive], bytes, int, int, bytes | None]]:
        """Return the archives, name, offset, size and symbols of what is made of a member.

        `reasons` takes what could not be read of symbols, with the names.

        :raises FormatError: it cannot be made.
        """
        made = []
        for index, service, archives in self.wanted:
            new = service.name(name)
            offset, size = rows[index]
            symbols = None
            if size and data[offset] in OBJECTS_BEGIN:
                content = data[offset : offset + size]
                said: list[str] = []
                symbols = member_symbols(content, warn=said.append)
                reasons += [(new, reason) for reason in said]
            made.append((archives, new, offset, size, symbols))
        return made
