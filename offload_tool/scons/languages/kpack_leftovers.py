"""Archives of targets that are built no more: a program would still find them, so the build says.

SCons leaves the outputs of nodes that are gone. Of other code that is litter; an archive is found
by its name, with the code that it was made of.
"""

from __future__ import annotations

import atexit
import glob
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from offload_tool.errors import OffloadError
from offload_tool.formats.kpack.marker import PLACEHOLDER
from offload_tool.formats.target.compile_target import parse_target
from offload_tool.scons import compat

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Folder, Node

_IN_NO_PROCESSOR = frozenset("_.")
"""Of GPUs whose code is in archives."""


class _Leftovers:
    """Where archives are made, and which ones."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], None] = {}
        self._made: set[str] = set()

    def watch(self, folder: Folder, path: str, archive: Node) -> None:
        if not self._made:
            atexit.register(self._tell)
        self._places[folder.get_abspath(), path] = None
        self._made.add(archive.get_abspath())

    def _tell(self) -> None:
        if not compat.has_read_all():  # what is made is not known
            return
        for path in sorted(set(self._found())):
            print(  # noqa: T201 - as SCons says what it does
                f"offload: '{os.path.relpath(path)}' is of no target that this build makes, and "
                "would be found by what looks for such archives; remove it",
                file=sys.stderr,
            )

    def _found(self) -> Iterator[str]:
        for folder, path in self._places:
            begin, _, end = os.path.normpath(os.path.join(folder, path)).partition(PLACEHOLDER)
            for file in glob.glob(f"{glob.escape(begin)}*{glob.escape(end)}"):
                name = file[len(begin) : len(file) - len(end)]
                if file not in self._made and _is_target_id(name):
                    yield file


def _is_target_id(name: str) -> bool:
    """Return whether a name is one: ``demo_x_gfx906`` is of another group than ``demo``.

    So is ``demo_gfx906_gfx90a``: of processors that are not known, there is none with such a name.
    """
    try:
        return (
            _IN_NO_PROCESSOR.isdisjoint(name)
            and str(parse_target(name, allow_unknown=True).target_id) == name
        )
    except OffloadError:
        return False


def watch_archive(env: Environment, folder: Folder, path: str, archive: Node) -> None:
    """Print at the end of the build which files are called as an archive of another target.

    `path` is where the archives of all targets are, with a placeholder, from `folder` on.
    """
    compat.of_build(env, _Leftovers).watch(folder, path, archive)
