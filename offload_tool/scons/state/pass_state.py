"""The records of each pass's output: its manifest on disk, and those in a ``CacheDir``.

::

                         is it current?  <-- .k.gfx906.co.manifest --> its dependencies
    k.gfx906.co  <------ fetch / store <---> CacheDir: <key>.manifest/<name>.json
                                                       <result>  (the file, as SCons keeps it)

A ``CacheDir`` lookup has two steps, as in ccache and Bazel. The key, known before the compile,
selects the manifests of all results stored with it. The manifest whose inputs are unchanged names
the result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from SCons.Node.FS import Base

from offload_tool.clang.argument_files import (
    all_args,
    finds_libraries,
    include_folders,
    possible_files,
    programs_in,
)
from offload_tool.clang.environment import processor_of
from offload_tool.clang.options import SIBLING, does
from offload_tool.errors import OffloadError
from offload_tool.io.file_digests import Fingerprints, digest_of, identity, is_system_path
from offload_tool.manifest import manifest_path
from offload_tool.manifest.include_search import Lookups, appeared, is_outside
from offload_tool.manifest.key import Key, Part, Reason
from offload_tool.manifest.manifest import (
    Inputs,
    PassRecord,
    State,
    digest_of_parts,
    read_record,
    write_record,
)
from offload_tool.manifest.pass_run import PassRun, Resolver
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.scons import compat
from offload_tool.scons.state import compiler_queries
from offload_tool.scons.state.compiler_queries import depfile_of
from offload_tool.scons.types import Node

if TYPE_CHECKING:
    from offload_tool.run.cut_off import Stages


def _is_unwritten(folder: str) -> bool:
    """Return True if this build writes nothing to a folder: SCons has no node for it."""
    return is_system_path(folder) or not compat.builds_in(folder)


_PRINTS = Fingerprints(_is_unwritten)
_MOST_RESULTS = 200
"""Limit of results examined for one key, newest first; more only cost time."""
_UNREADABLE = re.compile(rb"[^ -~]+")
_PREFIX_MAP = rb"(-f(?:file|debug|macro|coverage)-prefix-map=)%s="
_NO_RESULT = PassRecord(Key(), {}, Lookups(), "")


def _signed_command(node: Node, repository: str = "") -> str:
    """Return the digest and the readable part of a command's signature.

    It is without the header folders in a `repository`, which SCons adds to those of the build. The
    build's folder is "." there if it is a mapped prefix: the compile replaces it, so that other
    checkouts have the same output. Otherwise the key has the folder (`PassRecords._has_folder`).
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
        return _path(self._node)

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
            if isinstance(child, Base) and _path(child) in ignored:
                continue
            if not isinstance(child, Base) or child.isdir():
                values.append(child.get_csig())
            elif is_outside(
                child.get_internal_path()
            ):  # a library of an installation, at any location
                values.append(_PRINTS.digest(_path(child)))
            else:
                files[str(child)] = _PRINTS.digest(_path(child))
        parts[Part.DEPENDENCIES] = digest_of_parts(values)
        folders = str(node.get_build_env()["ENV"].get("COMPILER_PATH", "")).split(os.pathsep)
        linkers = [name for folder in folders if folder for name in programs_in(folder)]
        configuration = compiler_queries.configuring_files(node, self._command)
        for name in (*possible_files(self.args), *configuration, *linkers):
            if os.path.isfile(name):
                files[name] = _PRINTS.digest(name)
        processor = processor_of(all_args(self.args))
        if processor:
            parts[Part.PROCESSOR] = digest_of_parts(processor)
        if self._has_folder(Key(parts, files), record):
            named = str(node.get_build_env()["ENV"].get("PWD", ""))  # clang trusts it
            parts[Part.FOLDER] = f"{node.fs.Top.get_abspath()}\0{named}"
        return Key(parts, files)

    def _has_folder(self, key: Key, record: PassRecord | None) -> bool:
        """Return True if the output of a pass with this `key` contains the working directory.

        The last pass with this key had the same front-end command.
        """
        if record is not None and record.key.without(Part.FOLDER) == key:
            return Part.FOLDER in record.key.parts
        if self._folder_memo is None or self._folder_memo[0] != key:
            has_folder = compiler_queries.front_end(self._node, self._command).embeds_folder
            self._folder_memo = (key, has_folder)
        return self._folder_memo[1]

    def inputs_before(self) -> list[str]:
        """Return the files of the node's dependencies, and those that directives may name."""
        nodes = compat.known_inputs(self._node)
        files = [_path(child) for child in nodes if isinstance(child, Base)]
        return [*files, *self.reachable]

    def files_read(self) -> list[str]:
        """Return the files that the compile has read."""
        if not self.reads_headers:
            return [_path(self._node.sources[0])]
        return compiler_queries.files_read(self._node, self._command)

    def preprocess(self) -> list[str] | None:
        """Return the files that the preprocessor reads now; None if it fails."""
        return compiler_queries.preprocess(self._node, self._command)

    def search_path(self) -> tuple[str, ...]:
        """Return the folders in which the compile searches for headers."""
        return compiler_queries.front_end(self._node, self._command).folders

    def copy_to_variants(self, record: PassRecord) -> None:
        """Copy files that the pass may search for into variant folders."""
        compiler_queries.copy_to_variants(self._node, record.lookups, _PRINTS)

    @property
    def writes_more(self) -> bool:
        """Whether the pass has further outputs."""
        return any(does(arg, SIBLING) for arg in all_args(self.args))

    def side_outputs(self) -> dict[str, str]:
        """Return the digest of each further output; "" if other passes write it, too."""
        if not self.writes_more:
            return {}
        found = compiler_queries.side_files(self._node, self._command)
        return {name: _PRINTS.digest(name) if own else "" for name, own in found.items()}


class PassRecords:
    """The manifest of one output, and the decisions based on it."""

    __slots__ = (
        *("_node", "_resolver", "_run", "_stages", "args", "command"),
        *("folders", "is_fetched", "is_known_current", "job"),
    )

    def __init__(self, node: Node, job: CompilePass, command: str, args: tuple[str, ...]) -> None:
        self.job = job
        self.command = command
        """The variable with the command line."""
        self.args = args
        """The flags, including the user's."""
        self.folders = include_folders(all_args(args))
        """The header folders in the flags."""
        self.is_fetched = False
        """Whether a ``CacheDir`` provided the output in this build."""
        self.is_known_current = False
        """The last decision: of `is_current`, or True after a compile or fetch."""
        self._node = node
        self._resolver = NodeResolver(node, job, command, args)
        self._run = PassRun(self._resolver, _PRINTS)
        self._stages: Stages | None = None

    @property
    def reason(self) -> Reason | None:
        """Why the pass runs; None if it does not."""
        return self._run.reason

    @property
    def unknown_read(self) -> str:
        """The file due to which the assembler may have read unknown files."""
        return self._run.unknown_input

    @property
    def reachable(self) -> list[str]:
        """The files that directives may name, transitively from the source."""
        return self._resolver.reachable

    @reachable.setter
    def reachable(self, files: list[str]) -> None:
        self._resolver.reachable = files

    def identity(self) -> str:
        """Return a digest that changes when a file that the pass reads is replaced.

        Before its first compile, these are all files that its directives may name.
        """
        names = self.stored_inputs() or self.reachable
        return digest_of_parts([identity(name) for name in names])

    def stored_inputs(self) -> list[str]:
        """Return the names of the files that the last compile read, as far as known."""
        record = self._run.record
        return list(record.inputs) if record is not None else []

    def known_nodes(self) -> list[Any]:
        """Return the nodes of the project's files that the last compile read."""
        record = self._run.record
        if record is None:
            return []
        inputs: Mapping[str, str] = record.inputs
        if isinstance(inputs, Inputs):
            outside = inputs.outside
            built = _PRINTS.memoize(
                (outside, "folders"), lambda: any(map(compat.builds_in, outside.folders))
            )
            if not built:
                inputs = inputs.own
        return compiler_queries.nodes_of(self._node, inputs)

    def renew_copies(self) -> None:
        """Update changed copies of files that the last compile read."""
        if compat.is_interactive():
            self._forget_last_build()
            compiler_queries.renew_copies(self._node, self.stored_inputs(), _PRINTS)

    def _forget_last_build(self) -> None:
        if compat.is_interactive():
            self._run.record = None
            _PRINTS.clear_listings()

    # -- a compile -------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Return True if a compile would write the same output now."""
        self._forget_last_build()
        self.is_known_current = self._run.is_current()
        return self.is_known_current

    def begin(self) -> None:
        """Record the start of the compile, and remove an earlier manifest."""
        node, run = self._node, self._run
        with suppress(OSError):  # a half-written one must not pass for this compile's
            Path(manifest_path(node.get_internal_path())).unlink(missing_ok=True)
        run.begin(depfile_of(node), self._resolver.key(run.record))
        self._stages = None

    def finish(self) -> None:
        """Record what the compile has read and written.

        :raises FileError: it wrote no depfile, or the record cannot be written.
        :raises CompilerError: its depfile does not name the source.
        """
        reads = self._run.read()
        compat.replace_implicit(self._node, compiler_queries.nodes_of(self._node, reads.files))
        made = self._run.finish(reads)
        if compat.has_more_actions(self._node):
            self._run.record = made
        else:
            self._save(made)

    def record_post_actions(self) -> None:
        """Record the output as the user's actions after the compile have left it."""
        record = self._run.record
        if record is not None and compat.has_more_actions(self._node):
            digest = record.output and _PRINTS.digest(_path(self._node))
            self._save(record._replace(output=digest))

    def _save(self, record: PassRecord) -> None:
        self._run.save(record)
        self.is_known_current = self.is_known_current or compat.does_execute()

    def begin_stages(self, stages: Stages) -> None:
        """Start the stages of a pass, after `begin`."""
        # Further actions would run on their own output.
        self._run.begin_stages(stages, keeps_output=not compat.has_more_actions(self._node))
        self._stages = stages

    @property
    def is_cut_off(self) -> bool:
        """Whether the pass found its bitcode unchanged, and kept the output."""
        return self._stages is not None and self._stages.is_cut_off

    @property
    def front_end_seconds(self) -> float:
        """The time of the front end, if the pass had two stages."""
        return self._stages.front_end_seconds if self._stages is not None else 0.0

    # -- CacheDir ----------------------------------------------------------------------------

    def result_name(self) -> str:
        """Return the result's name in a ``CacheDir``; without a result, one that has no entry."""
        record = self._run.record
        if record is None or not record.output:
            return digest_of_parts(["none", self._node.get_internal_path()])
        return record.result

    def fetch(self, retrieve: Callable[[], Any]) -> bool:
        """Fetch the output by `retrieve`, if there is a result of these inputs.

        It rejects a cached file whose digest differs from the stored one.
        """
        cache = self._cache()
        if cache is None:
            return False
        record = self._find(cache)
        # The record on disk may name another result in the cache.
        self._run.record = record or _NO_RESULT
        is_there = retrieve()
        self._run.record = record
        if not is_there or record is None:
            return False
        if not compat.does_execute():
            return True
        output = _path(self._node)
        if _PRINTS.digest(output) != record.output:
            Path(output).unlink(missing_ok=True)
            if not compat.cache_is_readonly():
                Path(compat.cache_file(self._node)).unlink(missing_ok=True)
            self._run.record = None
            return False
        self._run.add_note("a CacheDir had the result")
        self._save(record._replace(why=self.reason))
        compat.replace_implicit(self._node, compiler_queries.nodes_of(self._node, record.inputs))
        return True

    def store(self, push: Callable[[], Any]) -> Any:
        """Store the output by `push`, and its record, if its dependencies are certain."""
        cache, record = self._cache(), self._run.record
        may_write = compat.does_execute() and not compat.cache_is_readonly()
        if cache is None or record is None or not may_write:
            return None
        if not (record.output and record.is_sure):
            return None
        pushed = push()
        file = self._folder(cache, record.key) / f"{record.name}.json"
        with suppress(OSError, OffloadError):  # e.g. a full disk: ignored as in SCons's own cache
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_record(str(file), record._replace(why=None), _PRINTS, None)
        return pushed

    def _cache(self) -> Any:
        if self._resolver.writes_more:
            return None  # a cache entry holds only one output
        cache = self._node.get_build_env().get_CacheDir()
        return cache if cache.is_enabled() else None

    def _folder(self, cache: Any, key: Key) -> Path:
        name = digest_of_parts(key)
        return Path(compat.cache_folder(cache, name), f"{name}.manifest")

    def _find(self, cache: Any) -> PassRecord | None:
        key = self._resolver.key(self._run.record)
        try:
            files = list(self._folder(cache, key).iterdir())
            files.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
        except OSError:
            self._run.add_note("no result of this command is in the CacheDir")
            return None
        read: list[str] | None = None
        nearest: tuple[int, str] | None = None
        for file in files[:_MOST_RESULTS]:
            record = read_record(str(file), _PRINTS)
            if record is None:
                continue
            self._resolver.copy_to_variants(record)
            judgement = self._run.judge(record, key)
            if judgement.state is State.OUTDATED:
                others = [n for n, digest in record.inputs.items() if _PRINTS.digest(n) != digest]
                reason = str(judgement.reason)
                nearest = min(nearest or (len(others) + 1, ""), (len(others), reason))
                continue
            if judgement.state is State.CURRENT:
                return record
            read = read or self._resolver.preprocess()
            surer = self._run.confirmed(record, judgement, read)
            if surer is not None:
                return surer
        if nearest is not None:
            files_of = f"{nearest[0]} other file{'s' * (nearest[0] != 1)}"
            self._run.add_note(f"the nearest result in the CacheDir has {files_of}: {nearest[1]}")
        return None


def _repository_of(node: Node) -> str:
    """Return the Repository that has an output which is not here; "" if there is none."""
    own, output = node.get_internal_path(), _path(node)
    return output.removesuffix(f"/{own}") if output.endswith(f"/{own}") else ""


def _as_named_here(record: PassRecord, top: str, own_key: Key) -> PassRecord | None:
    """Return the record of an output in the Repository `top`, with its files' names as seen here.

    SCons spells outputs there as if they were here, as `own_key` does. It is None if a file here
    would be read in place of the Repository's.
    """
    own = [name for name in record.inputs if not is_outside(name)]
    read = frozenset(record.inputs)
    if any(map(os.path.lexists, own)) or appeared(record.lookups, read, _PRINTS):
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


def prints_now() -> Fingerprints:
    """Return the known fingerprints of files, checked anew."""
    return _PRINTS.with_current_listings()


def _path(node: Node) -> str:
    """Return the name of a node's file: here, or in a Repository."""
    return str(node.rfile().get_internal_path())
