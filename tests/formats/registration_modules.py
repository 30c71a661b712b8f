"""What several tests need of registration modules: LLVM's reading."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def disassembled(program: str, path: Path) -> str:
    """Return a module as text, without the file's name and the order of a block's users."""
    command = [program, str(path), "-o", "-"]
    text = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()
    text = re.sub(r"^; ModuleID = .*\n", "", text)
    return re.sub(r" +; preds = .*", "", text)
