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


_HEADER = "#pragma once\nint f();\n"
_DRIVER = ("clang", "--offload-arch=gfx90a", "-O2")
_FRONT_END = ("clang", "-cc1", "-target-cpu", "gfx90a", "-mlink-builtin-bitcode", "90a.bc", "-O2")


@pytest.mark.parametrize(
    ("header", "args", "is_known"),
    [
        (_HEADER, _DRIVER, True),
        ("// why\n#pragma once\n\nint f();  // more\n", _DRIVER, True),
        (_HEADER, ("clang", "--offload-arch=gfx942", "-O2"), True),
        ("#pragma once\nint g();\n", _DRIVER, False),
        ('#pragma once\nconst char *f = "//";\n', _DRIVER, False),
        (_HEADER, ("clang", "--offload-arch=gfx90a", "-O3"), False),
        (_HEADER, (*_DRIVER, "-DX"), False),
        (_HEADER, _FRONT_END, False),
    ],
)
def test_known_probe(
    header: str,
    args: tuple[str, ...],
    is_known: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a probe has shown counts for other targets and comments, but for no other code."""
    probes = _CountedProbes(tmp_path, monkeypatch)
    assert probes.run(_HEADER, _DRIVER) == 1
    assert probes.run(header, args) == (0 if is_known else 1)


def test_known_probe_of_front_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does for the jobs of a driver's plan."""
    probes = _CountedProbes(tmp_path, monkeypatch)
    other = ["gfx942" if arg == "gfx90a" else arg.replace("90a.bc", "942.bc") for arg in _FRONT_END]
    assert [probes.run(_HEADER, args) for args in (_FRONT_END, other)] == [1, 0]


def test_failed_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason against a precompiled header is not kept: the next one may have another."""
    probes = _CountedProbes(tmp_path, monkeypatch)
    probes.plain = "other"
    assert [probes.run(_HEADER, _DRIVER) for _ in range(2)] == [1, 1]
    assert probes.reason.startswith("a probe compiles to other bytes with it")


class _CountedProbes:
    """Stands for the compiler, and counts the probes that read the headers as text."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plain, self.reason, self._count = "same", "", 0
        self._header = folder / "h.h"
        self._recipe = _recipe(folder)._replace(compiler_identity=str(folder))  # unknown yet
        Path(self._recipe.text_file).write_text(f'#include "{self._header}"\n')
        monkeypatch.setattr(side_effects, "run_quietly", self._compile)

    def _compile(self, command: Sequence[str], _: Mapping[str, str]) -> tuple[int, bytes]:
        is_plain = "-include" in command
        self._count += is_plain
        Path(command[command.index("-o") + 1]).write_text(self.plain if is_plain else "same")
        for depfile in (arg for arg in command if arg.endswith(".d")):
            Path(depfile).write_text("object: h.h\n")
        return 0, b""

    def run(self, header: str, args: Sequence[str]) -> int:
        """Probe a precompiled header; return how often its text was read."""
        self._header.write_text(header)
        self._count = 0
        recipe = self._recipe._replace(args=tuple(args))
        self.reason, _ = side_effects.reason_of_probe(recipe, [], [], [], [str(self._header)])
        return self._count
