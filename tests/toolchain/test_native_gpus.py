"""OFFLOAD_ARCH='native': what the compiler's own programs say of the GPUs in this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.clang import driver
from offload_tool.errors import CompilerError
from offload_tool.toolchain import native_gpus, select
from offload_tool.toolchain.native_gpus import native_targets
from offload_tool.toolchain.probe import Toolchain
from offload_tool.toolchain.select import find_toolchain
from tests.toolchain.test_select import fake_clang


@pytest.fixture
def compiler(tmp_path: Path) -> Toolchain:
    """Return a compiler whose folder has the programs that a test writes."""
    select._find.cache_clear()
    driver.output_of.cache_clear()
    native_gpus.native_targets.cache_clear()
    file = fake_clang(tmp_path / "clang-22", "22.1.8")
    text = file.read_text()
    beside = f"[ -e {tmp_path}/$name ] && echo {tmp_path}/$name || echo $name"
    answer = f"-print-prog-name=*) name=${{last#*=}}; {beside};;\n*) exit 1"
    file.write_text(text.replace("*) exit 1", answer))
    return find_toolchain(clang=str(file))


def write(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def test_gpus_of_this_machine(compiler: Toolchain, tmp_path: Path) -> None:
    """Each kind asks for its own GPUs; each target ID comes once."""
    write(tmp_path, "amdgpu-arch", "echo gfx90a:sramecc+:xnack-; echo gfx90a:sramecc+:xnack-")
    write(tmp_path, "nvptx-arch", "echo sm_90")
    write(tmp_path, "offload-arch", "echo gfx1100; echo sm_80")
    assert native_targets(compiler, "hip") == ["gfx90a:sramecc+:xnack-"]
    assert native_targets(compiler, "cuda") == ["sm_90"]
    assert native_targets(compiler, "openmp") == ["gfx1100", "sm_80"]


def test_the_other_program(compiler: Toolchain, tmp_path: Path) -> None:
    """Where one program fails or finds nothing, the next one is asked."""
    write(tmp_path, "amdgpu-arch", "echo no driver >&2; exit 1")
    write(tmp_path, "offload-arch", "echo gfx1100")
    assert native_targets(compiler, "hip") == ["gfx1100"]


def test_no_gpu(compiler: Toolchain, tmp_path: Path) -> None:
    """Without a GPU there is an error that says so, and who was asked."""
    write(tmp_path, "amdgpu-arch", "echo no driver >&2; exit 1")
    write(tmp_path, "offload-arch", "true")
    with pytest.raises(CompilerError) as caught:
        native_targets(compiler, "hip")
    message = str(caught.value)
    assert "'native' stands for the GPUs of this machine, and none was found for hip" in message
    assert "no driver" in message
    assert "offload-arch names no GPU" in message


def test_what_is_no_target_id(compiler: Toolchain, tmp_path: Path) -> None:
    """A line that is not a target ID is not taken for one."""
    write(tmp_path, "amdgpu-arch", "echo gfx90a:bogus")
    with pytest.raises(CompilerError, match="names no GPU; offload-arch is not there"):
        native_targets(compiler, "hip")
