"""The page of ``offload-tool report`` as a node: where the bytes of what a build makes are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Action
import SCons.Builder

if TYPE_CHECKING:
    from offload_tool.scons.protocols import Environment, Node

__all__ = ["report_node"]

_PACKAGES = str(Path(__file__).parents[2])
"""Where this package is: a project may have a copy that is not installed."""
_REPORT = SCons.Builder.Builder(
    action=SCons.Action.Action("$OFFLOADREPORTCOM", "$OFFLOADREPORTCOMSTR")
)


def report_node(env: Environment, target: str | None, sources: list[Node]) -> Node:
    """Declare the page about `sources`: files of any sort with device images.

    It is made by a program of its own, so that `scons` needs neither plotly nor its memory.
    """
    variables: dict[str, Any] = dict(env["ENV"])
    variables["PYTHONPATH"] = os.pathsep.join(
        filter(None, (_PACKAGES, variables.get("PYTHONPATH")))
    )
    node: Node = _REPORT(
        env,
        env.fs.File(target or "report.html"),
        sources,
        ENV=variables,
        _OFFLOAD_PYTHON=sys.executable,
    )[0]
    return node
