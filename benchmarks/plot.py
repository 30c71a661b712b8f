"""The picture of first builds: processor seconds against the number of targets, as SVG.

Equal figures give equal bytes: Matplotlib gets a fixed salt for its names, and no date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_STYLES = (("#777777", "--", "s"), ("#1f77b4", "-", "o"), ("#2ca02c", "-", "^"))


def draw(file: Path, title: str, targets: Sequence[int], lines: Mapping[str, list[float]]) -> None:
    """Draw a line of seconds for each name."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "offload-tool"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for (name, seconds), (color, line, marker) in zip(lines.items(), _STYLES, strict=False):
        axes.plot(targets, seconds, color=color, linestyle=line, marker=marker, label=name)
    axes.set(title=title, xlabel="target IDs", ylabel="processor seconds", ylim=(0, None))
    axes.set_xticks(list(targets))
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(file, format="svg", metadata={"Date": None})
