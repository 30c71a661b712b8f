"""Bundling and unbundling: rows 1, 2, 3 and 6 of the table of aims.

clang-offload-bundler 22 and this package do the same work, alternately on one machine.
"""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.measure import BUNDLER, Figures, compare, time_call
from offload_tool import BundleEntryID, bundle_files

HOST = "host-x86_64-unknown-linux-gnu-"
DEVICES = ("gfx906", "gfx90a", "gfx942", "gfx1100", "gfx1030", "gfx908", "gfx1200")


def _targets(count: int) -> list[str]:
    return [HOST, *(f"hip-amdgcn-amd-amdhsa--{name}" for name in DEVICES)][:count]


def _inputs(folder: Path, count: int, size: int) -> list[Path]:
    source = random.Random(size)
    paths = [folder / f"in-{size}-{index}" for index in range(count)]
    for path in paths:
        with path.open("wb") as file:
            for _ in range(0, size, 1 << 20):
                file.write(source.randbytes(min(size, 1 << 20)))
    return paths


def _row(name: str, figures: dict[str, Figures], ratio_to: str) -> None:
    print(f"\n{name}")
    base = figures[ratio_to]
    for label, measured in figures.items():
        print(f"  {label:24} {measured}   {measured.wall / base.wall:5.2f} x {ratio_to}")


def main(folder: Path, llvm: str) -> None:
    """Measure and print all rows; input files go to `folder`."""
    _small(folder, llvm)
    _large(folder, llvm)
    _many(folder, llvm)


def _small(folder: Path, llvm: str) -> None:
    inputs = _inputs(folder, 4, 100 << 10)
    ids = _targets(4)
    arguments = ["-type=bc", f"-targets={','.join(ids)}", "-output=small.hipfb"]
    arguments += [f"-input={path}" for path in inputs]
    theirs, ours = compare([[llvm, *arguments], [*BUNDLER, *arguments]], folder, runs=15)
    _row("bundle 4 x 100 KB, a process", {"LLVM": theirs, "offload-tool bundler": ours}, "LLVM")
    items = [(BundleEntryID.parse(i), path) for i, path in zip(ids, inputs, strict=True)]
    seconds = time_call(lambda: bundle_files(items, folder / "small.hipfb"), runs=101)
    print(f"  {'in-process':24} {seconds * 1000:8.3f} ms wall")


def _large(folder: Path, llvm: str) -> None:
    inputs = _inputs(folder, 4, 64 << 20)
    targets = f"-targets={','.join(_targets(4))}"
    write = ["-type=bc", targets, "-bundle-align=4096", *(f"-input={path}" for path in inputs)]
    cat = ["sh", "-c", f"cat {' '.join(map(str, inputs))} >cat.out"]
    commands = [cat, [llvm, *write, "-output=large.llvm"], [*BUNDLER, *write, "-output=large.ours"]]
    figures = compare(commands, folder)
    _row("bundle 256 MB, 4 images", dict(zip(["cat", "LLVM", "ours"], figures, strict=True)), "cat")
    outputs = [f"-output=out-{index}" for index in range(4)]
    read = ["-type=bc", targets, "-unbundle", "-input=large.ours", *outputs]
    figures = compare([cat, [llvm, *read], [*BUNDLER, *read]], folder)
    _row("unbundle it", dict(zip(["cat", "LLVM", "ours"], figures, strict=True)), "cat")


def _many(folder: Path, llvm: str) -> None:
    inputs = _inputs(folder, 8, 50 << 10)
    ids = _targets(8)
    items = [(BundleEntryID.parse(i), path) for i, path in zip(ids, inputs, strict=True)]
    out = folder / "many"
    out.mkdir(exist_ok=True)

    def bundle_all() -> None:
        for index in range(1000):
            bundle_files(items, out / f"{index}.hipfb", alignment=4096)

    seconds = time_call(bundle_all, runs=3)
    arguments = ["-type=bc", f"-targets={','.join(ids)}", "-output=one", "-bundle-align=4096"]
    (theirs,) = compare([[llvm, *arguments, *(f"-input={path}" for path in inputs)]], folder, 20)
    print("\n1000 bundles of 8 x 50 KB")
    print(f"  {'LLVM, 1000 processes':24} {theirs.wall * 1000 * 1000:8.0f} ms wall (1000 x one)")
    print(f"  {'in-process':24} {seconds * 1000:8.0f} ms wall")
