"""kpack archives: read without trust, and written as AMD's tools write them.

The expected bytes are put together here by hand. That they are those of AMD's
own writer, and that AMD's two readers read what is written, was checked with the public sources.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.kpack.archive import (
    NONE,
    ZSTD,
    NewKpackImage,
    read_kpack,
    unpacked_kpack_image,
    write_kpack,
)
from offload_tool.io import InputFile, replace_file
from tests.formats.kpack_archives import write_archive

A, B = b"\x7fELF-a" * 50, b"\x7fELF-b" * 9


def mp(value: object) -> bytes:
    """Return a value as MessagePack; bytes stand for themselves, as no writer packs them."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return bytes([0x80 | len(value)]) + b"".join(mp(k) + mp(v) for k, v in value.items())
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(map(mp, value))
    return bytes(msgpack.packb(value))


def entry(ordinal: Any = 0, size: Any = 300) -> dict[str, Any]:
    """Return an entry of the table as AMD's writer has it."""
    return {"type": "hsaco", "ordinal": ordinal, "original_size": size}


def table(data: bytes, scheme: str = NONE, **changes: Any) -> dict[str, Any]:
    """Return the table of an archive with A and B for gfx942, whose content is `data`."""
    made: dict[str, Any] = {
        "format_version": 1,
        "group_name": "demo",
        "gfx_arch_family": "gfx942",
        "gfx_arches": ["gfx942"],
        "toc": {"lib/a.so#0": {"gfx942": entry()}, "lib/a.so#1": {"gfx942": entry(1, len(B))}},
        "compression_scheme": scheme,
    }
    if scheme == NONE:
        made["blobs"] = [{"offset": 64, "size": len(A)}, {"offset": 64 + len(A), "size": len(B)}]
    else:
        made |= {"zstd_offset": 64, "zstd_size": len(data)}
    made |= changes
    return {key: value for key, value in made.items() if value is not None}


def frame(content: bytes, **options: Any) -> bytes:
    """Return the zstd frame of a code object."""
    return zstandard.ZstdCompressor(level=3, **options).compress(content)


def framed(*frames: bytes, count: int | None = None) -> bytes:
    """Return the data area of the scheme "zstd-per-kernel"."""
    rows = b"".join(struct.pack("<I", len(each)) + each for each in frames)
    return struct.pack("<I", len(frames) if count is None else count) + rows


def archive(data: bytes, contents: object, *, version: int = 1, toc: int | None = None) -> bytes:
    """Return the archive of a data area and a table."""
    at = 64 + len(data) if toc is None else toc
    head = struct.pack("<4sIQ", b"KPAK", version, at).ljust(64, b"\0")
    return head + data + mp(contents)


PLAIN = archive(A + B, table(A + B))
FRAMES = framed(frame(A), frame(B))
PACKED = archive(FRAMES, table(FRAMES, ZSTD))


def read(data: bytes) -> dict[tuple[str, str], bytes]:
    """Return what an archive holds, by key and target ID."""
    view = memoryview(data)
    found = read_kpack(view, path="demo.kpack")
    return {
        (image.key, image.target_id): bytes(unpacked_kpack_image(view, image, path="demo.kpack"))
        for image in found.images
    }


def written(tmp_path: Path, images: list[tuple[str, str, bytes]], **options: Any) -> bytes:
    """Return the archive that is written of (key, target ID, content)."""
    return write_archive(tmp_path / "out.kpack", images, **options).read_bytes()


IMAGES = [("lib/a.so#0", "gfx942", A), ("lib/a.so#1", "gfx942", B)]


@pytest.mark.parametrize(("scheme", "expected"), [(NONE, PLAIN), (ZSTD, PACKED)])
def test_bytes_of_amds_writer(tmp_path: Path, scheme: str, expected: bytes) -> None:
    """An archive of either scheme is written byte for byte as AMD's writer lays it out."""
    assert written(tmp_path, IMAGES, scheme=scheme) == expected


@pytest.mark.parametrize("scheme", [NONE, ZSTD])
def test_equal_code_objects_are_stored_once(tmp_path: Path, scheme: str) -> None:
    images = [("a#0", "gfx90a", A), ("b#0", "gfx90a", B), ("c#0", "gfx90a", A)]
    data = written(tmp_path, images, scheme=scheme)
    found = read_kpack(memoryview(data))
    first, second, third = (image.offset for image in found.images)
    assert first == third < second
    assert len(data) < len(
        written(tmp_path, [*images[:2], ("c#0", "gfx90a", A + b"x")], scheme=scheme)
    )
    assert read(data) == {(key, target): content for key, target, content in images}


def test_many_images(tmp_path: Path) -> None:
    images = [(f"k{n}#0", f"gfx{n % 7}", bytes([n % 251]) * n * 37) for n in range(700)]
    for scheme in (NONE, ZSTD):
        data = written(tmp_path, images, scheme=scheme)
        assert read(data) == {(key, target): content for key, target, content in images}


def test_large_code_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A code object too large for one step is one zstd frame that knows its size."""
    monkeypatch.setattr("offload_tool.formats.kpack.archive._MAX_IN_MEMORY", 100)
    monkeypatch.setattr("offload_tool.formats.kpack.archive._CHUNK", 7)
    data = written(tmp_path, IMAGES)
    assert read(data) == {("lib/a.so#0", "gfx942"): A, ("lib/a.so#1", "gfx942"): B}
    image = read_kpack(memoryview(data)).images[0]
    assert zstandard.frame_content_size(data[image.offset :]) == len(A)


def test_frames_of_another_archive(tmp_path: Path) -> None:
    source = InputFile.from_data("x", memoryview(PACKED))
    first = read_kpack(source.data).images[0]
    metadata = mp({"target": "hipv4-amdgcn-amd-amdhsa--gfx942"})
    content = source.range(first.offset, first.stored_size)
    image = NewKpackImage(first.key, first.target_id, content, first.size, metadata)
    output = tmp_path / "out.kpack"
    with replace_file(output) as out:
        write_kpack(out, [image], group="demo", target_ids=["gfx942"])
    found = read_kpack(memoryview(output.read_bytes()))
    assert found.images[0].metadata == metadata
    assert read(output.read_bytes()) == {("lib/a.so#0", "gfx942"): A}


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (IMAGES + IMAGES[:1], {}, "two code objects for gfx942 have the key 'lib/a.so#0'"),
        (IMAGES, {"target_ids": ["gfx90a"]}, "for gfx90a cannot hold code for gfx942"),
        ([("lib\\a#0", "gfx942", A)], {}, "has a backslash"),
        ([("lib\udce9#0", "gfx942", A)], {}, "is not UTF-8"),
        (IMAGES, {"scheme": "lz4"}, "is none or zstd-per-kernel, not 'lz4'"),
    ],
)
def test_what_is_not_written(
    tmp_path: Path, images: list[tuple[str, str, bytes]], options: dict[str, Any], message: str
) -> None:
    """What one of AMD's readers would not find again is refused."""
    with pytest.raises(UsageError, match=message):
        written(tmp_path, images, **options)


def plain(**changes: Any) -> bytes:
    """Return an archive of the scheme "none" with another table."""
    return archive(A + B, table(A + B, **changes))


def packed(data: bytes = FRAMES, **changes: Any) -> bytes:
    """Return an archive of the scheme "zstd-per-kernel" with other data or another table."""
    return archive(data, table(data, ZSTD, **changes))


def toc_of(**changes: Any) -> dict[str, Any]:
    """Return a table of one image whose entry is changed."""
    return {"k#0": {"gfx942": {k: v for k, v in (entry() | changes).items() if v is not None}}}


UNSIZED = frame(A, write_content_size=False)
READ_BY_THE_LOADER = {
    "another format_version": plain(format_version=2),
    "no format_version": plain(format_version=None),
    "no group, no family": plain(group_name=None, gfx_arch_family=None),
    "no gfx_arches": plain(gfx_arches=None),
    "no kernels": plain(toc=None),
    "no scheme": plain(compression_scheme=None),
    "unknown keys": plain(build_id="abc", nested={"a": [1, {"b": 2}]}),
    "an unknown type": plain(toc=toc_of(type="spirv")),
    "no original_size": plain(toc=toc_of(original_size=None)),
    "metadata": plain(toc=toc_of(metadata={"target": "x", "source_prefix": "y"})),
    "a frame that does not know its size": packed(framed(UNSIZED, frame(B))),
    "bytes behind the frames": packed(FRAMES + b"more"),
    "data right behind the header": struct.pack("<4sIQ", b"KPAK", 1, 16 + len(A))
    + A
    + mp(table(A, toc=toc_of(), blobs=[{"offset": 16, "size": len(A)}])),
}


@pytest.mark.parametrize("name", READ_BY_THE_LOADER)
def test_unusual_archives_are_read(name: str) -> None:
    """What AMD's loader reads, though AMD's writer does not write it, is read."""
    data = READ_BY_THE_LOADER[name]
    assert set(read(data).values()) <= {A, B}
    unknown = ("build_id", "nested") if name == "unknown keys" else ()
    assert read_kpack(memoryview(data)).unknown == unknown


LONG = 1 << 62
BROKEN = {
    "empty": (b"", "expected 16 bytes of header, found 0"),
    "short": (PLAIN[:15], "expected 16 bytes of header, found 15"),
    "magic": (b"KPAC" + PLAIN[4:], "expected b'KPAK', found b'KPAC'"),
    "table beyond the end": (
        archive(A, table(A), toc=1 << 40),
        "offset of the table of contents: expected 16 to .* cut short",
    ),
    "table at the end": (
        struct.pack("<4sIQ", b"KPAK", 1, 64).ljust(64, b"\0"),
        "expected 16 to 63, found 64",
    ),
    "table in the header": (archive(A, table(A), toc=8), "expected 16 to"),
    "table cut short": (PLAIN[:-9], "it ends too early"),
    "table no map": (archive(A, [1, 2]), "expected the map of the table"),
    "bytes behind the table": (PLAIN + b"\0", "1 bytes more; AMD's two readers differ"),
    "toc no map": (plain(toc=["a"]), "expected a map for toc"),
    "targets no map": (plain(toc={"k#0": ["gfx942"]}), "expected a map for 'k#0'"),
    "entry no map": (plain(toc={"k#0": {"gfx942": 1}}), "a map for 'k#0' and gfx942"),
    "key a number": (plain(toc={b"\x07": {}}), "expected a kernel key"),
    "key twice": (
        plain(toc=b"\x82" + 2 * (mp("k#0") + mp({}))),
        "the kernel key 'k#0' is there twice",
    ),
    "target twice": (
        plain(toc={"k#0": b"\x82" + 2 * (mp("gfx942") + mp(entry()))}),
        "'k#0' is there twice for gfx942",
    ),
    "table key twice": (
        archive(A, b"\x82" + 2 * (mp("group_name") + mp("x"))),
        "the key 'group_name' is there twice",
    ),
    "ordinal a text": (plain(toc=toc_of(ordinal="0")), "expected a number for ordinal"),
    "ordinal negative": (plain(toc=toc_of(ordinal=b"\xd0\xff")), "found -1"),
    "ordinal true": (plain(toc=toc_of(ordinal=b"\xc3")), "expected a number for ordinal"),
    "no ordinal": (plain(toc=toc_of(ordinal=None)), "'k#0' has no ordinal for gfx942"),
    "ordinal out of range": (plain(toc=toc_of(ordinal=2)), "an ordinal below 2 .* found 2"),
    "frame out of range": (packed(toc=toc_of(ordinal=2)), "an ordinal below 2 .* found 2"),
    "gfx_arches a string": (plain(gfx_arches="gfx942"), "expected an array for gfx_arches"),
    "gfx_arches of numbers": (plain(gfx_arches=[1]), "expected a target ID"),
    "group a number": (plain(group_name=1), "expected a string for group_name"),
    "no blobs": (plain(blobs=None), "there are no blobs"),
    "blobs no array": (plain(blobs=1), "expected an array for blobs"),
    "blob without a size": (plain(blobs=[{"offset": 64}]), "blob 0 has no size"),
    "blob beyond the end": (
        plain(toc=toc_of(), blobs=[{"offset": 64, "size": 1 << 20}]),
        "blob 0: claims bytes 64 to .* cut short",
    ),
    "blob far beyond the end": (
        plain(toc=toc_of(), blobs=[{"offset": LONG, "size": LONG}]),
        "blob 0: claims bytes",
    ),
    "blob of another size": (
        plain(toc=toc_of(original_size=3)),
        r"original_size .* expected 300 \(the size of blob 0\), found 3",
    ),
    "no zstd_offset": (packed(zstd_offset=None), "there is no zstd_offset"),
    "no zstd_size": (packed(zstd_size=None), "there is no zstd_size"),
    "zstd_size too small": (packed(zstd_size=3), "expected 4 to 4294967296, found 3"),
    "zstd_size too large": (packed(zstd_size=(1 << 32) + 1), "expected 4 to 4294967296"),
    "zstd_size beyond the end": (packed(zstd_size=1 << 20), "zstd_size: claims bytes 64 to"),
    "zstd_offset beyond the end": (packed(zstd_offset=LONG), "zstd_size: claims bytes"),
    "too many frames": (
        packed(framed(frame(A), count=(1 << 20) + 1)),
        "expected at most 1048576 frames",
    ),
    "fewer frames": (packed(framed(frame(A), count=2)), "expected 2 frames .* found 1"),
    "frame beyond the end": (
        packed(struct.pack("<II", 1, 1 << 20) + frame(A)),
        "size of frame 0: claims bytes",
    ),
    "frame no zstd": (packed(framed(b"no zstd frame", frame(B))), "found b'no z'"),
    "frame cut short": (packed(framed(frame(A)[:-4], frame(B))), "more of the zstd frame"),
    "two frames for one": (
        packed(framed(frame(A[:9]) + frame(A[9:]), frame(B))),
        "expected one zstd frame",
    ),
    "size too large": (packed(toc=toc_of(original_size=301)), "expected 300 .* found 301"),
    "size too small": (packed(toc=toc_of(original_size=299)), "expected 300 .* found 299"),
    "no size": (packed(toc=toc_of(original_size=None)), "expected 300 .* found nothing"),
    "size that cannot be": (
        packed(framed(UNSIZED, frame(B)), toc=toc_of(original_size=LONG)),
        "expected at most .* found",
    ),
    "size that is not true": (
        packed(framed(UNSIZED, frame(B)), toc=toc_of(original_size=299)),
        "expected at least 300 .* found 299",
    ),
    "damaged frame": (
        packed(framed(frame(A)[:-8] + bytes(8), frame(B)), toc=toc_of()),
        "damage|more of the zstd frame|expected",
    ),
    "nested too deeply": (plain(nested=b"\x91" * 5000 + b"\x01"), "expected the table"),
    "a map of too many": (plain(toc=b"\xdf\xff\xff\xff\xff"), "expected the table"),
    "a string of too many": (plain(group_name=b"\xdb\xff\xff\xff\xff"), "expected the table"),
}

UNSUPPORTED = {
    "newer": (archive(A, table(A), version=2), "expected version 1 of a kpack archive, found 2"),
    "scheme": (plain(compression_scheme="lz4"), "expected none or zstd-per-kernel, found 'lz4"),
}


@pytest.mark.parametrize("name", [*BROKEN, *UNSUPPORTED])
def test_broken_and_other_archives_are_refused(name: str) -> None:
    data, message = (BROKEN | UNSUPPORTED)[name]
    error = FormatError if name in BROKEN else UnsupportedError
    with pytest.raises(error, match=f"(?s)^'demo.kpack', offset .*{message}"):
        read(data)


@pytest.mark.parametrize("data", [PLAIN, PACKED])
def test_every_cut(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises((FormatError, UnsupportedError)):
            read(data[:end])
