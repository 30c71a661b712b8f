"""Draws the pictures of docs/architecture.md from the imports: ``python docs/architecture.py``.

Each is a description for Graphviz (``.dot``) and what its program ``dot`` makes of it (``.svg``).
A test compares both with the imports.
"""

from __future__ import annotations

import argparse
import ast
import html
import subprocess
import textwrap
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

HERE = Path(__file__).parent
ROOT = HERE.parent
PICTURES = {"architecture": "offload_tool", "formats": "offload_tool.formats"}
"""Which package's parts each of them shows."""
_WIDTH = 30  # columns of the text in a box


@dataclass(frozen=True)
class Picture:
    """Boxes with their texts, and arrows."""

    boxes: dict[str, str]
    """The modules and packages directly in the package, with their docstrings' first lines."""
    arrows: frozenset[tuple[str, str]]
    """Who imports whom, without what follows from other arrows."""


def look(package: str) -> Picture:
    """Look how the parts of a package import each other; the package itself is one of them.

    :raises graphlib.CycleError: they do in a circle.
    """
    graph = grimp.build_graph("offload_tool", cache_dir=None)
    parts = {
        part: _summary(part)
        for part in sorted(graph.find_children(package) | {package})
        if not part.endswith("__main__")
    }
    imported: dict[str, set[str]] = {part: set() for part in parts}
    for module in graph.modules:
        importer = _part_of(module, package)
        if importer in imported:
            found = {
                _part_of(one, package) for one in graph.find_modules_directly_imported_by(module)
            }
            imported[importer] |= found & parts.keys() - {importer}
    order = list(TopologicalSorter(imported).static_order())
    reached: dict[str, set[str]] = {}
    for part in order:
        reached[part] = imported[part].union(*(reached[one] for one in imported[part]))
    arrows = frozenset(
        (part, one)
        for part in order
        for one in imported[part]
        if not any(one in reached[between] for between in imported[part])
    )
    alone = package != "offload_tool" and not imported[package]  # a folder and no more
    return Picture({p: text for p, text in parts.items() if p != package or not alone}, arrows)


def _part_of(module: str, package: str) -> str:
    if not f"{module}.".startswith(f"{package}."):
        return ""
    return ".".join(module.split(".")[: package.count(".") + 2])


def _summary(module: str) -> str:
    path = ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return text.partition("\n\n")[0].replace("`", "").replace("\n", " ")


def lines(box: str, text: str) -> list[str]:
    """Return what stands in a box: its name, then its text."""
    return [box.rpartition(".")[2], *textwrap.wrap(text, _WIDTH)]


def description(picture: Picture) -> str:
    """Return the picture in Graphviz's language."""
    rows = ['node [shape=box fontname="Helvetica" fontsize=11 style=rounded margin="0.15,0.08"];']
    for box, text in picture.boxes.items():
        name, *more = (html.escape(line, quote=False) for line in lines(box, text))
        rows.append(f'"{box}" [label=<<b>{name}</b><br/>{"<br/>".join(more)}>];')
    rows += (f'"{importer}" -> "{imported}";' for importer, imported in sorted(picture.arrows))
    return "digraph {\n" + "".join(f"  {row}\n" for row in rows) + "}\n"


def main() -> None:
    """Write all pictures."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for name, package in PICTURES.items():
        source = HERE / f"{name}.dot"
        source.write_text(description(look(package)), encoding="utf-8")
        subprocess.run(["dot", "-Tsvg", "-o", source.with_suffix(".svg"), source], check=True)


if __name__ == "__main__":
    main()
