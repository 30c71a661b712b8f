"""OFFLOAD_DIST: HIP device passes through sccache, here a script that plays one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offload_tool.errors import OffloadError
from offload_tool.io.file_digests import digest_of
from offload_tool.launch import remote_passes
from offload_tool.launch.split_compile import run_split
from offload_tool.sccache_dist.cluster import Cluster
from offload_tool.toolchain.probe import probe
from tests.conftest import Tool
from tests.launch.compiles import HIP, TARGETS, environment, make_project, run
from tests.scripts import script

if TYPE_CHECKING:
    from collections.abc import Callable

    Split = Callable[..., tuple[int, str, list[str]]]
    """Takes the script of sccache and the words; gives status, messages, and the decisions."""

WORDS = (*HIP, *TARGETS, "-c", "s.hip", "-o", "s.o")

pytestmark = pytest.mark.llvm


@pytest.fixture
def split(tmp_path: Path, llvm: Tool, monkeypatch: pytest.MonkeyPatch) -> Split:
    """Return a function that compiles with OFFLOAD_DIST, whose local server runs."""
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    clang = shutil.which(llvm("clang++"))
    assert clang

    def run_with(
        text: str, *args: str, packed: str = clang, **more: str
    ) -> tuple[int, str, list[str]]:
        begin = """case $1 in --*) echo '"num_servers":1'; exit;; esac"""
        sccache = script(tmp_path / "sccache", f'{begin}\necho "$*" >>log\n{text}')
        identity = digest_of(probe((clang,), clang, os.environ["PATH"]).identity.encode())
        variables = {"SCCACHE_CONF": "/nowhere", "SCCACHE_SERVER_UDS": str(tmp_path / "socket")}
        made = Cluster(tmp_path, packed, identity, sccache, variables)
        monkeypatch.setattr(remote_passes, "load_cluster", lambda _: made)
        decisions: list[str] = []
        environ = environment({"OFFLOAD_DIST": "d", **more})
        status, _, messages = run_split([clang, *(args or WORDS)], environ, decisions.append)
        return status, messages.decode(), decisions

    return run_with


def sent() -> list[str]:
    """Return the commands that sccache got."""
    return Path("log").read_text().splitlines() if Path("log").exists() else []


def is_the_drivers(llvm: Tool, *args: str) -> bool:
    """Tell whether the object is the driver's."""
    made = Path("s.o").read_bytes()
    assert run([llvm("clang++"), *(args or WORDS)], Path.cwd()).returncode == 0
    return Path("s.o").read_bytes() == made


def test_device_passes(split: Split, llvm: Tool) -> None:
    """Each device pass is sccache's, with the folder's settings; the object is the driver's.

    The depfile names what passes elsewhere have read.
    """
    done = split('test "$SCCACHE_CONF" = /nowhere && exec "$@"', *WORDS, "-MD")
    assert done[:2] == (0, "")
    assert "only_gfx90a.h" in Path("s.d").read_text()
    assert is_the_drivers(llvm)
    assert len(sent()) == 2
    for line, target in zip(sorted(sent()), ("gfx906", "gfx90a:xnack+"), strict=True):
        assert f"--offload-arch={target} --offload-device-only" in line


def test_language_is_named(split: Split, llvm: Tool) -> None:
    """A source known by its suffix is sent with its language."""
    args = [word for word in WORDS if word not in ("-x", "hip")]
    assert split('exec "$@"', *args)[0] == 0
    assert is_the_drivers(llvm, *args)
    assert [" -x hip " in line for line in sent()] == [True, True]


def test_failing_cluster(split: Split, tmp_path: Path, llvm: Tool) -> None:
    """What the cluster fails is compiled here, once, and that is said; messages come once."""
    Path("s.hip").write_text(Path("s.hip").read_text() + "#warning told once\n")
    status, messages, _ = split("echo dead >&2; exit 254")
    assert status == 0
    for target in ("gfx906", "gfx90a:xnack+"):
        assert (
            f"offload: s.o for {target}: {tmp_path / 'sccache'} failed (status 254: dead); "
            "compiled again on this machine\n"
        ) in messages
    assert messages.count("warning: told once") == 1
    assert messages.count("dead") == 2  # both times as a reason
    assert len(sent()) == 2
    assert is_the_drivers(llvm)


def test_one_pass_fails(split: Split, llvm: Tool) -> None:
    """A pass that the cluster fails does not keep the others from it."""
    status, messages, _ = split(
        'case "$*" in *gfx906*) exit 254;; esac; exec "$@"', OFFLOAD_LAUNCH_JOBS="1"
    )
    assert status == 0
    assert messages.count("compiled again") == 1
    assert len(sent()) == 2
    assert is_the_drivers(llvm)


def test_error_in_the_source(split: Split) -> None:
    """An error in the source is said once, in the words of the compiler here; no output is left."""
    Path("s.hip").write_text("this is not C++\n")
    status, messages, _ = split('echo Job failed on server >&2; "$@"; exit 254')
    assert status == 1
    assert "Job failed" not in messages
    assert messages.count("error:") == 1
    assert "offload" not in messages
    assert not Path("s.o").exists()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("-save-temps", "its result is no temporary file"),
        ("--offload-new-driver", "no command is this pass alone"),
        ("-ftime-trace", "-ftime-trace writes a file that would stay on the server"),
    ],
)
def test_what_stays_here(flags: str, reason: str, split: Split, llvm: Tool) -> None:
    """What a server could not do never reaches sccache, and the reason is told."""
    status, _, decisions = split("exit 254", *WORDS, flags)
    assert status == 0
    assert is_the_drivers(llvm, *WORDS, flags)
    assert sent() == []
    assert any(reason in line for line in decisions)


def test_other_result(split: Split) -> None:
    """A server's result for another target is found out."""
    with pytest.raises(Exception, match="expected processor gfx906"):
        split('exec "${@/arch=gfx906/arch=gfx942}"'.join(["bash -c '", '\' sccache "$@"']))
    assert not Path("s.o").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"packed": "/bin/true"}, "holds /bin/true as 'dist init' found it, but"),
        ({"OFFLOAD_LAUNCHER": "ccache"}, "unset OFFLOAD_LAUNCHER"),
    ],
    ids=["compiler that was not packed", "launcher"],
)
def test_refused(split: Split, given: dict[str, str], message: str) -> None:
    """A compiler that was not packed, and a launcher beside OFFLOAD_DIST, are errors by name."""
    with pytest.raises(OffloadError, match=message):
        split("exit 0", **given)
    assert not Path("s.o").exists()
