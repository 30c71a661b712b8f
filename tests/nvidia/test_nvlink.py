"""NVIDIA's device linkers: what they are given. Stand-ins take their place."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.nvidia.nvlink import NVJITLINK, link_cubins, named_inputs
from tests.formats.object_files import make_elf

# Links what is behind it alone, as nvlink; with a library, starts kernels.
LINKER = """\
import pathlib, sys
*words, _, output = sys.argv[1:]
with open("log", "a") as log:
    log.write(" ".join(pathlib.Path(word).name for word in words) + "\\n")
if not words[-1].endswith(".a"):
    sys.exit("nvlink error   : Undefined reference to '__cudaCDP2LaunchDevice' in 'a.cubin'")
pathlib.Path(output).write_bytes(b"linked")
"""


@pytest.fixture
def linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("a.cubin").write_bytes(make_elf(machine=190))
    Path("nvlink").write_text(LINKER)
    return [sys.executable, str(tmp_path / "nvlink")]


def test_device_runtime_is_behind_what_asks_for_it(linker: list[str]) -> None:
    """The device runtime comes last, where nvlink looks into it."""
    link_cubins("out", linker, ["a.cubin"], os.environ, ["libcudadevrt.a"])
    assert Path("log").read_text() == "a.cubin libcudadevrt.a\n"
    assert Path("out").read_bytes() == b"linked"


def test_library_gets_the_device_runtime_when_it_needs_it(linker: list[str]) -> None:
    """LibnvJitLink, which takes all of what it is given, gets it where nothing else helps."""
    link_cubins("out", [*linker, NVJITLINK], ["a.cubin"], os.environ, ["libcudadevrt.a"])
    assert Path("log").read_text().splitlines() == [
        "nvjitlink_process.py a.cubin",
        "nvjitlink_process.py a.cubin libcudadevrt.a",
    ]


def test_other_failures_are_told_at_once(
    linker: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """LibnvJitLink is asked once for what the device runtime cannot help."""
    Path("nvlink").write_text(LINKER.replace("__cudaCDP2LaunchDevice", "helper"))
    message = "libnvJitLink cannot link 'out': its messages are above"
    with pytest.raises(CompilerError, match=message):
        link_cubins("out", [*linker, NVJITLINK], ["a.cubin"], os.environ, ["libcudadevrt.a"])
    assert "'helper'" in capsys.readouterr().err.splitlines()[0]
    assert Path("log").read_text() == "nvjitlink_process.py a.cubin\n"


@pytest.mark.parametrize("more", [[], [NVJITLINK]], ids=["nvlink", "libnvJitLink"])
def test_no_device_runtime(
    linker: list[str], more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it, the error says what kernels that start kernels need."""
    with pytest.raises(CompilerError) as caught:
        link_cubins("out", [*linker, *more], ["a.cubin"], os.environ)
    assert "'__cudaCDP2LaunchDevice' in 'a.cubin'" in capsys.readouterr().err
    assert "kernels that start kernels need libcudadevrt.a, which is not there" in str(caught.value)
    assert not Path("out").exists()


def test_long_names(tmp_path: Path) -> None:
    """A file whose name is nearly as long as names may be is an input, also twice."""
    inputs = [tmp_path / folder / f"{'m' * 248}.cubin" for folder in "ab"]
    for path in inputs:
        path.parent.mkdir()
        path.write_bytes(b"\x7fELF")
    (tmp_path / "out").mkdir()
    named = list(named_inputs(inputs, tmp_path / "out"))
    assert len({os.path.realpath(name) for name in named}) == 2
