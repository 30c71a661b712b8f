"""What SCons stores of a file that this tool watches: its signature, with the whole stat().

``.sconsign.dblite`` has the name of this module: SCons warns, and builds a folder again, if it
cannot import it.
"""

from __future__ import annotations

from typing import ClassVar

from SCons.Node.FS import FileNodeInfo


class StatInfo(FileNodeInfo):  # type: ignore[misc]
    """SCons's information on a file, and the stat() to which its digest belongs."""

    __slots__ = ("stat",)
    stat: tuple[int, ...]
    field_list: ClassVar[list[str]] = [*FileNodeInfo.field_list, "stat"]


def with_stat(info: FileNodeInfo) -> StatInfo:
    """Return information on a file in our class."""
    if isinstance(info, StatInfo):
        return info
    made = StatInfo()
    made.merge(info)
    return made
