"""The compressed bundle: header as LLVM's, equal bytes on every machine."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats import codec
from offload_tool.formats.bundle.compressed import (
    CompressionReport,
    compress_bundle,
    decompress,
    read_compressed_header,
)
from offload_tool.formats.codec import compress, split
from offload_tool.io import replace_file
from tests.conftest import try_tool
from tests.formats.compressed import compressed, md5_half, skippable

MIB = 1 << 20


def code(size: int, seed: int = 1) -> bytes:
    """Return bytes that compress about as well as device code, from a vocabulary."""
    chance = random.Random(seed)
    vocabulary = [chance.randbytes(chance.randrange(4, 40)) for _ in range(4000)]
    out = bytearray()
    while len(out) < size:
        out += b"".join(chance.choices(vocabulary, k=10_000))
    return bytes(out[:size])


def pack(path: Path, parts: Sequence[bytes], **options: object) -> CompressionReport:
    with replace_file(path) as output:
        return compress_bundle(output, parts, **options)  # type: ignore[arg-type]


def frame(data: bytes, **options: object) -> bytes:
    return b"".join(compress(split([data]), len(data), **options))  # type: ignore[arg-type]


def tail(version: int, method: int = 1) -> bytes:
    return b"CCOB" + struct.pack("<HH", version, method)


CORRUPT = {
    "empty": (b"", "offset 0x0, magic: expected 'CCOB', found b''"),
    "other-magic": (b"__CLANG_OFFLOAD_BUNDLE__", "magic: expected 'CCOB', found b'__CL'"),
    "magic-only": (b"CCOB", "header: expected 8 bytes, found 4"),
    "version-0": (tail(0) + bytes(40), "offset 0x4, version: expected 1, 2 or 3, found 0"),
    "version-4": (tail(4) + bytes(40), "offset 0x4, version: expected 1, 2 or 3, found 4"),
    "method-2": (tail(3, 2) + bytes(40), "offset 0x6, method: .* found 2"),
    "short-1": (tail(1) + bytes(11), "header: expected 20 bytes, found 19; the file may"),
    "short-2": (tail(2) + bytes(15), "header: expected 24 bytes, found 23"),
    "short-3": (tail(3) + bytes(23), "header: expected 32 bytes, found 31"),
    "total-0": (tail(3) + bytes(24), r"offset 0x8, total size: expected 32 .* found 0"),
    "total-inside-header": (tail(2) + struct.pack("<I", 23) + bytes(30), "expected 24 .* found 23"),
    "total-behind-end": (tail(2) + struct.pack("<I", 43) + bytes(30), "to 42 .* found 43"),
    "total-wraps": (tail(3) + b"\xff" * 24, "to 32 .* found 18446744073709551615"),
}


@pytest.mark.parametrize(("data", "message"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_headers(data: bytes, message: str) -> None:
    unknown = "version:" in message or "method:" in message
    with pytest.raises(UnsupportedError if unknown else FormatError, match=message) as caught:
        read_compressed_header(memoryview(data), path="broken.hipfb")
    assert str(caught.value).startswith("'broken.hipfb', offset 0x")


@given(
    parts=st.lists(st.binary(max_size=3000), max_size=4),
    version=st.sampled_from([2, 3]),
    method=st.sampled_from(["zstd", "zlib"]),
    level=st.sampled_from([None, -1, 0, 1, 9]),
)
def test_round_trip(
    tmp_path_factory, parts: list[bytes], version: int, method: str, level: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip"
    report = pack(path, parts, version=version, method=method, level=level)
    data = memoryview(path.read_bytes())
    read = read_compressed_header(data)
    assert read == report.header
    assert report.end == read.total_size == len(data)
    assert decompress(data, read)[0] == b"".join(parts)
    assert read.hash.to_bytes(8, "little") == md5_half(b"".join(parts))


def test_output_into_a_pipe(tmp_path: Path) -> None:
    """Where the header cannot be written last, the bytes are the same."""
    parts = [code(300_000)]
    pack(tmp_path / "file", parts)
    os.mkfifo(tmp_path / "pipe")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    pack(tmp_path / "pipe", parts)
    reader.join()
    assert received == [(tmp_path / "file").read_bytes()]


def test_appending(tmp_path: Path) -> None:
    """A compressed bundle can follow other bytes; its header stays its own."""
    with replace_file(tmp_path / "out") as output:
        output.write(b"before")
        report = compress_bundle(output, [b"first"])
        compress_bundle(output, [b"second"])
    data = memoryview((tmp_path / "out").read_bytes())
    assert bytes(data[:6]) == b"before"
    assert read_compressed_header(data, 6) == report.header
    second = read_compressed_header(data, report.end)
    assert decompress(data, second)[0] == b"second"


@pytest.mark.parametrize(
    ("size", "level"),
    [(300_000, 3), (8 * MIB, 3), (33 * MIB, 12), (17 * MIB, 3), (48 * MIB, 3)],
    ids=str,
)
def test_bytes_do_not_depend_on_the_cores(size: int, level: int, monkeypatch) -> None:
    """One core or many give the same bytes in every run, in longer jobs of slow levels too."""
    data = code(size)
    found = set()
    for cores in (1, 2, 3, 8, 32, 1, 32) if level == 3 else (1, 4):
        monkeypatch.setattr(codec, "usable_cores", lambda cores=cores: cores)
        found.add(frame(data, level=level))
    assert len(found) == 1


@pytest.mark.parametrize(("size", "level"), [(8 * MIB, 3), (48 * MIB, 3), (32 * MIB, 10)], ids=str)
def test_no_empty_last_job(size: int, level: int) -> None:
    """Where jobs of the usual size would fill the input exactly, they have another size.

    Otherwise libzstd ends the frame with an empty block, or without one where its threads
    are behind at that moment: bytes that depend on timing.
    """
    assert frame(code(size), level=level)[-3:] != b"\1\0\0"


def test_bytes_do_not_depend_on_the_parts() -> None:
    data = code(20 * MIB)
    cut = [data[:1], data[1 : 9 * MIB], b"", data[9 * MIB :]]
    assert b"".join(compress(split(cut), len(data))) == frame(data)


def test_long_input_is_matched_from_its_beginning(tmp_path: Path) -> None:
    """Images that repeat 128 MiB later cost next to nothing, as with one thread."""
    image = random.Random(3).randbytes(8 * MIB)
    gap = bytes(120 * MIB)
    report = pack(tmp_path / "out", [image, gap, image])
    assert report.payload_size < 1.01 * len(image)


def test_compressed_size_that_version_2_cannot_record(tmp_path: Path, monkeypatch) -> None:
    """The total size is checked as well, once it is known."""
    monkeypatch.setattr("offload_tool.formats.bundle.compressed._VERSION_2_LIMIT", 1024)
    with pytest.raises(UsageError, match="Total file size exceeds version 2 limit: 10"):
        pack(tmp_path / "out", [random.Random(4).randbytes(1010)], version=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        ([b"x"], {"method": "zlib", "level": 10}, "zlib's compression levels are -1 to 9, not 10"),
        ([b"x"], {"method": "zlib", "level": -2}, "not -2"),
        ([b"x"], {"method": "lzma"}, "unknown compression method 'lzma': expected zlib or zstd"),
        # 4 GiB need version 3; nothing is compressed before that is noticed.
        ([bytes(MIB)] * 4096, {"version": 2}, "Uncompressed size exceeds version 2 limit: 4294967"),
    ],
    ids=["zlib-high", "zlib-low", "lzma", "4-gib"],
)
def test_unusable_options(
    tmp_path: Path, parts: list[bytes], options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        pack(tmp_path / "out", parts, **options)
    assert not (tmp_path / "out").exists()


def test_levels_are_clamped() -> None:
    """Zstd levels beyond its range mean the nearest level, and 0 the default."""
    data = code(50_000)
    assert frame(data, level=100) == frame(data, level=22) != frame(data, level=3)
    assert frame(data, level=-(1 << 31)) == frame(data, level=-(1 << 17)) != frame(data, level=-1)
    assert frame(data, level=0) == frame(data, level=3) == frame(data)


def test_frames_up_to_128_mib_decode_everywhere() -> None:
    """The frame records its size, and needs no more than the usual decoders' 128 MiB."""
    data = code(9 * MIB)
    for level in (3, 22):
        parameters = zstandard.get_frame_parameters(frame(data[: 9 * MIB], level=level))
        assert parameters.content_size == 9 * MIB
        assert parameters.window_size <= 1 << 27


HOST = "host-x86_64-unknown-linux-gnu-"
GFX906 = "hipv4-amdgcn-amd-amdhsa--gfx906"

Bundler = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def bundler(llvm, tmp_path: Path) -> Bundler:
    """Run LLVM's bundler, for two targets, in the test's folder."""

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [llvm("clang-offload-bundler"), "-type=bc", *arguments]
        done = try_tool(*command, cwd=tmp_path, env={**os.environ, **environ})
        assert done.returncode == 0, done.stderr
        return done

    return run


def check_list(bundler: Bundler) -> str:
    """Check that LLVM lists the file `ours`, and agrees on the hash; return its messages."""
    output = bundler("-list", "-input=ours", "-verbose")
    assert sorted(output.stdout.split()) == sorted([HOST, GFX906])
    assert "Hashes match: Yes\n" in output.stderr
    return output.stderr


def images(folder: Path, size: int = 100_000) -> list[str]:
    host, device = code(size, 5), code(size, 5)[: size // 2] + code(size // 2, 6)
    (folder / "host").write_bytes(host)
    (folder / "device").write_bytes(device)
    return [f"-targets={HOST},{GFX906}", "-input=host", "-input=device"]


@pytest.mark.llvm
def test_llvm_reads_every_payload(bundler: Bundler, tmp_path: Path) -> None:
    """Zlib payloads of ours, and the hash that we write, are right for LLVM; frames are skipped."""
    bundler(*images(tmp_path), "-output=plain")
    plain = (tmp_path / "plain").read_bytes()
    pack(tmp_path / "ours", [plain], method="zlib")
    assert "Decompression method: zlib\n" in check_list(bundler)
    payload = skippable(b"CCOB\3\0\1\0" * 9) + zstandard.compress(plain) + skippable(b"x")
    data = compressed(plain, payload=payload)
    (tmp_path / "ours").write_bytes(data)
    check_list(bundler)
    view = memoryview(data)
    assert decompress(view, read_compressed_header(view))[0] == plain


@pytest.mark.llvm
@pytest.mark.parametrize(("size", "level"), [(12 * MIB, 3), (12 * MIB, 12), (70 * MIB, 3)], ids=str)
def test_size_compared_with_llvm(bundler: Bundler, tmp_path: Path, size: int, level: int) -> None:
    """Cutting the work into jobs costs at most 5 % of LLVM's size; LLVM reads the result."""
    arguments = images(tmp_path, size)
    bundler(*arguments, "-output=plain")
    bundler(*arguments, "-compress", f"-compression-level={level}", "-output=theirs")
    plain = (tmp_path / "plain").read_bytes()
    report = pack(tmp_path / "ours", [plain], level=level)
    theirs = (tmp_path / "theirs").stat().st_size
    assert report.end <= 1.05 * theirs
    check_list(bundler)
