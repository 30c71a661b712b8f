"""What is around a project: its compiler, a launcher, files' times.

A compiler is a script called ``clang`` or ``clang++``, or a program whose code is in a library.
Each function changes a state and says what it did, or gives nothing where it does not apply.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.driver.state import State
from tests.toolchain.clang_in_parts import clang_in_parts, write_library

_LIBRARIES = ("1", "2", "3")
_EARLIER = "3"
"""The library that appears where the loader looks first."""
_LONG_AGO = 315_532_800
_GIVEN = """\
env.OffloadBundle('given', 'given.co', OFFLOAD_TARGETS='hipv4-amdgcn-amd-amdhsa--gfx906')
env.OffloadPackage('given', 'given.co', OFFLOAD_TARGETS='hipv4-amdgcn-amd-amdhsa--gfx906')
"""


def add_surroundings(rng: random.Random, state: State) -> None:
    """Give a project surroundings of its own."""
    state.compiler = rng.choice(["clang", "clang", "clang++", *_LIBRARIES[:2]])
    state.launcher = rng.random() < 0.3
    state.old = state.layout != "variant1" and rng.random() < 0.4
    if state.kind == "hip" and rng.random() < 0.3:
        state.files[f"{state.base}given.co"] = f"#define OWN {rng.randint(1, 99)}\n"
        state.calls.append(_GIVEN)


def change_surroundings(rng: random.Random, state: State) -> str | None:
    """Change one of the surroundings."""
    return rng.choice([_compiler, _compiler, _launcher, _times])(rng, state)


def put_compiler(folder: Path, clang: str, state: State) -> None:
    """Put the compiler of a checkout beside it, with the library that it has now."""
    if state.compiler not in _LIBRARIES:
        return
    program = folder / "bin/clang"
    if not program.exists():
        clang_in_parts(folder, clang, 1)
    place = folder / ("first" if state.compiler == _EARLIER else "lib")
    text = (place / "code.c").read_text() if (place / "libcode.so").exists() else ""
    if f"={state.compiler}" not in text:
        write_library(place, clang, int(state.compiler))
    if state.compiler != _EARLIER:
        (folder / "first/libcode.so").unlink(missing_ok=True)


def put_times(folder: Path, state: State) -> None:
    """Set the times of files; SCons would not see edits of those that it copies itself."""
    copied = {f"{state.base}{source}" for _, source in state.generated}
    for name in {*state.files} - copied if state.old else ():
        if (folder / name).stat().st_mtime != _LONG_AGO:
            os.utime(folder / name, (_LONG_AGO, _LONG_AGO))


def _compiler(rng: random.Random, state: State) -> str:
    others = [n for n in ("clang", "clang++", *_LIBRARIES * 2) if n != state.compiler]
    state.compiler = rng.choice(others)
    return f"the compiler is {state.compiler}"


def _launcher(_: random.Random, state: State) -> str:
    state.launcher = not state.launcher
    return f"the launcher is {'ccache' if state.launcher else 'none'}"


def _times(_: random.Random, state: State) -> str | None:
    if state.layout == "variant1":
        return None  # SCons does not copy again
    state.old = not state.old
    return f"all files are {'old' if state.old else 'new'}"
