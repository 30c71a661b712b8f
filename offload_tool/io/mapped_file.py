"""Files in memory: small ones are read, large ones mapped.

A file that becomes shorter while it is mapped has no bytes behind its new end: reading them ends
the process with SIGBUS, as it does LLVM's tools. No output is completed then: `check_maps` compares
sizes before, so that a file that was cut after it was read is an error, too.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import TYPE_CHECKING

from offload_tool.errors import FileError

if TYPE_CHECKING:
    from offload_tool.io import StrPath

SHORTER = "became shorter while it was read; try again"
SMALL = 1 << 18
"""Bytes up to which a file is read instead."""
_maps: dict[weakref.ref[mmap.mmap], StrPath] = {}


def load(path: StrPath, descriptor: int, size: int) -> memoryview:
    """Return the first `size` bytes of an open file, read or mapped; `descriptor` stays open.

    :raises FileError: the file has not so many bytes any more, or cannot be mapped.
    """
    try:
        if size <= SMALL:
            data = os.pread(descriptor, size, 0)
            if len(data) < size:
                raise FileError(path, SHORTER)
            return memoryview(data)
        mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise FileError(path, SHORTER) from error
    except OSError as error:
        raise FileError(path, error) from error
    # No callback: what a signal raises in one would be lost.
    for reference in [reference for reference in _maps if reference() is None]:
        del _maps[reference]
    _maps[weakref.ref(mapped)] = path
    return memoryview(mapped)


def check_maps() -> None:
    """Refuse to go on where a file that is mapped now has become shorter.

    :raises FileError: one has.
    """
    for reference, path in list(_maps.items()):
        kept = reference()
        if kept is not None and kept.size() < len(kept):
            raise FileError(path, SHORTER)
