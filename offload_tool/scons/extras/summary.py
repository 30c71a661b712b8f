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

from offload_tool.scons.state.build_log import declared_passes
from offload_tool.scons.state.node_classes import records_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload_tool.scons.state.build_log import DeclaredPass, DeclaredPasses
    from offload_tool.scons.types import Environment, Node

__all__ = ["ask_for_summary", "offload_progress", "timed"]

_HOST = "host"


@dataclass
class _Row:
    compiled: int = 0
    cached: int = 0
    kept: int = 0
    seconds: float = 0.0


def timed(spawn: Callable[..., Any], declared: DeclaredPass) -> Callable[..., Any]:
    """Return a SPAWN function that also notes how long the command of a pass takes."""
    declared.seconds = 0.0

    def run(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return spawn(*arguments)
        finally:
            declared.seconds = (declared.seconds or 0.0) + time.perf_counter() - start

    return run


def ask_for_summary(env: Environment) -> None:
    """Print the summary when SCons ends."""
    passes = declared_passes(env)
    if env["OFFLOAD_PCH"] and passes.pch_statistics is None:
        from offload_tool.scons.pch.groups import pch_statistics

        passes.pch_statistics = pch_statistics(env)
    if not passes.are_summed_up:
        passes.are_summed_up = True
        atexit.register(_print, passes)


def _print(passes: DeclaredPasses) -> None:
    if SCons.Script.GetOption("clean") or SCons.Script.GetOption("silent"):
        return
    rows = _rows(passes)
    if rows:
        _print_rows(rows)
        _print_untold(passes)
    pchs = passes.pch_statistics
    if pchs is not None and (rows or pchs):
        print(f"offload: precompiled headers: {pchs}")  # noqa: T201


def _print_rows(rows: dict[str, _Row]) -> None:
    width = max(len("target ID"), *map(len, rows))
    print(f"offload: {'target ID':{width}}  compiled  from cache  up to date  seconds")  # noqa: T201
    for name, row in rows.items():
        print(  # noqa: T201 - the answer to OFFLOAD_SUMMARY
            f"offload: {name:{width}}  {row.compiled:8}  {row.cached:10}  {row.kept:10}  "
            f"{row.seconds:7.1f}"
        )


def _print_untold(passes: DeclaredPasses) -> None:
    """Print for which files passes run in each build."""
    counts: dict[str, int] = defaultdict(int)
    for declared in passes:
        records = getattr(declared.node.attributes, "offload_records", None)
        if declared.seconds is not None and records is not None:
            counts[records.untold] += 1
    for name in sorted(filter(None, counts)):
        print(  # noqa: T201
            f"offload: passes that run in each build: {counts[name]}, for '{name}' has inline "
            "assembly that may read a file which is not known; write .incbin or .include and its "
            "name into one string"
        )


def _rows(passes: DeclaredPasses) -> dict[str, _Row]:
    """Return what became of the passes that this run looked at: the host's first."""
    rows: dict[str, _Row] = defaultdict(_Row)
    for declared in passes:
        if declared.seconds is None:
            continue
        row = rows[declared.target]
        state = declared.node.get_state()
        if state == SCons.Node.up_to_date:
            row.kept += 1
        elif state == SCons.Node.executed and records_of(declared.node).is_fetched:
            row.cached += 1
        elif state == SCons.Node.executed:
            row.compiled += 1
        row.seconds += declared.seconds
    return {
        name: rows[name]
        for name in sorted(rows, key=lambda name: (name != _HOST, name))
        if rows[name] != _Row()
    }


def offload_progress(env: Environment, node: Node) -> None:
    """Show on a terminal which pass SCons is at: ``Progress(env.OffloadProgress)``."""
    passes = declared_passes(env)
    declared = passes.get(node)
    if declared is None or not sys.stdout.isatty():
        return
    text = f"[{declared.number}/{len(passes)}] [{declared.target}] {node}"
    sys.stdout.write(f"{text[:79]:79}\r")
    sys.stdout.flush()
