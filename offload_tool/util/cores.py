"""The number of cores that this process may use."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from contextlib import suppress


@functools.cache  # each frame of compressed data asks
def usable_cores(groups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int:
    """Return the number of cores that this process may use, at least 1.

    A container may limit it by a quota of a control group instead of the affinity. With ``docker
    --cpus=2``, a process may run on each of 64 cores, but for two seconds in sum of each second.

    Source: Linux, cgroup-v2.rst: ``cpu.max`` has quota, or ``max``, and period in microseconds.
    Version 1, sched-bwc.rst: they are in two files, and no quota is -1. Each group above counts.
    """
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        with open(groups) as lines:
            fields = [line.rstrip("\n").split(":", 2) for line in lines]
        paths = [path for _, names, path in fields if not names or "cpu" in names.split(",")]
        for path in paths:
            for folder in _with_parents(path):
                for quota, period in (*_texts(f"{root}{folder}"), *_texts(f"{root}/cpu{folder}")):
                    if quota.isdecimal() and period.isdecimal() and int(period):
                        cores = min(cores, math.ceil(int(quota) / int(period)))
    return max(1, cores)


def _with_parents(path: str) -> Iterator[str]:
    """Yield a path and those above; the root is empty."""
    path = path.rstrip("/")
    while path:
        yield path
        path = path.rpartition("/")[0]
    # In a container, this may be its own group, although the path is that of the machine.
    yield ""


def _texts(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the quota and the period of a group, in microseconds."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError):
            words: list[str] = []
            for name in names:
                with open(f"{folder}/{name}") as file:
                    words += file.read().split()
            if len(words) == 2:
                yield words[0], words[1]
