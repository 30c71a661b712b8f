"""Each test of compilers searches anew."""

from __future__ import annotations

import pytest

from offload_tool.clang import driver
from offload_tool.passes import choose_compiler


def search_anew() -> None:
    """Forget the compilers that were found, and what they said."""
    choose_compiler._find.cache_clear()
    driver.output_of.cache_clear()


@pytest.fixture(autouse=True)
def forget() -> None:
    """Let each test search anew."""
    search_anew()
