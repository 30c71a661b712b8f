"""Names: one for each thing, and the documentation knows them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import offload_tool
from tests.conftest import run_tool

PACKAGE = Path(str(offload_tool.__file__)).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
QUOTED = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
WRITTEN = {"output", "outputs", "directory"}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def names_in(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.arg, ast.keyword)):
            names.add(node.arg or "")
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.update(node.name.split("."))
    return names


def test_classes_have_names_of_their_own() -> None:
    counts = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in counts.items() if count > 1] == []


def test_docstrings_name_what_is_there() -> None:
    """A name in single backquotes is one of this package: a renamed thing leaves none behind."""
    known = {path.stem for path in SOURCES} | {path.parent.name for path in SOURCES}
    known = known.union(*(names_in(parsed(path)) for path in SOURCES))
    stale = [
        f"{path.relative_to(PACKAGE)}: {quoted}"
        for path in SOURCES
        for quoted in QUOTED.findall(path.read_text(encoding="utf-8"))
        if not known.issuperset(quoted.split("."))
    ]
    assert stale == []


def test_inputs_then_outputs_then_options() -> None:
    """What functions of the API write comes last by position; what may be left out is a keyword."""
    functions = [getattr(offload_tool, name) for name in offload_tool.__all__]
    written = 0
    for function in filter(inspect.isfunction, functions):
        parameters = inspect.signature(function).parameters.values()
        by_position = [row for row in parameters if row.kind is row.POSITIONAL_OR_KEYWORD]
        if function.__name__ != "read_bundle":  # of a format, below the operations
            assert all(row.default is row.empty for row in by_position), function.__name__
        names = [row.name for row in parameters]
        if WRITTEN.intersection(names):
            written += 1
            assert by_position[-1].name in WRITTEN, function.__name__
            assert "keep_equal" in names, function.__name__
    assert written >= 10


def test_every_name_is_what_its_module_has() -> None:
    for name in offload_tool.__all__:
        module = importlib.import_module(f"offload_tool.{offload_tool._HOMES[name]}")
        assert getattr(offload_tool, name) is getattr(module, name)
        assert getattr(module, name).__name__ == name


def test_lists_agree() -> None:
    """`__all__`, what is imported for type checkers, and what is found at run time are the same."""
    source = Path(str(offload_tool.__file__)).read_text(encoding="utf-8")
    typed = {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("offload_tool")
        for alias in node.names
    }
    assert typed == {name: f"offload_tool.{home}" for name, home in offload_tool._HOMES.items()}
    assert offload_tool.__all__ == sorted(typed)
    assert dir(offload_tool) == sorted(typed)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'offload_tool' has no attribute 'nothing'"):
        _ = offload_tool.nothing


def test_import_loads_little() -> None:
    code = "import sys, offload_tool\nprint(sorted(m for m in sys.modules if 'offload_tool.' in m))"
    done = run_tool(sys.executable, "-c", code)
    assert done == "[]\n"
