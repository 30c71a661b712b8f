"""Fixtures shared by tests of operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Tool
from tests.operations.split_programs import RUNTIME, TARGETS, build_objects, link


@pytest.fixture(scope="session")
def hip_objects(tmp_path_factory: pytest.TempPathFactory, llvm: Tool) -> Path:
    """Return a folder with the objects that `tests.operations.split_programs.link` links."""
    return build_objects(tmp_path_factory.mktemp("objects"), llvm("clang"), TARGETS, RUNTIME)


@pytest.fixture
def library(tmp_path: Path, hip_objects: Path, llvm: Tool) -> Path:
    return link(hip_objects, llvm("clang"), tmp_path / "library", "library-lld")
