"""Completion: shtab generates scripts from our parsers, as in docs/commands.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, missing, run_tool

COMPLETE = """\
. ./script
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_shtab_offload_tool
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, folder: Path) -> Path:
    """Write a shell's script by the command in the documentation."""
    (line,) = re.findall(r"^shtab .*", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    args = line.replace("bash", shell).split()
    assert args[-2:] == [">", "offload-tool.completion"]
    command = [sys.executable, "-m", *args[:-2]]
    (folder / "script").write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    return folder / "script"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("offload-tool che", {"check"}),
        ("offload-tool check --sib", {"--siblings"}),
        ("offload-tool bundler -typ", {"-type"}),
    ],
)
def test_bash(tmp_path: Path, line: str, offered: set[str]) -> None:
    """Bash completes commands and options, including those of the drop-ins."""
    script("bash", tmp_path)
    done = run_tool("bash", "-c", COMPLETE, "bash", *line.split(), cwd=tmp_path)
    assert set(done.split()) == offered


def test_zsh(tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        missing("zsh")
    run_tool("zsh", "-n", script("zsh", tmp_path))
