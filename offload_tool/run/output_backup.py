"""Backup of the previous output while the compiler writes a new one under its name.

::

    OUT --> .OUT.old     compiler --> OUT --> check --> equal bytes: .OUT.old back to OUT
                                       |
                                       +--> stopped by a signal: .OUT.old back to OUT

The compiler writes to the final name, which some outputs contain (``--coverage``,
``-gsplit-dwarf``). A kill at any time leaves the old output intact; the next run restores it from
the backup.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from offload_tool.io.paths import naming, remove, sibling


def remove_half_written(output: str, since: int) -> None:
    """Remove temporary files that LLVM's programs left behind when they were killed.

    LLVM removes them on signals, except between the creation of a file and its registration. lld
    names it ``OUT.tmp`` and 7 hexadecimal digits (FileOutputBuffer), clang ``OUT-8DIGITS.EXT`` and
    ``.tmp`` (CompilerInstance::createOutputFile). Files last changed before `since`, in nanoseconds
    of the file system's clock, belong to others and stay.
    """
    folder, name = os.path.split(output)
    stem, extension = os.path.splitext(name)
    lld, clang = re.escape(name), rf"{re.escape(stem)}-[0-9a-f]{{8}}{re.escape(extension)}"
    half_written = re.compile(rf"{lld}\.tmp[0-9a-f]{{7}}|{clang}\.tmp")
    for entry in os.scandir(folder or "."):
        is_such = half_written.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        if is_such and entry.stat(follow_symlinks=False).st_ctime_ns >= since:
            remove(entry.path)


class OutputBackup:
    """The backup of one output."""

    def __init__(self, output: str) -> None:
        self._new = output
        self._old = sibling(output, ".old")

    def save(self) -> None:
        """Rename the output, if any, to its backup; raise FileError."""
        with naming(self._new), suppress(FileNotFoundError):
            os.rename(self._new, self._old)

    def restore_if_equal(self) -> None:
        """Restore the old output if the new one has the same bytes."""
        with suppress(FileNotFoundError):  # another call has taken it
            if os.path.getsize(self._old) == os.path.getsize(self._new):
                import filecmp

                if filecmp.cmp(self._old, self._new, shallow=False):
                    self.restore()

    def restore(self) -> None:
        """Restore the old output, if any; a killed run may have left it behind."""
        with naming(self._new), suppress(FileNotFoundError):
            os.replace(self._old, self._new)

    def drop(self) -> None:
        """Remove the backup."""
        remove(self._old)
