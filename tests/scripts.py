"""Programs that tests put in the place of others: shell scripts."""

from __future__ import annotations

from pathlib import Path


def script(path: Path, text: str) -> str:
    """Make a shell script that can be run; return its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def counting_launcher(folder: Path) -> str:
    """Make a launcher in a folder that logs there each command that it runs."""
    return script(folder / "count", f'echo "$*" >>"{folder}/compiles.log"\nexec "$@"')


def reporting_clang(path: Path, clang: str, version: str) -> str:
    """Make a compiler that says it is of another version."""
    command = f"{clang} --version | sed '1s/version [0-9.]*/version {version}/'"
    return script(path, f'[ "$*" != --version ] || {{ {command}; exit; }}\nexec {clang} "$@"')
