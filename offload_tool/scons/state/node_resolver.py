"""What the pass of a node is made of: its files are SCons's nodes.

A node's file may be here, a copy in a variant folder, or in a Repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from SCons.Node.FS import Base

from offload_tool.clang.argument_files import (
    all_args,
    finds_libraries,
    possible_files,
    programs_in,
)
from offload_tool.clang.environment import processor_of
from offload_tool.clang.options import SIBLING, does
from offload_tool.io.file_digests import DigestCache, digest_of, is_system_path
from offload_tool.manifest.include_search import appeared, is_outside
from offload_tool.manifest.key import Key, Part
from offload_tool.manifest.manifest import PassRecord, digest_of_parts
from offload_tool.manifest.pass_run import Resolver
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.scons import compat
from offload_tool.scons.state import compiler_queries
from offload_tool.scons.types import Node


def _is_unwritten(folder: str) -> bool:
    """Return True if this build writes nothing to a folder: SCons has no node for it."""
    return is_system_path(folder) or not compat.builds_in(folder)


DIGESTS = DigestCache(_is_unwritten)
"""The known digests of this process."""
_UNREADABLE = re.compile(rb"[^ -~]+")
_PREFIX_MAP = rb"(-f(?:file|debug|macro|coverage)-prefix-map=)%s="


def _signed_command(node: Node, repository: str = "") -> str:
    """Return the digest and the readable part of a command's signature.

    It is without the header folders in a `repository`, which SCons adds to those of the build. The
    build's folder is "." there if it is a mapped prefix: the compile replaces it, so that other
    checkouts have the same output. Otherwise the key has the folder (`NodeResolver._has_folder`).
    """
    top = re.escape(node.fs.Top.get_abspath().encode("utf-8", "surrogateescape"))
    contents = re.sub(_PREFIX_MAP % top, rb"\1.=", compat.contents(node))
    if repository:
        path = re.escape(repository.encode("utf-8", "surrogateescape"))
        contents = re.sub(rb" -I%s(?:/\S*)?" % path, b"", contents)
    return f"{digest_of(contents)} {_UNREADABLE.sub(b'', contents).decode('ascii')}"


class NodeResolver(Resolver):
    """What the pass of a node is made of: files are nodes, here or in a Repository."""

    def __init__(self, node: Node, job: CompilePass, command: str, args: tuple[str, ...]) -> None:
        self.args = args
        self.with_identity = job.stage == "host-ir"
        self.reads_headers = job.compiles_source
        self.reachable: list[str] = []
        """The files that directives may name, transitively from the source."""
        self._node = node
        self._command = command
        self._folder_memo: tuple[Key, bool] | None = None

    @property
    def output(self) -> str:
        """The name of the output."""
        return path_of(self._node)

    @property
    def is_recordable(self) -> bool:
        """Whether the inputs can be known."""
        return not finds_libraries(self.args)

    @property
    def may_write(self) -> bool:
        """Whether manifests may be written."""
        return compat.does_execute()

    def expected(self, record: PassRecord | None) -> tuple[PassRecord | None, Key]:
        """Return the record of the last run, with names as they are here, and the present key."""
        key = self.key(record)
        if record is not None:
            self.copy_to_variants(record)
        repository = _repository_of(self._node)
        if record is None or not repository:
            return record, key
        command = _signed_command(self._node, repository)
        changed = key._replace(parts={**key.parts, Part.COMMAND: command})
        return _as_named_here(record, repository, key), changed

    def key(self, record: PassRecord | None) -> Key:
        """Return the digests of all dependencies known before the compile."""
        node = self._node
        source = node.sources[0]
        values = []
        ignored = compat.ignored_files(node)
        parts: dict[str, str] = {
            Part.COMMAND: _signed_command(node),
            Part.SOURCE_PLACE: str(source.rfile()),
            Part.PLACE: node.get_internal_path(),
        }
        files: dict[str, str] = {}
        if ignored:
            parts[Part.IGNORED] = digest_of_parts(sorted(ignored))
        for child in (*node.sources[1:], *node.depends):
            if isinstance(child, Base) and path_of(child) in ignored:
                continue
            if not isinstance(child, Base) or child.isdir():
                values.append(child.get_csig())
            elif is_outside(
                child.get_internal_path()
            ):  # a library of an installation, at any location
                values.append(DIGESTS.digest(path_of(child)))
            else:
                files[str(child)] = DIGESTS.digest(path_of(child))
        parts[Part.DEPENDENCIES] = digest_of_parts(values)
        folders = str(node.get_build_env()["ENV"].get("COMPILER_PATH", "")).split(os.pathsep)
        linkers = [name for folder in folders if folder for name in programs_in(folder)]
        configuration = compiler_queries.configuring_files(node, self._command)
        for name in (*possible_files(self.args), *configuration, *linkers):
            if os.path.isfile(name):
                files[name] = DIGESTS.digest(name)
        processor = processor_of(all_args(self.args))
        if processor:
            parts[Part.PROCESSOR] = digest_of_parts(processor)
        if self._has_folder(Key(parts, files), record):
            named = str(node.get_build_env()["ENV"].get("PWD", ""))  # clang trusts it
            parts[Part.FOLDER] = f"{node.fs.Top.get_abspath()}\0{named}"
        return Key(parts, files)

    def _has_folder(self, key: Key, record: PassRecord | None) -> bool:
        """Return True if the output with this `key` contains the working directory."""
        if record is not None and record.key.without(Part.FOLDER) == key:
            return Part.FOLDER in record.key.parts
        if self._folder_memo is None or self._folder_memo[0] != key:
            has_folder = compiler_queries.front_end(self._node, self._command).embeds_folder
            self._folder_memo = (key, has_folder)
        return self._folder_memo[1]

    def inputs_before(self) -> list[str]:
        """Return the files of the node's dependencies, and those that directives may name."""
        nodes = compat.known_inputs(self._node)
        files = [path_of(child) for child in nodes if isinstance(child, Base)]
        return [*files, *self.reachable]

    def files_read(self) -> list[str]:
        """Return the files that the compile has read."""
        if not self.reads_headers:
            return [path_of(self._node.sources[0])]
        return compiler_queries.files_read(self._node, self._command)

    def preprocess(self) -> list[str] | None:
        """Return the files that the preprocessor reads now; None if it fails."""
        return compiler_queries.preprocess(self._node, self._command)

    def search_path(self) -> tuple[str, ...]:
        """Return the folders in which the compile searches for headers."""
        return compiler_queries.front_end(self._node, self._command).folders

    def copy_to_variants(self, record: PassRecord) -> None:
        """Copy files that the pass may search for into variant folders."""
        compiler_queries.copy_to_variants(self._node, record.lookups, DIGESTS)

    @property
    def writes_more(self) -> bool:
        """Whether the pass has further outputs."""
        return any(does(arg, SIBLING) for arg in all_args(self.args))

    def side_outputs(self) -> dict[str, str]:
        """Return the digest of each further output; "" if other passes write it, too."""
        if not self.writes_more:
            return {}
        found = compiler_queries.side_files(self._node, self._command)
        return {name: DIGESTS.digest(name) if own else "" for name, own in found.items()}


def _repository_of(node: Node) -> str:
    """Return the Repository that has an output which is not here; "" if there is none."""
    own, output = node.get_internal_path(), path_of(node)
    return output.removesuffix(f"/{own}") if output.endswith(f"/{own}") else ""


def _as_named_here(record: PassRecord, top: str, own_key: Key) -> PassRecord | None:
    """Return the record of an output in the Repository `top`, with its files' names as seen here.

    SCons spells outputs there as if they were here, as `own_key` does. It is None if a file here
    would be read in place of the Repository's.
    """
    own = [name for name in record.inputs if not is_outside(name)]
    read = frozenset(record.inputs)
    if any(map(os.path.lexists, own)) or appeared(record.lookups, read, DIGESTS):
        return None

    def here(name: str) -> str:
        return name if is_outside(name) else f"{top}/{name}" if name else top

    def renamed(names: Mapping[str, str]) -> dict[str, str]:
        return {here(name): here(first) for name, first in names.items()}

    parts, files = record.key
    files = {name if name in own_key.files else here(name): text for name, text in files.items()}
    lookups = record.lookups
    return record._replace(
        key=Key({**parts, Part.SOURCE_PLACE: here(parts[Part.SOURCE_PLACE])}, files),
        inputs={here(name): digest for name, digest in record.inputs.items()},
        lookups=lookups._replace(
            folders=tuple(map(here, lookups.folders)), present=tuple(map(here, lookups.present))
        ),
        same_files=renamed(record.same_files),
        same_folders=renamed(record.same_folders),
    )


def digests_now() -> DigestCache:
    """Return the known digests of files, checked anew."""
    return DIGESTS.with_current_listings()


def path_of(node: Node) -> str:
    """Return the name of a node's file: here, or in a Repository."""
    return str(node.rfile().get_internal_path())
