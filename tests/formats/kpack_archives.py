"""kpack archives for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from offload_tool.formats.kpack.archive import NewKpackImage, write_kpack
from offload_tool.io import InputFile, replace_file


def write_archive(path: Path, rows: Iterable[tuple[str, str, bytes]], **options: Any) -> Path:
    """Write the kpack archive of (key, target ID, content)."""
    images = [
        NewKpackImage(key, target, InputFile.from_data(key, memoryview(data)).range(0, len(data)))
        for key, target, data in rows
    ]
    targets = list(dict.fromkeys(image.target_id for image in images))
    with replace_file(path) as out:
        write_kpack(out, images, **({"group": "demo", "target_ids": targets} | options))
    return path
