"""A link called ``hipcc`` to ``offload-tool``, first on PATH."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.launch.passthrough import find_hipcc
from tests.conftest import ROOT, program
from tests.launch.compiles import CUID, TARGETS, environment, make_project
from tests.scripts import script


def call(path: list[Path], words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``hipcc`` with these folders as PATH, and those of the system."""
    folders = [*map(str, path), "/usr/bin", "/bin"]
    more = {"PATH": ":".join(folders), "PYTHONPATH": str(ROOT), "HIP_PATH": "", "ROCM_PATH": ""}
    return subprocess.run(
        ["hipcc", *words], cwd=folder, env=environment(more), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.llvm
def test_first_on_path(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """The real hipcc further on is asked, with what it adds; C++ sources are HIP sources."""
    real, ours, other = (tmp_path / name for name in ("real", "ours", "other"))
    for folder in (real, ours, other):
        folder.mkdir()
    added = "-x hip -nogpuinc -nogpulib -DADDED=1"
    script(real / "hipcc", f'exec {llvm("clang++")} {added} "$@"')
    for folder in (ours, other):  # as of two environments
        (folder / "hipcc").symlink_to(program("offload-tool"))
    make_project(tmp_path)
    source = tmp_path / "s.cpp"
    source.write_text(f"#ifndef ADDED\n#error\n#endif\n{(tmp_path / 's.hip').read_text()}")
    words = [CUID, *TARGETS, "-c", "s.cpp", "-o", "s.o"]
    assert call([real], words, tmp_path).returncode == 0
    expected = (tmp_path / "s.o").read_bytes()
    (tmp_path / "s.o").unlink()
    done = call([ours, other, real], words, tmp_path)
    assert (done.returncode, (tmp_path / "s.o").read_bytes()) == (0, expected), done.stderr
    assert "launch: split: gfx906, gfx90a:xnack+ and the host" in done.stderr


@pytest.mark.llvm
def test_device_code_alone(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """``--genco`` for several targets is split into a pass for each, and gives the same bundle."""
    real, ours = tmp_path / "real", tmp_path / "ours"
    for folder in (real, ours):
        folder.mkdir()
    # hipcc replaces its own option by clang's.
    change = 'shift; [ "$a" = --genco ] && a=--offload-device-only; set -- "$@" "$a"'
    compile_it = f'exec {llvm("clang++")} -x hip -nogpuinc -nogpulib "$@"'
    script(real / "hipcc", f"for a; do {change}; done\n{compile_it}")
    (ours / "hipcc").symlink_to(program("offload-tool"))
    make_project(tmp_path)
    words = [CUID, *TARGETS, "--genco", "s.hip", "-o", "s.hsaco"]
    assert call([real], words, tmp_path).returncode == 0
    expected = (tmp_path / "s.hsaco").read_bytes()
    (tmp_path / "s.hsaco").unlink()
    done = call([ours, real], words, tmp_path)
    assert (done.returncode, (tmp_path / "s.hsaco").read_bytes()) == (0, expected), done.stderr
    assert "launch: split: gfx906, gfx90a:xnack+; at once" in done.stderr


def test_no_other(tmp_path: Path) -> None:
    """Where there is no other one, an error says so, and nothing is called in a circle."""
    if shutil.which("hipcc"):
        pytest.skip("there is one")
    (tmp_path / "hipcc").symlink_to(program("offload-tool"))
    done = call([tmp_path], ["-c", "s.hip"], tmp_path)
    assert done.returncode == 1
    assert "PATH has no other hipcc" in done.stderr


def test_where_rocm_is(tmp_path: Path) -> None:
    """Behind PATH, the real hipcc is looked for in $HIP_PATH, then in $ROCM_PATH."""
    for name in ("first", "hip", "rocm"):
        (tmp_path / name / "bin").mkdir(parents=True)
    ours = tmp_path / "first/hipcc"
    ours.symlink_to(program("offload-tool"))
    for name in ("hip", "rocm"):
        script(tmp_path / name / "bin/hipcc", "")
    environ = {"PATH": str(tmp_path / "first"), "ROCM_PATH": str(tmp_path / "rocm")}
    assert find_hipcc(str(ours), environ) == f"{tmp_path}/rocm/bin/hipcc"
    environ["HIP_PATH"] = str(tmp_path / "hip")
    assert find_hipcc(str(ours), environ) == f"{tmp_path}/hip/bin/hipcc"
    (tmp_path / "hip/bin/hipcc").chmod(0o644)
    assert find_hipcc(str(ours), environ) == f"{tmp_path}/rocm/bin/hipcc"
