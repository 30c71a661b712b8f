"""The table of clang's options: clang knows each, and all that ask agree."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from offload_tool.clang import options
from offload_tool.clang.options import BESIDE, ELSEWHERE, LINKER, beginnings
from offload_tool.manifest.output_state import WRITES_FILES
from offload_tool.sccache_dist.eligibility import why_local

NAMES = [name for name, bits in options._OPTIONS.items() if not bits & LINKER and name != "@"]
OF_LLD = {"--load-pass-plugin"}


@pytest.mark.llvm
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_LLD])
def test_clang_knows_it(llvm: Callable[[str], str], name: str) -> None:
    """Clang completes it, or takes it (some spellings are not completed)."""
    clang = llvm("clang")

    def said(*words: str) -> str:
        done = subprocess.run([clang, *words], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    for word in (name, f"-cc1,{name}"):
        if any(line.startswith(name) for line in said(f"--autocomplete={word}").splitlines()):
            return
    assert "unknown argument" not in said("-###", name, "-x", "c", "-c", "/dev/null")


@pytest.mark.parametrize("name", beginnings(BESIDE | ELSEWHERE | LINKER))
def test_what_writes_stays(name: str) -> None:
    """A compile that writes another file is not kept without it, nor sent to another machine."""
    assert name.startswith(WRITES_FILES)
    command = ["clang++", "--cuda-device-only", "-x", "hip", "-c", "k.hip", "-o", "k.o"]
    assert why_local(command) == ""
    said = why_local([*command, name])
    assert "on the server" in said or name.endswith("-dependency-file")
