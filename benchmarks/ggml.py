"""``python -m benchmarks ggml FOLDER [SOURCES [TARGETS...]]``: a real project and some edits.

FOLDER is a checkout of ggml or llama.cpp's copy; nothing is written there. Some sources of its HIP
backend (6) are compiled for 1, 2 and 4 targets, in copies for all that `project_copy` lists. Then
all copies get the same edits in turn. After each build, the code of all objects, host's and
devices', is compared with that of the compiler alone, for which Ninja recompiles each source that
includes the edited file. The report shows processor and wall seconds of all processes.

`OFFLOAD_BENCHMARK_PLOT` names the file of a picture of the last number of targets.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.plot import draw_ratios, picture
from benchmarks.project_copy import MODES, TARGETS, Copy, differences, make_copies
from benchmarks.projects import GGML, LIGHT

SOURCES, POINTS = 6, (1, 2, 4)


class _Edit(NamedTuple):
    what: str
    file: str = ""
    """If empty, there is one target more."""
    old: str = ""
    new: str = ""
    """If `old` is empty, `new` is appended: nothing, and the file only gets another time."""


_UNUSED = "static __device__ int unused_function(int x) { return x + 1; }\n"
_EDITS = (
    _Edit("comment in rope.cu", "rope.cu", '#include "rope.cuh"', '// a\n#include "rope.cuh"'),
    _Edit("host code in rope.cu", "rope.cu", "", "int host_code() { return 1; }\n"),
    _Edit("comment in common.cuh", "common.cuh", "#pragma once", "#pragma once\n// a comment"),
    _Edit("unused function in common.cuh", "common.cuh", "", _UNUSED),
    _Edit("common.cuh as before", "common.cuh", _UNUSED, ""),
    _Edit("touch of common.cuh", "common.cuh"),
    _Edit("kernel in clamp.cu", "clamp.cu", "dst[i] = (T)op_clamp", "dst[i] = (T)-op_clamp"),
    _Edit("one more target"),
)


def _apply(edit: _Edit, copy: Copy) -> None:
    path = copy.folder / GGML.code / edit.file
    text = path.read_text()
    assert edit.old in text, f"'{edit.file}' has no '{edit.old}' any more"
    path.write_text(text.replace(edit.old, edit.new, 1) if edit.old else text + edit.new)


def _measure(
    folder: Path, checkout: Path, names: Sequence[str], targets: int, file: Path | None
) -> None:
    copies = make_copies(folder, checkout, GGML, names, TARGETS[:targets], MODES)
    title = f"{len(names)} sources x {targets} targets"
    print(f"\n{title}: processor seconds (wall), beside the driver's; passes without a backend")
    rows: dict[str, dict[str, float]] = {}
    for edit in (None, *_EDITS):
        what = edit.what if edit else "first build"
        print(f"  {what}")
        times = rows[what] = {}
        for copy in copies:
            if edit and edit.file:
                _apply(edit, copy)
            elif edit:
                copy.configure(TARGETS[: targets + 1])
            figures = copy.build()
            times[copy.mode] = figures.cpu
            print(
                f"    {copy.mode:15} {figures.cpu:7.1f} ({figures.wall:6.1f})  "
                f"{figures.cpu / times[MODES[0]]:5.2f}  {copy.cut_off()}",
                flush=True,
            )
        assert len(copies[0].objects()) == len(names)
        assert not (found := differences(copies)), f"other objects: {found}"
    if file is not None:
        draw_ratios(file, f"ggml's HIP backend, {title}", rows)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    root = Path(words[0]).resolve() if words else Path("ggml")
    checkout = next((each for each in (root, root / "ggml") if (each / GGML.code).is_dir()), None)
    if checkout is None:
        print(f"benchmarks: '{root}' is no checkout of ggml: no '{GGML.code}'", file=sys.stderr)
        return 1
    count, *points = map(int, words[1:]) if words[1:] else (SOURCES,)
    every = sorted(path.stem for path in (checkout / GGML.code).glob("*.cu"))
    names = [*dict.fromkeys([*LIGHT, *every])][:count]
    os.environ["PYTHONPATH"] = str(Path.cwd())
    file = picture()
    for targets in points or POINTS:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder), checkout, names, targets, file)
    return 0
