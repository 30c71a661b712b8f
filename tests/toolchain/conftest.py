"""Each test of compilers searches anew."""

from __future__ import annotations

import pytest

from offload_tool.clang import driver
from offload_tool.toolchain import select


def search_anew() -> None:
    """Forget the compilers that were found, and what they said."""
    select._find.cache_clear()
    driver.output_of.cache_clear()


@pytest.fixture(autouse=True)
def forget() -> None:
    """Let each test search anew."""
    search_anew()
