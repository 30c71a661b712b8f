"""Compression as clang-offload-bundler shows it: two variables, and its verbose report.

Observed with clang-offload-bundler 22.1.8. Sizes are printed with thousands separators,
and a megabyte is 2**20 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport

_IGNORE = "OFFLOAD_BUNDLER_IGNORE_ENV_VAR"
_LEVEL = "OFFLOAD_BUNDLER_COMPRESSION_LEVEL"
_VERSION = "COMPRESSED_BUNDLE_FORMAT_VERSION"
_DEFAULT_VERSION = 3


def compressed_format_version(environ: Mapping[str, str]) -> tuple[int, str | None]:
    """Return the version to write, and the warning to print if the variable is unusable."""
    text = lookup(environ, _VERSION)
    if text is None:
        return _DEFAULT_VERSION, None
    number = _parse(text, 0, 0xFFFF)
    if number in (2, 3):
        return number, None
    hint = "" if number is None else " Valid values are 2 or 3."
    default = f"Using default version {_DEFAULT_VERSION}."
    return _DEFAULT_VERSION, f"Warning: Invalid value for {_VERSION}: {text}.{hint} {default}"


def compression_level(environ: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Return the level (None: the default), and the warning if the variable is unusable."""
    text = lookup(environ, _LEVEL)
    if text is None:
        return None, None
    level = _parse(text, -(1 << 31), (1 << 31) - 1)
    warning = f"Warning: Invalid value for {_LEVEL}: {text}. Ignoring it."
    return level, warning if level is None else None


def lookup(environ: Mapping[str, str], name: str) -> str | None:
    """Return a variable's value; None if it is not set, or all are to be ignored."""
    return None if environ.get(_IGNORE) == "1" else environ.get(name)


def _parse(text: str, least: int, most: int) -> int | None:
    # At most 20 digits: no longer number is in range, and int() refuses thousands of them.
    import re  # few set a variable

    number = re.fullmatch(r"(-?)0*([0-9]{1,20})", text, re.ASCII)
    if number is None or (number[1] and least == 0):  # unsigned numbers have no sign, not even -0
        return None
    value = int(number[1] + number[2])
    return value if least <= value <= most else None


def describe_compression(report: CompressionReport) -> list[str]:
    """Return the lines that clang-offload-bundler prints after compressing."""
    header = report.header
    return [
        f"Compressed bundle format version: {header.version}",
        f"Total file size (including headers): {header.total_size:,} bytes",
        f"Compression method used: {header.method}",
        f"Compression level: {report.level}",
        f"Binary size before compression: {header.uncompressed_size:,} bytes",
        f"Binary size after compression: {report.payload_size:,} bytes",
        *_rates(report, "Compression"),
        f"Truncated MD5 hash: {_hex(header.hash)}",
    ]


def describe_decompression(report: CompressionReport) -> list[str]:
    """Return the lines that clang-offload-bundler prints after decompressing.

    The hashes are equal: where they are not, decompressing is an error.
    """
    header = report.header
    total = header.total_size
    return [
        f"Compressed bundle format version: {header.version}",
        *([] if total is None else [f"Total file size (from header): {total:,} bytes"]),
        f"Decompression method: {header.method}",
        f"Size before decompression: {report.payload_size:,} bytes",
        f"Size after decompression: {header.uncompressed_size:,} bytes",
        *_rates(report, "Decompression"),
        f"Stored hash: {_hex(header.hash)}",
        f"Recalculated hash: {_hex(header.hash)}",
        "Hashes match: Yes",
    ]


def _rates(report: CompressionReport, work: str) -> list[str]:
    before, after = report.header.uncompressed_size, report.payload_size
    speed = before / (1 << 20) / max(report.seconds, 1e-9)
    ratio = 100 * after / before if before else 0.0
    return [
        f"Compression rate: {before / after:.2f}",
        f"Compression ratio: {ratio:.2f}%",
        f"{work} speed: {speed:.2f} MB/s",
    ]


def _hex(value: int) -> str:
    return f"{value:#016x}"  # 16 characters with the prefix, as LLVM pads it
