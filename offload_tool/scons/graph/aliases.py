"""``scons gfx90a``: target IDs as command-line targets.

The output for a target ID is an SCons alias, ``offload:gfx90a:xnack+``, with a prefix, since an
alias hides all files and folders of its name from ``Default`` and ``Install``. Plain target IDs
apply only to the command line, after all SConscripts were read, and only if the project has nothing
of that name.
"""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import SCons.Errors
import SCons.Node.FS

from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.scons import offload_arch
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Environment, Node

PREFIX = "offload:"
_PROCESSOR = re.compile(r"(?:gfx|sm_)\d[^./]*$")

_aliases: dict[str, Any] = {}


def add_aliases(env: Environment, node: Node, device: CompileTarget) -> None:
    """Add a node that holds one target's code alone to the target ID's and processor's aliases."""
    if not _is_alone(node, device):
        return
    for name in offload_arch.names_of(device):
        if name in _aliases:
            _aliases[name].add_source([node])  # what env.Alias does for a further node
        else:
            _aliases[name] = env.Alias(PREFIX + name, node)[0]


def _is_alone(node: Any, device: CompileTarget) -> bool:
    """Return True if all passes of a node are for one target, or produce its host IR."""
    waiting = [*node.sources]
    seen = set(waiting)
    while waiting:
        part = waiting.pop()
        records = info_of(part).records
        if records is None:
            waiting += [source for source in part.sources if source not in seen]
            seen.update(part.sources)
        elif records.job.device != device and records.job.stage != "host-ir":
            return False
    return True


def look_up(name: str, curdir: str | None = None) -> Any:
    """Return the alias for a target ID of the command line, in any spelling, or None."""
    if curdir is None or not _aliases:
        return None
    requested = name.removeprefix(PREFIX)
    device = offload_arch.device_named(requested)
    alias = _aliases.get(requested) or _aliases.get(device.name if device is not None else "")
    is_known = _PROCESSOR.match(name) or offload_arch.device_named(name, allow_unknown=False)
    if alias is None and requested == name and not is_known:
        return None
    if not _is_users(name, curdir):
        if alias is None:
            near = get_close_matches(requested, _aliases, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            _print_message(
                f"nothing is built for {requested}, but for {', '.join(sorted(_aliases))}{hint}"
            )
        return alias
    if alias is not None:
        _print_message(f"'{name}' is a file or folder of the project; the device code is {alias}")
    return None


def _print_message(text: str) -> None:
    print(f"offload: {text}", file=sys.stderr)  # noqa: T201 - as SCons reports its steps


def _is_users(name: str, curdir: str) -> bool:
    """Return True if a file or folder of this name exists or is to be built."""
    fs = SCons.Node.FS.get_default_fs()
    path = os.path.relpath(Path(curdir, name), fs.Top.get_abspath())
    folders = [fs.Top, *fs.Top.getRepositories()]
    if any(os.path.lexists(Path(folder.get_abspath(), path)) for folder in folders):
        return True
    try:
        node = fs.Entry(name, directory=curdir, create=False)
    except SCons.Errors.UserError:  # no SConscript names it
        return False
    return bool(node.has_builder() or node.srcnode() is not node or node.children(scan=False))
