"""``python -m tests.fuzz``: any number of cases, by hand."""

# ruff: noqa: T201 - it prints what it finds.

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.mutations import make_case
from tests.fuzz.worker import run_cases


def main() -> int:
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="offload-fuzz-"))
    seeds = (
        [given.seed] if given.seed is not None else range(given.first, given.first + given.cases)
    )
    operations: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    kinds: Counter[tuple[str, str]] = Counter()
    slowest = (0.0, 0)
    for result in run_cases(seeds, folder / "work", seconds=given.seconds):
        operations[result.format] += 1
        refused[result.format] += bool(result.status)
        slowest = max(slowest, (result.seconds, result.seed))
        for finding in result.findings:
            kinds[finding.format, finding.what] += 1
            print(f"{finding.what}: seed {finding.seed}, {finding.format}: {finding.command}")
            print(f"    {finding.detail[-given.detail :]}", flush=True)
            if given.keep:
                given.keep.mkdir(exist_ok=True)
                (given.keep / str(finding.seed)).write_bytes(make_case(finding.seed).data)
    print(f"{'format':26} operations  refused  findings")
    for name, count in sorted(operations.items()):
        what = ", ".join(f"{n} {kind}" for (form, kind), n in kinds.items() if form == name)
        print(f"{name:26} {count:10} {refused[name]:8}  {what or '-'}")
    print(
        f"{operations.total()} operations; the slowest took {slowest[0]:.2f} s (seed {slowest[1]})"
    )
    return 1 if kinds else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=int(time.time()) << 20)
    parser.add_argument("--seed", type=int, help="this one case")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--keep", type=Path, help="put the files with findings into this folder")
    parser.add_argument("--detail", type=int, default=1500, help="characters of each finding")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
