"""The one search for programs in PATH."""

from __future__ import annotations

import os
from collections.abc import Mapping


def program_folders(environment: Mapping[str, str]) -> list[str]:
    """Return the directories of PATH."""
    return _folders(environment.get("PATH", os.defpath))


def _folders(path: str | None) -> list[str]:
    path = os.environ.get("PATH", os.defpath) if path is None else path
    return [folder for folder in path.split(os.pathsep) if folder]


def which(name: str, path: str | None = None) -> str | None:
    """Return the program that a name means with a value of PATH; None means this process's."""
    paths = [name] if "/" in name else [f"{x}/{name}" for x in _folders(path)]
    return next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)
