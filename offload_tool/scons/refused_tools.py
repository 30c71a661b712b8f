"""SCons's own experimental tool ``ninja`` is refused where there are nodes of ours.

It writes a ``build.ninja`` of all nodes, and takes SCons's building of them away, in every
environment. Of an action that it does not know, its file has neither the headers that were read
nor anything else that a manifest decides by. A changed header gave the old output, with exit
status 0. Nodes that were declared before the tool was loaded are not built at all.

Source: SCons 4.11.1, ``SCons/Tool/ninja_tool``, read and run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import SCons.Errors

from offload_tool.errors import UsageError
from offload_tool.scons import compat

if TYPE_CHECKING:
    from offload_tool.scons.types import Node

_declared: list[Node] = []
"""The first node of ours, if there is one."""


def check_builder_of_nodes(node: Node) -> None:
    """Refuse a node that is being declared, if SCons's tool ``ninja`` is in use.

    :raises UsageError: it is.
    """
    if not _declared:
        _declared.append(node)
    if compat.generates_ninja():
        raise UsageError(_message(node))


def refuse_ninja_tool() -> None:
    """Refuse SCons's tool ``ninja`` also where it is loaded after nodes of ours were declared."""
    compat.blame_caller(_check_tool)
    compat.after_each_tool(_check_tool)


def _check_tool() -> None:
    if _declared and compat.generates_ninja():
        raise SCons.Errors.UserError(_message(_declared[0]))


def _message(node: Node) -> str:
    return (
        f"'{node}' cannot be built through SCons's experimental tool 'ninja': its build.ninja "
        "would not say which headers a compile has read, and give old results without a word; "
        "build with scons itself, without that tool or --experimental=ninja, or let Ninja call "
        "`offload-tool compile` (docs/meson.md)"
    )
