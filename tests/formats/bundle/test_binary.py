"""The binary bundle: written as LLVM does, read without trust."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.bundle.binary import (
    Bundle,
    BundleEntry,
    find_alignment,
    plan_bundle,
    read_bundle,
)
from offload_tool.formats.magic import BUNDLE as MAGIC

HOST = "host-x86_64-unknown-linux-gnu-"
GFX906 = "hipv4-amdgcn-amd-amdhsa--gfx906"


def bundle_of(images: dict[str, bytes], alignment: int = 1) -> bytes:
    return b"".join(plan_bundle(images.items(), alignment).chunks())


def row(offset: int, size: int, name: bytes, length: int | None = None) -> bytes:
    return struct.pack("<QQQ", offset, size, len(name) if length is None else length) + name


def test_alignment_of_empty_code_objects() -> None:
    """Empty code objects are aligned as well, so the last one leaves padding before it."""
    data = bundle_of({HOST: b"", GFX906: b""}, 4096)
    assert [entry.offset for entry in read_bundle(memoryview(data)).entries] == [4096, 4096]
    assert len(data) == 4096
    assert len(bundle_of({HOST: b"text", GFX906: b""}, 4096)) == 8192


@given(
    images=st.dictionaries(
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40),
        st.binary(max_size=200),
        min_size=1,
        max_size=8,
    ),
    alignment=st.integers(1, 5000),
)
def test_round_trip(images: dict[str, bytes], alignment: int) -> None:
    data = memoryview(bundle_of(images, alignment))
    bundle = read_bundle(data)
    read = {entry.id: bytes(bundle.image(data, entry)) for entry in bundle.entries}
    assert list(read.items()) == list(images.items())
    assert all(entry.offset % alignment == 0 for entry in bundle.entries)
    assert bundle.size == len(data)


CORRUPT = {
    "empty": (b"", "magic"),
    "other-magic": (b"CCOB" + bytes(60), "expected '__CLANG_OFFLOAD_BUNDLE__'"),
    "no-count": (MAGIC + b"\1\0", "number of bundle entries.*cut short"),
    "huge-count": (MAGIC + struct.pack("<Q", 2**64 - 1) + bytes(99), "at most 4 .* found 1844"),
    "huge-id": (MAGIC + struct.pack("<Q", 1) + row(80, 0, b"x", 2**63), "entry ID of entry 1"),
    "no-row": (MAGIC + struct.pack("<Q", 1) + bytes(20), "number of bundle entries"),
    "size-wraps": (MAGIC + struct.pack("<Q", 1) + row(60, 2**64 - 8, b"x"), "size 1844"),
    "behind-end": (MAGIC + struct.pack("<Q", 1) + row(58, 1, b"x"), r"entry 1 \('x'\)"),
    "inside-table": (MAGIC + struct.pack("<Q", 1) + row(8, 4, b"x"), "the end of the table"),
}


@pytest.mark.parametrize(("data", "message"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_bundles(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        read_bundle(memoryview(data), path="broken.hipfb")
    assert str(caught.value).startswith("'broken.hipfb', offset 0x")


@pytest.mark.parametrize(
    ("ids", "alignment", "message"),
    [
        ([], 1, "at least one entry"),
        ([HOST], 0, "at least 1, not 0"),
        ([HOST, GFX906], 1 << 63, "a bundle of entries so far apart"),
        ([HOST, GFX906, HOST], 1, f"2 entries have .*{HOST}"),
    ],
    ids=["no-items", "alignment", "far-apart", "duplicate"],
)
def test_impossible_bundles(ids: list[str], alignment: int, message: str) -> None:
    """A layout that no reader could tell apart is refused before anything is written."""
    with pytest.raises(UsageError, match=message):
        plan_bundle([(name, b"x") for name in ids], alignment)


def test_ids_that_are_no_text() -> None:
    """An ID's bytes survive reading and writing whatever they are."""
    raw = b"hip-\xff\xfe-x-y-z-"
    data = MAGIC + struct.pack("<Q", 1) + row(32 + 24 + len(raw), 0, raw)
    bundle: Bundle = read_bundle(memoryview(data))
    assert bundle_of({bundle.entries[0].id: b""}) == data


SIZES = st.lists(st.integers(0, 10_000), min_size=1, max_size=5)


def planned(sizes: list[int], alignment: int) -> Bundle:
    images = {f"hip-a-b-c-d-{at}": bytes(size) for at, size in enumerate(sizes)}
    return read_bundle(memoryview(bundle_of(images, alignment)))


@given(st.lists(SIZES, min_size=1, max_size=3), st.sampled_from([1, 2, 8, 256, 4096, 1 << 16]))
def test_same_layout(many: list[list[int]], alignment: int) -> None:
    found = find_alignment([planned(sizes, alignment) for sizes in many])
    for sizes in many:
        assert planned(sizes, found) == planned(sizes, alignment)
        assert find_alignment([planned(sizes, 4096)]) == 4096


def test_no_such_layout() -> None:
    """Where no alignment gives the layout, it is one that all offsets are multiples of."""
    entries = (BundleEntry("hip-a-b-c-d-1", 4096 * 3, 1), BundleEntry("hip-a-b-c-d-2", 512, 1))
    assert find_alignment([Bundle(entries, 0, 4096 * 3 + 1)]) == 512
    assert find_alignment([Bundle((), 0, 32)]) == 4096
