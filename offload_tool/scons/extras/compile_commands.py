"""The compilation database: one entry per source and target, the host's first.

Source: the JSON Compilation Database Format Specification. Tools that take the first entry
of a file (clangd) so see the host's code; others can choose a target's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import SCons.Action
import SCons.Builder
import SCons.Errors
import SCons.Util

from offload_tool.errors import FileError
from offload_tool.io import replace_file
from offload_tool.scons import compat
from offload_tool.scons.state.build_log import DeclaredPass, DeclaredPasses, declared_passes

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

__all__ = ["database_node"]

_WITHOUT = {"OFFLOAD_LAUNCHER": "", "_OFFLOAD_DEPENDENCY_FLAGS": []}
"""A launcher is not a compiler, and reading code writes no depfile."""


def offload_compile_commands(target: list[Node], source: list[Node], env: Environment) -> int:
    _write(str(target[0]), env)
    return 0


_DATABASE = SCons.Builder.Builder(
    action=SCons.Action.Action(offload_compile_commands, "$OFFLOADCOMPILECOMMANDSCOMSTR")
)


def database_node(env: Environment, target: str | None) -> Node:
    """Declare the database of all passes that SConscripts declare, before or after this."""
    passes = declared_passes(env)
    passes.keep_commands()
    node: Node = _DATABASE(env, env.fs.File(target or "compile_commands.json"), [])[0]
    env.Depends(node, compat.LateValue("all compile commands", lambda: _signed(passes)))
    env.NoCache(node)  # it names this checkout's folder
    return node


def _signed(passes: DeclaredPasses) -> str:
    """Return what each node's own signature has of its command, which SCons remembers."""
    parts = (f"{row.source}\0{row.node}\0{compat.contents(row.node)!r}" for row in passes)
    return str(SCons.Util.hash_signature("\n".join(parts)))


def _write(path: str, env: Environment) -> None:
    passes = declared_passes(env)
    ranks = {declared.node: number for number, declared in enumerate(passes)}
    first: dict[Any, int] = {}
    for declared in passes:
        first.setdefault(declared.source, ranks[declared.node])
    ordered = sorted(
        passes,
        key=lambda d: (first[d.source], d.target != "host", d.target, ranks[d.node]),
    )
    entries = [_entry(declared, env) for declared in ordered]
    text = json.dumps(entries, indent=2) + "\n"
    try:
        with replace_file(path, keep_equal=True) as out:
            out.write(text.encode())
    except FileError as error:
        raise SCons.Errors.BuildError(errstr=str(error)) from error


def _entry(declared: DeclaredPass, env: Environment) -> dict[str, Any]:
    build_env = declared.node.get_build_env().Override(_WITHOUT)
    lines = build_env.subst_list(
        declared.command, target=[declared.node], source=compat.all_sources(declared.node)
    )
    return {
        "directory": env.fs.Top.get_abspath(),
        "file": str(declared.source.rfile()),
        "arguments": [str(word) for word in lines[0]],
        "output": str(declared.node),
    }
