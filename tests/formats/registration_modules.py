"""What several tests need of registration modules: the planned file, and LLVM's reading."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from offload_tool.io.write_plan import FilePlan


def planned(plan: FilePlan, contents: Sequence[bytes]) -> bytes:
    """Return the file of a plan without a host."""
    return b"".join(plan.bound(b"", contents).chunks())


def disassembled(program: str, path: Path) -> str:
    """Return a module as text, without the file's name and the order of a block's users."""
    command = [program, str(path), "-o", "-"]
    text = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()
    text = re.sub(r"^; ModuleID = .*\n", "", text)
    return re.sub(r" +; preds = .*", "", text)
