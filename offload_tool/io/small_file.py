"""Small files that a process writes often: complete or not at all, with few modules loaded."""

from __future__ import annotations

import os
from contextlib import suppress


def replace_small_file(name: str, data: bytes) -> None:
    """Write a file by renaming a temporary one next to it.

    :raises OSError: it cannot be written; the old file is unchanged.
    """
    temporary = f"{name}.{os.urandom(6).hex()}.tmp"
    try:
        with open(temporary, "xb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        os.replace(temporary, name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
