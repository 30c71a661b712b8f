"""Handwritten archives."""

from __future__ import annotations

from pathlib import Path

from offload_tool.formats.objects.ar import ArchiveReader
from tests.formats.object_files import archive_bytes, member_header


def thin_archive(path: Path, names: list[str]) -> Path:
    """Write a thin archive of files, named relative to its folder."""
    table = "".join(f"{name}/\n" for name in names).encode()
    content = b"!<thin>\n" + member_header(b"//", len(table)) + table + b"\n" * (len(table) & 1)
    offset = 0
    for name in names:
        size = (path.parent / name).stat().st_size if (path.parent / name).exists() else 0
        content += member_header(b"/%d" % offset, size)
        offset += len(name) + 2
    path.write_bytes(content)
    return path


def archive(path: Path, *members: Path) -> Path:
    path.write_bytes(archive_bytes([(member.name, member.read_bytes()) for member in members]))
    return path


def archive_of(path: Path, members: dict[str, bytes]) -> Path:
    path.write_bytes(archive_bytes([*members.items()]))
    return path


def members_of(path: Path) -> list[tuple[str, bytes]]:
    data = memoryview(path.read_bytes())
    return [(member.name, bytes(member.content(data))) for member in ArchiveReader(data, path)]
