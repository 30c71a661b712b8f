"""Which of a compile's flags decide what must be installed, and where it is looked for."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from offload_tool.clang.options import BESIDE, ELSEWHERE, beginnings

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["folder_meant", "relevant_flags", "trial_flags"]

_RELEVANT = re.compile(
    r"-nogpu(lib|inc)|-nocuda(lib|inc)|--(no-)?offloadlib|--no-gpu-.*|-nostdinc(\+\+)?|-nostdlibinc"
    r"|--?(rocm|hip|cuda)-.*=.*|-isysroot.*|--sysroot=.*|--gcc-(toolchain|install-dir|triple)=.*"
    r"|-mcode-object-version=.*|-fsanitize=.*|-f(no-)?gpu-sanitize|-stdlib=.*"
    r"|-resource-dir=.*|-m(no-)?wavefrontsize64"
)
"""Flags that decide what must be installed, or where it is."""
_WRITES = ("-o", "-M", "-Xclang=-dep", *beginnings(BESIDE | ELSEWHERE))


def relevant_flags(words: Iterable[str]) -> tuple[str, ...]:
    """Return those of a compile's flags that decide what must be installed."""
    return tuple(word for word in words if _RELEVANT.fullmatch(word))


def trial_flags(words: Iterable[str]) -> tuple[str, ...]:
    """Return all flags of a compile for a trial of the compiler; none if they write files."""
    given = tuple(words)
    return () if any(word.startswith(_WRITES) for word in given) else given


def folder_meant(words: Iterable[str]) -> list[str]:
    """Return the folder of this process if a word names something in it, and else nothing.

    That is for questions whose answers are kept: words that name nothing here, or name it by an
    absolute path, mean the same in every folder.
    """
    for word in words:
        for name in (word, word.partition("=")[2], word.removeprefix("-isysroot")):
            is_name = "/" in name or name is not word
            if is_name and name and not name.startswith(("/", "-")) and os.path.lexists(name):
                return [os.getcwd()]
    return []
