"""A cluster on the loopback, shared by the tests of a session; and a ROCm folder without ROCm."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from examples.cluster.loopback import Cluster, why_impossible
from offload_tool.cli import main
from offload_tool.sccache_dist.cluster import Engine
from offload_tool.sccache_dist.config import Distribution, load_distribution
from tests.toolchain.installed import write_device_libraries, write_rocm


def cannot(reason: str) -> None:
    """Fail in CI, where a cluster must be possible; skip with the reason elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"no cluster can run here, and in CI one must: {reason}")
    pytest.skip(f"no cluster can run here: {reason}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a scheduler with two servers. A test that ends one of them starts it again."""
    reason = why_impossible()
    if reason:
        cannot(reason)
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def distribution(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, llvm: Callable[[str], str]
) -> Iterator[Distribution]:
    """Return the folder that ``dist init`` makes for the cluster."""
    folder = tmp_path_factory.mktemp("dist") / "d"
    status = main(
        ["dist", "init", "--scheduler", cluster.url, "--token-file", str(cluster.token_file)]
        + ["-o", str(folder), "--clang", llvm("clang")]
    )
    assert status == 0
    made = load_distribution(folder)
    yield made
    _end(made)


@pytest.fixture
def fresh(distribution: Distribution, tmp_path: Path) -> Iterator[Distribution]:
    """Return the same with a cache and a local server of its own."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in ("cache", "dist"):
        (folder / name).mkdir()
    text = (distribution.folder / "client.toml").read_text()
    text = text.replace(f'dir = "{distribution.folder}/cache"', f'dir = "{folder}/cache"')
    (folder / "client.toml").write_text(text)
    shutil.copy(distribution.folder / "setup.json", folder)
    variables = dict(distribution.environment) | {
        "SCCACHE_CONF": str(folder / "client.toml"),
        "SCCACHE_SERVER_UDS": str(distribution.socket.with_name(f"test-{os.urandom(6).hex()}")),
    }
    made = replace(distribution, folder=folder, environment=tuple(variables.items()))
    yield made
    _end(made)


def _end(made: Distribution) -> None:
    Engine(made).stop()
    for left in made.socket.parent.glob(f"{made.socket.name}*"):
        left.unlink()


@dataclass
class Rocm:
    """A folder laid out as ROCm's, with headers and device libraries of a few lines."""

    folder: Path
    clang: str

    @property
    def libraries(self) -> Path:
        return self.folder / "amdgcn" / "bitcode"

    def set_answer(self, value: int) -> None:
        """Let the device library's function give `value`."""
        subprocess.run(
            [self.clang, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-O1", "-x", "c"]
            + ["-emit-llvm", "-c", "-", "-o", str(self.libraries / "ocml.bc")],
            input=f"int __attribute__((const)) lib_answer(void) {{ return {value}; }}",
            text=True,
            check=True,
        )

    def make(self) -> None:
        write_rocm(self.folder, header="#define SEEN_RUNTIME 1\n")
        write_device_libraries(self.libraries, self.clang)
        self.set_answer(41)


@pytest.fixture
def rocm(tmp_path: Path, llvm: Callable[[str], str]) -> Rocm:
    made = Rocm(tmp_path / "rocm", llvm("clang"))
    made.make()
    return made
