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
    describe_decompression,
)
from offload_tool.formats.bundle.compressed import (
    decompress,
    read_compressed_header,
)
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
    (tmp_path / "in").write_bytes(b"something to compress")
    command = [llvm("clang-offload-bundler"), "-type=bc", f"-targets={HOST}", "-input=in"]
    command += ["-compress", "-verbose", "-output=out"]
    done = try_tool(*command, cwd=tmp_path, env={**os.environ, name: value})
    assert done.returncode == 0
    lines = done.stderr.splitlines()
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
