"""The number of usable cores: affinity, and quotas of control groups as containers set them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.util.cores import usable_cores

CORES = 8
GROUPS = {
    "no control groups": ("", {}, CORES),
    "no quota": ("0::/\n", {"cpu.max": "max 100000\n"}, CORES),
    "of a container": ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
    "rounded up": ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),
    "less than one": ("0::/\n", {"cpu.max": "5000 100000\n"}, 1),
    "more than there are": ("0::/\n", {"cpu.max": "9900000 100000\n"}, CORES),
    "of the group above": (
        "0::/a.slice/b.scope\n",
        {"a.slice/cpu.max": "300000 100000\n", "a.slice/b.scope/cpu.max": "max 100000\n"},
        3,
    ),
    "the least": (
        "0::/a/b\n",
        {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "400000 100000\n"},
        3,
    ),
    "version 1": (
        "4:memory:/m\n3:cpu,cpuacct:/docker/x\n0::/\n",
        {"cpu/docker/x/cpu.cfs_quota_us": "250000\n", "cpu/docker/x/cpu.cfs_period_us": "100000\n"},
        3,
    ),
    "version 1, by the path of the machine": (
        "3:cpu,cpuacct:/docker/x\n",
        {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "50000\n"},
        2,
    ),
    "version 1, no quota": (
        "3:cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        CORES,
    ),
    "of memory": ("4:memory:/m\n", {"m/cpu.max": "100000 100000\n"}, CORES),
    "damaged": ("no group\n0::/\n", {"cpu.max": "100000 100000\n"}, CORES),
    "no period": ("0::/\n", {"cpu.max": "100000 0\n"}, CORES),
    "words": ("0::/\n", {"cpu.max": "all of them\n"}, CORES),
}


@pytest.mark.parametrize("name", GROUPS)
def test_usable_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A quota limits the cores of the affinity; what is not understood does not."""
    groups, files, expected = GROUPS[name]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(CORES))
    (tmp_path / "groups").write_text(groups)
    for file, text in files.items():
        (tmp_path / "root" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / file).write_text(text)
    assert usable_cores(str(tmp_path / "groups"), str(tmp_path / "root")) == expected


def test_without_proc(tmp_path: Path) -> None:
    """Without such files, the affinity counts."""
    assert usable_cores(str(tmp_path / "none"), str(tmp_path)) == len(os.sched_getaffinity(0))
