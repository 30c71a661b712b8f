"""Compression in clang-offload-bundler's interface: variables and reports."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from offload_tool.cli.llvm.bundler import (
    compressed_format_version,
    compression_level,
    describe_compression,
    describe_decompression,
)
from offload_tool.formats.bundle.compressed import (
    compress_bundle,
    decompress,
    read_compressed_header,
)
from offload_tool.io import replace_file
from tests.conftest import try_tool
from tests.formats.compressed import ZLIB, compressed, md5_half

HOST = "host-x86_64-unknown-linux-gnu-"
LEVEL = "OFFLOAD_BUNDLER_COMPRESSION_LEVEL"
VERSION = "COMPRESSED_BUNDLE_FORMAT_VERSION"

IGNORE = "OFFLOAD_BUNDLER_IGNORE_ENV_VAR"
VERSIONS = ["", "2", "3", "02", "003", "0", "1", "4", "65535", "65536", "x", "3x", "+3", " 3",
            "3 ", "0x3", "-1", "-0", "1" * 5000, "\u0663"]  # fmt: skip
LEVELS = ["", "0", "7", "-5", "-0", "007", "100", "-", "--", "+3", " 3", "3x", "0x3", "2147483647",
          "2147483648", "-2147483648", "-2147483649", "9" * 5000, "\u0663"]  # fmt: skip


def compress_with_llvm(llvm, folder: Path, *options: str, **environ: str) -> list[str]:
    (folder / "in").write_bytes(b"something to compress, something to compress" * 1000)
    command = [llvm("clang-offload-bundler"), "-type=bc", f"-targets={HOST}", "-input=in"]
    command += ["-compress", "-verbose", "-output=out", *options]
    done = try_tool(*command, cwd=folder, env={**os.environ, **environ})
    assert done.returncode == 0
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("ignore", "version", "level"), [(None, 3, None), ("1", 3, None), ("yes", 2, 9)]
)
def test_ignored_variables(ignore: str | None, version: int, level: int | None) -> None:
    """OFFLOAD_BUNDLER_IGNORE_ENV_VAR disables the others if it is exactly 1."""
    environ = {} if ignore is None else {VERSION: "2", LEVEL: "9", IGNORE: ignore}
    assert compressed_format_version(environ) == (version, None)
    assert compression_level(environ) == (level, None)


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("name", "value"),
    [*((VERSION, value) for value in VERSIONS), *((LEVEL, value) for value in LEVELS)],
    ids=lambda value: repr(value[:12]),
)
def test_variables_as_llvm(llvm, tmp_path: Path, name: str, value: str) -> None:
    lines = compress_with_llvm(llvm, tmp_path, **{name: value})
    version, wrong_version = compressed_format_version({name: value})
    level, wrong_level = compression_level({name: value})
    assert f"Compressed bundle format version: {version}" in lines
    assert f"Compression level: {3 if level is None else level}" in lines
    warnings = [text for text in (wrong_version, wrong_level) if text]
    assert [line for line in lines if line.startswith("Warning")] == warnings


def without_speed(lines: list[str]) -> list[str]:
    """Remove the line that differs between any two runs."""
    kept = [line for line in lines if not re.fullmatch(r"\w+ression speed: \d+\.\d\d MB/s", line)]
    assert len(kept) == len(lines) - 1
    return kept


@pytest.mark.llvm22
@pytest.mark.llvm
@pytest.mark.parametrize("version", [2, 3])
def test_report_of_compression_as_llvm(llvm, tmp_path: Path, version: int) -> None:
    """For a file that both compress to the same size, the reports are equal."""
    lines = compress_with_llvm(llvm, tmp_path, COMPRESSED_BUNDLE_FORMAT_VERSION=str(version))
    data = memoryview((tmp_path / "out").read_bytes())
    plain = decompress(data, read_compressed_header(data))[0]
    with replace_file(tmp_path / "ours") as output:
        report = compress_bundle(output, [plain], version=version)
    assert without_speed(describe_compression(report)) == without_speed(lines)


SMALL = b"small\0" * 5000
ZEROS = next(data for n in range(2000) if md5_half(data := b"%d" % n)[-1] == 0)
"""A content whose hash begins with zeros."""


@pytest.mark.llvm22
@pytest.mark.llvm
@pytest.mark.parametrize(
    ("content", "version", "method"),
    [*((SMALL, *row) for row in ((1, ZLIB), (1, 1), (2, 1), (3, ZLIB), (3, 1))), (ZEROS, 3, 1)],
    ids=repr,
)
def test_report_of_decompression_as_llvm(
    llvm, tmp_path: Path, content: bytes, version: int, method: int
) -> None:
    data = compressed(content, version, method)
    (tmp_path / "x").write_bytes(data)
    command = [llvm("clang-offload-bundler"), "-type=bc", "-list", "-input=x", "-verbose"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    report = decompress(memoryview(data), read_compressed_header(memoryview(data)))[1]
    ours = without_speed(describe_decompression(report))
    assert ours == without_speed(done.stderr.splitlines())
