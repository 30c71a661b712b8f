"""Real compiles on a real cluster of this machine: a scheduler, two servers, tokens."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.cluster.loopback import Cluster
from offload_tool.cli import main
from offload_tool.errors import UsageError
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.passes import hip
from offload_tool.passes.verify_output import check_code_object
from offload_tool.sccache_dist.cluster import Engine
from offload_tool.sccache_dist.config import Distribution
from offload_tool.sccache_dist.session import Session
from tests.sccache_dist.conftest import Rocm

pytestmark = pytest.mark.llvm

pytestmark = pytest.mark.cluster

TARGETS = ["gfx906", "gfx908", "gfx90a:xnack+", "gfx942"]
TARGETS += ["gfx1030", "gfx1100", "gfx1101", "gfx1201"]
JOBS = 4  # the two servers take 6 at once on two cores
ENVIRONMENT = {"PATH": os.defpath}


@dataclass
class Checkout:
    """A folder of HIP sources, compiled by relative names."""

    folder: Path
    clang: str
    sources: int = 20

    def make(self, text: str = "") -> Checkout:
        self.folder.mkdir(parents=True)
        os.chdir(self.folder)
        for index in range(self.sources):
            (self.folder / f"h{index}.h").write_text(f"#define VALUE {index}\n{text}\n")
            (self.folder / f"s{index}.hip").write_text(
                f'#include "h{index}.h"\n__attribute__((global)) void k{index}(int *p) '
                "{\n  for (int i = 0; i < VALUE; ++i) p[i] += i * VALUE;\n}\n"
            )
        return self

    def command(self, source: str, target: str, output: str, *flags: str) -> list[str]:
        depfile = ["-dependency-file", f"{output}.d", "-MT", "object"]
        return [
            *(self.clang, "-x", "hip", "--cuda-device-only", f"--offload-arch={target}"),
            *("--no-gpu-bundle-output", "-cuid=1", "-O2", *(flags or ("-nogpuinc", "-nogpulib"))),
            *(word for option in depfile for word in ("-Xclang", option)),
            *("-c", "-o", output, source),
        ]

    def local(self, command: Sequence[str]) -> None:
        subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, check=True)

    def compile(self, session: Session, targets: Sequence[str], after: dict[int, object]) -> None:
        """Compile all sources for `targets`; call ``after[N]`` when N compiles have ended."""
        jobs = [(index, target) for index in range(self.sources) for target in targets]

        def one(job: tuple[int, str]) -> None:
            source, output = f"s{job[0]}.hip", f"{job[0]}.{job[1]}"
            command = self.command(source, job[1], output)
            finished, message = session.run(command, ENVIRONMENT)
            assert (finished.status, finished.output, message) == (0, b"", "")

        with ThreadPoolExecutor(JOBS) as pool:
            for count, _ in enumerate(pool.map(one, jobs)):
                if count in after:
                    after[count]()  # type: ignore[operator]

    def differing(self, targets: Sequence[str]) -> list[str]:
        """Compile all again on this machine alone; return the outputs that differ."""
        names = [(index, target) for index in range(self.sources) for target in targets]

        def one(job: tuple[int, str]) -> list[str]:
            self.local(self.command(f"s{job[0]}.hip", job[1], f"{job[0]}.{job[1]}.local"))
            output = self.folder / f"{job[0]}.{job[1]}"
            check_code_object(output, TargetID.parse(job[1]), "1")
            return [
                f"{output.name}{suffix}"
                for suffix in ("", ".d")
                if Path(f"{output}{suffix}").read_bytes()
                != Path(f"{output}.local{suffix}").read_bytes()
            ]

        with ThreadPoolExecutor(JOBS) as pool:
            return [name for found in pool.map(one, names) for name in found]


def checkout(folder: Path, distribution: Distribution, sources: int = 20) -> Checkout:
    return Checkout(folder, distribution.compilers[0], sources).make()


@pytest.fixture(autouse=True)
def _folder_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a test's checkout when the test ends."""
    monkeypatch.chdir(tmp_path)


@contextmanager
def ended(cluster: Cluster, name: str) -> Iterator[list[object]]:
    """Let the block end a part of the cluster; start it again afterwards."""
    try:
        yield []
    finally:
        cluster.restart(name)


def test_all_distributed_and_equal(fresh: Distribution, tmp_path: Path) -> None:
    """20 sources for 8 targets all run on the servers, and give this machine's bytes.

    A second checkout is served from the cache as a whole, depfiles too.
    """
    first = checkout(tmp_path / "a", fresh)
    session = Session(fresh)
    assert session.begin() == []
    first.compile(session, TARGETS, {})
    assert session.summary() == ["offload: distributed 160 of 160, 0 again locally"]
    assert first.differing(TARGETS) == []

    second = checkout(tmp_path / "b", fresh)
    session = Session(fresh)
    assert session.begin() == []
    second.compile(session, TARGETS, {})
    assert session.summary() == [
        "offload: distributed 0 of 160, 0 again locally, 160 from the cache"
    ]
    assert second.differing(TARGETS[:2]) == []


def test_killed_server(cluster: Cluster, fresh: Distribution, tmp_path: Path) -> None:
    """A server that is killed in the middle costs nothing but time."""
    sources = checkout(tmp_path / "a", fresh)
    session = Session(fresh)
    with ended(cluster, "server-0"):
        assert session.begin() == []
        sources.compile(session, TARGETS[:3], {10: lambda: cluster.kill("server-0")})
        report = session.report()
    assert report.distributed + report.again == report.compiles == 60
    assert report.distributed >= 10
    assert sources.differing(TARGETS[:3]) == []


def test_killed_scheduler(cluster: Cluster, fresh: Distribution, tmp_path: Path) -> None:
    """Without its scheduler a build goes on here, says so; one begun then warns at both ends."""
    sources = checkout(tmp_path / "a", fresh)
    session = Session(fresh)
    with ended(cluster, "scheduler"):
        assert session.begin() == []
        sources.compile(session, TARGETS[:2], {10: lambda: cluster.kill("scheduler")})
        report = session.report()
        assert report.distributed >= 10
        assert report.again >= 1
        assert report.distributed + report.again == report.compiles == 40
        assert sources.differing(TARGETS[:2]) == []

        Engine(fresh).stop()
        session = Session(fresh)
        (warning,) = session.begin()
        assert "nothing is distributed" in warning
        assert f"{cluster.url} does not answer" in warning
        sources.compile(session, TARGETS[2:3], {})
        assert session.summary() == [
            "offload: distributed 0 of 20, 0 again locally, 20 only locally",
            warning,
        ]
        assert sources.differing(TARGETS[2:3]) == []
    # The local server, started without a scheduler, must not stay without one.
    session = Session(fresh)
    assert session.begin() == []
    sources.compile(session, TARGETS[3:4], {})
    assert session.report().distributed == 20


def test_wrong_token(fresh: Distribution, cluster: Cluster) -> None:
    """A token that the scheduler refuses is an error before anything is compiled."""
    client = fresh.folder / "client.toml"
    client.write_text(client.read_text().replace(cluster.token, "wrong"))
    with pytest.raises(UsageError, match="refuses the token"):
        Session(fresh).begin()
    assert not Engine(fresh).is_running()


def test_compile_error(fresh: Distribution, tmp_path: Path) -> None:
    """An error in a source is shown once, with the compiler's status and words."""
    sources = checkout(tmp_path / "a", fresh, 1)
    (sources.folder / "s0.hip").write_text("int wrong = ;\n")
    session = Session(fresh)
    session.begin()
    command = sources.command("s0.hip", "gfx906", "out")
    finished, message = session.run(command, ENVIRONMENT)
    here = subprocess.run(
        command, cwd=sources.folder, env=ENVIRONMENT, capture_output=True, check=False
    )
    assert (finished.status, finished.output, message) == (here.returncode, here.stderr, "")
    assert finished.output.count(b"expected expression") == 1
    assert str(session.report()) == "distributed 0 of 1, 0 again locally, 1 failed"


@pytest.mark.parametrize("how", ["option", "environment", "path"])
def test_device_libraries(fresh: Distribution, tmp_path: Path, rocm: Rocm, how: str) -> None:
    """The HIP runtime's headers and device libraries work from afar; a changed one is not stale."""
    sources = checkout(tmp_path / "a", fresh, 1)
    (sources.folder / "s0.hip").write_text(
        "#include <hip/hip_runtime.h>\n"
        'extern "C" __device__ int lib_answer(void);\n'
        "__global__ void k(int *p, float *f) {\n"
        "  *p = lib_answer() + SEEN_RUNTIME; *f = std::abs(*f);\n}\n"
    )
    flags, environment = [f"--rocm-path={rocm.folder}"], dict(ENVIRONMENT)
    if how == "option":
        flags.append(f"--rocm-device-lib-path={rocm.libraries}")
    elif how == "environment":
        environment["HIP_DEVICE_LIB_PATH"] = str(rocm.libraries)
    session = Session(fresh)
    session.begin()
    images = []
    for answer in (41, 42):
        rocm.set_answer(answer)
        for name in ("far", "near"):
            command = sources.command("s0.hip", "gfx906", name, *flags)
            if name == "near":
                sources.local(command)
            else:
                finished, message = session.run(command, environment)
                assert (finished.status, finished.output, message) == (0, b"", "")
        for suffix in ("", ".d"):
            far, near = (sources.folder / f"{name}{suffix}" for name in ("far", "near"))
            assert far.read_bytes() == near.read_bytes()
        images.append((sources.folder / "far").read_bytes())
    assert images[0] != images[1]
    assert str(session.report()) == "distributed 2 of 2, 0 again locally"


def test_relocatable_device_code(fresh: Distribution, tmp_path: Path) -> None:
    """Device passes that give bitcode, with -fgpu-rdc, come out the same from afar."""
    sources = checkout(tmp_path / "a", fresh, 1)
    session = Session(fresh)
    session.begin()
    flags = hip.device_flags("gfx1100", "1", rdc=True)
    common = [sources.clang, *flags, "-nogpuinc", "-nogpulib", "-c", "s0.hip", "-o"]
    finished, message = session.run([*common, "far"], ENVIRONMENT)
    assert (finished.status, finished.output, message) == (0, b"", "")
    sources.local([*common, "near"])
    far, near = (sources.folder / name for name in ("far", "near"))
    assert far.read_bytes() == near.read_bytes()
    assert str(session.report()) == "distributed 1 of 1, 0 again locally"


def test_stays_local(fresh: Distribution, tmp_path: Path) -> None:
    """Host passes and whatever needs files of this machine are not sent, and not counted."""
    sources = checkout(tmp_path / "a", fresh, 1)
    session = Session(fresh)
    session.begin()
    host = [sources.clang, "-x", "hip", "--offload-host-only", "-nogpuinc", "-cuid=1"]
    (sources.folder / "h.hip").write_text("int answer() { return 42; }\n")
    finished, _ = session.run([*host, "-c", "-o", "h.o", "h.hip"], ENVIRONMENT)
    assert finished.status == 0
    traced = sources.command("s0.hip", "gfx906", "t", "-nogpuinc", "-nogpulib", "-save-temps")
    finished, _ = session.run(traced, ENVIRONMENT)
    assert finished.status == 0
    assert list(sources.folder.glob("s0-hip-*"))
    assert session.summary() == []


def test_one_local_server(fresh: Distribution) -> None:
    """Of many builds that begin at once, one starts the local server."""
    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda _: Engine(fresh).start(), range(8)))
    assert sorted(started) == [False] * 7 + [True]
    assert Engine(fresh).start(connect=True) is False


@pytest.mark.parametrize("name", ["client.toml", "setup.json"])
def test_new_configuration(fresh: Distribution, name: str) -> None:
    """A local server of an older configuration, or for another compiler, is started anew."""
    engine = Engine(fresh)
    assert engine.start()
    assert engine.is_current()
    (fresh.folder / name).write_text((fresh.folder / name).read_text() + "\n")
    assert not engine.is_current()
    assert engine.start()
    assert engine.is_connected()


def test_user_settings_do_not_reach_the_engine(
    fresh: Distribution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own settings of sccache, meant for other builds, change nothing."""
    monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("SCCACHE_RECACHE", "1")
    sources = checkout(tmp_path / "a", fresh, 1)
    for expected in ("distributed 1 of 1, 0 again", "distributed 0 of 1, 0 again locally, 1 from"):
        session = Session(fresh)
        session.begin()
        command = sources.command("s0.hip", "gfx906", "out")
        session.run(command, os.environ)
        assert expected in str(session.report())
    assert not (tmp_path / "other").exists()


def test_status_command(
    cluster: Cluster, distribution: Distribution, capsys: pytest.CaptureFixture[str]
) -> None:
    """``dist status`` says how the cluster and the local server are."""
    Session(distribution).begin()
    assert main(["dist", "status", str(distribution.folder)]) == 0
    said = capsys.readouterr().out
    assert f"cluster: {cluster.url}: 2 servers, " in said
    assert "local sccache server: connected; since its start: 0 compiles" in said
    assert main(["dist", "stop", str(distribution.folder)]) == 0
    assert not Engine(distribution).is_running()


def test_init_refuses(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], distribution: Distribution
) -> None:
    """``dist init`` writes nothing when the token is wrong or the scheduler is not there."""
    wrong = tmp_path / "token"
    wrong.write_text("wrong\n")
    common = ["dist", "init", "-o", str(tmp_path / "d"), "--clang", distribution.compilers[0]]
    for scheduler, message in (
        (cluster.url, "refuses this token"),
        ("http://127.0.0.1:1", "does not answer"),
    ):
        words = [*common, "--scheduler", scheduler, "--token-file", str(wrong)]
        assert main(words) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "d").exists()
