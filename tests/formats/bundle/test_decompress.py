"""Decompressing: nothing believed, little memory used, damage never passed on."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from offload_tool.errors import FileError, FormatError, LimitError, UnsupportedError
from offload_tool.formats.bundle.compressed import decompress, read_compressed_header
from tests.conftest import try_tool
from tests.formats.compressed import (
    ZLIB,
    ZSTD,
    ZSTD_MAGIC,
    compressed,
    md5_half,
    repeated,
    skippable,
)

TEXT = b"device code " * 500
EVERY = [(version, method) for version in (1, 2, 3) for method in (ZLIB, ZSTD)]


def unpack(data: bytes) -> bytes:
    view = memoryview(data)
    header = read_compressed_header(view, path="x.ccob")
    return bytes(decompress(view, header, path="x.ccob")[0])


@pytest.mark.parametrize(("version", "method"), EVERY)
def test_bundles_one_after_the_other(version: int, method: int) -> None:
    """Each bundle ends where its own numbers say, with a magic inside or padding behind."""
    tricky = b"CCOB" + bytes(range(256)) + b"CCOB\3\0\1\0" + b"__CLANG_OFFLOAD_BUNDLE__"
    stored = compressed(tricky, version, method, payload=stored_payload(tricky, method))
    data = memoryview(stored + bytes(100) + compressed(TEXT, version, method) + b"CCOB")
    first = read_compressed_header(data)
    assert bytes(data).count(b"CCOB") > 3
    content, report = decompress(data, first)
    assert content == tricky
    assert report.end == len(stored)
    second = read_compressed_header(data, len(stored) + 100)
    assert decompress(data, second)[0] == TEXT
    assert decompress(data, second)[1].end == len(data) - 4


def test_what_follows_a_large_zlib_stream() -> None:
    """A stream whose end comes in several steps ends there, whatever is behind it."""
    large = bytes(5 << 20)
    data = memoryview(compressed(large, 1, ZLIB) + compressed(TEXT, 1, ZLIB))
    content, report = decompress(data, read_compressed_header(data))
    assert content == large
    behind = read_compressed_header(data, report.end)
    assert decompress(data, behind)[0] == TEXT


@pytest.mark.parametrize("version", [1, 2, 3])
def test_skippable_frames_are_passed_over(version: int) -> None:
    """Before, between and behind zstd frames anything may be skipped, a magic as well.

    Each frame may have a size and a checksum, or not.
    """
    writer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    halves = [zstandard.compress(TEXT[:99]), writer.compress(TEXT[99:]) + writer.flush()]
    one, other = skippable(b"CCOB\3\0\1\0" + bytes(range(256))), skippable(b"", 15)
    payload = one + other + (zstandard.compress(TEXT) if version == 1 else other.join(halves))
    data = compressed(TEXT, version, payload=payload + one)
    assert unpack(data) == TEXT
    header = read_compressed_header(memoryview(data + data))
    assert decompress(memoryview(data + data), header)[1].end == len(data)


def stored_payload(data: bytes, method: int) -> bytes:
    """Return a payload in which `data` stands as it is."""
    if method == ZLIB:
        return zlib.compress(data, 0)
    return ZSTD_MAGIC + bytes([0, 7 << 3]) + (len(data) << 3 | 1).to_bytes(3, "little") + data


@pytest.mark.parametrize(("version", "method"), EVERY)
def test_wrong_hash(version: int, method: int) -> None:
    found = int.from_bytes(md5_half(TEXT), "little")
    data = compressed(TEXT, version, method, digest=bytes(7) + b"\x12")
    message = f"header 0x1200000000000000, hash of the data {found:#018x}; the file is damaged"
    with pytest.raises(FormatError, match=message) as caught:
        unpack(data)
    assert caught.value.field == "hash"
    assert data[caught.value.offset :][:8] == bytes(7) + b"\x12"


ZSTD_TEXT = zstandard.compress(TEXT)
UNSIZED_TEXT = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
CUT = "payload: expected .* the end; the file may be cut short"


def of(payload: bytes, **options: int) -> bytes:
    """Return a bundle that has this payload instead of `TEXT`, compressed."""
    return compressed(TEXT, payload=payload, **options)


FORMAT_MESSAGES = {
    "zstd-too-small": (
        compressed(TEXT, size=5999),
        r"uncompressed size: expected 6000 \(the size in the zstd frame\), found 5999",
    ),
    "zstd-too-large": (compressed(TEXT, size=6001), "expected 6000 .* found 6001"),
    "zstd-too-large-1": (compressed(TEXT, 1, size=6001), "offset 0x8, uncompressed size"),
    "zstd-too-large-2": (compressed(TEXT, 2, size=6001), "offset 0xc, uncompressed size"),
    "zstd-too-large-3": (compressed(TEXT, 3, size=6001), "offset 0x10, uncompressed size"),
    "unsized-too-small": (
        of(UNSIZED_TEXT, size=5999),
        r"expected at least 6000 \(what the payload holds\), found 5999",
    ),
    "unsized-too-large": (
        of(UNSIZED_TEXT, size=6001),
        r"expected 6000 \(what the payload holds\), found 6001",
    ),
    "unsized-huge": (
        of(UNSIZED_TEXT, size=2**63),
        r"expected at most 131072 \(what the payload can hold\), found 9223372036854775808",
    ),
    "zlib-too-small": (compressed(TEXT, 3, ZLIB, size=5999), "at least 6000 .* found 5999"),
    "zlib-too-large": (compressed(TEXT, 3, ZLIB, size=6001), "expected 6000 .* found 6001"),
    "zlib-huge": (compressed(TEXT, 3, ZLIB, size=2**63), "what the payload can hold"),
    "no-frame": (of(b"CCOB1234"), r"payload: expected .* found b'CCOB'"),
    "empty-payload": (of(b""), "offset 0x20, payload: expected .* found b''"),
    "only-skippable": (of(skippable(b"abcd")), r"payload: expected .* found b''"),
    "skippable-cut": (of(ZSTD_TEXT + skippable(b"abcd")[:-1]), CUT),
    "skippable-huge": (of(b"\x5f\x2a\x4d\x18\xff\xff\xff\xff" + ZSTD_TEXT), CUT),
    "skippable-hides-nothing": (
        of(skippable(bytes(1 << 20)) + ZSTD_TEXT, size=1 << 40),
        "expected 6000 .the size in the zstd frame.",
    ),
    "frame-header-cut": (of(ZSTD_MAGIC + b"\xff\xff"), "expected a zstd frame, found damage"),
    "blocks-cut": (of(ZSTD_TEXT[:-1]), CUT),
    "between-blocks": (of(repeated(b"x", 3)[:-4]), "offset 0x2e, payload: expected more of"),
    "checksum-cut": (
        of(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)[:-1]),
        "the end; the file may be cut short",
    ),
    "behind-the-frame": (of(ZSTD_TEXT + b"\0"), r"expected .* found b'\\x00'"),
    "bad-block": (
        compressed(bytes(9), payload=ZSTD_MAGIC + b"\0\0" + b"\x4d\0\0" + bytes(9)),
        "expected zstd data, found damage",
    ),
    "window": (
        compressed(bytes(1 << 17), payload=repeated(b"\0", 1, window=19)),
        "window of at most 268435456 bytes, found 536870912",
    ),
    "no-zlib": (of(b"abc" * 99, method=ZLIB), "expected zlib data, found damage"),
    "zlib-cut": (
        of(zlib.compress(TEXT)[:-1], method=ZLIB),
        "expected the end of the zlib stream, found none",
    ),
    "zlib-cut-1": (compressed(TEXT, 1, ZLIB)[:-1], "expected the end of the zlib stream"),
    "behind-the-zlib-stream": (
        of(zlib.compress(TEXT) + b"\0", method=ZLIB),
        r"offset 0x8, total size: expected \d+ \(the end of the zlib stream\), found",
    ),
}


@pytest.mark.parametrize(("data", "message"), FORMAT_MESSAGES.values(), ids=FORMAT_MESSAGES.keys())
def test_lies_and_damage(data: bytes, message: str) -> None:
    error = UnsupportedError if message.startswith("window") else FormatError
    with pytest.raises(error, match=message) as caught:
        unpack(data)
    assert str(caught.value).startswith("'x.ccob', offset 0x")


BLOCK = 1 << 17
STREAM = "offload_tool.formats.codec"


def test_usual_limit() -> None:
    """Without a limit, a bomb is refused: more than 1 GiB, and 100 times the payload."""
    blocks = (1 << 30) // BLOCK + 100
    data = compressed(b"", size=blocks * BLOCK, payload=repeated(b"\0", blocks))
    with pytest.raises(LimitError, match=r"needs 1086849024 bytes.*OFFLOAD_MAX_UNPACKED"):
        unpack(data)


LIMITED = """
    import resource, sys
    resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
    from offload_tool.errors import ContentError
    from offload_tool.formats.bundle.compressed import BundleStream, read_compressed_header

    class Sink:
        size = 0
        def write(self, data):
            self.size += len(data)

    data = memoryview(sys.stdin.buffer.read())
    sink = Sink()
    try:
        BundleStream(data, read_compressed_header(data)).to(sink.write)
    except ContentError as error:
        print(error)
    print(sink.size)
"""


LARGE = 4096 * BLOCK


def zlib_payload() -> bytes:
    engine = zlib.compressobj()
    return b"".join(engine.compress(bytes(BLOCK)) for _ in range(4096)) + engine.flush()


@pytest.mark.parametrize(
    ("method", "payload", "size", "least", "most", "message"),
    [
        # Half a GiB that comes out of a small payload passes through; the hash is the last check.
        (ZSTD, lambda: repeated(b"\0", 4096), LARGE, LARGE, LARGE, "hash stored in the header"),
        (ZLIB, zlib_payload, LARGE, LARGE, LARGE, "hash stored in the header"),
        # A recorded size that the payload cannot reach is refused where it would not fit.
        (ZSTD, lambda: UNSIZED_TEXT, 1 << 40, 0, 0, "what the payload can hold"),
        # A payload that holds far more than recorded is left after the first chunk.
        (ZSTD, lambda: repeated(b"\0", 4096), BLOCK, 0, BLOCK, "found 131072"),
    ],
    ids=["zstd", "zlib", "size", "too many"],
)
def test_memory_is_bounded(
    method: int, payload: Callable[[], bytes], size: int, least: int, most: int, message: str
) -> None:
    """A process with a quarter of a GiB decompresses, or refuses, whatever the sizes are."""
    data = compressed(b"", 3, method, size=size, payload=payload())
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED)], input=data, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    *_, found, written = done.stdout.decode().splitlines()
    assert message in found
    assert least <= int(written) <= most


def test_large_bundle_is_mapped(tmp_path: Path, monkeypatch) -> None:
    """Above 16 MiB, the result is in a file without a name that outlives the call."""
    size = 130 * BLOCK
    data = compressed(bytes(size), payload=repeated(b"\0", 130))
    view = memoryview(data)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    content, _ = decompress(view, read_compressed_header(view))
    assert list(tmp_path.iterdir()) == []
    assert len(content) == size
    assert content.readonly
    assert bytes(content[-5:]) == bytes(5)


@pytest.mark.parametrize("size", [100, 130 * BLOCK], ids=["memory", "mapped"])
def test_result_in_a_cycle(size: int, tmp_path: Path) -> None:
    """A result that the collector of cycles finds goes without a word, as all Pythons see it."""
    (tmp_path / "x").write_bytes(compressed(bytes(size)))
    code = """
        import gc, pathlib, sys
        from offload_tool.formats.bundle.compressed import decompress, read_compressed_header
        data = memoryview(pathlib.Path(sys.argv[1]).read_bytes())
        cycle = [decompress(data, read_compressed_header(data))]
        cycle.append(cycle)
        del cycle
        gc.collect()
        print("collected")
    """
    done = try_tool(sys.executable, "-X", "dev", "-c", textwrap.dedent(code), tmp_path / "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "collected\n", "")


@pytest.mark.parametrize("method", [ZLIB, ZSTD], ids=["zlib", "zstd"])
def test_hash_of_places_used_again(method: int, monkeypatch) -> None:
    """However slow the hash is, no chunk is overwritten before it was hashed."""

    class Slow:
        def __init__(self, **_: bool) -> None:
            self.real = hashlib_md5(usedforsecurity=False)
            self.digest = self.real.digest

        def update(self, chunk: bytes) -> None:
            time.sleep(0.01)
            self.real.update(chunk)

    hashlib_md5 = hashlib.md5
    monkeypatch.setattr(f"{STREAM}._OUTPUT_SIZE", 1000)
    monkeypatch.setattr(f"{STREAM}.CHUNK", 1000)
    content = random.Random(1).randbytes(20_000)
    data = compressed(content, 3, method)
    monkeypatch.setattr("hashlib.md5", Slow)
    assert unpack(data) == content


def test_folder_without_room(tmp_path: Path, monkeypatch) -> None:
    """Where there is too little room, or no folder, the error says so."""
    data = compressed(bytes(130 * BLOCK), payload=repeated(b"\0", 130))
    with monkeypatch.context() as patch:
        patch.setattr("os.statvfs", lambda _: SimpleNamespace(f_bavail=9, f_frsize=1))
        with pytest.raises(FileError, match="needs 17039360 bytes, only 9 are free"):
            unpack(data)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(FileError, match="missing"):
        unpack(data)
