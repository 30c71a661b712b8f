"""The command of a pass: read from text as it was written, whatever its order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.passes.command import Command, dependency_flags

NAMES = st.text("abc./", min_size=1, max_size=6)
FLAGS = st.lists(st.sampled_from(["-O2", "-Xclang", "-I", "a", "-x", "hip", "-c", "-MT"])).map(
    tuple
)
COMMANDS = st.builds(Command, st.just(("env", "clang")), FLAGS, NAMES, NAMES, NAMES | st.just(""))


@given(command=COMMANDS)
def test_round_trip(command: Command) -> None:
    """A command is read as it was written."""
    assert Command.read(command.argv(), len(command.program)) == command


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_orders(order: tuple[int, ...]) -> None:
    """A user's own command may name source, output and depfile in any order."""
    parts = (["-O2", "-c"], dependency_flags("k.d"), ["-o", "k.co"], ["k.hip"])
    args = ["clang", *(arg for number in order for arg in parts[number])]
    wanted = Command(("clang",), ("-O2", "-c"), "k.co", "k.hip", "k.d")
    assert Command.read(args, 1, "k.hip") == wanted


@pytest.mark.parametrize(
    "args", [[], ["-c", "k.hip"], ["k.hip", "-o"], ["-o", "k.co", "other.hip"]]
)
def test_other_commands(args: list[str]) -> None:
    """A command without an output, or over another source, is none of a pass."""
    assert Command.read(["clang", *args], 1, "k.hip") is None


def test_added_flags() -> None:
    """Flags that are added follow the others, and precede the names."""
    command = Command(("clang",), ("-c",), "k.co", "k.hip", "k.d").with_flags("-w")
    assert command.argv()[1:3] == ["-c", "-w"]
    assert command.without_depfile.argv() == ["clang", "-c", "-w", "-o", "k.co", "k.hip"]
