"""The nodes of this tool's outputs: SCons's files, which know when they are current.

Every output decides by content, whatever ``Decider`` is set: its inputs' and its own. A file that
was truncated, half written when a build was killed, or replaced by another one is made again.
The outputs of compiler passes have a manifest, which also decides for a ``CacheDir``: see
`pass_state`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from SCons.Node.FS import File

from offload_tool.errors import OffloadError
from offload_tool.io import replace_file
from offload_tool.io.file_digests import Fingerprints
from offload_tool.scons import compat

if TYPE_CHECKING:
    from offload_tool.scons.state.pass_state import PassRecords
    from offload_tool.scons.types import Node

COMMAND = "its command"
"""In a manifest's key, and so in the reason why a pass runs."""


class Input(File):  # type: ignore[misc]
    """A file that an output is made of, whoever makes it: its time of modification proves nothing.

    SCons believes what it has stored of a file for as long as that time, in whole seconds, stays;
    archives are unpacked with one time for all releases. Here the file's look must be the stored
    one, too, in which nobody can set the time of change: see `file_digests`.
    """

    __slots__ = ()

    def visited(self) -> None:
        """Store what is known of the file, and its look."""
        super().visited()
        compat.note_look(self)

    def get_max_drift_csig(self) -> str | None:
        """Return the stored digest of an old file's content, where the file was not changed."""
        known: str | None = super().get_max_drift_csig() if compat.has_stored_look(self) else None
        return known or None  # SCons 4.6 asks whether it is None

    def changed_timestamp_newer(
        self, target: Node, prev_ni: Any, repo_node: Node | None = None
    ) -> bool:
        """Return True where this file is newer than the target, or its content is another one."""
        other = compat.has_other_content(self, prev_ni)
        return bool(super().changed_timestamp_newer(target, prev_ni, repo_node)) or other

    def changed_timestamp_match(
        self, target: Node, prev_ni: Any, repo_node: Node | None = None
    ) -> bool:
        """Return True where this file has another time than before, or other content."""
        other = compat.has_other_content(self, prev_ni)
        return bool(super().changed_timestamp_match(target, prev_ni, repo_node)) or other


class PlainOutput(Input):
    """A file that a builder of SCons makes for this tool: a program, an object of a C source.

    Its ``Decider`` counts, but for what was made in this very run, of which the time may tell
    nothing. What a killed build has left is not an output of what was stored before.
    """

    __slots__ = ()

    def scan(self) -> None:
        """Find what the file depends on; from then on, each child goes by its look."""
        if not compat.was_scanned(self):
            super().scan()
            for child in self.children(scan=False):
                compat.adopt_input(child, Input)

    def changed(self, node: Node | None = None, allowcache: bool = False) -> bool:
        """Return whether the ``Decider`` says so, or what was just made is of other content."""
        if compat.other_was_built(self, node):
            return True
        return bool(super().changed(node, allowcache))

    def is_up_to_date(self) -> bool:
        """Return whether the file is current, and is the one that was made."""
        current = bool(super().is_up_to_date())
        return current and not (self.exists() and compat.was_damaged(self))


def adopt_plain(nodes: Iterable[Node]) -> None:
    """Make SCons's own builders make an output again that is not what they made."""
    for node in nodes:
        compat.adopt(node, PlainOutput)


class Output(PlainOutput):
    """A file that an action of this tool, or a link of its outputs, makes."""

    __slots__ = ()

    def changed(self, node: Node | None = None, allowcache: bool = False) -> bool:
        """Return whether the children's content, or the action, is another one."""
        return compat.content_changed(self, node, remember=allowcache)

    def retrieve_from_cache(self) -> bool:
        """Fetch the file from a ``CacheDir``, if that has the one that was stored."""
        if not super().retrieve_from_cache():
            return False
        if not compat.does_execute() or self.nocache:
            return True
        note = _note_of(self)
        if note is not None and _read(note) == _digest(self):
            return True
        Path(self.get_internal_path()).unlink(missing_ok=True)
        if note is not None and not compat.cache_is_readonly():
            note.with_suffix("").unlink(missing_ok=True)
        return False

    def push_to_cache(self) -> Any:
        """Store the file in a ``CacheDir``, with its digest."""
        pushed = super().push_to_cache()
        note = None if self.nocache or compat.cache_is_readonly() else _note_of(self)
        if note is not None and note.parent.is_dir():
            with suppress(OffloadError), replace_file(note) as out:  # as SCons, which warns
                out.write(_digest(self).encode())
        return pushed


class PassOutput(Output):
    """The output of a compiler pass, with a manifest."""

    __slots__ = ()

    def is_up_to_date(self) -> bool:
        """Check whether the manifest says that a compile would give this file again.

        ``--tree=status`` also asks when SCons has released what the node was made of.
        """
        if self.released_target_info:
            return records_of(self).is_known_current
        File.is_up_to_date(self)  # the children's signatures are then there to be stored
        return records_of(self).is_current()

    def explain(self) -> Any:
        """Return why the pass runs, for ``--debug=explain``."""
        reason = records_of(self).reason
        if not self.exists() or not reason or reason.startswith(COMMAND):
            return super().explain()  # which shows both commands
        return f"rebuilding `{self}' because {reason}\n"

    def get_cachedir_bsig(self) -> str:
        """Return the name of the result in a ``CacheDir``: of what was read, not of what may be."""
        return records_of(self).result_name()

    def retrieve_from_cache(self) -> bool:
        """Fetch the result from a ``CacheDir`` that has one of just these inputs."""
        if self.nocache or not self.is_derived():
            return False
        records = records_of(self)
        records.is_fetched = records.fetch(lambda: File.retrieve_from_cache(self))
        return records.is_fetched

    def push_to_cache(self) -> Any:
        """Store the result in a ``CacheDir``, with its manifest."""
        if self.nocache:
            return None
        return records_of(self).store(lambda: File.push_to_cache(self))

    def visited(self) -> None:
        """Store the result where ``--cache-populate`` asks for it."""
        super().visited()
        if compat.cache_is_forced() and not self.nocache:
            records_of(self).store(lambda: None)


def _note_of(node: Node) -> Path | None:
    """Return the file beside a node's entry in the ``CacheDir`` that holds the entry's digest."""
    cache = node.get_build_env().get_CacheDir()
    return Path(f"{cache.cachepath(node)[1]}.digest") if cache.is_enabled() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _digest(node: Node) -> str:
    """Return the digest of a node's file."""
    return Fingerprints().digest(node.get_internal_path())


def records_of(node: Node) -> PassRecords:
    """Return what is known of a pass's output."""
    found: PassRecords = node.attributes.offload_records
    return found
