"""Fixtures shared by tests of operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Tool
from tests.operations.split_programs import build_objects


@pytest.fixture(scope="session")
def hip_objects(tmp_path_factory: pytest.TempPathFactory, llvm: Tool) -> Path:
    """Return a folder with the objects that `tests.operations.split_programs.link` links."""
    return build_objects(tmp_path_factory.mktemp("objects"), llvm("clang"))
