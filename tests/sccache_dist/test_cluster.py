"""Real compiles on a real cluster of this machine: a scheduler, two servers, tokens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.cluster import loopback
from offload_tool.sccache_dist.cluster import Cluster, load_cluster
from tests.launch.compiles import CUID, LAUNCH, SOURCE, TARGETS, make_project, run
from tests.sccache_dist.conftest import counters, sccache
from tests.toolchain.installed import Rocm

pytestmark = pytest.mark.cluster


OUTPUTS = "[rs]*.gfx*.[bc][co]"
PLAIN = ("-nogpuinc", "-nogpulib")
SCONSTRUCT = """
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH="gfx906 gfx908 gfx90a:xnack+ gfx942 gfx1030 gfx1100 gfx1101 gfx1201",
    OFFLOAD_FLAGS="-O2 -nogpuinc -nogpulib",
)
env.OffloadDeviceObject(Glob("s*.hip"))
env.OffloadDeviceObject("r.hip", OFFLOAD_RDC=True, OFFLOAD_ARCH="gfx1100")
"""
ROCM_SOURCE = """#include <hip/hip_runtime.h>
extern "C" __attribute__((device)) int lib_answer(void);
__attribute__((device, used)) int f(float *p) {
  *p = std::abs(*p); return lib_answer() + SEEN_RUNTIME;
}
"""


def start(
    cluster: Cluster, folder: Path, *args: str, far: bool = True, **more: str
) -> subprocess.Popen[str]:
    """Start a module of Python in a folder, on the cluster or, not `far`, on this machine alone."""
    named = {"OFFLOAD_CLANG": cluster.compiler, "OFFLOAD_DIST": str(cluster.folder) if far else ""}
    return subprocess.Popen(
        [sys.executable, "-m", *args],
        cwd=folder,
        env={**os.environ, **named, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def build(cluster: Cluster, folder: Path, *args: str, far: bool = True) -> subprocess.Popen[str]:
    """Start a build of new sources, with 161 device passes, 4 at once: servers take 6."""
    folder.mkdir()
    (folder / "SConstruct").write_text(SCONSTRUCT)
    for index, name in enumerate(["r", *(f"s{number}" for number in range(20))]):
        (folder / f"{name}.h").write_text(f"#define VALUE {index}\n")
        (folder / f"{name}.hip").write_text(
            f'#include "{name}.h"\n__attribute__((global)) void {name}(int *p) '
            "{\n  for (int i = 0; i < VALUE; ++i) p[i] += i * VALUE;\n}\n"
        )
    return start(cluster, folder, "SCons", "-Q", "-j4", *args, far=far)


def compiling(
    cluster: Cluster, folder: Path, name: str, *flags: str, far: bool = True, **more: str
) -> subprocess.Popen[str]:
    """Start ``offload-tool compile`` of ``NAME.hip``."""
    args = ["compile", f"{name}.hip", "-o", f"{name}.co", "--depfile", f"{name}.d", "--target-id"]
    args += ["gfx1100", "--", *(flags or PLAIN)]
    return start(cluster, folder, "offload_tool", *args, far=far, **more)


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def images(folder: Path) -> dict[str, bytes]:
    """Return the outputs of a build's device passes."""
    return {path.name: path.read_bytes() for path in folder.glob(OUTPUTS)}


@pytest.fixture(scope="module")
def local(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the outputs of a build on this machine alone."""
    folder = tmp_path_factory.mktemp("local") / "a"
    finished(build(load_cluster(packed), folder, far=False))
    return images(folder)


def test_all_distributed_and_equal(
    cluster: Cluster, local: dict[str, bytes], tmp_path: Path
) -> None:
    """All of a build's 161 compiles run on the servers, and give this machine's bytes.

    One of them gives bitcode. A second checkout is served from the cache as a whole.
    """
    assert "offload: " not in finished(build(cluster, tmp_path / "b")).replace("offload: using", "")
    assert counters(cluster) == (len(local), len(local), 0, 0) == (161, 161, 0, 0)
    assert images(tmp_path / "b") == local
    finished(build(cluster, tmp_path / "c"))
    assert counters(cluster) == (322, 161, 0, 161)
    assert images(tmp_path / "c") == local


def test_killed(
    machines: loopback.Cluster, cluster: Cluster, local: dict[str, bytes], tmp_path: Path
) -> None:
    """A server, then the scheduler, killed in the middle of a build cost nothing but time.

    A build that begins without a scheduler says so.
    """
    building = build(cluster, tmp_path / "b")
    for part, least in (("server-0", 10), ("scheduler", 60)):
        while len([*(tmp_path / "b").glob(OUTPUTS)]) < least and building.poll() is None:
            time.sleep(0.05)
        machines.kill(part)
    try:
        finished(building)
        compiles, distributed, again, _ = counters(cluster)
        assert distributed + again == compiles == 161
        assert min(distributed, again) >= 10
        assert images(tmp_path / "b") == local
        sccache(cluster, "--stop-server")
        warning = f"OFFLOAD_DIST={cluster.folder}: sccache reaches no server"
        name = "s0.gfx906.co"
        assert warning in finished(build(cluster, tmp_path / "c", name))
        assert images(tmp_path / "c") == {name: local[name]}
    finally:
        machines.restart("scheduler")
        machines.restart("server-0")


def test_wrong_token(machines: loopback.Cluster, cluster: Cluster, tmp_path: Path) -> None:
    """Where the scheduler refuses the token, each compile runs here, and a line says why."""
    client = cluster.folder / "client.toml"
    client.write_text(client.read_text().replace(machines.token, "wrong"))
    output = finished(build(cluster, tmp_path / "b", "s0.gfx906.co"))
    assert f"offload: s0.gfx906.co: {cluster.sccache} failed (status 1: " in output
    assert "token mismatch); compiled again on this machine" in output
    assert len(images(tmp_path / "b")) == 1


def test_compile_error(cluster: Cluster, tmp_path: Path) -> None:
    """An error in a source is shown once, with the compiler's status and messages."""
    (tmp_path / "k.hip").write_text("int wrong = ;\n")
    found = []
    for far in (True, False):
        process = compiling(cluster, tmp_path, "k", far=far)
        found.append((process.communicate()[0], process.returncode))
    assert found[0] == found[1]
    assert found[0][0].count("expected expression") == 1
    assert counters(cluster)[0] == 1


@pytest.mark.parametrize("how", ["option", "environment", "path"])
def test_device_libraries(cluster: Cluster, rocm: Rocm, how: str, tmp_path: Path) -> None:
    """The HIP runtime's headers and device libraries work from afar; a changed one is not stale."""
    (tmp_path / "k.hip").write_text(ROCM_SOURCE)
    flags = [f"--rocm-path={rocm.folder}"]
    flags += [f"--rocm-device-lib-path={rocm.libraries}"] * (how == "option")
    more = {"HIP_DEVICE_LIB_PATH": str(rocm.libraries)} if how == "environment" else {}
    made = []
    for answer in (41, 42):
        rocm.set_answer(answer)
        for far in (True, False):
            assert finished(compiling(cluster, tmp_path, "k", *flags, far=far, **more)) == ""
            made.append([(tmp_path / name).read_bytes() for name in ("k.co", "k.d")])
            (tmp_path / "k.co").unlink()
    assert made[0] == made[1]
    assert made[2] == made[3]
    assert made[0] != made[2]
    assert counters(cluster) == (2, 2, 0, 0)


def test_launch(cluster: Cluster, rocm: Rocm, tmp_path: Path) -> None:
    """Servers run both device passes of one compile; its object is the driver's.

    The depfile names what a server has read.
    """
    make_project(tmp_path)
    (tmp_path / "s.hip").write_text(ROCM_SOURCE + SOURCE)
    args = [cluster.compiler, "-x", "hip", CUID, f"--rocm-path={rocm.folder}", "-O2", "-MD"]
    args += [*TARGETS, "-c", "s.hip", "-o", "s.o"]
    done = run([*LAUNCH, *args], tmp_path, {"OFFLOAD_DIST": str(cluster.folder)})
    assert (done.returncode, "passed through" in done.stderr) == (0, False), done.stderr
    assert "without the cluster" not in done.stderr
    assert counters(cluster) == (2, 2, 0, 0)
    assert "only_gfx90a.h" in (tmp_path / "s.d").read_text()
    made = (tmp_path / "s.o").read_bytes()
    assert run(args, tmp_path).returncode == 0
    assert (tmp_path / "s.o").read_bytes() == made
