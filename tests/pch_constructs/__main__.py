"""``python -m tests.pch_constructs``: any number of compositions, by hand."""

# ruff: noqa: T201 - it prints what it finds.

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.pch_constructs.compositions import Composition, alone, composed
from tests.pch_constructs.constructs import CONSTRUCTS
from tests.pch_constructs.launched import DRIVERS, EDITS, MAP, LaunchTrial
from tests.pch_constructs.trial import Trial, begin_worker, judge_by_worker


def main() -> int:
    given = _arguments()
    if given.clang:
        os.environ["OFFLOAD_CLANG"] = given.clang
    start = time.monotonic()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="offload-pch-"))
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    compositions = list(_alone(given.launch) if given.alone else _composed(given))
    make = partial(_launch_trial, given.launch, given.seed) if given.launch else Trial
    with ProcessPoolExecutor(given.jobs, initializer=begin_worker, initargs=(make, folder)) as pool:
        done = pool.map(judge_by_worker, [each for _, each in compositions], chunksize=4)
        for (name, composition), outcome in zip(compositions, done, strict=True):
            counts[outcome.what] += 1
            if outcome.what == "refused":
                reasons[_general(outcome.why)] += 1
            if outcome.what == "different" or given.verbose:
                print(f"{outcome.what}: {name}: {composition}\n  {outcome.why}", flush=True)
    for reason, count in reasons.most_common(given.reasons):
        print(f"  {count} refused: {reason}")
    print(
        f"{len(compositions)} compositions: "
        + ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        + f"; {time.monotonic() - start:.0f} s"
    )
    if not given.keep:
        shutil.rmtree(folder)
    return 1 if counts["different"] else 0


def _launch_trial(clang: str, seed: int, folder: Path) -> LaunchTrial:
    rng = random.Random(seed)
    extra = ["-g", "-fgpu-rdc", MAP, MAP]

    def choose() -> tuple[list[str], list[str]]:
        flags = rng.sample(extra, 1) if rng.random() < 0.3 else []
        return [rng.choice(DRIVERS), *flags], rng.sample([*EDITS], 2)

    return LaunchTrial(folder, shlex.split(clang), choose)


def _alone(launch: str) -> Iterator[tuple[str, Composition]]:
    for name, construct in CONSTRUCTS.items():
        for kind in _kinds(launch):
            if construct.kind in ("", kind):
                for stage in ("host",) if launch else ("device", "host"):
                    yield name, alone(name, kind, stage)
                if construct.file == "pragmas":
                    yield name, alone(name, kind, "host", warns=True)
                if not construct.is_host and construct.file in ("standard", "gnu"):
                    yield name, alone(name, kind, "device", is_both=True)


def _composed(given: argparse.Namespace) -> Iterator[tuple[str, Composition]]:
    numbers = given.only or range(given.count)
    for number in numbers:
        rng = random.Random(f"{given.seed} {number}")
        kind = "" if len(_kinds(given.launch)) > 1 else "hip"
        yield f"--only {number}", composed(rng, list(CONSTRUCTS), kind)


def _kinds(launch: str) -> tuple[str, ...]:
    """Return the offload kinds: CUDA's driver has other headers without an installation."""
    return ("hip",) if launch and "--cuda-path=" not in launch else ("hip", "cuda")


def _general(reason: str) -> str:
    """Return a reason without names of files and symbols."""
    parts = reason.split("'")
    return "'...'".join(parts[::2]) if len(parts) > 2 else reason


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pch_constructs", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="compositions (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of the compositions")
    parser.add_argument("--alone", action="store_true", help="each construct by itself instead")
    parser.add_argument("--clang", default="", help="the compiler")
    parser.add_argument("--launch", default="", help="compare `launch` with this clang instead")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the files, which stay there")
    parser.add_argument("--reasons", type=int, default=30, help="how many to print (default: 30)")
    parser.add_argument("--verbose", action="store_true", help="print each composition")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
