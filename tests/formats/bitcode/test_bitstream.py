"""The bitstream container: LLVM's output is read, and what no writer makes is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import FormatError
from offload_tool.formats.bitcode.bitstream import (
    ARRAY,
    BLOCKINFO,
    CHAR6,
    DEFINE,
    END,
    ENTER,
    FIXED,
    LITERAL,
    UNABBREVIATED,
    VBR,
    Abbreviation,
    Bits,
    Block,
    Reader,
    Record,
    packed_bytes,
    top_blocks,
)
from tests.conftest import Tool, run_tool

SOURCE = """
#include <stddef.h>
struct list { struct list *next; int values[7]; double weight; };
static const char words[] = "some text with \\x01 and \\xff in it", name[] = "abc_1.x";
const char *const both[] = {words, name};
int sum(const struct list *l) {
  int s = 0;
  for (; l; l = l->next)
    for (size_t i = 0; i < 7; ++i) s += l->values[i] * (int)l->weight;
  return s;
}
__attribute__((weak)) long long big(long long x) { return x * -1234567890123456789LL; }
"""


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


def stream(
    content: Stream, *, number: int = 9, width: int = WIDTH, size: int | None = None
) -> bytes:
    """Return a file of one block with this content, which says that it has `size` words."""
    inside = content.data()
    head = Stream().fixed(ENTER, 2).vbr(number, 8).vbr(width, 4).align()
    head.fixed(len(inside) // 4 if size is None else size, 32)
    return b"BC\xc0\xde" + head.data() + inside


def read(data: bytes) -> list[Block]:
    return list(top_blocks(Bits(memoryview(data), 32, 8 * len(data))))


def records(reader: Reader, block: Block) -> Iterator[Record]:
    """Yield the records of a block and of the blocks in it, but no definitions of BLOCKINFO."""
    for item in reader.items(block):
        if isinstance(item, Block) and item.number != BLOCKINFO:
            yield from records(reader, item)
        elif isinstance(item, Record):
            yield item


def operands(data: bytes, record: Record) -> list[int]:
    """Return a record's operands, with those that the reader leaves in place."""
    packed = b"".join(packed_bytes(memoryview(data), record.bit, record.count))
    return [*record.operands, *packed]


@pytest.mark.llvm
@pytest.mark.parametrize("flags", [["-O0"], ["-O2", "-g"], ["-O1", "-flto=thin"]], ids=str)
def test_what_clang_writes(tmp_path: Path, llvm: Tool, flags: list[str]) -> None:
    """Of clang's bitcode, with debug info, metadata and summaries, LLVM reads the same records."""
    (tmp_path / "x.c").write_text(SOURCE)
    run_tool(llvm("clang"), *flags, "-emit-llvm", "-c", "x.c", "-o", "x.bc", cwd=tmp_path)
    data = (tmp_path / "x.bc").read_bytes()
    dump = run_tool(llvm("llvm-bcanalyzer"), "-dump", "--non-symbolic", "x.bc", cwd=tmp_path)
    rows = re.findall(
        r"^ *<\w+(?: codeid=\d+)?(?: abbrevid=\d+)?((?: op\d+=\d+)*)(?: .*)?/>", dump, re.M
    )
    expected = [[int(number) for number in re.findall(r"=(\d+)", row)] for row in rows]
    expected.remove([])  # BLOCKINFO
    reader = Reader(memoryview(data))
    found = [record for block in read(data) for record in records(reader, block)]
    assert [operands(data, record) for record in found] == expected


@given(block=st.integers(1, 200), code=st.integers(0, 2**64 - 1), data=st.data())
def test_any_numbers(block: int, code: int, data: st.DataObject) -> None:
    """Numbers of up to 64 bits come back from a record without abbreviation."""
    numbers = data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=20))
    content = Stream().fixed(3, WIDTH)
    for number in (code, len(numbers), *numbers):
        content.vbr(number, 6)
    made = stream(content.fixed(0, WIDTH), number=block)
    (top,) = read(made)
    (record,) = Reader(memoryview(made)).items(top)
    assert isinstance(record, Record)
    assert (top.number, record.code, record.operands) == (block, code, numbers)


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
    refused(Stream().fixed(END, WIDTH), "it may be cut short", size=2)


def refused(content: Stream, message: str, **options: int) -> None:
    with pytest.raises(FormatError, match=message):
        items(stream(content, **options))


def items(data: bytes) -> list[Block | Abbreviation | Record]:
    """Return the items of the only block of a file."""
    (block,) = read(data)
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
        word_count = -(-(len(content.bits) + count + WIDTH) // 32)
        data = stream(content, size=word_count)
        data += bytes(4 * word_count - len(content.data()))  # zeros, and the block's end
        _, record = items(data)
        assert isinstance(record, Record)
        assert record.operands == ([0] * most if count == most else [])
