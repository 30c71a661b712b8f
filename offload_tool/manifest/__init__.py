"""The inputs of a compile, and whether its output is current."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from offload_tool.clang.environment import ImplicitInputs
from offload_tool.io.paths import sibling


def manifest_path(output: str) -> str:
    """Return the name of the hidden file next to an output that holds its manifest."""
    return sibling(output, ".manifest")


class Work(NamedTuple):
    """A command with one output, and everything that determines the output."""

    output: str
    command: Sequence[str]
    """Without launcher and without flags that write a depfile."""
    environment: Mapping[str, str]
    compiler: str
    """The compiler's identity."""
    inputs: tuple[str, ...]
    """Files that it certainly reads."""
    implicit_inputs: Callable[[], ImplicitInputs]
    files_read: Callable[[], list[str]]
    """Returns the files that it has read, from its depfile."""
    preprocess: Callable[[], list[str] | None] | None = None
    """Runs the preprocessor on the source; None without one."""
    by_inode: bool = False
    """The output holds the inode numbers of the files that were read."""
    names_all_inputs: bool = True
    """The command names all of its inputs."""
    version: Callable[[], str] = str
    """Returns the compiler's present version text, if the programs that it calls are not known."""
    links: bool = True
    """The libraries of the implicit inputs are linked in."""
