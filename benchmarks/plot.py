"""The pictures of docs/performance.md, as SVG.

Equal figures give equal bytes: Matplotlib gets a fixed salt for its names, and no date.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PLOT = "OFFLOAD_BENCHMARK_PLOT"
"""The variable that names the file of a picture."""
_STYLES = (
    ("#777777", "--", "s"),
    ("#1f77b4", "-", "o"),
    ("#2ca02c", "-", "^"),
    ("#98df8a", "-", "v"),
)
_COLORS = ("#aec7e8", "#1f77b4", "#c7c7c7", "#98df8a", "#2ca02c")


def picture() -> Path | None:
    """Return the file of the picture, if any; the variable goes: builds warn of it."""
    file = os.environ.pop(_PLOT, "")
    return Path(file).resolve() if file else None


def draw(
    file: Path,
    title: str,
    numbers: Sequence[int],
    lines: Mapping[str, list[float]],
    what: str = "target IDs",
) -> None:
    """Draw a line of seconds for each name, against the numbers of what is counted."""
    axes = _axes((6.4, 4))
    for (name, seconds), (color, line, marker) in zip(lines.items(), _STYLES, strict=False):
        axes.plot(numbers, seconds, color=color, linestyle=line, marker=marker, label=name)
    axes.set(title=title, xlabel=what, ylabel="processor seconds", ylim=(0, None))
    axes.set_xticks(list(numbers))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    _save(axes, file)


def draw_ratios(file: Path, title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Draw, for each build in `rows`, the time of each tool, as multiples of the first tool's."""
    axes = _axes((6.4, 7))
    tools = [*next(iter(rows.values()))][1:]
    height = 0.8 / len(tools)
    for number, (tool, color) in enumerate(zip(tools, _COLORS, strict=False)):
        ratios = [times[tool] / next(iter(times.values())) for times in rows.values()]
        places = [row + (number - (len(tools) - 1) / 2) * height for row in range(len(rows))]
        bars = axes.barh(places, ratios, height, color=color, label=tool)
        axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=7)
    axes.axvline(1, color="#777777", linestyle="--")
    axes.set_yticks(range(len(rows)), [*rows])
    axes.invert_yaxis()
    axes.set(title=title, xlabel="processor time, as multiples of the compiler driver's")
    axes.margins(x=0.1)
    axes.legend(loc="upper center", bbox_to_anchor=(0.3, -0.08), ncols=3)
    _save(axes, file)


def _axes(size: tuple[float, float]) -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "offload-tool"
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").subplots()


def _save(axes: Any, file: Path) -> None:
    axes.figure.savefig(file, format="svg", metadata={"Date": None})
