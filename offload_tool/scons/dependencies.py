"""What a compile depends on: exactly the files that its own preprocessing read.

Each compile writes a depfile, whose list replaces the node's implicit dependencies
before SCons stores them. In the next run

- a node of which nothing has changed has the stored, exact list again, so a header that
  only another target reaches does not touch it;
- a node that will be compiled anyway has what SCons's C scanner finds, which is more
  than needed but includes headers that must be generated first.

The stored list is part of the node's record in SCons's database, so it can never belong
to another output than the one that is there (one fetched from a CacheDir, say).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import SCons.Node
import SCons.Node.Python
import SCons.Scanner
import SCons.Scanner.C
import SCons.Util

from offload_tool.compiler.depfile import read_depfile

__all__ = ["DEPENDENCY_SCANNER", "depfile_of", "identity_of", "record_dependencies"]

_C_SCANNER = SCons.Scanner.C.CScanner()
_DONE = (SCons.Node.up_to_date, SCons.Node.executed)


def depfile_of(target: Any) -> str:
    """Name the depfile of a node, relative to the top folder; it exists while it compiles."""
    return f"{target.get_internal_path()}.d"


def record_dependencies(target: Any, source: Any, env: Any) -> None:
    """Replace the node's implicit dependencies with what its depfile lists; remove it.

    :raises FileError: the compile wrote no depfile.
    """
    depfile = Path(depfile_of(target))
    names = read_depfile(depfile)
    depfile.unlink()
    known = {source, source.srcnode(), *target.sources, *target.depends}
    nodes = []
    for name in names:
        node = env.fs.File(name, directory=env.fs.Top)
        if node not in known:
            known.add(node)
            node.get_csig()  # stored with the list: a node without one counts as changed
            nodes.append(node)
    target.implicit = nodes
    target.implicit_set = set(nodes)
    target._children_reset()
    target.del_binfo()


def _scan(node: Any, env: Any, path: Any) -> list[Any]:
    # SCons would remember this answer on the node; it can be another one after a
    # generated header has been built.
    node._memo.pop("get_found_includes", None)
    stored = node.get_stored_implicit()
    if stored is not None and _unchanged(node, stored):
        return list(stored)
    found: dict[Any, None] = {}
    for source in node.sources:
        found.update(dict.fromkeys(_headers(source, env, path)))
    return list(found)


def _headers(source: Any, env: Any, path: Any) -> list[Any]:
    """Give all headers that the C scanner reaches from `source`, each once."""
    seen: dict[Any, None] = {}
    pending = [source]
    while pending:
        for header in _C_SCANNER(pending.pop(), env, path):
            if header not in seen and header != source:
                seen[header] = None
                pending.append(header)
    return list(seen)


def _unchanged(node: Any, stored: list[Any]) -> bool:
    """Tell whether nothing that the last build of `node` depended on has changed since."""
    info = node.get_stored_info().binfo
    before = {
        child: signature
        for children, signatures in (
            (info.bsources, info.bsourcesigs),
            (info.bdepends, info.bdependsigs),
            (info.bimplicit, info.bimplicitsigs),
        )
        for child, signature in zip(children, signatures, strict=False)
    }
    children = [*node.sources, *node.depends, *stored]
    if len(children) != len(before) or not node.exists():
        return False
    if info.bactsig != SCons.Util.hash_signature(node.get_executor().get_contents()):
        return False
    return all(
        child in before and not _has_changed(child, node, before[child]) for child in children
    )


def _has_changed(child: Any, node: Any, before: Any) -> bool:
    if child.has_builder():
        # Not built yet in this run: the scan is done again when it is.
        if child.get_state() not in _DONE:
            return False
    elif not child.exists():
        return True
    decide = SCons.Node._decider_map[child.changed_since_last_build]
    return bool(decide(child, node, before, None))


DEPENDENCY_SCANNER = SCons.Scanner.ScannerBase(
    _scan, name="OffloadDependencyScanner", path_function=SCons.Scanner.FindPathDirs("CPPPATH")
)


class _FileIdentity(SCons.Node.Python.Value):  # type: ignore[misc]
    """The device and inode numbers of the files that a compile has read.

    OpenMP puts them into the names of target regions. A source that an editor saves
    atomically has new ones, with the same content.
    """

    def __init__(self, source: Any, target: Any) -> None:
        super().__init__(f"identity of {source}")
        self._source = source
        self._target = target

    def get_csig(self) -> str:
        """Look at the files now: they may have been generated, or listed, since."""
        listed = self._target.implicit
        if listed is None:
            listed = self._target.get_stored_implicit() or ()
        texts = [self._identify(node) for node in (self._source, *listed)]
        self.get_ninfo().csig = csig = SCons.Util.hash_signature("\n".join(texts))
        return str(csig)

    @staticmethod
    def _identify(node: Any) -> str:
        try:
            status = Path(node.rfile().get_abspath()).stat()
        except OSError:
            return "none"
        return f"{status.st_dev:x}:{status.st_ino:x}"


def identity_of(source: Any, target: Any) -> Any:
    """Give a node that changes when a file that `target` is made of is replaced by another."""
    return _FileIdentity(source, target)
