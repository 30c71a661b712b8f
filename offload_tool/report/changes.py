"""The view of changes: the comparison of ``diff``, with the targets as a table.

The kernels are data in columns as in `kernels`: `library`, `target`, `change`, and `before` and
`after`, whose `name` is null if that build lacks the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.formats.kernel import Kernel
from offload_tool.formats.kernel_info.occupancy import waves_per_simd
from offload_tool.operations.kernel_table import WAVES_PER_SIMD
from offload_tool.report.html import escaped, plain_table, plural
from offload_tool.report.kernels import TITLES, Strings, one_or_all, shown_name

if TYPE_CHECKING:
    from offload_tool.operations.diff import Comparison, KernelChange, TargetChange

_TOP = 20
_NO_KERNEL = Kernel("")
_SUMS = {"images": "Images", "kernels": "Kernels", "loaded": "Bytes"}
"""Fields of `TargetSums`, and the titles of their columns."""


def change_data(found: Comparison, strings: Strings) -> dict[str, object]:
    """Return the data; texts go to `strings`."""
    rows = found.kernels
    return {
        **{
            key: one_or_all([strings.number(getattr(row, key)) for row in rows])
            for key in ("library", "target", "change")
        },
        "before": _side([row.before for row in rows], rows, strings),
        "after": _side([row.after for row in rows], rows, strings),
        "count": len(rows),
        "titles": TITLES,
    }


def _side(
    kernels: Sequence[Kernel | None], rows: Sequence[KernelChange], strings: Strings
) -> dict[str, object]:
    waves = [
        kernel and waves_per_simd(kernel, row.target)
        for kernel, row in zip(kernels, rows, strict=True)
    ]
    return {
        "name": one_or_all([strings.number(kernel and kernel.name) for kernel in kernels]),
        **{
            key: one_or_all([getattr(kernel or _NO_KERNEL, key) for kernel in kernels])
            for key in Kernel._fields[1:]
        },
        WAVES_PER_SIMD: one_or_all(waves),
    }


def change_tables(found: Comparison, names: Mapping[str, str] | None) -> str:
    """Return the table of targets, and the first kernel rows for readers without scripts."""
    if found.is_equal:
        return "<p>Nothing changed.</p>\n"
    parts = [f"<p>{_counts(found.targets, 'target')} {_counts(found.kernels, 'kernel')}</p>\n"]
    if found.targets:
        parts.append(_targets(found.targets))
    if found.kernels:
        top = found.kernels[:_TOP]
        caption = (
            f"{len(top)} of {plural(len(found.kernels), 'change')}, what weighs most first; all of "
            "them, with JavaScript or by offload-tool diff"
        )
        parts.append(f'<div class="fallback">\n{_kernels(top, caption, names)}</div>\n')
    return "".join(parts)


def _counts(rows: Sequence[TargetChange | KernelChange], noun: str) -> str:
    counts = Counter(row.change for row in rows)
    parts = [f"{counts[change]:,} {change}" for change in ("added", "removed", "changed")]
    size = sum(row.grown for row in rows)
    return escaped(f"{noun.capitalize()}s: {', '.join(parts)}, {size:+,} bytes.")


def _targets(rows: Sequence[TargetChange]) -> str:
    named = any(row.library for row in rows)
    cells = []
    for row in rows:
        numbers = [side and getattr(side, key) for key in _SUMS for side in (row.before, row.after)]
        library = [shown_name(row.library)] if named else []
        cells.append((shown_name(row.target), *library, row.change, row.grown, *numbers))
    columns = [
        ("Target ID", "name"),
        *([("Library", "name")] if named else []),
        ("Change", ""),
        ("Grown (bytes)", "signed"),
        *((f"{sums}, {when}", "number") for sums in _SUMS.values() for when in ("before", "after")),
    ]
    caption = f"{plural(len(rows), 'change')}; bytes that a device loads"
    return plain_table("changed-targets", "Targets", caption, columns, cells)


def _kernels(rows: Sequence[KernelChange], caption: str, names: Mapping[str, str] | None) -> str:
    cells = []
    for row in rows:
        needs = [
            f"{TITLES[key]} {getattr(row.before, key)} to {getattr(row.after, key)}"
            for key in row.fields
            if key != "code_size"
        ]
        if row.change == "changed" and not row.fields:
            needs = ["other instructions"]
        name = shown_name(names[row.name] if names else row.name)
        location = ", ".join(filter(None, (row.target, row.library)))
        cells.append((name, shown_name(location), row.change, row.grown, ", ".join(needs)))
    columns = [
        *(("Kernel", "name"), ("Target ID", "name"), ("Change", "")),
        *(("Grown (bytes)", "signed"), ("Needs", "")),
    ]
    return plain_table("changed-kernels", "Kernels", caption, columns, cells)
