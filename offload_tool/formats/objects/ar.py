r"""The ``ar`` archive: members, each behind a text header.

::

    !<arch>\n                     8 bytes; ``!<thin>\n``: the members' contents are in files
    /                             symbol index
    //                            long-name table
    member header (60), content, ``\n`` if the content's size is odd; for each member

    offset  size  field of a member header: text, left-justified, padded with spaces
    ------  ----  -----------------------------------------------------------------------
    0       16    name
    16      12    date, seconds, decimal
    28      6     user, decimal
    34      6     group, decimal
    40      8     mode, octal
    48      10    size of the content in bytes, decimal
    58      2     terminator, a backquote and ``\n``

Names, by dialect::

    name/     GNU and COFF, up to 15 bytes          name      BSD, up to 16 bytes
    /123      at offset 123 of the long-name table, where GNU ends it with ``/\n``, COFF
              with NUL
    #1/20     BSD: the first 20 bytes of the content, without trailing NULs

Special entries in front are not members: ``/`` (GNU's symbol index; COFF has two), ``/SYM64/``,
``//``, ``/<...>/`` (COFF), ``__.SYMDEF`` and variants (BSD). GNU's symbol index has big-endian
integers of 4 bytes (``/``) or 8 (``/SYM64/``)::

    number of symbols N; for each symbol the offset of its member's header; then the N
    names, each ended by NUL; then NUL up to an even size

A linker extracts a member for a symbol in the index. The index lists the symbols that members
define for other files (`member_symbols`).

Source: the manual page ar(5) of FreeBSD for BSD and GNU names, the PE Format document ("Archive
(Library) File Format") for COFF. The written format is that of llvm-ar 22.1.8 and
clang-offload-bundler 22.1.8 with ``D`` and the format ``gnu``, observed.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from offload_tool.errors import ContentError, FormatError, UnsupportedError, UsageError
from offload_tool.formats.magic import ARCHIVE as MAGIC
from offload_tool.formats.magic import BITCODES, DOS, ELF
from offload_tool.formats.magic import THIN_ARCHIVE as THIN_MAGIC
from offload_tool.formats.objects.coff import MACHINES, coff_symbols, is_coff
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath
from offload_tool.io.write_plan import FilePlan, Part, part_size

_HEADER = struct.Struct("16s32s10s2s")
"""Name, the fields that do not affect the content, size, terminator."""
_TERMINATOR = b"`\n"
_MEMBER_ATTRIBUTES = b"0           0     0     644"
_INDEX_ATTRIBUTES = b"0           0     0     0"
_WORD, _WIDE_WORD = struct.Struct(">I"), struct.Struct(">Q")
_LONG_NAMES = b"//"
_INDEXES = frozenset({b"/", b"/SYM64/"})
_BSD_INDEXES = frozenset(
    {"__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED", "__.PKGDEF"}
)
_ATTRIBUTES = (
    ("date", 16, 28, re.compile(rb"(-?[0-9]+)? *")),
    ("user", 28, 34, re.compile(rb"(-?[0-9]+)? *")),
    ("group", 34, 40, re.compile(rb"(-?[0-9]+)? *")),
    ("mode", 40, 48, re.compile(rb"[0-7]* *")),
)
"""Field, begin and end in the header, allowed values. COFF leaves some blank, or uses -1."""
_SIZE_AT = 48
_NAME_END = re.compile(rb"/?\n|\0")
_MAX_NAME = 1 << 16  # bytes; bounds the time if all members of a broken file share one long name
_SHORT_NAME = 15
_MAX_SIZE = 10**10
_WIDE_OFFSET = 1 << 32
_IMPORT = b"\0\0\xff\xff\0\0"
"""Beginning of a COFF import object: IMAGE_FILE_MACHINE_UNKNOWN, 0xFFFF, version 0."""

OBJECTS_BEGIN = frozenset(
    {magic[0] for magic in (ELF, *BITCODES, DOS)} | {machine & 0xFF for machine in MACHINES}
)
"""The first bytes of all object formats; other files have no symbols."""
_ELF_MIN_SIZE = 18  # LLVM takes no smaller file for an object


class ArchiveMember(NamedTuple):
    """A member: its name and the position of its content."""

    name: str
    """As stored (bytes that are not UTF-8 become surrogates); in a thin archive, a path."""
    offset: int
    """Offset of the content in the archive, in bytes; 0 if `path` has the content."""
    size: int
    """Bytes, according to the header; a thin archive's file may have changed since."""
    header_offset: int
    path: Path | None = None
    """The file with the content, in a thin archive."""

    def content(self, data: memoryview) -> memoryview:
        """Return the content as a slice of the archive's `data`; not for thin archives."""
        return data[self.offset : self.offset + self.size]


def is_archive(data: memoryview) -> bool:
    """Return whether `data` begins with an archive's magic, thin or not."""
    return data[: len(MAGIC)] in (MAGIC, THIN_MAGIC)


class ArchiveReader:
    """Walks an archive from header to header, and yields its members in order; raise ContentError.

    Symbol indexes and long-name tables are left out. A thin archive's members are relative to
    `folder` (default: the folder of the archive's file, `path`). Members before a broken one are
    yielded before the error. COFF import libraries, whose members only name functions of a DLL, and
    thin archives of another archive's members are unsupported.

    A caller that reads one kind of members faster calls `read_plain` for members from `position`
    on, and reports the number taken with `skip`; iteration continues behind them.
    """

    def __init__(
        self, data: memoryview, path: StrPath | None = None, folder: Path | None = None
    ) -> None:
        self.data = data
        self.path = path
        self.folder = folder
        self.position = len(MAGIC)
        """Position of the next header, in bytes."""
        self.thin = False
        self.indexes = 0
        self.names: memoryview | None = None
        self.count = 0
        self.attributes = b""
        """Header fields of the last member; in most archives they are equal everywhere."""

    def __iter__(self) -> Iterator[ArchiveMember]:
        imports_checked = False
        for member in self.read():
            is_import = self.indexes > 1 and member.content(self.data)[: len(_IMPORT)] == _IMPORT
            if is_import and not imports_checked:  # only COFF has two indexes
                imports_checked = True
                first, *others = ArchiveReader(self.data, self.path).read()
                if all(other.name == first.name for other in others):  # of one DLL
                    raise UnsupportedError(
                        f"this is the COFF import library of '{first.name}', which holds no code; "
                        "give the static library",
                        path=self.path,
                        offset=first.header_offset,
                    )
            yield member

    def read_plain(self, position: int) -> tuple[bytes, int, int] | None:
        """Return name, content offset and size of a member; None if `read` must handle it."""
        start = position + _HEADER.size
        if start > len(self.data) or self.thin:
            return None
        field, attributes, digits, terminator = _HEADER.unpack_from(self.data, position)
        digits = digits.rstrip(b" ")
        if (
            attributes != self.attributes
            or terminator != _TERMINATOR
            or not digits.isdigit()
            or start + (size := int(digits)) > len(self.data)
        ):
            return None
        name = field.rstrip(b" ")
        if name[:1] == b"/":
            if not name[1:].isdigit():
                return None
            try:
                name = self._find_long_name(position, name)
            except FormatError:
                return None
        elif name[-1:] == b"/":
            name = name[:-1]
        else:
            return None
        return name, start, size

    def skip(self, count: int, position: int) -> None:
        """Continue at `position`, behind `count` members from `read_plain`."""
        self.count += count
        self.position = position

    def read(self) -> Iterator[ArchiveMember]:
        """Yield the members, including those of a COFF import library."""
        if not is_archive(self.data):
            found = bytes(self.data[: len(MAGIC)])
            raise FormatError(f"expected an archive, found {found!r}", path=self.path, offset=0)
        self.thin = self.data[: len(MAGIC)] == THIN_MAGIC
        while self.position < len(self.data):
            position = self.position
            raw, size = self._read_header(position)
            special = raw.rstrip(b" ")
            is_special = self._is_special(special)
            available = len(self.data) - position - _HEADER.size
            if size > available and (is_special or not self.thin):
                message = f"expected at most {available} (what is left of the file), found {size}"
                message += "; the file may be cut short"
                raise self._error(position + _SIZE_AT, "size", message, raw)
            if is_special:
                self._read_special(position, size, special)
                self.position = next_header(position, size)
                continue
            member = self._read_member(position, size, raw)
            self.position = next_header(position, 0 if self.thin else size)
            is_first = self.count == 0 and self.indexes == 0 and self.names is None
            if is_first and member.name in _BSD_INDEXES and not special.endswith(b"/"):
                self.indexes = 1
            else:
                self.count += 1
                yield member

    def _read_header(self, position: int) -> tuple[bytes, int]:
        header = bytes(self.data[position : position + _HEADER.size])
        if len(header) < _HEADER.size:
            message = f"expected {_HEADER.size} bytes, found {len(header)}"
            raise self._error(position, "header", f"{message}; the file may be cut short")
        raw, attributes, size, terminator = _HEADER.unpack(header)
        if terminator != _TERMINATOR:
            message = f"expected {_TERMINATOR!r}, found {terminator!r}"
            raise self._error(position + 58, "terminator", message, raw)
        digits = size.rstrip(b" ")
        if not digits.isdigit():
            message = f"expected a decimal number, found {size!r}"
            raise self._error(position + _SIZE_AT, "size", message, raw)
        if attributes != self.attributes:
            self._check_attributes(position, header)
            self.attributes = attributes
        return raw, int(digits)

    def _check_attributes(self, position: int, header: bytes) -> None:
        for field, start, end, form in _ATTRIBUTES:
            text = header[start:end]
            if not form.fullmatch(text):
                radix = "an octal" if field == "mode" else "a decimal"
                message = f"expected {radix} number or nothing, found {text!r}"
                raise self._error(position + start, field, message, header[:16])

    @staticmethod
    def _is_special(name: bytes) -> bool:
        return name in _INDEXES or name == _LONG_NAMES or name[:2] == b"/<"

    def _read_special(self, position: int, size: int, name: bytes) -> None:
        """Record a special entry in front of the members; its content has been checked."""
        if self.count:
            raise self._error(position, "name", f"expected {name!r} before the members", name)
        if name == _LONG_NAMES:
            if self.names is not None:
                raise self._error(position, "name", "expected one long-name table", name)
            start = position + _HEADER.size
            self.names = self.data[start : start + size]
        elif name in _INDEXES:
            self.indexes += 1

    def _read_member(self, position: int, size: int, raw: bytes) -> ArchiveMember:
        start = position + _HEADER.size
        name = raw.rstrip(b" ")
        if not name:
            raise self._error(position, "name", "expected a name, found only spaces")
        if name[:1] == b"/":
            name = self._find_long_name(position, name)
        elif name[:3] == b"#1/" and name[3:] and not self.thin:
            length = self._read_number(position, name, 3)
            if length > size:
                message = f"expected a name of at most {size} bytes (the content), found {length}"
                raise self._error(position, "name", message, raw)
            name = bytes(self.data[start : start + length]).rstrip(b"\0")
            start, size = start + length, size - length
        else:
            name = name.removesuffix(b"/")
        text = name.decode("utf-8", "surrogateescape")
        if not self.thin:
            return ArchiveMember(text, start, size, position)
        if not text or "\0" in text:
            message = f"expected the path of a file, found {text!r}"
            raise self._error(position, "name", message, name)
        folder = Path(self.path or "").parent if self.folder is None else self.folder
        return ArchiveMember(text, 0, size, position, folder / text)

    def _find_long_name(self, position: int, raw: bytes) -> bytes:
        if self.thin and b":" in raw:
            name = raw.decode("utf-8", "backslashreplace")
            message = f"expected a file, found a member of another archive ({name!r})"
            message += "; put that archive's members in"
            field = f"name of {self._describe(raw.strip(b' '))}"
            raise UnsupportedError(message, path=self.path, offset=position, field=field)
        start = self._read_number(position, raw, 1)
        if self.names is None:
            message = f"refers to offset {start} of the long-name table, but there is none"
            raise self._error(position, "name", message, raw)
        end = _NAME_END.search(self.names, start, start + _MAX_NAME)
        if end is None or end[0] == b"\n":
            message = f"expected an ended name at offset {start} of the long-name table"
            raise self._error(position, "name", f"{message} of {len(self.names)} bytes", raw)
        return bytes(self.names[start : end.start()])

    def _read_number(self, position: int, raw: bytes, start: int) -> int:
        digits = raw[start:]
        if not digits.isdigit():
            message = f"expected a decimal number after {raw[:start]!r}, found {digits!r}"
            raise self._error(position, "name", message, raw)
        return int(digits)

    def _error(self, offset: int, field: str, message: str, raw: bytes = b"") -> FormatError:
        field = f"{field} of {self._describe(raw.strip(b' '))}"
        return FormatError(message, path=self.path, offset=offset, field=field)

    def _describe(self, name: bytes) -> str:
        """Return the kind of entry with this header name; empty if unknown."""
        if self._is_special(name):
            return "the long-name table" if name == _LONG_NAMES else "the symbol index"
        text = name.decode("utf-8", "backslashreplace").removesuffix("/")
        return f"member {self.count + 1}" + (f" ({text!r})" if text else "")


def next_header(position: int, size: int) -> int:
    """Return the position of the next header, which is even, behind `size` bytes of content."""
    end = position + _HEADER.size + size
    return end + (end & 1)


def member_symbols(
    data: memoryview,
    *,
    path: StrPath | None = None,
    offset: int = 0,
    warn: Callable[[str], object] | None = None,
) -> bytes | None:
    """Return the symbols that an object defines for others, each ended by NUL; None without one.

    Unreadable bitcode and COFF count as none, and `warn` gets the reason; a broken ELF file raises
    FormatError. `path` and `offset` are for messages.
    """
    magic = bytes(data[:4])
    if magic == ELF and len(data) >= _ELF_MIN_SIZE:
        try:
            return ElfTables(data).exported_names()
        except FormatError as error:
            at = offset + (error.offset or 0)
            raise FormatError(error.message, path=path, offset=at, field=error.field) from error
    try:
        if magic in BITCODES:
            from offload_tool.formats.bitcode.module import bitcode_symbols

            return bitcode_symbols(data)
        if is_coff(data):
            return coff_symbols(data)
    except ContentError as error:
        if warn is not None:
            warn(error.message)
    return None


class NewMember(NamedTuple):
    """A member to write."""

    name: str
    content: Part
    symbols: bytes | None = None
    """Names for the symbol index, each ended by NUL; None if the member is not an object.

    An archive with objects has a symbol index, possibly empty. `member_symbols` returns both.
    """


def plan_archive(members: Iterable[NewMember]) -> FilePlan:
    """Return a plan of an archive; raise UsageError if it cannot store a name or size."""
    archive = GrowingArchive()
    contents = []
    for name, content, symbols in members:
        archive.add_header(name.encode("utf-8", "surrogateescape"), part_size(content), symbols)
        contents.append(content)
    *headers, end = archive.headers()
    rows = zip(headers, contents, strict=True)
    return FilePlan.of([*(part for row in rows for part in row), end])


class GrowingArchive:
    """An archive to write in GNU's format; no member can be added after access to `size`.

    Members are stored in columns: with many small members, an object for each would cost more time
    and memory than the content.
    """

    def __init__(self) -> None:
        self._long_names = bytearray()
        self._long_fields: dict[bytes, bytes] = {}
        """Header fields of the names in the long-name table."""
        self._fields: list[bytes] = []
        self._sources: list[InputFile] = []
        self._offsets = array("Q")
        self._sizes = array("Q")
        self._symbols: dict[int, bytes] = {}
        """Symbols of the members that are objects, by member number."""

    def __len__(self) -> int:
        return len(self._fields)

    def add(
        self, name: bytes, source: InputFile, offset: int, size: int, symbols: bytes | None
    ) -> None:
        """Add a member, `size` bytes of `source`; raise UsageError if its name does not fit."""
        self.add_header(name, size, symbols)
        self._sources.append(source)
        self._offsets.append(offset)

    def add_header(self, name: bytes, size: int, symbols: bytes | None) -> None:
        """Add a member without content yet; raise UsageError if its name does not fit."""
        if not 0 <= size < _MAX_SIZE:
            text = name.decode("utf-8", "surrogateescape")
            limit = f"the format holds contents below {_MAX_SIZE} bytes"
            raise UsageError(f"archive member '{text}' has {size} bytes; {limit}")
        if symbols is not None:
            self._symbols[len(self._fields)] = symbols
        self._fields.append(self._name_field(name))
        self._sizes.append(size)

    def _name_field(self, name: bytes) -> bytes:
        """Return the header field for a name, the same for equal names."""
        field = self._long_fields.get(name)
        if field is None:
            if not name or b"\0" in name or b"\n" in name:
                text = name.decode("utf-8", "surrogateescape")
                raise UsageError(f"archive member name {text!r} is empty or has NUL or a line end")
            if len(name) <= _SHORT_NAME and b"/" not in name:
                return name + b"/"
            self._long_fields[name] = field = b"/%d" % len(self._long_names)
            self._long_names += name + b"/\n"
        return field

    @cached_property
    def _head(self) -> bytes:
        """The bytes before the first member's header."""
        names, tail = bytes(self._long_names), b""
        if names:
            table = names + b"\n" * (len(names) & 1)
            tail = _pack_header(_LONG_NAMES, b"", len(table)) + table
        if not self._symbols:
            return MAGIC + tail
        positions = array("Q", accumulate(self._sizes, next_header, initial=0))
        objects = [(positions[number], symbols) for number, symbols in self._symbols.items()]
        return MAGIC + _pack_index(objects, positions[-2], len(tail)) + tail

    @property
    def size(self) -> int:
        """Size of the archive in bytes."""
        odd = sum(map((1).__and__, self._sizes))
        return len(self._head) + _HEADER.size * len(self) + sum(self._sizes) + odd

    def headers(self) -> Iterator[bytes]:
        """Yield the bytes before each content, then the bytes behind the last."""
        gap = self._head
        for field, size in zip(self._fields, self._sizes, strict=True):
            yield gap + _MEMBER_HEADER % (field, size)
            gap = b"\n" if size & 1 else b""
        yield gap

    def write_to(self, out: OutputFile) -> None:
        """Append the archive to `out`; raise FileError if a source is shorter or the disk full."""
        out.reserve(self.size)
        out.append(self._parts())

    def _parts(self) -> Iterator[bytes | FileRange]:
        headers = self.headers()
        for content in map(FileRange, self._sources, self._offsets, self._sizes):
            yield next(headers)
            yield content
        yield next(headers)


def _pack_header(name: bytes, attributes: bytes, size: int) -> bytes:
    return b"%-16b%-32b%-10d%b" % (name, attributes, size, _TERMINATOR)


_MEMBER_HEADER = b"%%-16b%-32b%%-10d%b" % (_MEMBER_ATTRIBUTES, _TERMINATOR)
"""Header of a member with a given name field and size."""


def _pack_index(objects: Sequence[tuple[int, bytes]], last: int, tail_size: int) -> bytes:
    """Return the symbol index with its header; `tail_size` bytes separate it from the members.

    `objects` are position and symbols of the members in the index. Positions, and the last member's
    `last`, count from the first member's header.
    """
    names = b"".join([symbols for _, symbols in objects])
    counts = [symbols.count(b"\0") for _, symbols in objects]
    names = names or bytes(3)  # LLVM's empty index, for old linkers
    for word in (_WORD, _WIDE_WORD):
        size = word.size * (1 + sum(counts)) + len(names)
        size += size & 1
        first = len(MAGIC) + _HEADER.size + size + tail_size
        if first + last < _WIDE_OFFSET:
            break
    rows = zip(objects, counts, strict=True)
    offsets = b"".join([word.pack(first + at) * count for (at, _), count in rows])
    field = b"/" if word is _WORD else b"/SYM64/"
    index = word.pack(sum(counts)) + offsets + names
    return _pack_header(field, _INDEX_ATTRIBUTES, size) + index.ljust(size, b"\0")
