"""Which jobs of a plan are one pass: what reads the source, and what alone reads its output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload_tool.clang.job_plan import DriverPlan

_BEHIND = ("lld", "ptxas")


def passes_of(plan: DriverPlan, folder: str) -> list[list[int]]:
    """Return the numbers of the jobs of each pass whose result is a temporary file in a folder."""
    found = []
    for number, job in enumerate(plan.jobs):
        if job.source != plan.source or job.needs:
            continue
        numbers = [number, *_behind(plan, number)]
        if all(plan.jobs[one].output.startswith(f"{folder}/") for one in numbers):
            found.append(numbers)
    return found


def _behind(plan: DriverPlan, number: int) -> list[int]:
    """Return the one job that alone reads what a front end makes, and nothing else."""
    readers = [at for at, job in enumerate(plan.jobs) if number in job.needs]
    if len(readers) != 1:
        return []
    (reader,) = readers
    job = plan.jobs[reader]
    return [reader] if job.sort in _BEHIND and job.needs == [number] else []
