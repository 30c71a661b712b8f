"""Backup of the previous output while the compiler writes a new one under its name.

::

    OUT --> .OUT.old     compiler --> OUT --> check --> equal bytes: .OUT.old back to OUT
                                       |
                                       +--> stopped by a signal: .OUT.old back to OUT

The compiler writes to the final name, which some outputs contain (``--coverage``,
``-gsplit-dwarf``). Clang and lld write a temporary file and rename it. The old output can keep its
name meanwhile: ``.OUT.old`` is a hard link to it. Other writers (a launcher) may write into the old
file. For them ``.OUT.old`` is the file itself, and ``OUT`` a copy. A kill at any time leaves the
old output intact; the next run restores it from the backup.
"""

from __future__ import annotations

import os
import re

from offload_tool.errors import FileError
from offload_tool.io.paths import remove, sibling


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

    def save(self, *, keep: bool) -> None:
        """Link the output to its backup; without `keep`, copy it. Raise FileError."""
        try:
            if not self._link():
                os.rename(self._new, self._old)
            elif not keep:
                self._copy()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise FileError(self._new, error) from error

    def _link(self) -> bool:
        try:
            os.link(self._new, self._old, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:  # the file system has no hard links
            return False
        return True

    def _copy(self) -> None:
        """Replace the output atomically by a copy with the same times."""
        from offload_tool.io import InputFile, replace_file

        status = os.stat(self._old)
        with InputFile(self._old) as old, replace_file(self._new) as out:
            out.copy(old)
            out.set_mode(status.st_mode)
        os.utime(self._new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def restore_if_equal(self) -> None:
        """Restore the old output if the new one has the same bytes."""
        try:
            old, new = os.stat(self._old), os.stat(self._new)
        except FileNotFoundError:
            return
        if old.st_size == new.st_size and not os.path.samestat(old, new):
            import filecmp

            if filecmp.cmp(self._old, self._new, shallow=False):
                self.restore()

    def restore(self) -> None:
        """Restore the old output, if any; a killed run may have left it behind."""
        if not os.path.lexists(self._old):
            return
        try:
            os.replace(self._old, self._new)
            remove(self._old)  # rename() does nothing if both names are links to one file
        except OSError as error:
            raise FileError(self._new, error) from error

    def drop(self) -> None:
        """Remove the backup."""
        remove(self._old)
