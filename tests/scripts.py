"""Programs that tests put in the place of others: shell scripts."""

from __future__ import annotations

from pathlib import Path


def script(path: Path, text: str) -> str:
    """Make a shell script that can be run; return its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)
