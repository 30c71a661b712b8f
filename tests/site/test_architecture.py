"""The pictures of docs/architecture.md: their boxes and arrows are the imports."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT
from tests.site.conftest import load

architecture = load("architecture")
SVG = "{http://www.w3.org/2000/svg}"
REMEDY = "the imports have changed: look whether that was meant, run docs/architecture.py, commit"


def seen(name: str) -> tuple[dict[str, list[str]], set[tuple[str, str]]]:
    """Give the boxes of a picture with their lines, and its arrows."""
    boxes, arrows = {}, set()
    for group in ElementTree.parse(ROOT / f"docs/{name}.svg").iter(f"{SVG}g"):
        title = group.findtext(f"{SVG}title") or ""
        if group.get("class") == "node":
            boxes[title] = [text.text or "" for text in group.iter(f"{SVG}text")]
        elif group.get("class") == "edge":
            importer, imported = title.split("->")
            arrows.add((importer, imported))
    return boxes, arrows


@pytest.mark.parametrize("name", architecture.PICTURES)
def test_picture_is_true(name: str) -> None:
    """Its boxes are the packages, with what their docstrings say; its arrows are the imports."""
    real = architecture.look(architecture.PICTURES[name])
    boxes, arrows = seen(name)
    assert arrows == set(real.arrows), REMEDY
    assert boxes == {box: architecture.lines(box, text) for box, text in real.boxes.items()}, REMEDY


@pytest.mark.parametrize("name", architecture.PICTURES)
def test_description_is_what_was_drawn(name: str) -> None:
    """The text from which a picture is made has the same arrows."""
    text = (ROOT / f"docs/{name}.dot").read_text()
    assert set(re.findall(r'^  "(.+)" -> "(.+)";$', text, re.MULTILINE)) == seen(name)[1], REMEDY
    assert text == architecture.description(architecture.look(architecture.PICTURES[name])), REMEDY


def imported(path: Path) -> set[str]:
    """Give the packages whose modules a file names in import statements, wherever these stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("offload_tool"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("offload_tool.")}
    return found


def test_arrows_are_those_of_the_source() -> None:
    """What files say in their import statements can be walked along the arrows, and nothing else.

    Read without grimp: it is not to be the only judge.
    """
    _, arrows = seen("architecture")
    reached: dict[str, set[str]] = {}

    def walk(part: str) -> set[str]:
        if part not in reached:
            nexts = {to.rpartition(".")[2] for of, to in arrows if of.rpartition(".")[2] == part}
            reached[part] = nexts.union(*map(walk, nexts))
        return reached[part]

    said: dict[str, set[str]] = {}
    package = ROOT / "offload_tool"
    for path in package.rglob("*.py"):
        if path.name == "__main__.py":
            continue
        part = path.relative_to(package).with_suffix("").parts[0]
        part = "offload_tool" if part == "__init__" else part
        said.setdefault(part, set()).update(imported(path) - {part})
    assert said.keys() == {box.rpartition(".")[2] for box in seen("architecture")[0]}
    for part, found in said.items():
        assert found <= walk(part), part
    for importer, to in arrows:
        assert to.rpartition(".")[2] in said[importer.rpartition(".")[2]]
