"""Files in memory, such that one which becomes shorter meanwhile is an error and not the end.

A page of a map that the file has no more is SIGBUS, which ends a process. Small files are read
instead. For the others there is a handler of that signal, which puts zeros into the place of
the missing pages and notes it: what is being read goes on, with zeros, up to where the file is
closed or an output would be completed, and becomes an error there (`check_maps`).

The handler is written by `ctypes`, which is imported only for a file that is mapped. It is called
in the thread that has read the page, between two accesses to memory of code that reads maps (a
copy, a search, a hash), never within an allocation. Faults at other addresses go to whoever
handled them before.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref

from offload_tool.errors import FileError
from offload_tool.util.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from offload_tool.io import StrPath

__all__ = ["SHORTER", "check_maps", "is_broken", "load"]

SHORTER = "became shorter while it was read; try again"
SMALL = 1 << 18
"""Bytes up to which a file is read instead."""


class _Map(NamedTuple):
    path: StrPath
    start: int
    """Address; so is `end`."""
    end: int


_maps: dict[weakref.ref[mmap.mmap], _Map] = {}
_broken: dict[StrPath, None] = {}
_handler: Any = None
"""What keeps the handler alive; None before the first map."""


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
    _watch(path, mapped)
    return memoryview(mapped)


def is_broken(path: StrPath, descriptor: int, size: int) -> bool:
    """Return whether the file that is open here has become shorter than `size`."""
    return path in _broken or os.fstat(descriptor).st_size < size


def check_maps() -> None:
    """Refuse to go on where a file that is mapped now has become shorter.

    :raises FileError: one has.
    """
    if _broken:
        raise FileError(_broken.popitem()[0], SHORTER)
    for reference, found in list(_maps.items()):
        kept = reference()
        if kept is not None and kept.size() < len(kept):
            raise FileError(found.path, SHORTER)


def forget(path: StrPath) -> None:
    """Forget that a file became shorter: it was said, or is opened anew."""
    _broken.pop(path, None)


def _watch(path: StrPath, mapped: mmap.mmap) -> None:
    global _handler
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return
    from offload_tool.io import bus_error

    if _handler is None:
        _handler = bus_error.install(_repair)
    start = bus_error.address_of(mapped)
    # No callback: what a signal raises in one would be lost.
    for reference in [reference for reference in _maps if reference() is None]:
        del _maps[reference]
    _maps[weakref.ref(mapped)] = _Map(path, start, start + len(mapped))


def _repair(address: int) -> int:
    """Note the file whose page is missing; return the end of its map, 0 for no map of ours."""
    for reference, found in list(_maps.items()):
        if found.start <= address < found.end and reference() is not None:
            _broken[found.path] = None
            return found.end
    return 0
