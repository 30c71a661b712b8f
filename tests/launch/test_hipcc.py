"""A link called ``hipcc`` to ``offload-tool``, first on PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from offload_tool.launch.passthrough import find_hipcc
from tests.conftest import ROOT, Tool, program, try_tool
from tests.launch.compiles import CUID, TARGETS, environment, make_project
from tests.scripts import script


def call(path: list[Path], words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``hipcc`` with these folders as PATH, and those of the system."""
    folders = [*map(str, path), "/usr/bin", "/bin"]
    more = {"PATH": ":".join(folders), "PYTHONPATH": str(ROOT), "HIP_PATH": "", "ROCM_PATH": ""}
    return try_tool("hipcc", *words, cwd=folder, env=environment(more), timeout=60)


@pytest.fixture
def folders(tmp_path: Path, llvm: Tool) -> list[Path]:
    """Return two folders with our link, as of two environments, and one with the real hipcc."""
    made = [tmp_path / name for name in ("ours", "other", "real")]
    for folder in made:
        folder.mkdir()
        (folder / "hipcc").symlink_to(program("offload-tool"))
    (tmp_path / "real/hipcc").unlink()
    # hipcc replaces its own option by clang's, and adds some.
    change = 'shift; [ "$a" = --genco ] && a=--offload-device-only; set -- "$@" "$a"'
    compile_it = f'exec {llvm("clang++")} -x hip -nogpuinc -nogpulib -DADDED=1 "$@"'
    script(tmp_path / "real/hipcc", f"for a; do {change}; done\n{compile_it}")
    make_project(tmp_path)
    source = f"#ifndef ADDED\n#error\n#endif\n{(tmp_path / 's.hip').read_text()}"
    (tmp_path / "s.cpp").write_text(source)
    return made


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("words", "passes"),
    [("-c s.cpp", "gfx90a:xnack+ and the host"), ("--genco s.cpp", "gfx90a:xnack+; at once")],
)
def test_first_on_path(words: str, passes: str, folders: list[Path], tmp_path: Path) -> None:
    """The real hipcc further on is asked, with what it adds; C++ sources are HIP sources.

    ``--genco`` for several targets is split into a pass for each, and gives the same bundle.
    """
    command = [CUID, *TARGETS, *words.split(), "-o", "s.o"]
    assert call(folders[2:], command, tmp_path).returncode == 0
    expected = (tmp_path / "s.o").read_bytes()
    (tmp_path / "s.o").unlink()
    done = call(folders, command, tmp_path)
    assert (done.returncode, (tmp_path / "s.o").read_bytes()) == (0, expected), done.stderr
    assert f"launch: split: gfx906, {passes}" in done.stderr


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
