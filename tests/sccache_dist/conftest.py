"""A cluster on the loopback, shared by the tests of a session; and a ROCm folder without ROCm."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.cluster import loopback
from offload_tool.cli import main
from offload_tool.sccache_dist.cluster import Cluster, load_cluster
from tests.conftest import Tool, missing, run_tool
from tests.toolchain.installed import Rocm


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loopback.Cluster]:
    """Return a scheduler with two servers. A test that ends one of them starts it again."""
    reason = loopback.why_impossible()
    if reason:
        missing(f"a cluster ({reason})")
    with loopback.Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def packed(
    machines: loopback.Cluster, tmp_path_factory: pytest.TempPathFactory, llvm: Tool
) -> Path:
    """Return the folder that ``dist init`` makes."""
    folder = tmp_path_factory.mktemp("dist") / "d"
    args = ["--scheduler", machines.url, "--token-file", str(machines.token_file)]
    assert main(["dist", "init", *args, "-o", str(folder), "--clang", llvm("clang")]) == 0
    return folder


@pytest.fixture
def cluster(packed: Path, tmp_path: Path) -> Iterator[Cluster]:
    """Return the same with a cache and a local server of its own."""
    folder = tmp_path / "dist"
    folder.mkdir()
    client = (packed / "client.toml").read_text().replace(f"{packed}/cache", f"{folder}/cache")
    (folder / "client.toml").write_text(client)
    (folder / "env").write_text((packed / "env").read_text().replace(str(packed), str(folder)))
    made = load_cluster(folder)
    yield made
    sccache(made, "--stop-server")


def sccache(cluster: Cluster, *options: str) -> str:
    return run_tool(cluster.sccache, *options, env=os.environ | cluster.environment)


def counters(cluster: Cluster) -> tuple[int, int, int, int]:
    """Return how many compiles there were, on servers, failed there, and from the cache."""
    stats = json.loads(sccache(cluster, "--show-stats", "--stats-format", "json"))["stats"]
    distributed, hits = stats["dist_compiles"].values(), stats["cache_hits"]["counts"].values()
    return stats["requests_executed"], sum(distributed), stats["dist_errors"], sum(hits)


@pytest.fixture
def rocm(tmp_path: Path, llvm: Tool) -> Rocm:
    return Rocm.make(tmp_path / "rocm", llvm("clang"))
