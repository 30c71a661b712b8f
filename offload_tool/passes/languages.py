"""The passes of each offload language."""

from __future__ import annotations

from typing import Any

from offload_tool.errors import UsageError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.passes.compile_pass import CompilePass, Stage
from offload_tool.passes.cuda import CudaPass
from offload_tool.passes.hip import HipPass
from offload_tool.passes.openmp import OpenMPPass
from offload_tool.passes.source_kind import KINDS

LANGUAGES: dict[str, type[CompilePass]] = {
    each.kind: each for each in (HipPass, CudaPass, OpenMPPass)
}


def compile_pass(
    kind: str, stage: Stage, cuid: str, device: CompileTarget | None = None, **others: Any
) -> CompilePass:
    """Return a pass over sources of a kind; raise UsageError if there is no such pass."""
    if kind not in KINDS:
        raise UsageError(f"offload kind '{kind}': expected {', '.join(KINDS)}")
    return LANGUAGES[kind](stage, cuid, device, **others)
