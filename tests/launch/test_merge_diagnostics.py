"""What passes say: nothing twice, with the target ID, the driver's status."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from offload_tool.launch.write_result import merge_messages
from tests.conftest import Tool
from tests.launch.compiles import HIP, LAUNCH, TARGETS, environment, make_project, run
from tests.terminal import Terminal

HOST = b"""In file included from s.hip:1:
a.h:2:3: warning: one [-Wone]
    2 | x
      | ^
In file included from s.hip:1:
b.h:1:1: note: of one
1 warning generated when compiling for host.
"""


def test_same_is_told_once() -> None:
    """Messages of device passes that the host pass has, notes included, are left out."""
    device = HOST.replace(b"for host", b"for gfx906")
    assert merge_messages(HOST, {"gfx906": device}) == HOST


def test_new_is_told_with_its_targets() -> None:
    """Others follow the host's, under their target IDs, with notes and lines of source."""
    new = b"s.hip:9:1: warning: two [-Wtwo]\n    9 | y\ns.hip:8:1: note: of two\n"
    found = merge_messages(HOST, {"gfx906": new + HOST, "gfx942": HOST + new, "gfx90a": b""})
    assert found == HOST + b"In device code for gfx906, gfx942:\n" + new


def test_colours_do_not_matter() -> None:
    """Lines are told apart as without colours."""
    new = b"\x1b[1ms.hip:9:1: \x1b[0m\x1b[0;1;35mwarning: \x1b[0mtwo\n    9 | y\n"
    text = new + b"1 warning generated when compiling for gfx906.\n"
    assert merge_messages(b"", {"gfx906": text}) == b"In device code for gfx906:\n" + new


@pytest.mark.llvm
@pytest.mark.parametrize("where", ["", "__gfx90a__", "__HIP_DEVICE_COMPILE__"])
def test_error(where: str, tmp_path: Path, llvm: Tool) -> None:
    """An error is told once, has the driver's status, and there is no object any more."""
    make_project(tmp_path)
    source = tmp_path / "s.hip"
    condition = f"defined({where})" if where else "1"
    source.write_text(f"{source.read_text()}#if {condition}\nint bad = none;\n#endif\n")
    (tmp_path / "s.o").write_bytes(b"old")
    words = [llvm("clang++"), *HIP, *TARGETS, "-MD", "-c", "s.hip", "-o", "s.o"]
    ours, driver = run([*LAUNCH, *words], tmp_path), run(words, tmp_path)
    assert ours.returncode == driver.returncode == 1
    assert ours.stderr.count("use of undeclared identifier 'none'") == 1
    devices = {"": "", "__gfx90a__": "gfx90a:xnack+"}.get(where, "gfx906, gfx90a:xnack+")
    assert (f"In device code for {devices}:\n" in ours.stderr) == bool(devices)
    assert not (tmp_path / "s.o").exists()
    assert list(tmp_path.glob("*.tmp")) == []


@pytest.mark.llvm
def test_driver_warning(tmp_path: Path, llvm: Tool) -> None:
    """What the driver says itself is told once, before all else."""
    make_project(tmp_path)
    words = [llvm("clang++"), *HIP, *TARGETS, "-pie", "-lm", "-c", "s.hip", "-o", "s.o"]
    ours, driver = run([*LAUNCH, *words], tmp_path), run(words, tmp_path)
    assert "argument unused" in driver.stderr
    lines = ours.stderr.splitlines(keepends=True)
    said = [line for line in lines if not line.startswith("offload-tool launch: ")]
    assert "".join(said) == driver.stderr


@pytest.mark.llvm
@pytest.mark.parametrize("more", [[], ["-Wl,--unused"]], ids=["plain", "driver warns"])
def test_colours_at_a_terminal(more: list[str], tmp_path: Path, llvm: Tool) -> None:
    """Where a user sees the messages, they have the driver's colours."""
    make_project(tmp_path)
    with (tmp_path / "s.hip").open("a") as file:
        file.write("int unused(int x) { int y; return 1; }\n")
    command = [llvm("clang++"), *HIP, *TARGETS, "-Wall", *more, "-c", "s.hip", "-o", "s.o"]
    told = []
    for launch in ((), LAUNCH):
        with Terminal() as terminal:
            subprocess.run(
                [*launch, *command],
                cwd=tmp_path,
                env=environment({"TERM": "xterm", "OFFLOAD_LAUNCH_VERBOSE": "1"}),
                stderr=terminal.descriptor,
                check=True,
            )
            told.append(terminal.end())
    assert b"split: " in told[1]
    lines = [[x for x in text.splitlines() if b" generated when" not in x] for text in told]
    driver, ours = ({x for x in text if b"\x1b[" in x} for text in lines)
    assert driver
    assert ours == driver
