"""Which kernels changed in a build: ``OFFLOAD_SUMMARY="kernels"``.

What an output holds from the build before is read when its node is declared: SCons removes it
before it runs the command. What it holds now is read when SCons ends.
"""

from __future__ import annotations

import atexit
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Node
import SCons.Script

from offload_tool.errors import OffloadError
from offload_tool.formats.kernel_info.reader import read_kernels, silent_code
from offload_tool.formats.objects.elf.reader import is_elf_header
from offload_tool.io import InputFile
from offload_tool.operations.diff import TargetContent, changed_kernels, weight_of
from offload_tool.scons import compat
from offload_tool.util.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload_tool.operations.diff import KernelChange
    from offload_tool.scons.types import Environment, Node

__all__ = ["watch"]

_MOST_LINES = 20
"""Kernels that are named for each target; the others are counted."""


class _Watched:
    """The device code of a build, and what was there before."""

    def __init__(self) -> None:
        self.nodes: dict[Any, tuple[str, TargetContent | None]] = {}

    def add(self, node: Node, target: str) -> None:
        if not self.nodes:
            atexit.register(self.tell)
        if node not in self.nodes:
            self.nodes[node] = target, _content(node)

    def tell(self) -> None:
        if SCons.Script.GetOption("clean") or SCons.Script.GetOption("silent"):
            return
        by_target: dict[str, list[KernelChange]] = defaultdict(list)
        for node, (target, before) in self.nodes.items():
            if node.get_state() == SCons.Node.executed:
                after = _content(node) or TargetContent()
                by_target[target] += changed_kernels(before or TargetContent(), after)
        for target in sorted(by_target):
            for line in _lines(by_target[target]):
                print(f"offload: {target}: {line}")  # noqa: T201 - the answer to OFFLOAD_SUMMARY


def watch(env: Environment, node: Node, target: str) -> None:
    """Tell at the end which kernels of `node` changed; `target` names its compile target.

    Bitcode and PTX do not say what their kernels need, and are not told of: what is linked or
    assembled of them is.
    """
    compat.of_build(env, _Watched).add(node, target)


def _content(node: Node) -> TargetContent | None:
    """Read an output; None where there is none that can be read."""
    path = Path(node.get_abspath())
    if not path.is_file():
        return None
    content = TargetContent()
    try:
        with InputFile(path) as source:
            if is_elf_header(source.data) and silent_code(source.data) is None:
                kernels = read_kernels(source.data, path=path)
                content.take_in(source.data, kernels, path=path)
    except OffloadError:  # a damaged output of a run that was killed is made anew
        return None
    return content


def _lines(changes: list[KernelChange]) -> Iterator[str]:
    named = sorted((row for row in changes if row.change != "changed" or row.fields), key=weight_of)
    grown = sum(row.grown for row in changes)
    if named:
        what = "kernel" if len(named) == 1 else "kernels"
        yield f"{len(named):,} {what} changed in size or resources, {grown:+,} bytes of code"
    for row in named[:_MOST_LINES]:
        yield f"  {row.change} {printable(row.name)}{_needs(row)}"
    if len(named) > _MOST_LINES:
        yield f"  and {len(named) - _MOST_LINES:,} more"


def _needs(row: KernelChange) -> str:
    steps = [
        f"{name} {getattr(row.before, name)} to {getattr(row.after, name)}" for name in row.fields
    ]
    return f": {', '.join(steps)}" if steps else ""
