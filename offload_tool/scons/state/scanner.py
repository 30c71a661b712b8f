"""Scanner for passes: their previous dependencies, and the headers that must be built first.

The manifest decides whether a pass is current (`pass_state`). SCons itself needs two lists:

- the project's files that the pass read last: SCons builds the generated ones before the decision
- all generated files that a flag, or a directive of the source or of a reachable header, may name:
  they are built first, and become dependencies only when read

Flags of other commands, such as device links, name files as well: these are dependencies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import SCons.Node
import SCons.Scanner
from SCons.Node.FS import find_file

from offload_tool.clang.argument_files import (
    LINKERS_FOLDERS,
    MODULE_SUFFIX,
    all_args,
    include_folders,
    link_args,
    linked_files,
    module_folders,
    possible_files,
)
from offload_tool.clang.response_file import expand_command
from offload_tool.scons import compat
from offload_tool.scons.settings import substituted
from offload_tool.scons.state.node_info import info_of, records_of
from offload_tool.scons.types import Environment, Node

_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[^\n]*", re.MULTILINE)
_CONTINUATION = re.compile(r"\\\r?\n")
_SPELLED = re.compile(r"\"([^\"\n]+)\"|<([^<>\n]+)>")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

_spelled: dict[tuple[Any, tuple[Any, ...]], tuple[str, list[Any]]] = {}
"""For each file and search path: the file's signature, and the nodes that its directives name."""


def _scan(node: Node, env: Environment, path: Any) -> list[Any]:
    records = records_of(node)
    records.renew_copies()
    args = records.resolver.args
    known = records.known_nodes()
    there = [file for file in known if file.has_builder() or file.rexists()]
    named = (compat.folder_node(env.fs, folder) for folder in include_folders(all_args(args)))
    folders = (*path, *(folder for folder in named if folder is not None))
    words = (word for arg in args for word in (arg, *_names_in(arg)) if word[:1] != "-")
    in_args = compat.without_made_of(_files_named(words, (env.fs.Top, *folders)), node)
    begin = [node.sources[0], *there, *in_args]
    waits_for = compat.waits_for(node)
    reachable = reachable_files(begin, folders)
    records.resolver.reachable = [str(file.rfile()) for file in reachable]
    of_flags = compat.without_made_of(_files_of_flags(args, env), node)
    needed = dict.fromkeys((*reachable, *of_flags))
    generated = [file for file in needed if file.has_builder() and file not in waits_for]
    if generated:
        node.add_prerequisite(generated)
    return there


def _files_of_flags(args: Iterable[str], env: Environment) -> Iterator[Any]:
    """Yield the nodes of files that options may name, built or not: ``-fprofile-use=F``, ..."""
    files: set[str] = set()
    for name in possible_files(args):
        if os.path.dirname(name) not in files:  # SCons would make the file's node a folder's
            found = find_file(name, (env.fs.Top,))
            if found is not None:
                files.add(name)
                yield found
    for name in module_folders(all_args(args)):
        yield from compat.built_in(env.fs, name, MODULE_SUFFIX)


def files_of_plain_command(node: Node) -> list[Any]:
    """Return what a command reads by its flags: built files anywhere, others that a link takes."""
    env, flags = node.get_build_env(), info_of(node).flags

    def find(path: str) -> Any:
        is_own = os.path.dirname(path) in LINKERS_FOLDERS
        return None if is_own else compat.known_file(env.fs, path)

    with compat.at_top(env):
        args = substituted(env, flags, node.sources)
        linked = linked_files(args, find) if "$_LIBFLAGS" in flags else ()
        named = _files_of_flags([*link_args(args)], env)
        responses = filter(None, map(find, expand_command(args).files))
        found = [*linked, *responses, *(file for file in named if file.has_builder())]
    return compat.without_made_of(dict.fromkeys(found), node)


def _names_in(text: str) -> Iterator[str]:
    return (quoted or bracketed for quoted, bracketed in _SPELLED.findall(text))


def _files_named(names: Iterable[str], folders: Collection[Any]) -> Iterator[Any]:
    """Yield the nodes of files with these names, from each folder; copy variants."""
    for name in names:
        for folder in folders:
            found = find_file(name, (folder,))
            if found is not None:
                yield found


def reachable_files(begin: Iterable[Any], path: tuple[Any, ...]) -> list[Any]:
    """Return `begin` and all files that their directives name, transitively."""
    seen = dict.fromkeys(begin)
    waiting = list(seen)
    while waiting:
        for found in _nodes_spelled(waiting.pop(), path):
            if found not in seen:
                seen[found] = None
                waiting.append(found)
    return list(seen)


def _nodes_spelled(node: Node, path: tuple[Any, ...]) -> list[Any]:
    file = node.rfile()
    if not file.exists():
        return []
    signature = file.get_csig()
    known = _spelled.get((file, path))
    if known is None or known[0] != signature:
        known = _spelled[(file, path)] = (signature, list(_read(file, path)))
    return known[1]


def _read(file: Node, path: tuple[Any, ...]) -> Iterator[Any]:
    top = file.fs.Top
    if not any(file.is_under(folder) for folder in (top, *top.getRepositories(), *path)):
        return  # the compiler's, or the system's
    text = _CONTINUATION.sub("", file.get_text_contents())
    names: dict[str, None] = {}
    for version in (text, _COMMENT.sub(" ", text)):
        for line in _DIRECTIVE.findall(version):
            names.update(dict.fromkeys(_names_in(line)))
    yield from _files_named((name.strip() for name in names), dict.fromkeys((file.dir, *path)))


DEPENDENCY_SCANNER = SCons.Scanner.ScannerBase(
    _scan,
    name="OffloadDependencyScanner",
    node_class=SCons.Node.Node,
    path_function=compat.header_folders,
)


def flags_scanner(name: str) -> Any:
    """Return the scanner of a command whose flags in variable `name` may name files."""

    def scan(node: Node, env: Environment, path: Any) -> list[Any]:
        with compat.at_top(env):
            args = substituted(env, f"${name}", node.sources)
        return list(dict.fromkeys(_files_of_flags(args, env)))

    return SCons.Scanner.ScannerBase(scan, name=f"files in {name}", node_class=SCons.Node.Node)
