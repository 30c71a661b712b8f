"""The compilation database: one entry per source and target, the host's first.

Source: the JSON Compilation Database Format Specification. Tools that take the first entry
of a file (clangd) so see the host's code; others can choose a target's.
"""

from __future__ import annotations

import json
from typing import Any

import SCons.Action
import SCons.Builder
import SCons.Errors
import SCons.Node.Python
import SCons.Util

from offload_tool.errors import FileError
from offload_tool.files import replace_file
from offload_tool.scons.records import PASSES, DeclaredPass, keep_commands

__all__ = ["database_node"]

_WITHOUT = {"OFFLOAD_LAUNCHER": "", "_OFFLOAD_DEPENDENCY_FLAGS": []}
"""A launcher is no compiler, and reading code writes no depfile."""


def offload_compile_commands(target: Any, source: Any, env: Any) -> int:  # noqa: ARG001
    _write(str(target[0]), env)
    return 0


_DATABASE = SCons.Builder.Builder(
    action=SCons.Action.Action(offload_compile_commands, "$OFFLOADCOMPILECOMMANDSCOMSTR")
)


def database_node(env: Any, target: str | None) -> Any:
    """Declare the database of all passes that SConscripts declare, before or after this."""
    keep_commands()
    node = _DATABASE(env, env.fs.File(target or "compile_commands.json"), [])[0]
    env.Depends(node, _AllCommands())
    env.NoCache(node)  # it names this checkout's folder
    return node


class _AllCommands(SCons.Node.Python.Value):  # type: ignore[misc]
    """The commands of all passes, looked at when every SConscript has been read."""

    def __init__(self) -> None:
        super().__init__("all compile commands")

    def get_csig(self) -> str:
        """Sign what each node's own signature has of its command, which SCons remembers."""
        parts = [
            f"{declared.source}\0{declared.node}\0{declared.node.get_executor().get_contents()!r}"
            for declared in PASSES
        ]
        self.get_ninfo().csig = csig = SCons.Util.hash_signature("\n".join(parts))
        return str(csig)


def _write(path: str, env: Any) -> None:
    ranks = {declared.node: number for number, declared in enumerate(PASSES)}
    first: dict[Any, int] = {}
    for declared in PASSES:
        first.setdefault(declared.source, ranks[declared.node])
    ordered = sorted(
        PASSES,
        key=lambda d: (first[d.source], d.target != "host", d.target, ranks[d.node]),
    )
    entries = [_entry(declared, env) for declared in ordered]
    text = json.dumps(entries, indent=2) + "\n"
    try:
        with replace_file(path, keep_equal=True) as out:
            out.write(text.encode())
    except FileError as error:
        raise SCons.Errors.BuildError(errstr=str(error)) from error


def _entry(declared: DeclaredPass, env: Any) -> dict[str, Any]:
    executor = declared.node.get_executor()
    build_env = executor.get_build_env().Override(_WITHOUT)
    lines = build_env.subst_list(
        declared.command, target=[declared.node], source=executor.get_all_sources()
    )
    return {
        "directory": env.fs.Top.get_abspath(),
        "file": str(declared.source.rfile()),
        "arguments": [str(word) for word in lines[0]],
        "output": str(declared.node),
    }
