"""What compilers are asked, and what is believed of answers that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.clang import driver
from offload_tool.toolchain.disk_cache import cache_folder
from offload_tool.toolchain.probe import version_of


@pytest.mark.llvm
def test_version_that_somebody_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm: Callable[[str], str]
) -> None:
    """An answer that was changed by hand is none: the compiler is not passed over for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder.cache_clear()
    command = (llvm("clang"),)
    expected = version_of(command)["line"]
    answers = Path(cache_folder(), "answers").iterdir()
    (kept,) = (file for file in answers if '["version"' in file.read_text())
    kept.write_text(kept.read_text().replace("clang version", "gcc version"))
    driver.output_of.cache_clear()
    assert version_of(command)["line"] == expected
    cache_folder.cache_clear()
