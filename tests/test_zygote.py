"""A run of SCons that a zygote forks is as one of a new Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import zygote
from tests.conftest import ROOT, try_tool
from tests.zygote import run_scons

SHOW = """\
import os, signal, sys, SCons, offload_tool
print(os.getcwd(), os.getpgid(0), sorted(os.environ.items()), sys.argv, sys.path, sys.flags)
print([signal.getsignal(number) for number in range(1, signal.NSIG)], sys.stdin.read())
print([os.readlink(f"/proc/self/fd/{number}")[:5] for number in range(3)], sys.stdout.encoding)
print(SCons.__file__, offload_tool.__file__, sys.stdout.line_buffering, sys.stderr.line_buffering)
print("to the errors", file=sys.stderr)
sys.exit(int(ARGUMENTS["status"]))
"""


def new_python(folder: Path, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Run SCons without a zygote; return its status, output and errors."""
    command = [sys.executable, "-m", "SCons", *arguments]
    done = try_tool(*command, cwd=folder, env=environment, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "shadow"),
    [
        ("PYTHONPATH", str(ROOT), ""),
        ("PYTHONPATH", f"other:{ROOT}", ""),
        ("PYTHONPATH", str(ROOT), "SCons.py"),
        ("PYTHONHASHSEED", "1", ""),
        ("SCONSFLAGS", "-Q", ""),
        ("OTHER", "1", ""),
    ],
)
def test_like_a_new_python(tmp_path: Path, variable: str, value: str, shadow: str) -> None:
    """Arguments, environment, imports, signals, streams and the status are those of a new one."""
    (tmp_path / "SConstruct").write_text(SHOW)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), variable: value}
    if shadow:
        (tmp_path / shadow).write_text("raise SystemExit(3)\n")
    done = run_scons(["status=3"], cwd=tmp_path, env=environment)
    expected = new_python(tmp_path, environment, "status=3")
    assert expected[0] == 3
    assert (done.returncode, done.stdout, done.stderr) == expected


def test_nothing_stays(tmp_path: Path) -> None:
    """What one run sets, the next ones do not see; hashes have another seed in turn."""
    (tmp_path / "SConstruct").write_text(
        "import os, sys\n"
        "print(os.environ.get('SET'), getattr(sys, 'mine', None), hash('x'))\n"
        "os.environ['SET'] = sys.mine = 'yes'\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [run_scons(["-Q"], cwd=tmp_path, env=environment) for _ in range(4)]
    lines = [run.stdout.splitlines()[0] for run in runs]
    assert {line.rpartition(" ")[0] for line in lines} == {"None None"}
    assert len(set(lines)) == 2


def test_ends(tmp_path: Path) -> None:
    """A run that takes too long is ended, one that a signal ended has its number; others go on."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = tmp_path / "SConstruct"
    script.write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_scons(["-Q"], cwd=tmp_path, env=environment, timeout=0.5)
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    for _ in range(2):
        assert run_scons(["-Q"], cwd=tmp_path, env=environment).returncode == -15
    script.write_text("print('done')\n")
    done = run_scons(["-Q"], cwd=tmp_path, env=environment)
    assert done.stdout.startswith("done")
    assert len(zygote._idle) == len(zygote._started)
