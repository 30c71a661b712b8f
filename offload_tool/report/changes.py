"""The view of changes: the comparison of ``diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from offload_tool.formats.kernel import Kernel
from offload_tool.formats.kernel_info.occupancy import waves_per_simd
from offload_tool.operations.kernel_table import WAVES_PER_SIMD
from offload_tool.report.kernels import TITLES
from offload_tool.report.tables import Column, Tables

if TYPE_CHECKING:
    from offload_tool.operations.diff import Comparison, KernelChange, TargetChange

_SUMS = {"images": "Images", "kernels": "Kernels", "loaded": "Loaded (bytes)"}
"""Fields of `TargetSums`, and the titles of their columns."""


def change_counts(found: Comparison) -> str:
    """Return how many targets and kernels changed, and by how many bytes."""
    if found.is_equal:
        return "Nothing changed."
    counts = f"{_counts(found.targets, 'Targets')} {_counts(found.kernels, 'Kernels')}"
    return f"{counts} A changed kernel without a difference has other instructions."


def _counts(rows: Sequence[TargetChange | KernelChange], what: str) -> str:
    counts = Counter(row.change for row in rows)
    parts = [f"{counts[change]:,} {change}" for change in ("added", "removed", "changed")]
    return f"{what}: {', '.join(parts)}, {sum(row.grown for row in rows):+,} bytes."


def add_changes(found: Comparison, tables: Tables) -> None:
    """Add the tables of kernels and targets that have rows, in the order of ``diff``."""
    tables.views["changes"] = []
    if found.kernels:
        names = Column("name", "Kernel", "kernel", [row.name for row in found.kernels])
        columns = [names, *_first_columns(found.kernels), *_resources(found.kernels)]
        tables.add("changes", "changed-kernels", "Kernels", columns)
    if found.targets:
        columns = _first_columns(found.targets)
        for key, title in _SUMS.items():
            after = [row.after and getattr(row.after, key) for row in found.targets]
            before = [row.before and getattr(row.before, key) for row in found.targets]
            columns.append(Column(key, title, "pair", after, before))
        tables.add("changes", "changed-targets", "Targets", columns)


def _first_columns(rows: Sequence[TargetChange] | Sequence[KernelChange]) -> list[Column]:
    return [
        Column("target", "Target ID", "text", [row.target for row in rows]),
        Column("library", "Library", "text", [row.library for row in rows]),
        Column("change", "Change", "text", [row.change for row in rows]),
        Column("grown", "Grown (bytes)", "signed", [row.grown for row in rows]),
    ]


def _resources(rows: Sequence[KernelChange]) -> list[Column]:
    """Return a column for each resource that differs in a changed kernel."""
    columns = []
    for key, title in TITLES.items():
        after = [_number(row.after, key, row.target) for row in rows]
        before = [_number(row.before, key, row.target) for row in rows]
        pairs = zip(rows, after, before, strict=True)
        if any(row.change == "changed" and one != other for row, one, other in pairs):
            columns.append(Column(key, title, "pair", after, before))
    return columns


def _number(kernel: Kernel | None, key: str, target: str) -> int | None:
    if kernel is None:
        return None
    number: int | None = getattr(kernel, key, None)
    return waves_per_simd(kernel, target) if key == WAVES_PER_SIMD else number
