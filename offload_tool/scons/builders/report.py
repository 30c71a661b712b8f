"""The page of ``offload-tool report`` as a node: sizes and kernels of a build's outputs."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import SCons.Action
import SCons.Builder
import SCons.Util

from offload_tool.errors import UsageError
from offload_tool.scons import compat
from offload_tool.scons.state.node_classes import adopt_plain
from offload_tool.scons.types import Environment, Node

_PACKAGES = str(Path(__file__).parents[3])
"""The folder of this package: a project may contain an uninstalled copy."""
_REPORT = SCons.Builder.Builder(
    action=SCons.Action.Action("$OFFLOADREPORTCOM", "$OFFLOADREPORTCOMSTR")
)


def offload_report(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return the page of ``offload-tool report`` about files with device images."""
    given = SCons.Util.flatten([env["OFFLOAD_REPORT_BEFORE"] or []])
    before: list[Node] = list(env.arg2nodes(given, env.fs.Entry))
    if before and len(before) != len(sources):
        raise UsageError(
            "OFFLOAD_REPORT_BEFORE: expected what each source was before, in their order; found "
            f"{len(before)} for {len(sources)}"
        )
    variables: dict[str, Any] = dict(env["ENV"])
    variables["PYTHONPATH"] = os.pathsep.join(
        filter(None, (_PACKAGES, variables.get("PYTHONPATH")))
    )
    compare = [arg for node in before for arg in ("--compare", node)]
    # A separate program writes it, so that `scons` loads none of its data.
    node: Node = _REPORT(
        env,
        env.fs.File(target or "report.html"),
        sources,
        ENV=variables,
        _OFFLOAD_PYTHON=sys.executable,
        _OFFLOAD_REPORT_COMPARE=compare,
    )[0]
    adopt_plain([node])
    env.Depends(node, [*before, compat.LateValue("what makes pages", _generator_digest)])
    return [node]


@functools.cache
def _generator_digest() -> str:
    from importlib import metadata  # loads forty further modules, which other builds do not need

    digest = hashlib.sha256()
    for file in sorted((Path(_PACKAGES) / "offload_tool").rglob("*.*")):
        if os.path.isfile(file) and file.suffix != ".pyc":
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    for package in ("plotly", "itables"):
        with suppress(metadata.PackageNotFoundError):  # the report itself prints the error
            digest.update(metadata.version(package).encode())
    return digest.hexdigest()
