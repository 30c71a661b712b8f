"""The driver's jobs for OpenMP, where its plan cannot be carried out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.formats.targets.compile_target import parse_target
from offload_tool.run.openmp_jobs import link_image


def test_no_linker_wrapper(tmp_path: Path) -> None:
    """A compiler without its linker wrapper is refused by name, and what to install is named."""
    clang = tmp_path / "clang"
    plan = ' "/nowhere/clang-linker-wrapper" "--linker-path=/usr/bin/ld" "-o" "out"'
    clang.write_text(f"#!/bin/sh\necho '{plan}' >&2\n")
    clang.chmod(0o755)
    (tmp_path / "a.bc").write_bytes(b"BC\xc0\xde")
    inputs = [str(tmp_path / "a.bc")]
    command = [str(clang), "-o", str(tmp_path / "out"), *inputs]
    target = parse_target("gfx90a"), "gfx90a"
    with pytest.raises(CompilerError, match=r"clang-linker-wrapper', which is not there; install"):
        link_image(command, inputs, target, os.environ, lambda *_: 0)
    assert not (tmp_path / "out").exists()
