"""The compiler passes that were declared, for what tells of all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["PASSES", "DeclaredPass", "keep_commands", "record_pass"]


@dataclass
class DeclaredPass:
    """One node that a compiler pass makes."""

    node: Any
    source: Any
    command: str
    """The variable with its command line, such as ``$OFFLOADDEVICECOM``."""
    target: str
    """The target ID, or ``host``."""
    seconds: float | None = None
    """What its command has taken; None where that is not measured."""


PASSES: list[DeclaredPass] = []
"""In the order in which SConscripts declared them."""

_NODES: set[Any] = set()
_keeps_commands = False


def record_pass(node: Any, source: Any, command: str, target: str) -> DeclaredPass | None:
    """Note a node; None if it was declared before."""
    if node in _NODES:
        return None
    _NODES.add(node)
    made = DeclaredPass(node, source, command, target)
    PASSES.append(made)
    if _keeps_commands:
        node.attributes.keep_targetinfo = True
    return made


def keep_commands() -> None:
    """Let SCons remember the command of each pass, which it forgets when a node is done."""
    global _keeps_commands
    _keeps_commands = True
    for declared in PASSES:
        declared.node.attributes.keep_targetinfo = True
