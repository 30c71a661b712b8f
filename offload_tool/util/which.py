"""The one search for programs in PATH."""

from __future__ import annotations

import os
from collections.abc import Mapping


def program_folders(environment: Mapping[str, str]) -> list[str]:
    """Return the directories of PATH."""
    path = environment.get("PATH", os.defpath)
    return [folder for folder in path.split(os.pathsep) if folder]


def which(name: str, path: str | None = None) -> str | None:
    """Return the program that a name means with a value of PATH; None means this process's."""
    folders = program_folders(os.environ if path is None else {"PATH": path})
    paths = [name] if "/" in name else [f"{folder}/{name}" for folder in folders]
    return next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)
