"""LLVM's bitstream container: read into blocks and records, and written back.

`Reader` yields the blocks and records of any module; `read_bitstream` reads a whole stream that
LLVM wrote itself, to edit it. Bits are counted from the lowest bit of each byte. A stream is a
sequence of abbreviated items::

    item                            abbreviation ID (`width` bits), then
    -----------------------------   ---------------------------------------------------
    0 end of block                  zeros to 32 bits
    1 enter block                   number (vbr8), width inside (vbr4), zeros to 32 bits,
                                    size (32 bits, in units of 32 bits), items
    2 define abbreviation           operands (vbr5); each: literal? (1 bit), value (vbr8)
                                    or encoding (3 bits) with its width (vbr5) for
                                    1 fixed, 2 vbr; 3 array, 4 char6, 5 blob have none
    3 record without abbreviation   code (vbr6), operands (vbr6), each operand (vbr6)
    4... record                     as in the abbreviation; a blob is its size (vbr6),
                                    zeros to 32 bits, its bytes, zeros to 32 bits

Block 0 (BLOCKINFO) defines abbreviations for all later blocks of a number. A vbrN number consists
of N-bit chunks; the highest bit of each is set if more follow.

A record's byte array may be content that is still in a file: a piece of the resulting `FilePlan`,
which the kernel copies. The array must then begin at a whole byte; the record before it pads
accordingly (`ContentRecord`). Blobs are aligned already, but LLVM 22.1.8 rejects one of 512 MiB as
broken (observed).

Source: the LLVM Bitcode File Format document. Rewriting reproduces clang 22.1.8's output exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.magic import BITCODE as MAGIC
from offload_tool.io.write_plan import FilePlan, Literal, Range, content

LITERAL, FIXED, VBR, ARRAY, CHAR6, BLOB = range(6)
"""Encodings of an operand; `LITERAL` has no number in the stream."""
END, ENTER, DEFINE, UNABBREVIATED, FIRST = range(5)
"""Abbreviation IDs; a block's own abbreviations begin with `FIRST`."""
MAX_WIDTH = 64
"""Width of a number in bits."""
BLOCKINFO = 0
SETBID = 1
TOP_WIDTH = 2
CHARS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_BLOCK_HEADER = 64
"""Smallest block header, in bits."""
_MAX_COUNT = (1 << 32) - 1
_MAX_DEPTH = 16
_MAX_OPERANDS = 1 << 12
"""Operands of an abbreviation, and abbreviations of a block; LLVM uses a dozen."""
_MAX_NUMBERS = 1 << 20
"""Numbers in a record, besides 8-bit arrays (offload binaries); known lists are shorter."""
_CHUNK = 1 << 20

Operand: TypeAlias = "tuple[int, int]"
"""Encoding and its value or width."""
Abbreviation: TypeAlias = "tuple[Operand, ...]"
"""As an item, its definition; inside BLOCKINFO, one for another block number."""


@dataclass(slots=True)
class Record:
    """A record: code, operands, and the abbreviation for writing it (3: none)."""

    abbreviation: int
    code: int
    operands: list[int]
    blob: bytes | memoryview | None = None
    bit: int = 0
    """Start of skipped 8-bit numbers behind the operands, in bits."""
    count: int = 0
    """Number of skipped 8-bit numbers."""


@dataclass(slots=True)
class ContentRecord:
    """A record whose byte array is content number `index` of a `FilePlan`.

    Its abbreviation is the literal code and an array of 8-bit numbers. `filler` precedes it: a
    record that ends with an array of single bits, as many as the alignment needs.
    """

    filler: Record
    abbreviation: int
    index: int
    size: int
    """Size of the content in bytes."""


@dataclass(slots=True)
class Block:
    """A block, with its old and new positions in units of 4 bytes."""

    number: int
    width: int
    """Width of the abbreviation IDs in the block, in bits."""
    items: list[Item] = field(default_factory=list)
    header_at: int = 0
    """Position of its header."""
    content_at: int = 0
    size: int = 0
    """Size of the content when it was read."""

    def blocks(self, number: int) -> Iterator[Block]:
        """Yield the direct child blocks of a number."""
        return (i for i in self.items if isinstance(i, Block) and i.number == number)

    def records(self) -> Iterator[Record]:
        """Yield the direct child records."""
        return (item for item in self.items if isinstance(item, Record))


Item: TypeAlias = "Record | Abbreviation | ContentRecord | Block"


def read_bitstream(data: bytes) -> list[Block]:
    """Return the blocks of a bitcode file without a wrapper header.

    :raises FormatError: the data is not such a file, or is truncated.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise FormatError(f"expected bitcode, found {data[:4]!r}", offset=0)
    reader = Reader(memoryview(data), exact=True)
    bits = Bits(reader.data, 8 * len(MAGIC), 8 * len(data))
    blocks = list(top_blocks(bits))
    if bits.position < bits.end:
        raise FormatError("expected a block in bitcode", offset=bits.position // 8)
    for block in blocks:
        _fill(reader, block, _MAX_DEPTH)
    return blocks


def top_blocks(bits: Bits) -> Iterator[Block]:
    """Yield the blocks behind the magic of a file, up to the first other data.

    The caller decides whether that is padding.

    :raises FormatError: a block is truncated; `bits` is at its beginning.
    """
    while bits.end - bits.position >= _BLOCK_HEADER and bits.peek(TOP_WIDTH) == ENTER:
        start = bits.skip(TOP_WIDTH)
        try:
            block = Reader.block(bits)
        except FormatError:
            bits.position = start
            raise
        yield block


def _fill(reader: Reader, block: Block, depth: int) -> None:
    """Read the items of a block and of its child blocks."""
    if not depth:
        raise FormatError(f"more than {_MAX_DEPTH} nested blocks of bitcode")
    for item in reader.items(block):
        if isinstance(item, Block):
            _fill(reader, item, depth - 1)
        elif isinstance(item, Record) and item.count:
            item.operands += b"".join(packed_bytes(reader.data, item.bit, item.count))
            item.bit = item.count = 0
        block.items.append(item)


def packed_bytes(data: memoryview, bit: int, count: int) -> Iterator[bytes]:
    """Yield the `count` 8-bit numbers that begin at a bit of `data`, in pieces."""
    first, shift = divmod(bit, 8)
    for start in range(first, first + count, _CHUNK):
        size = min(_CHUNK, first + count - start)
        raw = data[start : start + size + (shift > 0)]
        number = int.from_bytes(raw, "little") >> shift
        yield (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")


class Bits:
    """Reads numbers between two positions (in bits), lowest bit first."""

    def __init__(self, data: memoryview, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def fixed(self, width: int) -> int:
        """Read a number of `width` bits.

        :raises FormatError: here and in the other methods: the data is truncated.
        """
        first, shift = divmod(self.skip(width), 8)
        word = int.from_bytes(self.data[first : (self.position + 7) // 8], "little")
        return word >> shift & ((1 << width) - 1)

    def peek(self, width: int) -> int:
        """Return the next number of `width` bits without consuming it."""
        start = self.position
        number = self.fixed(width)
        self.position = start
        return number

    def vbr(self, width: int) -> int:
        """Read a number in groups of `width` bits; the highest bit of each marks a continuation."""
        more = 1 << (width - 1)
        result = shift = 0
        while True:
            chunk = self.fixed(width)
            result |= (chunk & (more - 1)) << shift
            if not chunk & more:
                return result
            shift += width - 1
            if shift > MAX_WIDTH:
                raise FormatError("a number has more than 64 bits")

    def align(self) -> None:
        """Skip to a multiple of 4 bytes."""
        self.skip(-self.position % 32)

    def blob(self) -> memoryview:
        """Read a byte count and that many bytes, aligned to 4 bytes."""
        size = self.vbr(6)
        self.align()
        start = self.skip(8 * size) // 8
        self.align()
        return self.data[start : start + size]

    def skip(self, size: int) -> int:
        """Skip `size` bits; return where they begin."""
        start = self.position
        if start + size > self.end:
            raise FormatError(f"{size} bits expected at byte {start // 8}, it may be cut short")
        self.position = start + size
        return start


class Reader:
    """Reads the items of untrusted blocks, and keeps the abbreviations.

    With `exact`, blocks must end at their recorded size, and very long records are rejected.
    """

    def __init__(self, data: memoryview, *, exact: bool = False) -> None:
        self.data = data
        self.exact = exact
        self.blockinfo: dict[int, list[Abbreviation]] = {}
        """Abbreviations from BLOCKINFO by block number."""

    @staticmethod
    def block(bits: Bits) -> Block:
        """Read a block header behind its abbreviation ID; skip the content."""
        # A block starts at a multiple of 4 bytes, plus earlier items in its first word.
        header_at = bits.position // 32
        block = Block(bits.vbr(8), bits.vbr(4), header_at=header_at)
        bits.align()
        block.size = bits.fixed(32)
        if not TOP_WIDTH <= block.width <= 32:
            raise FormatError(f"abbreviation IDs of {block.width} bits")
        block.content_at = bits.skip(32 * block.size) // 32
        return block

    def items(self, block: Block) -> Iterator[Block | Abbreviation | Record]:
        """Yield the items of a block; the content of child blocks is skipped."""
        start = 32 * block.content_at
        bits = Bits(self.data, start, start + 32 * block.size)
        abbreviations = list(self.blockinfo.get(block.number, ()))
        described = abbreviations
        while (number := bits.fixed(block.width)) != END:
            if number == ENTER:
                inner = self.block(bits)
                yield inner
                if inner.number == BLOCKINFO and not inner.items:
                    for _ in self.items(inner):
                        pass
            elif number == DEFINE:
                if len(described) >= _MAX_OPERANDS:
                    raise FormatError("too many abbreviations")
                described.append(_definition(bits))
                yield described[-1]
            else:
                record = self._record(bits, number, abbreviations)
                if block.number == BLOCKINFO and record.code == SETBID and record.operands:
                    described = self.blockinfo.setdefault(record.operands[0], [])
                yield record
        if self.exact and bits.position + -bits.position % 32 != bits.end:
            raise FormatError("a block of bitcode has another size than it claims", offset=start)

    def _record(self, bits: Bits, number: int, abbreviations: Sequence[Abbreviation]) -> Record:
        if number == UNABBREVIATED:
            code, count = bits.vbr(6), bits.vbr(6)
            return Record(number, code, self._numbers(bits, (VBR, 6), count))
        if number - FIRST >= len(abbreviations):
            raise FormatError(f"undefined abbreviation {number}")
        values: list[int] = []
        record = Record(number, 0, values)
        operands = iter(abbreviations[number - FIRST])
        for operand in operands:
            if operand[0] == ARRAY:
                self._array(bits, next(operands), record)
            elif operand[0] == BLOB:
                record.blob = bits.blob()
            else:
                values.append(_number(bits, operand))
        if not values:
            raise FormatError("a record without a code")
        record.code = values.pop(0)
        return record

    def _array(self, bits: Bits, element: Operand, record: Record) -> None:
        count = bits.vbr(6)
        encoding, width = element
        if element == (FIXED, 8):
            record.bit, record.count = bits.skip(8 * count), count
        elif encoding in (LITERAL, ARRAY, BLOB) or (encoding != CHAR6 and not width):
            raise FormatError("an array of nothing")
        else:
            record.operands += self._numbers(bits, element, count)

    def _numbers(self, bits: Bits, operand: Operand, count: int) -> list[int]:
        """Read numbers; skip very long arrays."""
        numbers = (_number(bits, operand) for _ in range(count))
        if count <= _MAX_NUMBERS:
            return list(numbers)
        if self.exact:
            raise FormatError(f"a record of {count} numbers")
        for _ in numbers:
            pass
        return []


def _definition(bits: Bits) -> Abbreviation:
    count = bits.vbr(5)
    if count > _MAX_OPERANDS:
        raise FormatError(f"an abbreviation of {count} operands")
    operands: list[Operand] = []
    for _ in range(count):
        if bits.fixed(1):
            operands.append((LITERAL, bits.vbr(8)))
            continue
        encoding = bits.fixed(3)
        width = bits.vbr(5) if encoding in (FIXED, VBR) else 0
        if not FIXED <= encoding <= BLOB or width > MAX_WIDTH or (encoding, width) == (VBR, 1):
            raise FormatError(f"unknown encoding {encoding} of {width} bits")
        operands.append((encoding, width))
    arrays = [at for at, operand in enumerate(operands) if operand[0] == ARRAY]
    if arrays and arrays != [len(operands) - 2]:
        raise FormatError("an array is not the last operand")
    return tuple(operands)


def _number(bits: Bits, operand: Operand) -> int:
    encoding, width = operand
    if encoding == LITERAL:
        return width
    if encoding == CHAR6:
        return CHARS[bits.fixed(6)]
    if not width:  # zero bits encode zero
        return 0
    return bits.fixed(width) if encoding == FIXED else bits.vbr(width)


def write_bitstream(blocks: Sequence[Block]) -> FilePlan:
    """Return the file of the blocks, and set their new positions.

    :raises UnsupportedError: a blob is too long, or a block too large, for the format.
    """
    writer = _BitWriter()
    for block in blocks:
        writer.fixed(ENTER, TOP_WIDTH)
        writer.block(block)
    return writer.finish()


class _BitWriter:
    """Collects bits; complete bytes become literals, with contents between them."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytearray] | Range] = []
        """Literals as position and bytes, and contents."""
        self.start = 0
        """Position of `data` in bytes."""
        self.data = bytearray(MAGIC)
        self.pending = 0
        """Bits behind `data`, fewer than 8."""
        self.count = 0
        self.blockinfo: dict[int, list[Abbreviation]] = {}

    # -- numbers ---------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Number of bits written."""
        return 8 * (self.start + len(self.data)) + self.count

    def fixed(self, value: int, width: int) -> None:
        if value >> width:
            raise FormatError(f"{value} does not fit into {width} bits of bitcode")
        self.pending |= value << self.count
        self.count += width
        whole, self.count = divmod(self.count, 8)
        self.data += (self.pending & ((1 << 8 * whole) - 1)).to_bytes(whole, "little")
        self.pending >>= 8 * whole

    def vbr(self, value: int, width: int) -> None:
        more = 1 << (width - 1)
        while value >= more:
            self.fixed(value & (more - 1) | more, width)
            value >>= width - 1
        self.fixed(value, width)

    def align(self) -> None:
        self.fixed(0, -self.position % 32)

    # -- items -----------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Write a block behind its abbreviation ID."""
        block.header_at = self.position // 32
        self.vbr(block.number, 8)
        self.vbr(block.width, 4)
        self.align()
        data, size_at = self.data, len(self.data)
        self.fixed(0, 32)  # filled in at the end
        block.content_at = self.position // 32
        self._write_items(block)
        self.fixed(END, block.width)
        self.align()
        size = self.position // 32 - block.content_at
        if size >> 32:
            raise UnsupportedError(f"a block of {4 * size} bytes is too large for bitcode")
        data[size_at : size_at + 4] = size.to_bytes(4, "little")

    def _write_items(self, block: Block) -> None:
        abbreviations = list(self.blockinfo.get(block.number, ()))
        described = -1
        for item in block.items:
            if isinstance(item, Block):
                self.fixed(ENTER, block.width)
                self.block(item)
            elif isinstance(item, tuple):
                self.fixed(DEFINE, block.width)
                self._definition(item)
                if block.number == BLOCKINFO:
                    self.blockinfo.setdefault(described, []).append(item)
                else:
                    abbreviations.append(item)
            elif isinstance(item, ContentRecord):
                self._content_record(item, block.width, abbreviations)
            else:
                self.fixed(item.abbreviation, block.width)
                self._record(item, abbreviations)
                if block.number == BLOCKINFO and item.code == SETBID and item.operands:
                    described = item.operands[0]

    def _definition(self, operands: Abbreviation) -> None:
        self.vbr(len(operands), 5)
        for encoding, number in operands:
            self.fixed(encoding == LITERAL, 1)
            if encoding == LITERAL:
                self.vbr(number, 8)
                continue
            self.fixed(encoding, 3)
            if encoding <= VBR:
                self.vbr(number, 5)

    def _record(self, record: Record, abbreviations: Sequence[Abbreviation]) -> None:
        if record.abbreviation == UNABBREVIATED:
            for number in (record.code, len(record.operands), *record.operands):
                self.vbr(number, 6)
            return
        values = [record.code, *record.operands]
        at = 0
        operands = iter(abbreviations[record.abbreviation - FIRST])
        for operand in operands:
            if operand[0] == ARRAY:
                element = next(operands)
                self.vbr(len(values) - at, 6)
                for value in values[at:]:
                    self._value(value, element)
                at = len(values)
            elif operand[0] == BLOB:
                blob = record.blob or b""
                self.vbr(len(blob), 6)
                self.align()
                self.data += blob
                self.align()
            else:
                self._value(values[at], operand)
                at += 1

    def _value(self, value: int, operand: Operand) -> None:
        encoding, number = operand
        if encoding == CHAR6:
            self.fixed(CHARS.index(value), 6)
        elif encoding == FIXED:
            self.fixed(value, number)
        elif encoding == VBR and number:
            self.vbr(value, number)

    def _content_record(
        self, item: ContentRecord, width: int, abbreviations: Sequence[Abbreviation]
    ) -> None:
        if item.size > _MAX_COUNT:
            raise UnsupportedError(f"{item.size} bytes are too many for one constant of bitcode")
        chunks = max(-(-item.size.bit_length() // 5), 1)
        ahead = 6 + width + 6 * chunks  # the bit count, and the fields up to the content
        self.fixed(item.filler.abbreviation, width)
        values = (item.filler.code, *item.filler.operands)
        operands = abbreviations[item.filler.abbreviation - FIRST]
        for value, operand in zip(values, operands[: len(values)], strict=True):
            self._value(value, operand)
        bits = -(self.position + ahead) % 8
        self.vbr(bits, 6)
        self.fixed(0, bits)
        self.fixed(item.abbreviation, width)
        self.vbr(item.size, 6)
        self._flush()
        self.pieces.append(content(self.start, item.index, item.size))
        self.start += item.size

    def _flush(self) -> None:
        self.pieces.append((self.start, self.data))
        self.start += len(self.data)
        self.data = bytearray()

    def finish(self) -> FilePlan:
        """Return the plan."""
        self._flush()
        pieces = (
            piece if isinstance(piece, Range) else Literal(piece[0], bytes(piece[1]))
            for piece in self.pieces
        )
        return FilePlan(tuple(piece for piece in pieces if piece.size), self.start)
