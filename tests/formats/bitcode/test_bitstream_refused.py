"""Bitstreams made bit by bit: every reason to refuse one, where it begins to be true."""

from __future__ import annotations

import pytest

from offload_tool.errors import ContentError, FormatError
from offload_tool.formats.bitcode.bitstream import (
    ARRAY,
    CHAR6,
    FIXED,
    LITERAL,
    VBR,
    Abbreviation,
    Block,
    ContentRecord,
    Record,
    read_bitstream,
    write_bitstream,
)

END, ENTER, DEFINE, UNABBREVIATED = range(4)
WIDTH = 3
"""Bits of abbreviation IDs in the blocks here."""


class Stream:
    """Bits, the lowest first."""

    def __init__(self) -> None:
        self.bits: list[int] = []

    def fixed(self, value: int, width: int) -> Stream:
        self.bits += [value >> at & 1 for at in range(width)]
        return self

    def vbr(self, value: int, width: int) -> Stream:
        more = 1 << (width - 1)
        while value >= more:
            self.fixed(value & (more - 1) | more, width)
            value >>= width - 1
        return self.fixed(value, width)

    def align(self) -> Stream:
        return self.fixed(0, -len(self.bits) % 32)

    def data(self) -> bytes:
        whole = self.bits + [0] * (-len(self.bits) % 32)
        return b"".join(
            bytes([sum(bit << at for at, bit in enumerate(whole[start : start + 8]))])
            for start in range(0, len(whole), 8)
        )


def stream(content: Stream, *, width: int = WIDTH, size: int | None = None) -> bytes:
    """Return a file of one block with this content, which says that it has `size` words."""
    inside = content.data()
    head = Stream().fixed(ENTER, 2).vbr(9, 8).vbr(width, 4).align()
    head.fixed(len(inside) // 4 if size is None else size, 32)
    return b"BC\xc0\xde" + head.data() + inside


def definition(*operands: tuple[int, int], count: int | None = None) -> Stream:
    """Begin a block with an abbreviation; one of the encodings from `FIXED` on, or a literal."""
    made = Stream().fixed(DEFINE, WIDTH).vbr(len(operands) if count is None else count, 5)
    for encoding, value in operands:
        made.fixed(encoding == LITERAL, 1)
        if encoding == LITERAL:
            made.vbr(value, 8)
            continue
        made.fixed(encoding, 3)
        if encoding in (FIXED, VBR):
            made.vbr(value, 5)
    return made


def array_of(*element: int) -> Stream:
    """Define an array and begin a record of 1000 such elements."""
    return definition((LITERAL, 1), (ARRAY, 0), element).fixed(4, WIDTH).vbr(1000, 6)


def repeated(stream: Stream, count: int) -> Stream:
    stream.bits *= count
    return stream


NO_CODE = "a record without a code"
NOT_LAST = "an array is not the last operand"
REFUSED = [
    (
        Stream().fixed(UNABBREVIATED, WIDTH).vbr(1, 6).vbr(1, 6).fixed((1 << 600) - 1, 600),
        "more than 64 bits",
    ),
    (Stream().fixed(END, WIDTH).align().fixed(0, 32), "another size than it claims"),
    (Stream().fixed(4, WIDTH), "undefined abbreviation 4"),
    (definition((FIXED, 3)).fixed(5, WIDTH), "undefined abbreviation 5"),
    (definition().fixed(4, WIDTH), NO_CODE),
    (definition((ARRAY, 0), (FIXED, 3)).fixed(4, WIDTH).vbr(0, 6), NO_CODE),
    (definition((FIXED, 65)), "unknown encoding 1 of 65 bits"),
    (definition((VBR, 65)), "unknown encoding 2 of 65 bits"),
    (definition((VBR, 1)), "unknown encoding 2 of 1 bits"),
    (definition((6, 0)), "unknown encoding 6 of 0 bits"),
    (definition((7, 0)), "unknown encoding 7 of 0 bits"),
    # The number that stands for literals here is no encoding in the stream.
    (Stream().fixed(DEFINE, WIDTH).vbr(1, 5).fixed(0, 4), "unknown encoding 0 of 0 bits"),
    (definition((LITERAL, 1), (ARRAY, 0)), NOT_LAST),
    (definition((ARRAY, 0), (FIXED, 3), (FIXED, 3)), NOT_LAST),
    (definition((ARRAY, 0), (ARRAY, 0), (FIXED, 3)), NOT_LAST),
    *((array_of(*element), "an array of nothing") for element in ((LITERAL, 1), (5, 0))),
    *((array_of(kind, 0), "an array of nothing") for kind in (FIXED, VBR)),
    (definition(count=4097), "an abbreviation of 4097 operands"),
    (repeated(definition((LITERAL, 1)), 4097), "too many abbreviations"),
]


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_contents_of_blocks(content: Stream, message: str) -> None:
    """Numbers, records and abbreviations that no writer makes, or that could be any number."""
    refused(content, message)


def test_block_behind_the_end() -> None:
    refused(Stream().fixed(END, WIDTH), "it may be cut short", size=2)


def refused(content: Stream, message: str, **options: int) -> None:
    with pytest.raises(FormatError, match=message):
        read_bitstream(stream(content, **options))


def test_something_besides_blocks() -> None:
    for number in (END, DEFINE, UNABBREVIATED):
        with pytest.raises(FormatError, match="expected a block in bitcode"):
            read_bitstream(b"BC\xc0\xde" + bytes([number, 0, 0, 0]))


@pytest.mark.parametrize("width", [0, 1, 33])
def test_width_of_abbreviation_ids(width: int) -> None:
    """Abbreviation IDs of less than 2 bits cannot be, of more than 32 are not believed."""
    refused(Stream().fixed(END, max(width, 2)), f"abbreviation IDs of {width} bits", width=width)
    for possible in (2, 32):
        (block,) = read_bitstream(stream(Stream().fixed(END, possible), width=possible))
        assert block.items == []


def test_blocks_one_inside_the_other() -> None:
    for depth in (16, 17):
        block = Block(9, WIDTH)
        for _ in range(depth - 1):
            block = Block(9, WIDTH, [block])
        data = b"".join(bytes(chunk) for chunk in write_bitstream([block]).chunks())
        if depth == 16:
            assert read_bitstream(data)[0].items
        else:
            with pytest.raises(FormatError, match="more than 16 nested blocks of bitcode"):
                read_bitstream(data)


@pytest.mark.parametrize(
    "operand", [(FIXED, 64), (VBR, 64), (VBR, 2), (FIXED, 0), (VBR, 0), (CHAR6, 0)]
)
def test_encodings(operand: tuple[int, int]) -> None:
    """Operands of the largest and smallest widths are read."""
    (block,) = read_bitstream(stream(definition((LITERAL, 1), operand).fixed(END, WIDTH)))
    assert block.items == [((LITERAL, 1), operand)]


def test_operands_of_no_bits() -> None:
    content = definition((LITERAL, 5), (FIXED, 0), (VBR, 0)).fixed(4, WIDTH).fixed(END, WIDTH)
    (block,) = read_bitstream(stream(content))
    assert block.items[1] == Record(4, 5, [0, 0])


def test_very_long_records() -> None:
    """A record of more than a million numbers, as no module has one, is refused."""
    most = 1 << 20
    for count in (most, most + 1):
        content = definition((LITERAL, 1), (ARRAY, 0), (FIXED, 1)).fixed(4, WIDTH).vbr(count, 6)
        words = -(-(len(content.bits) + count + WIDTH) // 32)
        data = stream(content, size=words)
        data += bytes(4 * words - len(content.data()))  # zeros, and the block's end
        if count == most:
            assert read_bitstream(data)[0].items[1] == Record(4, 1, [0] * most)
            continue
        with pytest.raises(FormatError, match=f"a record of {count} numbers"):
            read_bitstream(data)


# -- writing -----------------------------------------------------------------------------


def written(*items: Record | Abbreviation | ContentRecord) -> bytes:
    plan = write_bitstream([Block(9, WIDTH, list(items))])
    return b"".join(bytes(chunk) for chunk in plan.chunks())


def test_numbers_that_do_not_fit() -> None:
    shape = ((LITERAL, 1), (FIXED, 3))
    (block,) = read_bitstream(written(shape, Record(4, 1, [7])))
    assert block.items[1] == Record(4, 1, [7])
    with pytest.raises(ContentError, match="8 does not fit into 3 bits of bitcode"):
        written(shape, Record(4, 1, [8]))


def test_blocks_of_16_gib() -> None:
    """A block of more words than its size has bits for is refused."""
    filler = ((LITERAL, 1), (VBR, 6), (ARRAY, 0), (FIXED, 1))
    array = ((LITERAL, 8), (ARRAY, 0), (FIXED, 8))
    large = ContentRecord(Record(4, 1, [0]), 5, 0, (1 << 32) - 1)
    for count in (3, 5):
        items: list[Record | Abbreviation | ContentRecord] = [filler, array, *[large] * count]
        if count == 3:
            assert write_bitstream([Block(9, WIDTH, list(items))]).size > 3 << 32
            continue
        with pytest.raises(ContentError, match=r"a block of 2147.* bytes is too large for bitcode"):
            write_bitstream([Block(9, WIDTH, list(items))])
