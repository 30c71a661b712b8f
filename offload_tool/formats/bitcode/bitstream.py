"""LLVM's bitstream container: its blocks and records.

Bits are counted from the lowest bit of each byte. A stream is a sequence of abbreviated items::

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

Source: the LLVM Bitcode File Format document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from offload_tool.errors import FormatError

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
_BLOCK_HEADER = 64  # smallest block header, in bits
_MAX_OPERANDS = 1 << 12
"""Operands of an abbreviation, and abbreviations of a block; LLVM uses a dozen."""
_MAX_NUMBERS = 1 << 20
"""Numbers in a record, besides 8-bit arrays (offload binaries); known lists are shorter."""
_CHUNK = 1 << 20

Operand: TypeAlias = "tuple[int, int]"
"""Encoding and its value or width."""
Abbreviation: TypeAlias = "tuple[Operand, ...]"
"""As an item, its definition; inside BLOCKINFO, one for another block number."""


class Record:
    """A record: code and operands."""

    def __init__(self, code: int, operands: list[int]) -> None:
        self.code, self.operands = code, operands
        self.blob: bytes | memoryview | None = None
        self.bit = self.count = 0
        """Start of skipped 8-bit numbers behind the operands, in bits, and how many they are."""


class Block:
    """A block; positions and sizes are in units of 4 bytes."""

    def __init__(self, number: int, width: int, header_at: int) -> None:
        self.number = number
        self.width = width
        """Width of the abbreviation IDs in the block, in bits."""
        self.header_at = header_at
        self.content_at = self.size = 0


def top_blocks(bits: Bits) -> Iterator[Block]:
    """Yield the blocks behind a file's magic; raise FormatError with `bits` at a truncated one."""
    while bits.end - bits.position >= _BLOCK_HEADER and bits.peek(TOP_WIDTH) == ENTER:
        start = bits.skip(TOP_WIDTH)
        try:
            block = Reader.block(bits)
        except FormatError:
            bits.position = start
            raise
        yield block


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
        """Read a number of `width` bits; raise FormatError, as other methods do, if cut short."""
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
    """Reads the items of untrusted blocks, and keeps the abbreviations."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.blockinfo: dict[int, list[Abbreviation]] = {}

    @staticmethod
    def block(bits: Bits) -> Block:
        """Read a block header behind its abbreviation ID; skip the content."""
        # A block starts at a multiple of 4 bytes, plus earlier items in its first word.
        header_at = bits.position // 32
        block = Block(bits.vbr(8), bits.vbr(4), header_at)
        bits.align()
        block.size = bits.fixed(32)
        if not TOP_WIDTH <= block.width <= 32:
            raise FormatError(f"abbreviation IDs of {block.width} bits")
        block.content_at = bits.skip(32 * block.size) // 32
        return block

    def items(self, block: Block) -> Iterator[Block | Abbreviation | Record]:
        """Yield the items of a block; the content of child blocks is skipped."""
        begin = 32 * block.content_at
        bits = Bits(self.data, begin, begin + 32 * block.size)
        abbreviations = list(self.blockinfo.get(block.number, ()))
        described = abbreviations
        while True:
            number = bits.fixed(block.width)
            if number == END:
                return
            if number == ENTER:
                inner = self.block(bits)
                yield inner
                if inner.number == BLOCKINFO:
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

    def _record(self, bits: Bits, number: int, abbreviations: Sequence[Abbreviation]) -> Record:
        if number == UNABBREVIATED:
            code, count = bits.vbr(6), bits.vbr(6)
            return Record(code, self._numbers(bits, (VBR, 6), count))
        if number - FIRST >= len(abbreviations):
            raise FormatError(f"undefined abbreviation {number}")
        values: list[int] = []
        record = Record(0, values)
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
