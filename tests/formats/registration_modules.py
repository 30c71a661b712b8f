"""What several tests need of registration modules: the planned file, and LLVM's reading."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from offload_tool.formats.file_plan import Content, FilePlan, Literal


def planned(plan: FilePlan, contents: Sequence[bytes]) -> bytes:
    """Give the file of a plan without a host."""
    out = bytearray(plan.size)
    for piece in plan.pieces:
        assert isinstance(piece, Literal | Content)
        data = piece.data if isinstance(piece, Literal) else contents[piece.index]
        assert len(data) == piece.size
        out[piece.position : piece.position + piece.size] = data
    return bytes(out)


def disassembled(program: str, path: Path) -> str:
    """Give a module as text, without the file's name and the order of a block's users."""
    command = [program, str(path), "-o", "-"]
    text = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()
    text = re.sub(r"^; ModuleID = .*\n", "", text)
    return re.sub(r" +; preds = .*", "", text)
