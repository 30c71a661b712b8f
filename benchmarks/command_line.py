"""Overhead of the command line: start-up of the drop-ins, a table of many images."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.measure import TARGETS, compare
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
from offload_tool.operations.bundle import bundle_files

RUNS = 15
BUNDLES = 1000
OURS = [sys.executable, "-m", "offload_tool"]
BUNDLE = [
    *("-type=bc", "-targets=hip-amdgcn-amd-amdhsa--gfx906"),
    *("-input=image", "-output=out.bc"),
]
PACKAGE = ["-o", "out.pkg", "--image=file=image,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip"]


def main(folder: Path, llvm: str) -> None:
    """Measure and print each command's processor time, and the aim."""
    (folder / "image").write_bytes(bytes(1000))
    commands = {
        "Python alone": [sys.executable, "-c", "pass"],
        "bundler, LLVM": [llvm, *BUNDLE],
        "bundler (aim: 35 ms)": [*OURS, "bundler", *BUNDLE],
        "packager (aim: 35 ms)": [*OURS, "packager", *PACKAGE],
    }
    print("\nstart to end, one image of 1000 bytes")
    _print(commands, folder, RUNS)
    _write_bundles(folder)
    lists = {
        "as a table (aim: 800 ms)": [*OURS, "list", "bundles"],
        "as JSON": [*OURS, "list", "--json", "bundles"],
    }
    print(f"\nlist of {BUNDLES * len(TARGETS)} images")
    _print(lists, folder, 3)
    shutil.copy(folder / "bundles", folder / "copy")
    print("\ndiff of a file with a copy of itself")
    _print({"diff": [*OURS, "diff", "bundles", "copy"]}, folder, 3)


def _print(commands: dict[str, list[str]], folder: Path, runs: int) -> None:
    for name, figures in zip(commands, compare([*commands.values()], folder, runs), strict=True):
        print(f"  {name:26} {figures}")


def _write_bundles(folder: Path) -> None:
    host = "host-x86_64-unknown-linux-gnu-"
    names = [host, *(f"hipv4-amdgcn-amd-amdhsa--{target}" for target in TARGETS)]
    entries = [(BundleEntryID.parse(name), str(folder / "image")) for name in names]
    bundle_files(entries, str(folder / "one"), file_type="bc", alignment=4096)
    one = (folder / "one").read_bytes()
    padded = one + bytes(-len(one) % 4096)
    (folder / "bundles").write_bytes(padded * BUNDLES)
