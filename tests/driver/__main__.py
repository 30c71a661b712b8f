"""``python -m tests.driver``: any number of trials, by hand."""

# ruff: noqa: T201 - it prints what it finds.

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from offload_tool.passes.choose_compiler import find_toolchain
from tests.driver.running import ROOT
from tests.driver.trial import Outcome, run_trial

Runner = Callable[..., Outcome]
"""`run_trial`, but for the seed, the folder, and the changes that are made."""


def main() -> int:
    given = _arguments()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="offload-driver-"))
    runner = functools.partial(
        run_trial,
        changes=given.changes,
        clang=Path(find_toolchain().clang[0]),
        package=given.package.resolve(),
        without=frozenset(given.without.split(",")),
        pch=given.pch,
    )
    only = frozenset(map(int, given.only.split(","))) if given.only else None
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    outcomes: list[Outcome] = []
    start = time.monotonic()

    def one(seed: int) -> None:
        if given.stop and any(outcome.failure for outcome in outcomes):
            return
        outcome = runner(seed=seed, folder=folder / str(seed), only=only)
        if outcome.failure and given.shrink:
            outcome = _shrunk(outcome, given.changes, runner, folder / str(seed))
        _print(outcome, verbose=given.verbose)
        if not given.keep and not outcome.failure:
            shutil.rmtree(folder / str(seed))
        outcomes.append(outcome)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(one, seeds))
    failed = [outcome.seed for outcome in outcomes if outcome.failure]
    steps = sum(outcome.steps for outcome in outcomes)
    runs = sum(outcome.scons_runs for outcome in outcomes)
    print(
        f"{len(outcomes)} projects, {steps - len(outcomes)} changes, {runs} runs of scons, "
        f"{len(failed)} failures, {time.monotonic() - start:.0f} s"
    )
    if failed:
        print(f"failed: {' '.join(map(str, failed))}; the folders are in {folder}")
    elif not given.keep:
        shutil.rmtree(folder)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.driver", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many projects (default: 10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="one project")
    parser.add_argument("--changes", type=int, default=10, help="changes of each (default: 10)")
    parser.add_argument("--only", help="the numbers of the changes to make, such as 0,3,7")
    parser.add_argument("--without", default="", help="kinds of change to leave out: damage,kill")
    parser.add_argument("--pch", action="store_true", help="build with precompiled headers")
    parser.add_argument("--shrink", action="store_true", help="look for fewer changes that fail")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--jobs", type=int, default=1, help="trials at the same time (default: 1)")
    parser.add_argument("--keep", type=Path, help="a folder for the projects, which stay there")
    parser.add_argument("--package", type=Path, default=ROOT, help="where the tool is taken from")
    parser.add_argument("--verbose", action="store_true", help="print the story of each trial")
    return parser.parse_args()


def _print(outcome: Outcome, *, verbose: bool) -> None:
    if outcome.failure or verbose:
        print(f"=== seed {outcome.seed}\n{outcome.story}\n")
    what = f"FAILED: {outcome.failure}" if outcome.failure else "right"
    print(
        f"seed {outcome.seed}: {outcome.steps} builds, {outcome.seconds:.0f} s: {what}", flush=True
    )


def _shrunk(outcome: Outcome, changes: int, runner: Runner, folder: Path) -> Outcome:
    """Leave out one change after the other, as long as one of the others fails."""
    kept = list(range(changes))
    for number in range(changes - 1, -1, -1):
        tried = [other for other in kept if other != number]
        found = runner(seed=outcome.seed, folder=folder, only=frozenset(tried))
        if found.failure:
            kept, outcome = tried, found
    print(f"seed {outcome.seed} fails with --changes {changes} --only {','.join(map(str, kept))}")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
