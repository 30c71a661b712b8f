"""The bitstream container: what LLVM writes is understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import ContentError
from offload_tool.formats.bitcode.bitstream import (
    BLOCKINFO,
    Bits,
    Block,
    Reader,
    Record,
    packed_bytes,
    top_blocks,
)
from offload_tool.formats.bitcode.llvmlite import assemble
from tests.conftest import Tool, run_tool
from tests.formats.bitcode.streams import WIDTH, Stream, stream

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
SMALL = assemble('source_filename = "s"\n@x = constant [4 x i8] c"abcd"\ndeclare void @f(ptr)\n')


def read(data: bytes) -> list[Block]:
    """Return the top blocks of a file."""
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


def test_what_is_in_it() -> None:
    """The blocks of a module have their numbers, and records their codes and operands."""
    blocks = read(SMALL)
    module = next(block for block in blocks if block.number == 8)
    found = [item for item in Reader(memoryview(SMALL)).items(module) if isinstance(item, Record)]
    assert [bytes(operands(SMALL, record)) for record in found if record.code == 16] == [b"s"]
    assert all(block.content_at > block.header_at > 0 for block in blocks)


def test_an_empty_stream() -> None:
    assert read(b"BC\xc0\xde") == []


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


@given(cut=st.integers(4, len(SMALL) - 1))
def test_cut_short(cut: int) -> None:
    """A stream that ends too early is an error, or has fewer blocks; never a traceback."""
    try:
        blocks = read(SMALL[:cut])
    except ContentError:
        return
    assert len(blocks) < len(read(SMALL))
