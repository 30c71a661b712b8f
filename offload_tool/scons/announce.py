"""Texts that a build prints once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import SCons.Util

from offload_tool.scons import compat
from offload_tool.scons.types import Environment


def _no_texts() -> set[str]:
    """Return the texts that a build has printed, none yet."""
    return set()


def announce(env: Environment, text: str, show: Callable[[str], None] = SCons.Util.display) -> None:
    """Show a text once in a build."""
    printed = compat.of_build(env, _no_texts)
    if text not in printed and compat.is_build():
        show(text)
    printed.add(text)


def warn(env: Environment, text: str) -> None:
    """Print a warning to standard error, once in a build."""
    announce(env, f"offload: warning: {text}", partial(print, file=sys.stderr))
