"""One heterogeneous device archive to 8 device-specific ones: row 5 of the table of aims."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from benchmarks.measure import compare
from offload_tool import BundleEntryID
from offload_tool.formats.archive import NewMember, plan_archive
from offload_tool.formats.bundle import plan_bundle

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["main"]

TARGETS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1200")
IDS = [str(BundleEntryID.parse(f"hip-amdgcn-amd-amdhsa--{name}")) for name in TARGETS]
SIZE = 52_500
"""Bytes of a code object: 1000 members of 8 make 420 MB."""
OURS = [sys.executable, "-m", "offload_tool", "bundler"]


def _write_hda(path: Path, count: int, size: int) -> None:
    layout = plan_bundle([(name, size) for name in IDS])
    member = layout.header + random.Random(0).randbytes(layout.size - len(layout.header))
    names = [NewMember(f"member{index}.o", layout.size) for index in range(count)]
    archive = plan_archive(names)
    with path.open("wb") as file:
        for before in archive.before:
            file.write(before)
            file.write(member)
        file.write(archive.end)


def main(folder: Path, llvm: str) -> None:
    """Measure and print the row, and how the time grows with the number of members."""
    hda = folder / "hda.a"
    outputs = [f"-output={name}.a" for name in TARGETS]
    arguments = ["-type=a", "-unbundle", f"-targets={','.join(IDS)}", f"-input={hda}", *outputs]
    for count, size in ((1000, SIZE), (1000, 1000), (5000, 1000), (20000, 1000)):
        _write_hda(hda, count, size)
        commands = [["cp", hda, "copy.a"], [llvm, *arguments], [*OURS, *arguments]]
        copied, theirs, ours = compare(commands, folder, runs=3)
        print(f"\narchive of {count} members x 8 targets, {hda.stat().st_size / 1e6:.0f} MB")
        for label, figures in (("cp", copied), ("LLVM", theirs), ("ours", ours)):
            print(f"  {label:24} {figures}   {figures.wall / copied.wall:5.2f} x cp")
