"""The same file for LLVM's own program: where both take it, both give the same."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path

from offload_tool.cli import main
from tests.conftest import Tool
from tests.fuzz.commands import Command
from tests.fuzz.worker import BESIDE

PROGRAMS = {"bundler": "clang-offload-bundler", "packager": "llvm-offload-binary"}
_MEMORY, _SECONDS = 4 << 30, 10


def compare(data: bytes, command: Command, folder: Path, find: Tool) -> str:
    """Run both; give ``same``, ``different``, or why there is nothing to compare.

    ``crash`` and ``hang`` are LLVM's; ``stricter`` is ours where LLVM's program ends with 0,
    ``laxer`` where only ours does.
    """
    answers = []
    for is_ours in (False, True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "IN").write_bytes(data)
        (folder / "beside").write_bytes(BESIDE)
        status = _ours(command, folder) if is_ours else _theirs(command, folder, find)
        if status < 0:
            return "hang" if status == -99 else "crash"
        files = {
            name: (folder / name).read_bytes() if (folder / name).exists() else None
            for name in command.outputs
        }
        answers.append((status, files))
    (theirs, their_files), (ours, our_files) = answers
    if theirs or ours:
        if theirs and ours:
            return "both refuse"
        return "laxer" if theirs else "stricter"
    return "same" if their_files == our_files else "different"


def _ours(command: Command, folder: Path) -> int:
    here = Path.cwd()
    os.chdir(folder)
    try:
        return main(list(command.words))
    finally:
        os.chdir(here)


def _theirs(command: Command, folder: Path, find: Tool) -> int:
    words = [find(PROGRAMS[command.words[0]]), *command.words[1:]]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, check=False, timeout=_SECONDS, preexec_fn=limit
        )
    except subprocess.TimeoutExpired:
        return -99
    return done.returncode
