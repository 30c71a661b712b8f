"""What sources have before their first line, for a precompiled header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from offload_tool.clang.environment import ImplicitInputs
from offload_tool.io.file_digests import digest_of
from offload_tool.io.paths import sibling
from offload_tool.pch import side_effects
from offload_tool.pch.recipe import PchRecipe


def _recipe(folder: Path) -> PchRecipe:
    return PchRecipe(
        str(folder / "h.pch"), "device", ("clang",), 1, {}, "", lambda: ImplicitInputs(())
    )


def test_source_start_twice_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two passes that use a new PCH at once, neither reads the other one's depfile."""
    recipe = _recipe(tmp_path)
    depfiles: list[str] = []

    def run(command: Sequence[str], _: Mapping[str, str]) -> tuple[int, bytes]:
        depfile = next(arg for arg in command if arg.endswith(".d"))
        Path(depfile).write_text("object: /dev/null early.h\n")
        depfiles.append(depfile)
        if len(depfiles) == 1:
            assert side_effects.source_start(recipe, {}) is not None
        return 0, b"#define A 1\n"

    monkeypatch.setattr(side_effects, "run_quietly", run)
    found = side_effects.source_start(recipe, {})
    assert found is not None
    assert found.files == ("early.h",)
    assert len({*depfiles}) == 2
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {Path(sibling(recipe.file, ".words")).name}


def test_edited_while_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a header that is another one than the PCH has, no tokens are kept."""
    recipe, header, text = _recipe(tmp_path), tmp_path / "h.h", b"#define A 1\n"
    inputs = {str(header): digest_of(text)}

    def run(command: Sequence[str], _: Mapping[str, str]) -> tuple[int, bytes]:
        Path(next(arg for arg in command if arg.endswith(".d"))).write_text("object: /dev/null\n")
        return 0, b"#define A 1\n"

    monkeypatch.setattr(side_effects, "run_quietly", run)
    header.write_bytes(b"#define B 1\n")
    assert side_effects.source_start(recipe, inputs) is None
    header.write_bytes(text)
    found = side_effects.source_start(recipe, inputs)
    assert found is not None
    assert "A" in found.tokens
    assert "B" not in found.tokens
