"""Bitstreams made bit by bit: every reason to refuse one, where it begins to be true."""

from __future__ import annotations

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.bitcode.bitstream import (
    ARRAY,
    CHAR6,
    DEFINE,
    END,
    FIXED,
    LITERAL,
    UNABBREVIATED,
    VBR,
    Abbreviation,
    Bits,
    Block,
    Reader,
    Record,
    top_blocks,
)
from tests.formats.bitcode.streams import WIDTH, Stream, stream


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
        items(stream(content, **options))


def items(data: bytes) -> list[Block | Abbreviation | Record]:
    """Return the items of the only block of a file."""
    (block,) = top_blocks(Bits(memoryview(data), 32, 8 * len(data)))
    return list(Reader(memoryview(data)).items(block))


@pytest.mark.parametrize("width", [0, 1, 33])
def test_width_of_abbreviation_ids(width: int) -> None:
    """Abbreviation IDs of less than 2 bits cannot be, of more than 32 are not believed."""
    refused(Stream().fixed(END, max(width, 2)), f"abbreviation IDs of {width} bits", width=width)
    for possible in (2, 32):
        assert items(stream(Stream().fixed(END, possible), width=possible)) == []


@pytest.mark.parametrize(
    "operand", [(FIXED, 64), (VBR, 64), (VBR, 2), (FIXED, 0), (VBR, 0), (CHAR6, 0)]
)
def test_encodings(operand: tuple[int, int]) -> None:
    """Operands of the largest and smallest widths are read."""
    content = definition((LITERAL, 1), operand).fixed(END, WIDTH)
    assert items(stream(content)) == [((LITERAL, 1), operand)]


def test_operands_of_no_bits() -> None:
    content = definition((LITERAL, 5), (FIXED, 0), (VBR, 0)).fixed(4, WIDTH).fixed(END, WIDTH)
    record = items(stream(content))[1]
    assert isinstance(record, Record)
    assert (record.code, record.operands) == (5, [0, 0])


def test_very_long_records() -> None:
    """The numbers of a record of more than a million, as no module has one, are skipped."""
    most = 1 << 20
    for count in (most, most + 1):
        content = definition((LITERAL, 1), (ARRAY, 0), (FIXED, 1)).fixed(4, WIDTH).vbr(count, 6)
        words = -(-(len(content.bits) + count + WIDTH) // 32)
        data = stream(content, size=words)
        data += bytes(4 * words - len(content.data()))  # zeros, and the block's end
        _, record = items(data)
        assert isinstance(record, Record)
        assert record.operands == ([0] * most if count == most else [])
