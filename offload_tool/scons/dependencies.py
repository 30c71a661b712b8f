"""What a compile depends on: exactly the files that its own preprocessing read.

Each compile writes a depfile, whose list replaces the node's implicit dependencies
before SCons stores them. In the next run

- a node has the stored, exact list again, so a header that only another target reaches does
  not touch it;
- headers that the build makes, and that this compile may read now, are built before it; they
  are no dependencies before they have been read;
- with a CacheDir, a node that will be made anew has all headers that SCons's C scanner finds,
  as in the first build: what a fetched output depends on must be the same in each checkout.

The stored list is part of the node's record in SCons's database, so it can never belong
to another output than the one that is there (one fetched from a CacheDir, say).
"""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Any

import SCons.Node
import SCons.Scanner
import SCons.Scanner.C
import SCons.Util
from SCons.Node.FS import Base, find_file

from offload_tool.compiler.depfile import depfile_command, read_depfile
from offload_tool.compiler.passes import CompilePass
from offload_tool.scons.lookups import look_up

__all__ = [
    "DEPENDENCY_SCANNER",
    "NO_SCANNER",
    "depfile_of",
    "identity_of",
    "record_dependencies",
    "remove_depfile",
]

_C_SCANNER = SCons.Scanner.C.CScanner()
_INCLUDE_FLAGS = ("-include", "-imacros")
_DONE = (SCons.Node.up_to_date, SCons.Node.executed)


def depfile_of(target: Any) -> str:
    """Name the depfile of a node, relative to the top folder; it exists while it compiles."""
    return f"{target.get_internal_path()}.d"


def remove_depfile(target: Any) -> None:
    """Remove a depfile that has been read, or that a compile left which failed."""
    Path(depfile_of(target)).unlink(missing_ok=True)


def record_dependencies(target: Any, source: Any, env: Any) -> None:
    """Replace the node's implicit dependencies with what its depfile lists.

    :raises FileError: the compile wrote no depfile.
    """
    depfile = Path(depfile_of(target))
    if not depfile.exists():
        _ask_for_depfile(target, env)
    names = read_depfile(depfile)
    known = {source, source.srcnode(), *target.sources, *target.depends}
    nodes = []
    for name in names:
        node = env.fs.File(name, directory=env.fs.Top)
        if node not in known:
            known.add(node)
            nodes.append(node)
    path = target.get_executor().get_build_scanner_path(DEPENDENCY_SCANNER)
    target.implicit = _with_lookups(target, nodes, env, path)
    target.implicit_set = set(target.implicit)
    for node in (*target.depends, *target.implicit):
        node.get_csig()  # stored with the list, at which identity_of() looks
    target._children_reset()
    target.del_binfo()


def _ask_for_depfile(target: Any, env: Any) -> None:
    """Let the compiler read the source and write the depfile, and nothing else."""
    job = CompilePass.from_text(env["_OFFLOAD_PASS"])
    command = "$OFFLOADHOSTCOM" if job.device is None else "$OFFLOADDEVICECOM"
    local = env.Override({"OFFLOAD_LAUNCHER": ""})
    lines = local.subst_list(command, target=[target], source=target.sources)
    subprocess.run(
        depfile_command([str(word) for word in lines[0]]),
        env={name: str(value) for name, value in env["ENV"].items()},
        stdin=subprocess.DEVNULL,
        check=False,  # the caller sees what came of it
    )


def _scan(node: Any, env: Any, path: Any) -> list[Any]:
    # SCons would remember this answer on the node; it can be another one after a
    # generated header has been built.
    node._memo.pop("get_found_includes", None)
    stored = node.get_stored_implicit()
    if stored is None or (env.get_CacheDir().is_enabled() and not _unchanged(node, stored)):
        return _with_lookups(node, _scanned(node, env, path), env, path)
    files = [child for child in stored if isinstance(child, Base)]
    there = [file for file in files if file.has_builder() or file.rexists()]
    return _with_lookups(node, there, env, path)


def _with_lookups(node: Any, files: list[Any], env: Any, path: Any) -> list[Any]:
    """Give `files`, and a node for what else the includes in them find, where there is such."""
    there = [file for file in (node.sources[0], *files) if file.rexists()]
    changes, generated = look_up(there, path)
    known = node.prerequisites or ()
    if any(header not in known for header in generated):
        node.add_prerequisite(generated)  # before the compile, but no dependencies
    return [*files, env.Value(changes)] if changes else files


def _scanned(node: Any, env: Any, path: Any) -> list[Any]:
    """Give the headers that the C scanner finds: more than are read, but also new ones."""
    found: dict[Any, None] = {}
    for source in (node.sources[0], *_given_headers(node, env, path)):
        if source != node.sources[0]:
            found[source] = None
        found.update(dict.fromkeys(_headers(source, env, path)))
    return list(found)


def _given_headers(node: Any, env: Any, path: Any) -> list[Any]:
    """Give the files of ``-include`` flags."""
    words = node.get_executor().get_contents().decode(errors="replace").split()
    names = [name for flag, name in itertools.pairwise(words) if flag in _INCLUDE_FLAGS]
    found = [find_file(name, (env.fs.Top, *path)) for name in names]
    return [file for file in found if file is not None]


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
    _scan,
    name="OffloadDependencyScanner",
    node_class=SCons.Node.Node,
    path_function=SCons.Scanner.FindPathDirs("CPPPATH"),
)

# For C and C++ sources, SCons's own scanner would add what no pass, or another one, reads.
NO_SCANNER = SCons.Scanner.ScannerBase(lambda *_: [], name="OffloadNoScanner")


def identity_of(source: Any, target: Any, env: Any) -> Any:
    """Give a node that changes when a file that `target` is made of is replaced by another.

    OpenMP puts the device and inode numbers of files into the names of target regions. A
    source that an editor saves atomically has new ones, with the same content.
    """
    # One of SCons's own, so that SCons knows it again in the next run.
    node = env.Value(f"identity of the files of {target}")

    def get_csig() -> str:
        # Looked at each time: the files may have been generated, or listed, since.
        # While SCons asks for the list, it is empty.
        listed = target.implicit or target.get_stored_implicit() or ()
        texts = [_identify(file) for file in (source, *listed) if isinstance(file, Base)]
        csig = SCons.Util.hash_signature("\n".join(texts))
        node.get_ninfo().csig = csig
        return str(csig)

    node.get_csig = get_csig
    return node


def _identify(node: Any) -> str:
    try:
        status = Path(node.rfile().get_abspath()).stat()
    except OSError:
        return "none"
    return f"{status.st_dev:x}:{status.st_ino:x}"
