"""Queries of the compiler about a pass's inputs: which files, and which search path."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from offload_tool.clang import job_plan
from offload_tool.clang.environment import ImplicitInputs
from offload_tool.errors import CompilerError
from offload_tool.io.file_digests import DigestCache
from offload_tool.manifest import inputs
from offload_tool.manifest.include_search import Lookups, found_in
from offload_tool.passes.command import Command
from offload_tool.scons import compat
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Node
from offload_tool.toolchain.driver_cache import cached_front_end
from offload_tool.toolchain.identity import configuring_files as found_configuration
from offload_tool.toolchain.identity import has_configuration
from offload_tool.util.shell_words import NeedsShellError, shell_words

_QUOTING = "'\"\\"


def files_read(node: Node, command: str) -> list[str]:
    """Return the files that a node's compile has read, without those that ``env.Ignore`` names.

    :raises CompilerError: the source is not among the files.
    """
    compiled = command_of(node, command)
    try:
        read = inputs.files_read(compiled, variables_of(node))
    except CompilerError as error:
        raise CompilerError(f"'{node}': {error}") from error
    used = info_of(node).pch
    if used is not None:
        read = used.files_read(compiled.source, read)
    return _inputs_among(node, read)


def preprocess(node: Node, command: str) -> list[str] | None:
    """Run the preprocessor on a node's source; return the files read, or None if it fails."""
    read = inputs.preprocess(command_of(node, command), variables_of(node))
    return None if read is None else _inputs_among(node, read)


def _inputs_among(node: Node, read: Iterable[str]) -> list[str]:
    ignored = compat.ignored_files(node)
    return [name for name in _relative_to_top(node, read) if name not in ignored]


def front_end(node: Node, command: str) -> ImplicitInputs:
    """Return the driver's settings for the front end of a node's compile."""
    found = cached_front_end(_general_args(node, command), variables_of(node))
    return found._replace(folders=tuple(_relative_to_top(node, found.folders)))


def variables_of(node: Node) -> dict[str, str]:
    """Return the environment variables of a node's command."""
    return {name: str(value) for name, value in node.get_build_env()["ENV"].items()}


def depfile_of(node: Node) -> str:
    """Return a node's depfile, relative to the top folder; it exists only during a compile."""
    return f"{node.get_internal_path()}.d"


def command_of(node: Node, command: str) -> Command:
    """Return a compile's command without launcher; raise CompilerError if it is unusual."""
    args, source = _all_args(node, command), str(node.sources[0].rfile())
    program = len(node.get_build_env()["_OFFLOAD_CLANG"])
    found = Command.read(args, program, source)
    if found is None:
        raise CompilerError(
            f"'{node}': {command}: expected '-o $TARGET' and '$SOURCE', found "
            f"{' '.join(args)!r}; write both into it"
        )
    return found


def configuring_files(node: Node, command: str) -> tuple[str, ...]:
    """Return the configuration files that clang reads due to a compile's flags."""
    # Computing the arguments is slow. Those that `has_configuration` looks for have "-config", or
    # are in a response file.
    signed = compat.contents(node)
    if b"-config" not in signed and b"@" not in signed:
        return ()
    general = _general_args(node, command)
    if not has_configuration(general):
        return ()
    if compat.is_interactive():
        found_configuration.cache_clear()  # a new build begins
    return found_configuration(general, variables_of(node))


def ptxas_flags(node: Node) -> tuple[str, ...]:
    """Return the flags of the driver's ``ptxas`` for the flags of the compile of a PTX node."""
    from offload_tool.passes import cuda  # other builds do not need it

    return cuda.ptxas_flags(_general_args(node, "$OFFLOADDEVICECOM"), variables_of(node))


def _general_args(node: Node, command: str) -> list[str]:
    own_files = {str(source.rfile()) for source in node.sources}
    return inputs.general_args(command_of(node, command).args, own_files)


def side_files(node: Node, command: str) -> dict[str, bool]:
    """Return the result of `job_plan.side_files` for the compile of a node."""
    args = command_of(node, command).without_depfile.argv()
    return job_plan.side_files(args, variables_of(node), node.get_internal_path())


def nodes_of(node: Node, names: Iterable[str]) -> list[Any]:
    """Return the nodes of read files of the project, not of the compiler and the system."""
    fs = node.fs
    own = {*node.sources, *(source.srcnode() for source in node.sources), *node.depends}
    found: dict[Any, None] = {}
    known: dict[str, bool] = {}  # most headers are in few folders
    for name in names:
        folder = name.rpartition("/")[0] or "/"
        if name.startswith("/"):
            if folder not in known:
                known[folder] = compat.builds_in(folder)
            if not known[folder]:
                continue
        file = compat.file_node(fs, name)
        if file is not None and file not in own:
            found[file] = None
    return list(found)


def copy_to_variants(node: Node, lookups: Lookups, digests: DigestCache) -> None:
    """Copy files that a node's pass may search for into variant folders."""
    fs = node.fs
    for name in lookups.folders:
        if name.startswith("/"):
            continue
        folder = compat.folder_node(fs, name)
        if folder is None or not folder.duplicate or folder.srcnode() is folder:
            continue
        source_folder = str(folder.srcnode().rdir())
        for found in found_in((source_folder,), (*lookups.names, *lookups.outside), digests):
            file = compat.file_node(fs, name + found.removeprefix(source_folder.rstrip("/")))
            if file is not None:
                file.exists()


def renew_copies(node: Any, names: Iterable[str], digests: DigestCache) -> None:
    """Update copies in variant folders, which SCons copies once even if ``--interactive``."""
    fs = node.fs
    for name in names:
        file = None if name.startswith("/") else compat.file_node(fs, name)
        if file is None or file.srcnode() is file or file.is_derived():
            continue
        if digests.digest(str(file.srcnode().rfile())) != digests.digest(name):
            compat.copy_again(file)


def _relative_to_top(node: Node, names: Iterable[str]) -> list[str]:
    """Return names without this checkout's folder, which clang adds, for example to ``#embed``."""
    top = f"{node.fs.Top.get_abspath()}/"
    return list(dict.fromkeys(name.removeprefix(top) for name in names))


def _all_args(node: Node, command: str) -> list[str]:
    # SCons takes longer to compute the arguments than all their uses.
    find: Any = _found_args.__wrapped__ if compat.is_interactive() else _found_args
    return [*find(node, command)]


@functools.lru_cache(maxsize=64)
def _found_args(node: Any, command: str) -> tuple[str, ...]:
    env = node.get_build_env().Override({"OFFLOAD_LAUNCHER": ""})
    lines = env.subst_list(command, target=[node], source=node.sources)
    args = tuple(str(arg) for arg in lines[0])
    if any(mark in arg for arg in args for mark in _QUOTING):
        with suppress(NeedsShellError, ValueError):  # the compile itself is refused
            return tuple(shell_words(" ".join(compat.escaped(lines[0], shlex.quote))))
    return args
