"""Targets with the same code, as clang compiles it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.operations.check import find_siblings
from tests.conftest import Capture, Tool, run_tool

SAME = "__attribute__((global)) void k(int* p) { *p = 1; }\n"
OTHER = SAME + "#ifdef __gfx1031__\n__attribute__((global)) void m(int* p) { *p = 2; }\n#endif\n"
TARGETS = ("gfx1030", "gfx1031", "gfx1100", "gfx906")


@pytest.fixture
def bundles(tmp_path: Path, llvm: Tool) -> Path:
    """Return a folder with a program that embeds a bundle with equal code, and one without."""
    flags = ["-nogpuinc", "-nogpulib", *(f"--offload-arch={name}" for name in TARGETS)]
    for name, text in (("same", SAME), ("other", OTHER)):
        source = tmp_path / f"{name}.hip"
        source.write_text(text)
        command = [llvm("clang++"), "-x", "hip", *flags, "--cuda-device-only", "-O2", "-c"]
        run_tool(*command, source, "-o", tmp_path / f"{name}.hipfb")
        source.unlink()
    return tmp_path


def test_siblings(bundles: Path) -> None:
    """Numbers and names of processors do not count; all other code does."""
    (found,) = find_siblings(bundles)
    assert found.path == str(bundles / "same.hipfb")
    assert found.targets == ("gfx1030", "gfx1031")
    assert (found.equal, found.containers) == (1, 1)
    assert found.generic == "gfx10-3-generic"
    assert found.equal_saves == found.generic_saves > 0


def test_containers_of_one_file(bundles: Path) -> None:
    """If only some containers have equal code, a generic target saves more than one image."""
    both = bundles / "both"
    data = [(bundles / f"{name}.hipfb").read_bytes() for name in ("same", "other")]
    both.write_bytes(b"".join(part + bytes(-len(part) % 4096) for part in data))
    (found,) = find_siblings(both)
    assert (found.equal, found.containers) == (1, 2)
    assert 0 < found.equal_saves < found.generic_saves


def test_command(bundles: Path, capsys: Capture) -> None:
    """`check --siblings` prints siblings, which are not faults."""
    assert main(["check", "--siblings", str(bundles)]) == 0
    out = capsys.readouterr().out
    (line,) = out.splitlines()
    assert "gfx1030, gfx1031: the same code in 1 of 1 containers" in line
    assert "gfx10-3-generic" in line
