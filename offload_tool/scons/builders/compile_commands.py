"""The compilation database: one entry per source and target, the host's first, and the headers.

Source: the JSON Compilation Database Format Specification. Tools that use the first entry of a file
(clangd) see the host's code, others can choose a target's. ``OFFLOAD_CLANGD_ARCH`` leaves each
source that target's entry, or the host's. ``COMPILATIONDB_USE_ABSPATH`` and
``COMPILATIONDB_PATH_FILTER`` work as in SCons's own database. A copy in a variant folder has the
name of its original.

A header has the entry of the first source that may reach it, with its own name instead. clangd
would guess a header's language by its name, and fail for a ``.h`` of HIP code.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator
from typing import Any

import SCons.Builder
import SCons.Util

from offload_tool.errors import UsageError
from offload_tool.formats import FORMAT_VERSION
from offload_tool.io import replace_file
from offload_tool.scons import actions, compat
from offload_tool.scons.state.build_log import DeclaredPass, DeclaredPasses, declared_passes
from offload_tool.scons.state.node_resolver import command_of
from offload_tool.scons.state.scanner import DEPENDENCY_SCANNER, reachable_files
from offload_tool.scons.types import Environment, Node

_PATTERN = "$COMPILATIONDB_PATH_FILTER"


def offload_compilation_database(env: Environment, target: str | None) -> list[Node]:
    """Return ``compile_commands.json``: one entry per source and target, the host's first."""
    passes = declared_passes(env)
    passes.keep_commands()
    node: Node = _DATABASE(env, env.fs.File(target or "compile_commands.json"), [])[0]
    # SConscripts may declare further passes after this.
    env.Depends(node, compat.LateValue("all compile commands", lambda: _signed(passes, env)))
    env.NoCache(node)  # it contains this checkout's folder
    return [node]


def _signed(passes: DeclaredPasses, env: Environment) -> str:
    """Return a digest of all commands, as in the nodes' signatures, and of the headers' names."""
    parts = [f"{row.source}\0{row.node}\0{compat.contents(row.node)!r}" for row in passes.values()]
    parts += [env.subst(f"$OFFLOAD_CLANGD_ARCH {_PATTERN} {_has_absolute_names(env)}")]
    parts += [str(name) for name, _ in _headers(passes.values(), env)]
    return str(SCons.Util.hash_signature("\n".join(parts)))


def _has_absolute_names(env: Environment) -> bool:
    return env.get("COMPILATIONDB_USE_ABSPATH") in (True, "True", "true")


def _write(given: actions.Operands) -> None:
    env = given.env
    # An OpenMP host object reads the host IR, not the source.
    found = declared_passes(env).values()
    passes = [each for each in found if each.source in each.node.sources[:1]]
    first: dict[Any, int] = {}
    for each in passes:
        first.setdefault(each.source, each.number)
    ordered = sorted(passes, key=lambda d: (first[d.source], d.target != "host", d.target))
    if wanted := env.subst("$OFFLOAD_CLANGD_ARCH"):
        ordered = _one_for_each_source(ordered, wanted)
    if pattern := env.subst(_PATTERN):
        ordered = [d for d in ordered if fnmatch.fnmatch(_name(d.node, env), pattern)]
    entries = [_entry(declared, declared.source, env) for declared in ordered]
    for header, declared in _headers(ordered, env):
        made = _entry(declared, header, env)
        del made["output"]
        entries.append(made)
    text = json.dumps(entries, indent=2) + "\n"
    with replace_file(given.output, keep_equal=True) as out:
        out.write(text.encode())


_DATABASE = SCons.Builder.Builder(
    action=actions.action(
        f"compile commands {FORMAT_VERSION}", _write, cmdstr="$OFFLOADCOMPILECOMMANDSCOMSTR"
    )
)


def _one_for_each_source(passes: Iterable[DeclaredPass], wanted: str) -> list[DeclaredPass]:
    """Return each source's pass for the target, or its first; raise UsageError without one."""
    chosen: dict[Any, DeclaredPass] = {}
    targets = set()
    for declared in passes:
        targets.add(declared.target)
        if chosen.setdefault(declared.source, declared).target != wanted == declared.target:
            chosen[declared.source] = declared
    if wanted not in targets:
        raise UsageError(
            f"OFFLOAD_CLANGD_ARCH={wanted!r}: no pass is for it; give one of "
            f"{', '.join(sorted(targets))}"
        )
    return list(chosen.values())


def _headers(
    passes: Iterable[DeclaredPass], env: Environment
) -> Iterator[tuple[Node, DeclaredPass]]:
    seen = {declared.source for declared in passes}
    for declared in passes:
        folders = DEPENDENCY_SCANNER.path(declared.node.get_build_env(), declared.node.cwd)
        for header in reachable_files([declared.source], folders):
            if header not in seen and header.is_under(env.fs.Top):
                seen.add(header)
                yield header, declared


def _entry(declared: DeclaredPass, file: Node, env: Environment) -> dict[str, Any]:
    # A launcher is not a compiler, and indexers write no depfile.
    command = command_of(declared.node, declared.command).without_depfile
    name = _name(file, env)
    return {
        "directory": env.fs.Top.get_abspath(),
        "file": name,
        "arguments": command._replace(source=name).argv(),
        "output": _name(declared.node, env),
    }


def _name(node: Node, env: Environment) -> str:
    """Return the name of a file: of its original, if SCons copies it to a variant folder."""
    original = node if node.is_derived() else node.srcnode()
    found = original.rfile() if original.rexists() or original.is_derived() else node.rfile()
    return found.get_abspath() if _has_absolute_names(env) else str(found)
