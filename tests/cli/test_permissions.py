"""What the user may not enter or read: in arguments, and in PATH.

Root may do all, unless it gives these capabilities up.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import offload_tool
from tests.cli.conftest import KERNEL
from tests.conftest import as_ordinary_user
from tests.operations.fatbins import HOST, make_bundle

LOCKED, UNLISTED = 0o000, 0o311
COMMANDS = (
    *("list locked/x", "list locked", "list top", "check locked/x", "check top", "diff x locked/x"),
    *(
        "diff locked top",
        "extract locked/x -o out",
        "extract x -o locked/out",
        "report locked/x -o out",
    ),
    *("thin locked/x --keep gfx906 -o out", "thin x --keep gfx906 -o locked/out"),
    *("thin top --keep gfx906 -o out", "split locked/x -o out", "split top -o out"),
    *("split x -o locked/out", "join locked/x top -o out", "join x locked/x -o out"),
    *("merge locked/x x -o out", "repack locked/x -o out", "bundler -list -type=o -input=locked/x"),
    *("why locked/x", "packager -o out --image=file=locked/x,triple=amdgcn-amd-amdhsa,arch=gfx906"),
    "match locked/x gfx906",
)


def run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours as an ordinary user."""
    words = as_ordinary_user(sys.executable, "-m", "offload_tool", *command.split())
    environ = {**os.environ, **variables}
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with one that is locked, and one that may be entered but not listed."""
    monkeypatch.chdir(tmp_path)
    locked, unlisted = tmp_path / "locked", tmp_path / "top/unlisted"
    for name in ("x", "locked/x", "top/x", "top/unlisted/x"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        make_bundle(Path(name), {"gfx906": b"code", HOST: b""})
    locked.chmod(LOCKED)
    unlisted.chmod(UNLISTED)
    yield tmp_path
    locked.chmod(0o755)
    unlisted.chmod(0o755)


def test_outputs_are_replaced(project: Path) -> None:
    """A new file replaces an output: other hard links keep theirs, and the folder is written."""
    old = Path("x").read_bytes()
    os.link("x", "other")
    command = "bundler -type=bc -targets=hip-amdgcn-amd-amdhsa--gfx906 -input=other -output="
    assert run(f"{command}x").returncode == 0
    assert Path("other").read_bytes() == old != Path("x").read_bytes()
    Path("top").chmod(0o555)
    done = run(f"{command}top/x")
    Path("top").chmod(0o755)
    assert (done.returncode, Path("top/x").read_bytes()) == (1, old)
    assert "'top/x': Permission denied" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_arguments(project: Path, command: str) -> None:
    """An error names what may not be read or written, and there is no output."""
    done = run(command)
    assert "Traceback" not in done.stderr
    assert "'locked" in done.stderr or "'top/unlisted'" in done.stderr
    assert "Permission denied" in done.stderr or command.startswith("why")
    assert done.returncode == 1
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "command", ["list loop", "thin top --keep gfx906 -o loop", "split top -o loop", "diff loop x"]
)
def test_loop_of_links(project: Path, command: str) -> None:
    """An error names it."""
    Path("loop").symlink_to("loop")
    Path("top/unlisted").chmod(0o755)
    done = run(command)
    assert re.search("'loop': (Too many levels of symbolic links|File exists)", done.stderr)
    assert done.returncode == 1


def test_path(project: Path) -> None:
    """Folders of PATH that may not be entered, or not listed, have no compilers."""
    Path("k.hip").write_text(KERNEL)
    path = os.pathsep.join(["locked/bin", "locked", "top/unlisted", os.environ["PATH"]])
    command = "compile k.hip -o k.co --target-id gfx906 -- -nogpuinc -nogpulib -DVALUE=1"
    done = run(command, PATH=path, XDG_CACHE_HOME=str(project / "cache"))
    assert done.stderr == ""
    assert done.returncode == 0
    assert Path("k.co").read_bytes()[:4] == b"\x7fELF"


def test_questions_about_files() -> None:
    """The package asks `os.path`: before Python 3.14, those of `Path` raise other errors."""
    names = "is_dir|is_file|is_mount|resolve|samefile"
    asking = re.compile(rf"(?<!os\.path)(?<!entry)(?<!item)\.({names})\(")
    files = Path(offload_tool.__path__[0]).rglob("*.py")
    assert [path for path in files if asking.search(path.read_text(encoding="utf-8"))] == []
