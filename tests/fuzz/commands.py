"""What is done with a file, and what may be in the folder afterwards."""

from __future__ import annotations

import importlib.util
import random
from typing import NamedTuple

WHEEL = "in-1-py3-none-any.whl"
HOST, HIP = "host-x86_64-unknown-linux-gnu-", "hip-amdgcn-amd-amdhsa--gfx906"


class Command(NamedTuple):
    """Words after ``offload-tool``; ``IN`` is the file, also as `WHEEL`, ``out...`` are outputs."""

    name: str
    words: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    """All or none of them are there; a folder ends with ``/``."""
    writes_on_error: bool = False
    """Broken files of many are told of after everything else was written."""


def _bundler(name: str, *args: str, outputs: tuple[str, ...] = ()) -> Command:
    return Command(name, ("bundler", *args), outputs)


_OUT = ("out1", "out2")
_UNBUNDLE = ("-unbundle", "-input=IN", f"-targets={HOST},{HIP}", "-output=out1", "-output=out2")
COMMANDS = (
    Command("list", ("list", "IN")),
    Command("list", ("list", "--json", "--target", "gfx906", "IN")),
    Command("list --scan", ("list", "--scan", "--json", "IN")),
    Command("list folder", ("list", ".")),
    Command("list --kernels", ("list", "--kernels", "IN")),
    Command("list --kernels", ("list", "--kernels", "--json", "IN")),
    Command("check", ("check", "IN", "--targets", "gfx906", "--same-kernels", "--no-spills")),
    Command("diff", ("diff", "IN", "beside")),
    Command("diff", ("diff", "--json", "IN", "IN")),
    Command("match", ("match", "IN", "gfx90a")),
    Command("extract", ("extract", "IN", "-o", "out"), ("out/",), writes_on_error=True),
    Command("thin", ("thin", "IN", "--keep", "gfx906", "-o", "out"), ("out",)),
    Command("split", ("split", "IN", "-o", "out"), ("out/",)),
    Command("split wheel", ("split", WHEEL, "-o", "out"), ("out/",)),
    Command("join", ("join", "IN", "-o", "out"), ("out",)),
    Command("join wheel", ("join", WHEEL, "-o", "out"), ("out",)),
    Command("thin wheel", ("thin", WHEEL, "--keep", "gfx906", "-o", "out"), ("out",)),
    Command("list", ("list", "--target", "sm_90a", "IN")),
    Command("match", ("match", "IN", "sm_90a")),
    Command(
        *("extract", ("extract", "IN", "--target", "sm_90", "-o", "out"), ("out/",)),
        writes_on_error=True,
    ),
    Command("thin", ("thin", "IN", "--no-ptx", "--keep", "sm_90a", "-o", "out"), ("out",)),
    Command("merge", ("merge", "IN", "IN", "-o", "out"), ("out",)),
    Command("merge", ("merge", "IN", "beside", "-o", "out"), ("out",)),
    Command("embed", ("embed", "IN", "--cuid", "x", "-o", "out"), ("out",)),
    Command("embed", ("embed", "beside", "--host-object", "IN", "-o", "out"), ("out",)),
    Command("archive", ("archive", "IN", "beside", "-o", "out"), ("out",)),
    _bundler("bundler -list", "-list", "-type=o", "-input=IN"),
    _bundler("bundler -list", "-list", "-type=bc", "-input=IN"),
    _bundler("bundler -list", "-list", "-type=ii", "-input=IN"),
    _bundler("bundler -unbundle", "-type=o", *_UNBUNDLE, outputs=_OUT),
    _bundler("bundler -unbundle", "-type=bc", *_UNBUNDLE, outputs=_OUT),
    _bundler("bundler -unbundle", "-type=ii", *_UNBUNDLE, outputs=_OUT),
    _bundler(
        *("bundler -type=a", "-type=a", "-unbundle", "-input=IN", f"-targets={HIP}"),
        *("-output=out", "-allow-missing-bundles"),
        outputs=("out",),
    ),
    _bundler(
        *("bundler", "-type=o", f"-targets={HOST},{HIP}", "-input=IN", "-input=beside"),
        "-output=out",
        outputs=("out",),
    ),
    Command("packager", ("packager", "IN", "--image=file=out,kind=openmp"), ("out",)),
    Command("packager", ("packager", "IN", "--image=kind=hip", "--archive", "-o", "out"), ("out",)),
    Command("packager", ("packager", "--image=file=IN,triple=a-b-c,arch=x", "-o", "out"), ("out",)),
    Command("wrapper", ("wrapper", "--kind=hip", "IN", "-o", "out"), ("out",)),
    Command("wrapper", ("wrapper", "--kind=openmp", "IN", "-o", "out"), ("out",)),
)  # fmt: skip
if all(map(importlib.util.find_spec, ("plotly", "itables"))):
    _REPORT = Command("report", ("report", "IN", "-o", "out"), ("out",), writes_on_error=True)
    COMMANDS = (*COMMANDS, _REPORT)


def choose(seed: int) -> Command:
    """Return the command for the case of a number."""
    chance = random.Random(f"command {seed}")
    chosen = chance.choice(COMMANDS)
    if chosen.name == "report" and chance.random() < 0.9:  # each page is of 5 MB
        return COMMANDS[0]
    return chosen
