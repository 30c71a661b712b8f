"""The summary at the end of a build, and its progress: on request, by target ID."""

from __future__ import annotations

import atexit
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import SCons.Node
import SCons.Script

from offload_tool.scons.records import PASSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload_tool.scons.records import DeclaredPass

__all__ = ["ask_for_summary", "offload_progress", "timed"]

_HOST = "host"


@dataclass
class _Row:
    compiled: int = 0
    cached: int = 0
    kept: int = 0
    seconds: float = 0.0


def timed(spawn: Callable[..., Any], declared: DeclaredPass) -> Callable[..., Any]:
    """Give a SPAWN function that also notes how long the command of a pass takes."""
    declared.seconds = 0.0

    def run(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return spawn(*arguments)
        finally:
            declared.seconds = (declared.seconds or 0.0) + time.perf_counter() - start

    return run


_asked = False


def ask_for_summary() -> None:
    """Print the summary when SCons ends."""
    global _asked
    if not _asked:
        _asked = True
        atexit.register(_print)


def _print() -> None:
    if SCons.Script.GetOption("clean") or SCons.Script.GetOption("silent"):
        return
    rows = _rows()
    if not rows:
        return
    width = max(len("target ID"), *map(len, rows))
    print(f"offload: {'target ID':{width}}  compiled  from cache  up to date  seconds")  # noqa: T201
    for name, row in rows.items():
        print(  # noqa: T201 - the answer to OFFLOAD_SUMMARY
            f"offload: {name:{width}}  {row.compiled:8}  {row.cached:10}  {row.kept:10}  "
            f"{row.seconds:7.1f}"
        )


def _rows() -> dict[str, _Row]:
    """Give what became of the passes that this run looked at: the host's first."""
    rows: dict[str, _Row] = defaultdict(_Row)
    for declared in PASSES:
        if declared.seconds is None:
            continue
        row = rows[declared.target]
        state = declared.node.get_state()
        if state == SCons.Node.up_to_date:
            row.kept += 1
        elif state == SCons.Node.executed and not declared.seconds:
            row.cached += 1  # it is there, and no command has run
        elif state == SCons.Node.executed:
            row.compiled += 1
        row.seconds += declared.seconds
    return {
        name: rows[name]
        for name in sorted(rows, key=lambda name: (name != _HOST, name))
        if rows[name] != _Row()
    }


_targets: dict[Any, str] = {}


def offload_progress(env: Any, node: Any) -> None:  # noqa: ARG001 - a method of environments
    """Show on a terminal which pass SCons is at: ``Progress(env.OffloadProgress)``."""
    if len(_targets) != len(PASSES):
        _targets.update((declared.node, declared.target) for declared in PASSES)
    if node not in _targets or not sys.stdout.isatty():
        return
    position = list(_targets).index(node) + 1
    text = f"[{position}/{len(_targets)}] [{_targets[node]}] {node}"
    sys.stdout.write(f"{text[:79]:79}\r")
    sys.stdout.flush()
