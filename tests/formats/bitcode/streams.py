"""Bitstreams made bit by bit."""

from __future__ import annotations

from offload_tool.formats.bitcode.bitstream import ENTER

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
