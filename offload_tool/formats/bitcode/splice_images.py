"""Replace arrays of zeros in a bitcode module by images.

::

    module from LLVM                           module with the image
    ----------------------------------------   ------------------------------------------
    TYPES      array of 2^40 + N, of i8        array of the image's size, of i8
    CONSTANTS  set type: that array            set type: that array
               null                            definition of no use, up to a whole byte
                                               string: the image's bytes
                                               definition of no use, up to 4 bytes as before
    VSTOFFSET  offset of the symbols           adjusted to the larger constants
    FUNCTIONs
    VALUE_SYMTAB  offset of each function      adjusted likewise

All other bits are LLVM's. They move by a multiple of 4 bytes, so what is aligned stays aligned: an
abbreviation that no record uses pads each change. LLVM begins a string at any bit. Here it begins
at a whole byte, so that the kernel can copy the image, which is never in memory. Each array has a
unique length: LLVM would merge images of equal size or content into one constant.

For Apple's systems LLVM adds a wrapper in front: five integers of 4 bytes. The third and fourth are
the bitcode's offset and size. The total size is a multiple of 16 bytes.

Source: the LLVM Bitcode File Format document; bitcode of LLVM 20.1 and 22.1 through llvmlite
0.45 and 0.50. LLVM 22.1.8 reads the result; 15.0.6 reads the images, but not the newer form
of constant addresses, which llvm-offload-wrapper 22.1.8 writes as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.bitcode.bitstream import (
    ARRAY,
    DEFINE,
    FIRST,
    FIXED,
    LITERAL,
    UNABBREVIATED,
    Bits,
    Block,
    Reader,
    Record,
    top_blocks,
)
from offload_tool.formats.magic import BITCODE as MAGIC
from offload_tool.formats.magic import BITCODE_WRAPPER
from offload_tool.formats.registration_ir import PLACEHOLDER_SIZE
from offload_tool.io.write_plan import FilePlan, content

MAX_IMAGE_SIZE = (1 << 32) - 1
"""Bytes; bitcode counts them in 32 bits."""

_WRAPPER = struct.Struct("<4sIIII")
_WRAPPED_ALIGNMENT = 16
_MODULE, _CONSTANTS, _FUNCTION, _VALUE_SYMTAB, _TYPES = 8, 11, 12, 14, 17
_NUMENTRY, _ARRAY, _STRUCT_NAME = 1, 11, 19
_SETTYPE, _NULL, _STRING = 1, 2, 8
_VSTOFFSET = 13
_FNENTRY = 3
_STRING_FORM = ((LITERAL, _STRING), (ARRAY, 0), (FIXED, 8))

_Bits: TypeAlias = "tuple[int, int]"
"""A number, and how many bits it has."""


class _Change(NamedTuple):
    """New bits from `start` to `end` of the module: bits, an image if any, and bits."""

    start: int
    end: int
    before: _Bits
    image: int = -1
    size: int = 0
    after: _Bits = (0, 0)

    @property
    def growth(self) -> int:
        return self.before[1] + 8 * self.size + self.after[1] - (self.end - self.start)


def plan_bitcode_with_images(module: bytes, sizes: Sequence[int]) -> FilePlan:
    """Return a plan of the module with content N, of `sizes[N]`, for placeholder N.

    Placeholders have `PLACEHOLDER_SIZE` + N bytes; an image of size 0 has none.

    :raises FormatError, UnsupportedError: it is not laid out as LLVM's, or the images are too long.
    """
    if len(module) >= _WRAPPER.size:
        magic, version, offset, size, processor = _WRAPPER.unpack_from(module)
        if magic == BITCODE_WRAPPER:
            plan = _plan(module[offset : offset + size], sizes)
            if offset != _WRAPPER.size or plan.size >> 32:
                raise UnsupportedError(f"{plan.size} bytes of bitcode do not fit into a wrapper")
            header = _WRAPPER.pack(magic, version, offset, plan.size, processor)
            return FilePlan.of([header, plan, -(len(header) + plan.size) % _WRAPPED_ALIGNMENT])
    return _plan(module, sizes)


def _plan(module: bytes, sizes: Sequence[int]) -> FilePlan:
    if module[: len(MAGIC)] != MAGIC:
        raise FormatError(f"expected bitcode, found {module[:4]!r}", offset=0)
    splice = _Splice(module, sizes)
    splice.change_images()
    splice.change_offsets()
    splice.change_block_sizes()
    return splice.plan()


class _Splice:
    """The changes of one module."""

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self.data = memoryview(data)
        self.sizes = sizes
        self.reader = Reader(self.data)
        blocks = list(top_blocks(Bits(self.data, 8 * len(MAGIC), 8 * len(data))))
        self.module = _single_block(blocks, _MODULE)
        self.items = list(self.reader.items(self.module))
        self.blocks = [item for item in self.items if isinstance(item, Block)]
        self.changes: list[_Change] = []

    # -- images ----------------------------------------------------------------------

    def change_images(self) -> None:
        types = dict(self._image_types(_single_block(self.blocks, _TYPES)))
        found = [
            number
            for block in self.blocks
            if block.number == _CONSTANTS and types
            for number in self._replace_zeros(block, types)
        ]
        if sorted(found) != sorted(types.values()):
            raise FormatError(f"expected the arrays of images {sorted(types.values())} once each")

    def _image_types(self, types: Block) -> Iterator[tuple[int, int]]:
        """Set the size of each image's array; yield its type number and the image's number."""
        images = {
            PLACEHOLDER_SIZE + number: number for number, size in enumerate(self.sizes) if size
        }
        type_number = found = 0
        for record in self._records(types):
            if record.code in {_NUMENTRY, _STRUCT_NAME}:
                continue
            if record.code == _ARRAY and (image := images.get(record.operands[0])) is not None:
                old = _vbr(record.operands[0], 8)
                at = record.start + types.width
                self._replace(at, old, _vbr(self.sizes[image], 8, old[1]))
                found += 1
                yield type_number, image
            type_number += 1
        if found != len(images):
            raise FormatError(f"expected {len(images)} images in LLVM's bitcode, found {found}")

    def _replace_zeros(self, block: Block, types: dict[int, int]) -> Iterator[int]:
        """Replace the zeros of image types in `block`; yield the images' numbers."""
        items = list(self.reader.items(block))
        forms = [*self.reader.blockinfo.get(_CONSTANTS, ())]
        forms += [item for item in items if isinstance(item, tuple)]
        current = -1
        for item in items:
            if not isinstance(item, Record):
                continue
            if item.code == _SETTYPE:
                current = item.operands[0]
            elif item.code == _NULL and current in types:
                if _STRING_FORM not in forms:
                    raise FormatError("LLVM's bitcode has no abbreviation for strings")
                number = types[current]
                size = self.sizes[number]
                string = (FIRST + forms.index(_STRING_FORM), block.width), _vbr(size, 6)
                ahead = item.start + sum(width for _, width in string)
                begin = _joined(_padding(-ahead % 8, 8, block.width), *string)
                rest = item.end - item.start - begin[1] - 8 * size
                change = _Change(item.start, item.end, begin, number, size)
                after = _padding(rest % 32, 32, block.width)
                self.changes.append(change._replace(after=after))
                yield number

    def _replace(self, at: int, old: _Bits, new: _Bits) -> None:
        """Replace a number by one of equal width; raise FormatError if it is not `old`."""
        if Bits(self.data, at, at + old[1]).fixed(old[1]) != old[0]:
            raise FormatError(
                f"expected {old[0]} in {old[1]} bits of LLVM's bitcode", offset=at // 8
            )
        self.changes.append(_Change(at, at + old[1], new))

    def _records(self, block: Block) -> Iterator[Record]:
        return (item for item in self.reader.items(block) if isinstance(item, Record))

    # -- offsets and sizes -----------------------------------------------------------

    def change_offsets(self) -> None:
        """Adjust the offsets of functions, and that of the table that has them."""
        tables = [block for block in self.blocks if block.number == _VALUE_SYMTAB]
        for record in (item for item in self.items if isinstance(item, Record)):
            if record.code == _VSTOFFSET:
                word = record.operands[0]
                moved = self._moved(tables, word)
                self._replace(record.end - 32, (word, 32), (moved, 32))
        functions = [block for block in self.blocks if block.number == _FUNCTION]
        for table in tables:
            for record in self._records(table):
                if record.code == _FNENTRY:
                    moved = self._moved(functions, record.operands[1])
                    self._change_entry(table, record, moved)

    def _moved(self, blocks: Sequence[Block], word: int) -> int:
        """Return the new position of the one of `blocks` that begins at `word`."""
        if all(block.header_at != word for block in blocks):
            raise FormatError(f"expected a block at word {word} of LLVM's bitcode")
        return word + sum(each.growth for each in self.changes if each.start < 32 * word) // 32

    def _change_entry(self, table: Block, record: Record, offset: int) -> None:
        """Write a function's entry, which begins with its value and ends with its offset."""
        operands = [record.operands[0], offset, *record.operands[2:]]
        entry = _joined(
            (UNABBREVIATED, table.width),
            *(_vbr(number, 6) for number in (_FNENTRY, len(operands), *operands)),
        )
        gap = (record.end - record.start - entry[1]) % 32
        entry = _joined(entry, _padding(gap, 32, table.width))
        self.changes.append(_Change(record.start, record.end, entry))

    def change_block_sizes(self) -> None:
        """Adjust the sizes of the blocks with changes, in words."""
        for block in (self.module, *self.blocks):
            start, end = 32 * block.content_at, 32 * (block.content_at + block.size)
            growth = sum(each.growth for each in self.changes if start <= each.start < end)
            size = block.size + growth // 32
            if size >> 32:
                raise UnsupportedError(f"a block of {4 * size} bytes is too large for bitcode")
            if growth:
                self.changes.append(_Change(start - 32, start, (size, 32)))

    # -- the new file ----------------------------------------------------------------

    def plan(self) -> FilePlan:
        parts: list[bytes | FilePlan] = []
        pending: list[_Bits] = []
        position = 0
        for change in (*sorted(self.changes), _Change(8 * len(self.data), 0, (0, 0))):
            size = change.start - position
            pending += [(Bits(self.data, position, change.start).fixed(size), size), change.before]
            if change.size:
                image = FilePlan((content(0, change.image, change.size),), change.size)
                parts += [_bytes(pending), image]
                pending = [change.after]
            position = change.end
        return FilePlan.of([*parts, _bytes(pending)])


def _single_block(blocks: Sequence[Block], number: int) -> Block:
    found = [block for block in blocks if block.number == number]
    if len(found) != 1:
        raise FormatError(f"expected one block {number} in LLVM's bitcode, found {len(found)}")
    return found[0]


def _joined(*parts: _Bits) -> _Bits:
    value = total = 0
    for number, width in parts:
        value |= number << total
        total += width
    return value, total


def _bytes(parts: Sequence[_Bits]) -> bytes:
    value, width = _joined(*parts)
    return value.to_bytes(width // 8, "little")


def _vbr(value: int, width: int, total: int = 0) -> _Bits:
    """Return a number in groups of `width` bits: as few as possible, or `total` bits."""
    step = width - 1
    count = total // width or max(-(-value.bit_length() // step), 1)
    groups = [value >> step * at & ((1 << step) - 1) for at in range(count)]
    more = 1 << step
    return _joined(*((group | more, width) for group in groups[:-1]), (groups[-1], width))


def _padding(bits: int, unit: int, width: int) -> _Bits:
    """Return a definition of `bits` bits modulo `unit`, for a block with IDs of `width` bits."""
    if not bits:
        return 0, 0
    for count in range(1, 2 * unit):
        head = _joined((DEFINE, width), _vbr(count, 5))
        made = _joined(head, *[(1, 9)] * count)  # literal 0: a bit, and a number of 8 bits
        if made[1] % unit == bits:
            return made
    raise AssertionError("a definition's size can be any")
