"""Replace arrays of zeros in a bitcode module by images.

::

    module from LLVM                           module with the image
    ----------------------------------------   ------------------------------------------
    TYPES      array of 2^40 + N, of i8        array of the image's size, of i8
    CONSTANTS                                  two abbreviations: code 1 and single bits,
                                               code 8 (string) and bytes
               set type: that array            set type: that array
               null                            set type again, with 0 to 7 padding bits;
                                               string: the image's bytes
    VSTOFFSET  offset of the symbols           adjusted to the larger constants
    FUNCTIONs
    VALUE_SYMTAB  offset of each function      adjusted likewise

LLVM begins a string at any bit. Here it begins at a whole byte, so that the kernel can copy the
image, which is never in memory. Each array has a unique length: LLVM would merge images of equal
size or content into one constant.

For Apple's systems LLVM adds a wrapper in front: five integers of 4 bytes. The third and fourth are
the bitcode's offset and size. The total size is a multiple of 16 bytes.

Source: the LLVM Bitcode File Format document; bitcode of LLVM 20.1 and 22.1 through llvmlite
0.45 and 0.50. LLVM 22.1.8 reads the result; 15.0.6 reads the images, but not the newer form
of constant addresses, which llvm-offload-wrapper 22.1.8 writes as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.bitcode.bitstream import (
    ARRAY,
    BLOCKINFO,
    FIRST,
    FIXED,
    LITERAL,
    SETBID,
    VBR,
    Block,
    ContentRecord,
    Item,
    Record,
    read_bitstream,
    write_bitstream,
)
from offload_tool.formats.magic import BITCODE_WRAPPER
from offload_tool.formats.registration_ir import PLACEHOLDER_SIZE
from offload_tool.io.write_plan import FilePlan

MAX_IMAGE_SIZE = (1 << 32) - 1
"""Bytes; bitcode counts them in 32 bits."""

_WRAPPER = struct.Struct("<4sIIII")
_WRAPPED_ALIGNMENT = 16
_MODULE, _CONSTANTS, _FUNCTION, _VALUE_SYMTAB, _TYPES = 8, 11, 12, 14, 17
_NUMENTRY, _ARRAY, _STRUCT_NAME = 1, 11, 19
_SETTYPE, _NULL, _STRING = 1, 2, 8
_VSTOFFSET = 13
_FNENTRY = 3


def plan_bitcode_with_images(module: bytes, sizes: Sequence[int]) -> FilePlan:
    """Return a plan of the module with content N, of `sizes[N]`, for placeholder N.

    Placeholders have `PLACEHOLDER_SIZE` + N bytes; an image of size 0 has none.

    :raises FormatError: the layout of the module is not LLVM's.
    :raises UnsupportedError: an image is too long for bitcode (4 GiB).
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
    blocks = read_bitstream(module)
    body = _single_block(blocks, _MODULE)
    types = _set_array_types(_single_block(body.items, _TYPES), sizes)
    constants = [block for block in body.blocks(_CONSTANTS) if types]
    known = _blockinfo_abbreviations(body)
    found = [number for block in constants for number in _set_constants(block, types, sizes, known)]
    if sorted(found) != sorted(types.values()):
        raise FormatError(f"expected the arrays of images {sorted(types.values())} once each")
    return _rewrite(blocks, body)


def _single_block(items: Sequence[Item], number: int) -> Block:
    found = [item for item in items if isinstance(item, Block) and item.number == number]
    if len(found) != 1:
        raise FormatError(f"expected one block {number} in LLVM's bitcode, found {len(found)}")
    return found[0]


def _set_array_types(types: Block, sizes: Sequence[int]) -> dict[int, int]:
    """Set the size of each image's array; return the image number for each type number."""
    images = {PLACEHOLDER_SIZE + number: number for number, size in enumerate(sizes) if size}
    found: dict[int, int] = {}
    type_number = 0
    for record in types.records():
        if record.code in {_NUMENTRY, _STRUCT_NAME}:
            continue
        if record.code == _ARRAY and record.operands[0] in images:
            image = images[record.operands[0]]
            found[type_number] = image
            record.operands[0] = sizes[image]
        type_number += 1
    if len(found) != len(images):
        raise FormatError(f"expected {len(images)} images in LLVM's bitcode, found {len(found)}")
    return found


def _blockinfo_abbreviations(module: Block) -> int:
    """Return how many abbreviations BLOCKINFO defines for constants."""
    count = 0
    for block in module.blocks(BLOCKINFO):
        described = -1
        for item in block.items:
            if isinstance(item, Record) and item.code == SETBID:
                described = item.operands[0]
            elif isinstance(item, tuple) and described == _CONSTANTS:
                count += 1
    return count


def _set_constants(
    block: Block, types: dict[int, int], sizes: Sequence[int], known: int
) -> Iterator[int]:
    """Replace the zeros of image types in `block`; yield the images' numbers."""
    own = sum(isinstance(item, tuple) for item in block.items)
    filler = FIRST + known + own
    string = filler + 1
    if string >> block.width:
        raise FormatError("no abbreviation IDs are left among the constants of LLVM's bitcode")
    current = -1
    for index, item in enumerate(block.items):
        if not isinstance(item, Record):
            continue
        if item.code == _SETTYPE:
            current = item.operands[0]
        elif item.code == _NULL and current in types:
            number = types[current]
            again = Record(filler, _SETTYPE, [current])
            block.items[index] = ContentRecord(again, string, number, sizes[number])
            yield number
    # Abbreviations are numbered in definition order; LLVM defines them before other items.
    block.items[own:own] = [
        ((LITERAL, _SETTYPE), (VBR, 6), (ARRAY, 0), (FIXED, 1)),
        ((LITERAL, _STRING), (ARRAY, 0), (FIXED, 8)),
    ]


def _rewrite(blocks: Sequence[Block], module: Block) -> FilePlan:
    """Return the file of the blocks, after updating the records of `module` with positions."""
    functions = {block.header_at: block for block in module.blocks(_FUNCTION)}
    tables = {block.header_at: block for block in module.blocks(_VALUE_SYMTAB)}
    references = [
        (record, 1, _find(functions, record.operands[1]))
        for table in tables.values()
        for record in table.records()
        if record.code == _FNENTRY
    ]
    references += [
        (record, 0, _find(tables, record.operands[0]))
        for record in module.records()
        if record.code == _VSTOFFSET
    ]
    write_bitstream(blocks)  # sets the new positions
    for record, operand, block in references:
        record.operands[operand] = block.header_at
    return write_bitstream(blocks)


def _find(blocks: dict[int, Block], word: int) -> Block:
    if word not in blocks:
        raise FormatError(f"expected a block at word {word} of LLVM's bitcode")
    return blocks[word]
