"""The bitstream container: what LLVM writes is understood, and written again bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import ContentError, FormatError
from offload_tool.formats.bitcode.bitstream import Block, Record, read_bitstream, write_bitstream
from offload_tool.formats.bitcode.llvmlite import assemble
from offload_tool.io.write_plan import Literal
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
SMALL = assemble('source_filename = "s"\n@x = constant [4 x i8] c"abcd"\ndeclare void @f(ptr)\n')


def rewritten(data: bytes) -> bytes:
    (piece,) = write_bitstream(read_bitstream(data)).pieces
    assert isinstance(piece, Literal)
    return piece.data


@pytest.mark.llvm
@pytest.mark.parametrize("flags", [["-O0"], ["-O2", "-g"], ["-O1", "-flto=thin"]], ids=str)
def test_what_clang_writes(tmp_path: Path, llvm: Tool, flags: list[str]) -> None:
    """Bitcode of clang, with debug info, metadata and summaries, is written again as it was."""
    (tmp_path / "x.c").write_text(SOURCE)
    run_tool(llvm("clang"), *flags, "-emit-llvm", "-c", "x.c", "-o", "x.bc", cwd=tmp_path)
    data = (tmp_path / "x.bc").read_bytes()
    assert rewritten(data) == data


def test_what_is_in_it() -> None:
    """The blocks of a module have their numbers, and records their codes and operands."""
    blocks = read_bitstream(SMALL)
    module = next(block for block in blocks if block.number == 8)
    names = [bytes(record.operands) for record in module.records() if record.code == 16]
    assert names == [b"s"]
    assert all(block.content_at > block.header_at > 0 for block in blocks)


def test_an_empty_stream() -> None:
    """A file that is nothing but the magic has no blocks."""
    assert read_bitstream(b"BC\xc0\xde") == []
    assert rewritten(b"BC\xc0\xde") == b"BC\xc0\xde"


@given(block=st.integers(0, 200), code=st.integers(0, 2**64 - 1), data=st.data())
def test_any_numbers(block: int, code: int, data: st.DataObject) -> None:
    """Numbers of up to 64 bits come back from a record without abbreviation."""
    operands = data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=20))
    made = [Block(block or 1, 4, [Record(3, code, operands)])]
    (piece,) = write_bitstream(made).pieces
    assert isinstance(piece, Literal)
    (read,) = read_bitstream(piece.data)
    assert read.items == [Record(3, code, operands)]


@given(cut=st.integers(0, len(SMALL) - 1))
def test_cut_short(cut: int) -> None:
    """A stream that ends too early is an error, or has fewer blocks; never a traceback."""
    try:
        blocks = read_bitstream(SMALL[:cut])
    except ContentError:
        return
    assert len(blocks) < len(read_bitstream(SMALL))


def test_not_bitcode() -> None:
    with pytest.raises(FormatError, match="expected bitcode, found b'"):
        read_bitstream(b"\x7fELF....")
