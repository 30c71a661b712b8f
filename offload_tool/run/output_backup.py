"""The output that was there before, kept while another one is made under its name.

::

    OUT --> .OUT.old     compiler --> OUT --> check --> equal bytes: .OUT.old back to OUT
                                       |
                                       +--> stopped by a signal: .OUT.old back to OUT

The compiler is told the output's true name, which some outputs contain (``--coverage``,
``-gsplit-dwarf``). Clang and lld write a file of another name and rename it, so the old one can
keep its name meanwhile: ``.OUT.old`` is a second one (a hard link). Whatever else writes the
output (a launcher) may write into the old file, so ``.OUT.old`` is that file itself then, and
``OUT`` a copy of it. Whenever this process is killed, the old output is there.

What a killed run has left is given its name back by the next one.
"""

from __future__ import annotations

import os
import re

from offload_tool.errors import FileError
from offload_tool.io.paths import beside, remove


def remove_half_written(output: str, since: int) -> None:
    """Remove what LLVM's programs began under other names and were ended before they renamed it.

    They remove it themselves, but for the moment between making the file and noting its name.
    lld names it ``OUT.tmp`` and 7 hexadecimal digits (FileOutputBuffer), clang ``OUT-8DIGITS.EXT``
    and ``.tmp`` (CompilerInstance::createOutputFile). Files that were changed before `since`, in
    nanoseconds of the file system's clock, are somebody's own.
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
    """The old output under its second name."""

    def __init__(self, output: str) -> None:
        self._new = output
        self._old = beside(output, ".old")

    def recover(self) -> None:
        """Restore the backup that a killed run left behind."""
        if os.path.lexists(self._old):
            self._give_back()

    def put(self, *, keep: bool) -> None:
        """Link the output, if there is one, to the second name; with `keep` it has both then.

        Without, what has its name is a copy.

        :raises FileError: it cannot be renamed or copied.
        """
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
        except OSError:  # a file system without hard links
            return False
        return True

    def _copy(self) -> None:
        """Put a copy with the same times into the output's place, in one step."""
        from offload_tool.io import InputFile, replace_file

        status = os.stat(self._old)
        with InputFile(self._old) as old, replace_file(self._new) as out:
            out.copy(old)
            out.set_mode(status.st_mode)
        os.utime(self._new, ns=(status.st_atime_ns, status.st_mtime_ns))

    def take_back_if_equal(self) -> None:
        """Restore the old output where the new one has the same bytes."""
        if self._is_equal():
            self._give_back()

    def take_back(self) -> None:
        """Restore the old output, if there was one."""
        if os.path.lexists(self._old):
            self._give_back()

    def drop(self) -> None:
        """Remove the second name."""
        remove(self._old)

    def _give_back(self) -> None:
        try:
            os.replace(self._old, self._new)
            remove(self._old)  # where both names were one file's, both stay
        except OSError as error:
            raise FileError(self._new, error) from error

    def _is_equal(self) -> bool:
        try:
            old, new = os.stat(self._old), os.stat(self._new)
        except FileNotFoundError:
            return False
        if old.st_size != new.st_size or os.path.samestat(old, new):
            return False
        import filecmp

        return filecmp.cmp(self._old, self._new, shallow=False)
