"""Handwritten archives."""

from __future__ import annotations

from pathlib import Path

from tests.formats.object_files import archive_bytes


def thin_archive(path: Path, names: list[str]) -> Path:
    """Write a thin archive of files, named relative to its folder."""
    table = "".join(f"{name}/\n" for name in names).encode()
    content = b"!<thin>\n" + b"%-48s%-10d`\n" % (b"//", len(table)) + table
    content += b"\n" * (len(table) & 1)
    offset = 0
    for name in names:
        size = (path.parent / name).stat().st_size if (path.parent / name).exists() else 0
        header = b"%-16s" % (b"/%d" % offset) + b"%-12d%-6d%-6d%-8d" % (0, 0, 0, 644)
        content += header + b"%-10d`\n" % size
        offset += len(name) + 2
    path.write_bytes(content)
    return path


def archive(path: Path, *members: Path) -> Path:
    """Write an archive of files."""
    path.write_bytes(archive_bytes([(member.name, member.read_bytes()) for member in members]))
    return path


def archive_of(path: Path, members: dict[str, bytes]) -> Path:
    """Write an archive of {member name: content}."""
    path.write_bytes(archive_bytes([*members.items()]))
    return path
