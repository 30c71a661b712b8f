"""When a source has a precompiled header (PCH) of its own: the files beside ``.offload-pch``.

::

    .offload-pch/a.hip.1f3b6c20/gfx906.hip.1.7d1c03aa.pch      of the leading bytes of a.hip
                                gfx906.hip.1.edits             what the passes have had of them

It takes about as long to make as a compile, and later ones take a third. So one is made with the
first edit that leaves the leading bytes and all headers as they were: with the second edit both
together have taken less than without. Where headers change as often as the source, each is of no
use after its making; so the next one is made only when a source was edited more than twice as
often as PCHs were made of it. And a build in which many sources have changed is no edit.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from offload_tool.compiler.fingerprints import digest_of
from offload_tool.errors import OffloadError

__all__ = ["LARGEST", "MOST_SOURCES", "Edits", "folder_of", "make_room"]

MOST_SOURCES = 2
"""So many sources get PCHs of their own in one build."""
LARGEST = 1 << 30
"""Bytes that the PCHs of single sources take; those that were used longest ago are removed."""
_USES_OF_ONE = 2
_FAILED = 8
"""So many makings a failed one counts for: it will fail again until the source is another one."""


class Edits(NamedTuple):
    """What one pass has had of the edits of its source."""

    text: str = ""
    """The digest of the leading bytes when it was edited last; "" if it never was."""
    edits: int = 0
    """How often it was edited while those, and the headers, stayed."""
    made: int = 0
    """How often a PCH was made."""

    @classmethod
    def read(cls, file: str) -> Edits:
        """Read them; none where there is no such file, or a damaged one."""
        try:
            text, edits, made = json.loads(Path(file).read_text())
            return cls(str(text), int(edits), int(made))
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, file: str) -> None:
        """Write them; where that is not possible, they are as before."""
        from offload_tool.files import replace_file

        with suppress(OSError, OffloadError):
            os.makedirs(os.path.dirname(file), exist_ok=True)  # noqa: PTH103, PTH120
            with replace_file(file) as out:
                out.write(json.dumps(self).encode())

    def and_one(self, text: str) -> Edits:
        """Give them with one more edit, which has left the source with these leading bytes."""
        same = self.text in ("", text)
        return self._replace(text=text, edits=self.edits + same)

    @property
    def want_one(self) -> bool:
        """Tell whether a PCH should be made."""
        return self.edits > _USES_OF_ONE * self.made

    def with_made(self, *, failed: bool) -> Edits:
        """Give them after a PCH was made."""
        return self._replace(made=self.made + (_FAILED if failed else 1))


def folder_of(top: str, source: str) -> str:
    """Name the folder of the PCHs of one source."""
    name = os.path.basename(source)[:100]  # noqa: PTH119
    return f"{top}/{name}.{digest_of(os.fsencode(source))[:8]}"


def make_room(top: str, own: str) -> None:
    """Remove what was used longest ago, but for the folder `own`, until all is small enough."""
    found = []
    with suppress(OSError):
        for folder in Path(top).iterdir():
            files = [file.stat() for file in folder.iterdir()] if folder.is_dir() else []
            if files:
                used = max(file.st_mtime_ns for file in files)
                found.append((used, str(folder), sum(file.st_size for file in files)))
    total = sum(size for _, _, size in found)
    for _, folder_name, size in sorted(found):
        if total > LARGEST and folder_name != own:
            shutil.rmtree(folder_name, ignore_errors=True)
            total -= size
