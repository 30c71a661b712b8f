"""Offload binaries: the layout of all versions, and no trust in what a file claims."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.codec import Method
from offload_tool.formats.llvm_tables import build_string_table
from offload_tool.formats.magic import OFFLOAD_BINARY as MAGIC
from offload_tool.formats.offload_binary import (
    ImageKind,
    OffloadBinaryError,
    OffloadImage,
    guess_image_kind,
    iter_offload_binaries,
    offload_kind_name,
    offload_kind_number,
    plan_offload_binary,
    plan_shared_offload_binary,
    read_offload_binary,
    unpacked,
    write_compressed_offload_binary,
)
from offload_tool.io import replace_file
from offload_tool.util.frozen import replaced
from tests.formats.compressed import ZLIB, ZSTD, compressed_offload_binary

STRINGS = {"triple": "amdgcn-amd-amdhsa", "arch": "gfx906"}
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def binary(content: bytes = b"image", **options: object) -> bytes:
    """Return a binary of version 1."""
    fields = {"image_kind": 1, "offload_kind": 4, "strings": STRINGS, **options}
    return b"".join(plan_offload_binary(content, **fields).chunks())  # type: ignore[arg-type]


Entry = tuple[int, dict[str, str], bytes]


def newer(version: int, entries: list[Entry], inflated: int = 0) -> bytes:
    """Return a binary of version 2 or 3 with (flags, strings, image) entries."""
    head = 32 + 8 * (version == 3)
    pairs_at = head + 40 * len(entries)
    blob_at = pairs_at + 24 * sum(len(strings) for _, strings, _ in entries)
    table = pairs = blob = b""
    for flags, strings, image in entries:
        first = pairs_at + len(pairs)
        for key, value in strings.items():
            key_at = blob_at + len(blob)
            blob += key.encode() + b"\0" + value.encode()  # no NUL behind the value
            pairs += struct.pack("<QQQ", key_at, key_at + len(key) + 1, len(value))
        where = (0, 0) if flags else (blob_at + len(blob), len(image))
        table += struct.pack("<HHIQQQQ", 2, 4, flags, first, len(strings), *where)
        blob += image
    size = -(-(blob_at + len(blob)) // 8) * 8
    header = MAGIC + struct.pack("<IQQQ", version, size, head, len(entries))
    header += struct.pack("<Q", inflated) if version == 3 else b""
    return (header + table + pairs + blob).ljust(size, b"\0")


def read(data: bytes, **options: object) -> list[dict[str, object]]:
    view = memoryview(data)
    return [
        {**image.strings, "content": bytes(image.content(view))}
        for found in iter_offload_binaries(view, **options)  # type: ignore[arg-type]
        for image in found.images
    ]


def test_reading() -> None:
    data = memoryview(binary(b"one", flags=7) + binary(b"", image_kind=99, offload_kind=5))
    first, second = iter_offload_binaries(data, padding=False)
    assert (first.offset, first.version, second.offset) == (0, 1, first.size)
    (image,) = first.images
    assert (image.image_kind, image.image_kind_name) == (1, "object")
    assert (image.offload_kind, image.offload_kind_name, image.flags) == (4, "hip", 7)
    assert (image.triple, image.arch, image.strings) == ("amdgcn-amd-amdhsa", "gfx906", STRINGS)
    assert bytes(data[image.offset : image.offset + image.size]) == b"one"
    (unknown,) = second.images
    assert (unknown.image_kind, unknown.image_kind_name) == (99, "unknown")
    assert (unknown.offload_kind, unknown.offload_kind_name) == (5, "unknown")
    larger = memoryview(b"x" * 24 + bytes(data) + b"junk")
    begun = [part.offset for part in iter_offload_binaries(larger, 24, len(larger) - 4)]
    assert begun == [24, 24 + first.size]


def test_padding() -> None:
    """Zeros around binaries are accepted on request only; LLVM 22 refuses them."""
    data = bytes(16) + binary(b"one") + bytes(8) + binary(b"two") + bytes(100)
    assert [image["content"] for image in read(data)] == [b"one", b"two"]
    for part in (data, data[16:], data[16:-100], data[-108 - len(binary(b"two")) :][:-50]):
        with pytest.raises(OffloadBinaryError, match="expected an offload binary"):
            read(part, padding=False)
    assert read(bytes(64)) == []
    assert read(b"") == []


@pytest.mark.parametrize("version", [2, 3])
def test_several_images_in_one_binary(version: int) -> None:
    entries = [
        (0, {"triple": "a", "arch": "x\0y"}, b"first"),
        (1, {"note": "only strings"}, b""),
        (0, {}, b"second image"),
    ]
    data = memoryview(newer(version, entries) + newer(version, []) + binary(b"old"))
    new, none, old = iter_offload_binaries(data, padding=False)
    assert [part.version for part in (new, none, old)] == [version, version, 1]
    assert (len(new.images), none.images) == (3, ())
    assert [dict(image.strings) for image in new.images] == [row[1] for row in entries]
    assert [image.has_image for image in new.images] == [True, False, True]
    assert [bytes(image.content(data)) for image in new.images] == [b"first", b"", b"second image"]


ENTRIES: list[Entry] = [
    (0, {"triple": "a", "arch": "x\0y"}, b"first" * 1000),
    (0, {}, b"second image"),
]


@pytest.mark.parametrize("method", [ZLIB, ZSTD])
def test_compressed_binaries_give_what_they_were(method: int) -> None:
    packed = compressed_offload_binary(newer(2, ENTRIES), method)
    data = memoryview(packed + packed + binary(b"old"))
    first, second, old = iter_offload_binaries(data, padding=False)
    assert (first.version, first.images, old.packed) == (3, (), None)
    assert second.offset == len(packed)
    for found in (first, second):
        content, _ = unpacked(data, found)
        (whole,) = iter_offload_binaries(content, padding=False)
        assert (whole.version, whole.size, whole.packed) == (3, len(content), None)
        assert [dict(image.strings) for image in whole.images] == [row[1] for row in ENTRIES]
        assert [bytes(i.content(content)) for i in whole.images] == [row[2] for row in ENTRIES]


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_compressed_binaries_that_we_write(tmp_path: Path, method: Method) -> None:
    rows = [OffloadImage(2, 4, flags, strings, 0, len(image)) for flags, strings, image in ENTRIES]
    rows[0] = replaced(rows[0], strings={"triple": "a", "arch": "y"})
    images = [image for _, _, image in ENTRIES]
    plan = plan_shared_offload_binary(rows, images, version=3)
    path = tmp_path / "x"
    with replace_file(path) as out:
        out.write(binary(b"old"))
        size = write_compressed_offload_binary(out, plan, method=method)
    data = memoryview(path.read_bytes())
    assert len(data) == len(binary(b"old")) + size
    _, found = iter_offload_binaries(data, padding=False)
    content, _ = unpacked(data, found)
    assert len(content) == plan.size
    (whole,) = iter_offload_binaries(content, padding=False)
    assert [bytes(image.content(content)) for image in whole.images] == images
    assert [dict(image.strings) for image in whole.images] == [dict(row.strings) for row in rows]


@pytest.mark.parametrize("size", [39, 41, 500, 2**40, 2**63])
def test_inflated_sizes_that_are_not_true(size: int) -> None:
    """A wrong inflated size is refused by name, at little cost, however great it is."""
    packed = compressed_offload_binary(newer(2, ENTRIES), inflated=size)
    with pytest.raises(OffloadBinaryError, match=r"'f', offset 0x20, inflated size: expected"):
        read_offload_binary(memoryview(packed), 0, path="f")


def test_damaged_compressed_binaries() -> None:
    packed = bytearray(compressed_offload_binary(newer(2, ENTRIES)))
    packed[40:44] = b"junk"
    (found,) = iter_offload_binaries(memoryview(packed), path="f")
    with pytest.raises(FormatError, match="'f', offset 0x28, payload"):
        unpacked(memoryview(packed), found, path="f")


def broken(position: int, layout: str, value: int) -> bytes:
    data = bytearray(binary(b"image"))
    struct.pack_into(layout, data, position, value)
    return bytes(data)


HUGE = 2**64 - 1


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (broken(0, "<B", 0x11), "magic"),
        *((broken(8, "<Q", size), "size") for size in (0, 8, 31, 1000, HUGE)),
        *((broken(16, "<Q", offset), "entry offset") for offset in (1000, HUGE, HUGE - 39)),
        *((broken(24, "<Q", size), "entry size") for size in (1000, HUGE)),
        *((broken(40, "<Q", offset), "string offset") for offset in (1000, HUGE, HUGE - 31)),
        *((broken(48, "<Q", count), "string offset") for count in (100, HUGE, 2**60)),
        *((broken(56, "<Q", offset), "image offset") for offset in (1000, HUGE, HUGE - 4)),
        *((broken(64, "<Q", size), "image offset") for size in (9, 1000, HUGE)),
        *((broken(72, "<Q", offset), "key offset") for offset in (1000, HUGE)),
        *((broken(80, "<Q", offset), "value offset") for offset in (1000, HUGE)),
        (binary()[:31], "header"),
        (binary()[:32], "entry"),
        (binary()[:71], "entry"),
        (binary()[:72], "size"),
        (binary()[:-1], "size"),
    ],
)
def test_broken_fields(data: bytes, field: str) -> None:
    with pytest.raises(OffloadBinaryError) as caught:
        read(data, path="some.bin")
    assert caught.value.field == field
    assert str(caught.value).startswith("'some.bin', offset 0x")


@pytest.mark.parametrize("version", [0, 4, 2**32 - 1])
def test_unknown_version(version: int) -> None:
    """Another version is not broken, but nothing that could be read."""
    with pytest.raises(UnsupportedError, match=r"'some.bin', offset 0x4, version: .*newer LLVM"):
        read(broken(4, "<I", version), path="some.bin")


def test_overlapping_strings() -> None:
    pairs, length = 4000, 1 << 20
    table_at = 72 + 16 * pairs
    size = table_at + length
    data = MAGIC + struct.pack("<IQQQ", 1, size, 32, 40)
    data += struct.pack("<HHIQQQQ", 1, 4, 0, 72, pairs, 0, 0)
    data += b"".join(struct.pack("<QQ", table_at + index, table_at) for index in range(pairs))
    data += b"a" * (length - 1) + b"\0"
    with pytest.raises(OffloadBinaryError, match="far longer"):
        read(data)


@given(
    images=st.lists(
        st.tuples(
            st.binary(max_size=40),
            st.dictionaries(TEXT, TEXT, max_size=6),
            st.integers(0, 2**16 - 1),
            st.integers(0, 2**16 - 1),
            st.integers(0, 2**32 - 1),
        ),
        max_size=4,
    )
)
def test_what_is_written_is_read(images: list[tuple[bytes, dict[str, str], int, int, int]]) -> None:
    data = memoryview(
        b"".join(
            binary(content, strings=strings, image_kind=kind, offload_kind=offload, flags=flags)
            for content, strings, kind, offload, flags in images
        )
    )
    found = [image for part in iter_offload_binaries(data, padding=False) for image in part.images]
    assert [
        (
            bytes(image.content(data)),
            dict(image.strings),
            *(image.image_kind, image.offload_kind, image.flags),
        )
        for image in found
    ] == images


@pytest.mark.parametrize(
    ("name", "begin", "kind"),
    [
        ("a.o", b"\x7fELF", ImageKind.OBJECT),
        ("a.bc", b"", ImageKind.BITCODE),
        ("dir.o/a.cubin", b"", ImageKind.CUBIN),
        ("a.o.fatbin", b"", ImageKind.FATBINARY),
        ("a.s", b"", ImageKind.PTX),
        (".o", b"", ImageKind.OBJECT),
        ("a.spv", b"\x03\x02\x23\x07", ImageKind.NONE),
        ("dir.o/a", b"", ImageKind.NONE),
        ("o", b"", ImageKind.NONE),
        ("a.o", b"BC\xc0\xdemore", ImageKind.BITCODE),
        ("a", b"\xde\xc0\x17\x0b", ImageKind.BITCODE),
    ],
)
def test_image_kinds(name: str, begin: bytes, kind: ImageKind) -> None:
    """Bitcode is known by its first bytes, all else by the extension."""
    assert guess_image_kind(name, begin) == kind
    assert (kind.extension == "") == (kind == ImageKind.NONE)


def test_numbers_of_offload_kinds() -> None:
    """LLVM 22 and the published document agree on openmp and cuda only; 3 is the older hip."""
    names = ["none", "openmp", "cuda", "hip", "sycl"]
    assert [offload_kind_number(name) for name in names] == [0, 1, 2, 4, 8]
    assert [offload_kind_number(name, "documented") for name in names] == [0, 1, 2, 3, 4]
    assert offload_kind_number("HIP") is None
    read_as = {0: "none", 1: "openmp", 2: "cuda", 3: "hip", 4: "hip", 8: "sycl"}
    assert {number: offload_kind_name(number) for number in read_as} == read_as
    assert offload_kind_name(3, "llvm22") == "unknown"
    assert offload_kind_name(4, "documented") == "sycl"
    assert offload_kind_name(16) == "unknown"


@pytest.mark.parametrize(
    "options",
    [
        {"strings": {"a\0b": "c"}},
        {"strings": {"a": "\0"}},
        {"strings": {"a": "\ud800"}},
        {"image_kind": 2**16},
        {"offload_kind": -1},
        {"flags": 2**32},
    ],
)
def test_what_cannot_be_written(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        binary(**options)


NAMES = st.lists(st.binary(max_size=6).filter(lambda name: b"\0" not in name), max_size=30)


@given(names=NAMES)
def test_each_string_is_at_its_offset(names: list[bytes]) -> None:
    """That the tables are LLVM's: tests/cli/test_packager.py."""
    table, offsets = build_string_table(names)
    assert set(offsets) == {b"", *names}
    for name, offset in offsets.items():
        assert table[offset : table.index(b"\0", offset)] == name
