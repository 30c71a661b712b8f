"""The names that `import offload_tool` offers."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

import offload_tool
from tests.conftest import run_tool


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
