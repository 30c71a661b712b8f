"""What the pass of a node is made of: its files are SCons's nodes.

A node's file may be here, a copy in a variant folder, or in a Repository.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from SCons.Node.FS import Base

from offload_tool.clang import job_plan
from offload_tool.clang.argument_files import (
    all_args,
    possible_files,
    programs_in,
    unlisted_by_linker,
)
from offload_tool.clang.environment import ImplicitInputs, processor_of
from offload_tool.clang.options import SIBLING, WRITES, does
from offload_tool.errors import CompilerError
from offload_tool.io.file_digests import DigestCache, digest_of, is_system_path
from offload_tool.manifest import inputs
from offload_tool.manifest.include_search import appeared, found_in, is_outside
from offload_tool.manifest.key import Key, Part
from offload_tool.manifest.manifest import PassRecord, digest_of_parts
from offload_tool.manifest.pass_run import Resolver
from offload_tool.passes import cuda
from offload_tool.passes.command import Command
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.scons import compat
from offload_tool.scons.settings import result_variables
from offload_tool.scons.signature import marked
from offload_tool.scons.types import Node
from offload_tool.toolchain.driver_cache import cached_front_end, device_libraries
from offload_tool.toolchain.identity import configuring_files, has_configuration
from offload_tool.util.shell_words import NeedsShellError, shell_words

if TYPE_CHECKING:
    from offload_tool.pch.pch import UsablePch


# A build writes nothing to a folder for which SCons has no node.
DIGESTS = DigestCache(lambda folder: is_system_path(folder) or not compat.builds_in(folder))
"""The known digests of this process."""
_UNREADABLE = re.compile(rb"[^ -~]+")
_PREFIX_MAP = rb"(-f(?:file|debug|macro|coverage)-prefix-map=)%s="
_QUOTING = "'\"\\"


def _signed_command(node: Node, repository: str = "") -> str:
    """Return the digest and the readable part of a command's signature.

    It is without the header folders in a `repository`, which SCons adds to those of the build. The
    build's folder is "." there if it is a mapped prefix: the compile replaces it, so that other
    checkouts have the same output. Otherwise the key has the folder (`NodeResolver._has_folder`).
    """
    top = re.escape(marked(node.fs.Top.get_abspath()).encode("utf-8", "surrogateescape"))
    contents = re.sub(_PREFIX_MAP % top, rb"\1.=", compat.contents(node))
    if repository:
        path = re.escape(marked(repository).encode("utf-8", "surrogateescape"))
        contents = re.sub(rb" -I%s(?:/(?:\0 |\S)*)?" % path, b"", contents)
    return f"{digest_of(contents)} {_UNREADABLE.sub(b'', contents).decode('ascii')}"


class FlagArgs:
    """The arguments of flags: SCons runs a command with the values that its variables have last."""

    def __init__(self, before: tuple[str, ...], find: Callable[[], tuple[str, ...]]) -> None:
        """`find` returns the arguments as they are now; `before` are those of the program."""
        self.declared = find()
        self._first = (*before, *self.declared)
        self._last = functools.cache(lambda: (*before, *find()))

    @property
    def now(self) -> tuple[str, ...]:
        """The arguments, with those of the program."""
        return self._last() if compat.has_read_all() else self._first

    @property
    def have_changed(self) -> bool:
        """Whether variables have changed since the builder call."""
        return self.now != self._first


class NodeResolver(Resolver):
    """What the pass of a node is made of: files are nodes, here or in a Repository."""

    def __init__(self, node: Node, job: CompilePass, command: str, flags: FlagArgs) -> None:
        self._flags = flags
        self.with_identity = job.stage == "host-ir"
        self.reads_headers = job.compiles_source
        self.reachable: list[str] = []
        """The files that directives may name, transitively from the source."""
        self.pch: UsablePch | None = None
        """The precompiled header with which this build has compiled the node."""
        self._node = node
        self._command = command

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments of the flags."""
        return self._flags.now

    @property
    def output(self) -> str:
        """The name of the output."""
        return path_of(self._node)

    @property
    def is_recordable(self) -> bool:
        """Whether the inputs can be known."""
        return not unlisted_by_linker(self.args)

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
        variables = variables_of(node)
        parts[Part.VARIABLES] = json.dumps(result_variables(variables), sort_keys=True)
        parts[Part.DEPENDENCIES] = digest_of_parts(values)
        folders = variables.get("COMPILER_PATH", "").split(os.pathsep)
        linkers = [name for folder in folders if folder for name in programs_in(folder)]
        configuration = self._configuring_files()
        for name in (*possible_files(self.args), *configuration, *linkers, *self._libraries()):
            if os.path.isfile(name) and not self._is_later(name):
                files[name] = DIGESTS.digest(name)
        processor = processor_of(all_args(self.args))
        if processor:
            parts[Part.PROCESSOR] = digest_of_parts(processor)
        if self._has_folder(Key(parts, files), record):
            named = variables.get("PWD", "")  # clang trusts it
            parts[Part.FOLDER] = f"{node.fs.Top.get_abspath()}\0{named}"
        return Key(parts, files)

    def _libraries(self) -> tuple[str, ...]:
        """Return the device libraries, unless the declared dependencies have them."""
        if not self._flags.have_changed:
            return ()
        return device_libraries(_general_args(self._node, self._command), variables_of(self._node))

    def _is_later(self, name: str) -> bool:
        """Return True for a file that is made of the node: a word of the flags is its name."""
        file = compat.file_node(self._node.fs, name)
        is_built = file is not None and file.has_builder()
        return is_built and not compat.without_made_of([file], self._node)

    def _has_folder(self, key: Key, record: PassRecord | None) -> bool:
        """Return True if the output with this `key` contains the working directory."""
        if record is not None and record.key.without(Part.FOLDER) == key:
            return Part.FOLDER in record.key.parts
        return self._front_end().embeds_folder

    def inputs_before(self) -> list[str]:
        """Return the files of the node's dependencies, and those that directives may name."""
        nodes = compat.known_inputs(self._node)
        files = [path_of(child) for child in nodes if isinstance(child, Base)]
        return [*files, *self.reachable]

    def files_read(self) -> list[str]:
        """Return the files that were read, except ignored ones; raise CompilerError."""
        if not self.reads_headers:
            return [path_of(self._node.sources[0])]
        compiled = command_of(self._node, self._command)
        try:
            read = inputs.files_read(compiled, variables_of(self._node))
        except CompilerError as error:
            raise CompilerError(f"'{self._node}': {error}") from error
        if self.pch is not None:
            read = self.pch.files_read(compiled.source, read)
        return self._inputs_among(read)

    def preprocess(self) -> list[str] | None:
        """Return the files that the preprocessor reads now; None if it fails."""
        compiled = command_of(self._node, self._command)
        read = inputs.preprocess(compiled, variables_of(self._node))
        return None if read is None else self._inputs_among(read)

    def _inputs_among(self, read: Iterable[str]) -> list[str]:
        ignored = compat.ignored_files(self._node)
        return [name for name in _relative_to_top(self._node, read) if name not in ignored]

    def search_path(self) -> tuple[str, ...]:
        """Return the folders in which the compile searches for headers."""
        return self._front_end().folders

    def present_search_path(self, record: PassRecord) -> tuple[str, ...]:
        """Return the search path, once for all passes with these flags; it is slow to compute."""
        variables, folders = record.key.parts.get(Part.VARIABLES), record.lookups.folders
        key = (self._command, self.args, variables, folders)
        found = DIGESTS.memoize(key, self.search_path)
        # SCons adds the header folders in the Repository that has the output.
        top = f"{_repository_of(self._node)}/"
        return tuple(dict.fromkeys(name.removeprefix(top) for name in found)) if top[1:] else found

    def _front_end(self) -> ImplicitInputs:
        args = _general_args(self._node, self._command)
        found = cached_front_end(args, variables_of(self._node))
        return found._replace(folders=tuple(_relative_to_top(self._node, found.folders)))

    def _configuring_files(self) -> tuple[str, ...]:
        # Computing the arguments is slow. Those that `has_configuration` looks for have "-config",
        # or are in a response file.
        signed = compat.contents(self._node)
        if b"-config" not in signed and b"@" not in signed:
            return ()
        general = _general_args(self._node, self._command)
        if not has_configuration(general):
            return ()
        if compat.is_interactive():
            configuring_files.cache_clear()  # a new build begins
        return configuring_files(general, variables_of(self._node))

    def copy_to_variants(self, record: PassRecord) -> None:
        """Copy files that the pass may search for into variant folders."""
        fs, lookups = self._node.fs, record.lookups
        names = (*lookups.names, *lookups.outside)
        for name in lookups.folders:
            if name.startswith("/"):
                continue
            folder = compat.folder_node(fs, name)
            if folder is None or not folder.duplicate or folder.srcnode() is folder:
                continue
            source_folder = str(folder.srcnode().rdir())
            for found in found_in((source_folder,), names, DIGESTS):
                end = found.removeprefix(source_folder.rstrip("/"))
                file = compat.file_node(fs, name + end)
                if file is not None:
                    file.exists()

    def renew_copies(self, names: Iterable[str]) -> None:
        """Update copies in variant folders, which SCons copies once even if ``--interactive``."""
        fs = self._node.fs
        for name in names:
            file = None if name.startswith("/") else compat.file_node(fs, name)
            if file is None or file.srcnode() is file or file.is_derived():
                continue
            if DIGESTS.digest(str(file.srcnode().rfile())) != DIGESTS.digest(name):
                compat.copy_again(file)

    @property
    def writes_more(self) -> bool:
        """Whether the pass has further outputs."""
        return any(does(arg, SIBLING | WRITES) for arg in all_args(self.args))

    def side_outputs(self) -> dict[str, str]:
        """Return the digest of each further output; "" if other passes write it, too."""
        if not self.writes_more:
            return {}
        args = command_of(self._node, self._command).without_depfile.argv()
        output = self._node.get_internal_path()
        found = job_plan.side_files(args, variables_of(self._node), output)
        # The host object's pass gives its files the names of those of the host IR's.
        stay = not self.with_identity
        return {name: DIGESTS.digest(name) if own and stay else "" for name, own in found.items()}


def _repository_of(node: Node) -> str:
    """Return the Repository that has an output which is not here; "" if there is none."""
    own, output = node.get_internal_path(), path_of(node)
    return output.removesuffix(f"/{own}") if output.endswith(f"/{own}") else ""


def _as_named_here(record: PassRecord, top: str, own_key: Key) -> PassRecord | None:
    """Return the record of an output in the Repository `top`, with its files' names as seen here.

    SCons spells outputs there as if they were here, as `own_key` does. It is None if another file
    here would be read in place of the Repository's; SCons has copied some to variant folders.
    """
    inputs = record.inputs
    copied = {name for name in inputs if not is_outside(name) and os.path.lexists(name)}
    is_hidden = any(DIGESTS.digest(name) != inputs[name] for name in copied)
    if is_hidden or appeared(record.lookups, frozenset(inputs), DIGESTS):
        return None

    def here(name: str) -> str:
        is_here = is_outside(name) or name in copied
        return name if is_here else f"{top}/{name}" if name else top

    def renamed(names: Mapping[str, str]) -> dict[str, str]:
        return {here(name): here(first) for name, first in names.items()}

    parts, files = record.key
    files = {name if name in own_key.files else here(name): text for name, text in files.items()}
    lookups = record.lookups
    return record._replace(
        key=Key({**parts, Part.SOURCE_PLACE: here(parts[Part.SOURCE_PLACE])}, files),
        inputs={here(name): digest for name, digest in inputs.items()},
        lookups=lookups._replace(
            folders=tuple(map(here, lookups.folders)), present=tuple(map(here, lookups.present))
        ),
        same_files=renamed(record.same_files),
        same_folders=renamed(record.same_folders),
        earlier=(),
    )


def path_of(node: Node) -> str:
    """Return the name of a node's file: here, or in a Repository."""
    return str(node.rfile().get_internal_path())


def variables_of(node: Node) -> dict[str, str]:
    """Return the environment variables of a node's command."""
    return compat.variables_of(node.get_build_env(), [node], node.sources)


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


def ptxas_flags(node: Node) -> tuple[str, ...]:
    """Return the flags of the driver's ``ptxas`` for the flags of the compile of a PTX node."""
    return cuda.ptxas_flags(_general_args(node, "$OFFLOADDEVICECOM"), variables_of(node))


def _general_args(node: Node, command: str) -> list[str]:
    own_files = {str(source.rfile()) for source in node.sources}
    return inputs.general_args(command_of(node, command).args, own_files)


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
