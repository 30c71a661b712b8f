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
        self._library("ocml", f"int __attribute__((const)) lib_answer(void) {{ return {value}; }}")

    def make(self) -> None:
        headers = self.folder / "include" / "hip"
        headers.mkdir(parents=True)
        self.libraries.mkdir(parents=True)
        version = self.folder / "share" / "hip" / "version"
        version.parent.mkdir(parents=True)
        version.write_text("HIP_VERSION_MAJOR=6\nHIP_VERSION_MINOR=4\nHIP_VERSION_PATCH=1\n")
        (headers / "hip_version.h").write_text(
            "#define HIP_VERSION_MAJOR 6\n#define HIP_VERSION_MINOR 4\n"
        )
        (headers / "hip_runtime.h").write_text("#define SEEN_RUNTIME 1\n")
        switches = ("finite_only", "unsafe_math", "correctly_rounded_sqrt", "wavefrontsize64")
        names = [f"oclc_{name}_{way}" for name in (*switches, "daz_opt") for way in ("on", "off")]
        names += ["ockl", "opencl", "hip", "oclc_abi_version_500", "oclc_abi_version_600"]
        for name in [*names, "oclc_isa_version_906", "oclc_isa_version_1100"]:
            self._library(name, "")
        self.set_answer(41)

    def _library(self, name: str, text: str) -> None:
        subprocess.run(
            [self.clang, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-O1", "-x", "c"]
            + ["-emit-llvm", "-c", "-", "-o", str(self.libraries / f"{name}.bc")],
            input=text,
            text=True,
            check=True,
        )


@pytest.fixture
def rocm(tmp_path: Path, llvm: Callable[[str], str]) -> Rocm:
    made = Rocm(tmp_path / "rocm", llvm("clang"))
    made.make()
    return made
