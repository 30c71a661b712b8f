"""Attributes of this tool's nodes, and names of sources and outputs."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import SCons.Node
import SCons.Node.FS
import SCons.Util

from offload_tool.clang.argument_files import all_args
from offload_tool.errors import EntryIDError, UsageError
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    kind_outside_bundles,
    read_targets,
)
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.passes.compile_pass import CompilePass, Stage
from offload_tool.passes.languages import LANGUAGES, compile_pass
from offload_tool.passes.source_kind import (
    C_SUFFIXES,
    CXX_SUFFIXES,
    KINDS,
    derive_cuid,
    kind_of_suffix,
)
from offload_tool.scons import compat, found_tools, offload_arch, settings
from offload_tool.scons.graph.aliases import add_aliases
from offload_tool.scons.graph.call_cache import cached
from offload_tool.scons.state import build_log
from offload_tool.scons.state.node_info import DeviceCode, info_of
from offload_tool.scons.types import Environment, Folder, Node

_PLAIN_SUFFIXES = (*C_SUFFIXES, *CXX_SUFFIXES, ".s", ".S")
_NOT_IN_DEPFILES = re.compile(r"[\x00-\x1f]")
_OPENMP = ("-fopenmp", "-fno-openmp")
_ASSEMBLY = (".s", ".S", ".sx", ".asm")


@dataclass(frozen=True, slots=True)
class Owner:
    """The user-named output for which intermediate nodes are made."""

    name: str
    """Its file name, without folder and suffix."""
    sort: str
    """Distinguishes it from other outputs of this name: ``program``, ``shared``, ..."""
    path: str

    @property
    def is_shared(self) -> bool:
        """Whether it is a shared library, or an object for one."""
        return self.sort == "shared"

    @classmethod
    def of(cls, node: Node | Stem, sort: str) -> Owner:
        """Return the owner for an output that a user has named."""
        return cls(SCons.Util.splitext(node.name)[0], sort, node.get_internal_path())


@dataclass(frozen=True, slots=True)
class Stem:
    """The folder and the common prefix of outputs' names; a folder may have that name, too."""

    dir: Folder
    name: str
    owner: Owner | None = None
    """The owner of intermediate outputs, which may be renamed."""

    @classmethod
    def of(cls, node: Node, owner: Owner | None = None) -> Stem:
        """Return the stem of outputs named after a file, without its suffix."""
        return cls(node.dir, SCons.Util.splitext(node.name)[0], owner)

    def get_internal_path(self) -> str:
        """Return the path relative to the top folder, as a node does."""
        folder = self.dir.get_internal_path()
        return self.name if folder == "." else f"{folder}{os.sep}{self.name}"

    def other_names(self) -> Iterator[str]:
        """Yield a short and a unique alternative to a taken name, if it may be changed."""
        owner = self.owner
        if owner is not None:
            other = f"{self.name}.{owner.sort if owner.name == self.name else owner.name}"
            yield other
            text = f"{owner.sort}\0{owner.path}".encode(errors="surrogateescape")
            yield f"{other}-{hashlib.sha256(text).hexdigest()[:6]}"

    def file(self, env: Environment, suffix: str) -> Node:
        """Return the node of the output with this suffix, after substitution of variables."""
        end = cached(env, f"suffix {suffix}", lambda: env.subst(suffix))
        return self.dir.File(f"{self.name}{end}")

    def files(self, env: Environment, suffix: str) -> Iterator[Node]:
        """Yield the node of `file`, then those of its alternative names."""
        yield self.file(env, suffix)
        for name in self.other_names():
            yield replace(self, name=name).file(env, suffix)


@dataclass(frozen=True, slots=True)
class Unit:
    """One offload source, and the properties that all its nodes share."""

    source: Node
    kind: str
    stem: Stem
    """The folder and the prefix of its outputs."""
    cuid: str
    rdc: bool
    """Whether ``OFFLOAD_RDC`` applies. OpenMP's device code is always relocatable without it."""

    @property
    def is_shared(self) -> bool:
        """Whether its host code is for a shared library."""
        return self.stem.owner is not None and self.stem.owner.is_shared

    def job(self, stage: Stage, device: CompileTarget | None = None) -> CompilePass:
        """Return a pass over the source."""
        names = {"source": self.source.name, "host_ir": "${SOURCES[1]}"}
        return compile_pass(self.kind, stage, self.cuid, device, rdc=self.rdc, **names)

    def owned_by(self, owner: Owner) -> Unit:
        """Return the unit with an owner of its intermediate outputs."""
        return replace(self, stem=replace(self.stem, owner=owner))

    def renamed(self, env: Environment, name: str) -> Unit:
        """Return the unit with another prefix and CUID, as a host object has its name."""
        if name == self.stem.name:
            return self
        stem = replace(self.stem, name=name)
        derived = derive_cuid(self.source.get_internal_path(), stem.get_internal_path())
        return replace(self, stem=stem, cuid=env.subst("$OFFLOAD_CUID") or derived)

    @property
    def language_flags(self) -> str:
        """The variable with the flags of the source's language."""
        return _language_flags(self.source)


def source_units(
    env: Environment, target: str | None, sources: list[Node], *, own_cuid: bool = False
) -> list[Unit]:
    """Return offload sources' units; with `own_cuid`, a `target` of another name has a CUID."""
    if target is not None and len(sources) > 1:
        raise UsageError(
            f"one target name ('{target}') cannot serve {len(sources)} sources; "
            "call the builder once for each source"
        )
    stems = [output_stem(env, target, source) for source in sources]
    pairs = zip(sources, stems, strict=True)
    return [unit_of(env, source, stem, own_cuid=own_cuid) for source, stem in pairs]


def unit_of(env: Environment, source: Node, stem: Stem, *, own_cuid: bool = False) -> Unit:
    """Return a source's unit, whose passes share one CUID; raise UsageError if it is none."""
    kind = kind_of(env, source)
    if kind is None and source.get_suffix() in C_SUFFIXES and env["OFFLOAD_KIND"]:
        raise UsageError(
            f"'{source}' is C, of which no {settings.given_kind(env).upper()} code is made; "
            "rename it to .hip, .cu or .cpp, or give it to OffloadProgram as a C source"
        )
    if kind is None:
        _refuse_assembly(source)
        raise UsageError(
            f"'{source}': expected an offload source (.hip, .cu); set OFFLOAD_KIND to one of "
            f"{', '.join(KINDS)} for one with another suffix"
        )
    extra = ""
    if own_cuid and stem != Stem.of(source):
        extra = f"{stem.dir.get_internal_path()}/{stem.name}"
    _check_names(source, stem.dir)
    cuid = env.subst("$OFFLOAD_CUID") or derive_cuid(source.get_internal_path(), extra)
    rdc = env["OFFLOAD_RDC"] and not LANGUAGES[kind].has_host_ir
    return Unit(source, kind, stem, cuid, rdc)


def _check_names(source: Node, folder: Folder) -> None:
    """Raise UsageError for names that clang or lld cannot handle, before they fail unclearly.

    Source: clang and lld 22.1.8, observed: a depfile escapes no whitespace but spaces, and lld
    replaces ``%`` in the name of an output folder.
    """
    name, path = source.get_internal_path(), folder.get_internal_path()
    if _NOT_IN_DEPFILES.search(name):
        raise UsageError(f"{name!r}: a depfile cannot hold this name; rename the file or folder")
    if name.startswith("-"):
        raise UsageError(f"'{name}': clang takes it for an option; rename the file or folder")
    if "%" in path:
        raise UsageError(f"'{path}': lld cannot write to a folder with % in its name; rename it")


def kind_of(env: Environment, node: Node) -> str | None:
    """Return a source's kind, by suffix or OFFLOAD_KIND, or None; raise UsageError."""
    given = settings.given_kind(env)
    if given not in ("", *KINDS):
        raise UsageError(f"OFFLOAD_KIND: expected one of {', '.join(KINDS)}, found {given!r}")
    by_suffix = kind_of_suffix(node.name)
    if by_suffix is not None:
        # The suffix decides the language; only HIP can compile another language's sources.
        return "hip" if given == "hip" else by_suffix
    if node.get_suffix() in C_SUFFIXES and given in ("hip", "cuda"):
        return None  # C, as for hipcc and nvcc
    if node.get_suffix() in (*C_SUFFIXES, *CXX_SUFFIXES):
        return given or ("openmp" if _has_openmp_flags(env, _language_flags(node)) else None)
    return None


def _language_flags(source: Node) -> str:
    return "$CFLAGS" if source.get_suffix() in C_SUFFIXES else "$CXXFLAGS"


def _has_openmp_flags(env: Environment, language_flags: str) -> bool:
    """Return True if OpenMP offloading is on: devices, and OpenMP by the last flag about it.

    Devices that flags name count, too, so that the compile refuses these flags.
    """
    with compat.at_top(env):
        args = all_args(settings.substituted(env, f"{language_flags} $CCFLAGS $CPPFLAGS"))
    if not (env["OFFLOAD_ARCH"] or any(arg.startswith(settings.OPENMP_DEVICES) for arg in args)):
        return False
    names = (arg.partition("=")[0] for arg in args)
    return [name for name in names if name in _OPENMP][-1:] == ["-fopenmp"]


def is_plain_source(node: Node) -> bool:
    """Return True if a node is C, C++ or assembler."""
    return node.get_suffix() in _PLAIN_SUFFIXES


def source_nodes(env: Environment, source: Any) -> list[Node]:
    """Return the nodes of a user's sources, each once; raise UsageError for none or no file."""
    given = [_as_text(env, item) for item in SCons.Util.flatten([source])]
    nodes: list[Node] = list(env.arg2nodes(given, env.fs.Entry))
    if not nodes:
        raise UsageError("no source was given; does a pattern of Glob() match nothing?")
    for node in nodes:
        _check_file(node)
    seen: set[Any] = set()
    sources = []
    for node in nodes:
        if node not in seen or not (is_plain_source(node) or kind_of(env, node)):
            sources.append(node)
        seen.add(node)
    return sources


def _refuse_assembly(node: Node) -> None:
    if node.get_suffix() in _ASSEMBLY:
        raise UsageError(
            f"'{node}' is assembly, which only the host's compiler takes as a source; let an "
            "env.Command make a code object of it (docs/howto/assembly.md)"
        )


def check_no_sources(nodes: list[Node]) -> None:
    """Raise UsageError if a container's file is a source of no known kind."""
    for node in nodes:
        if is_plain_source(node):
            _refuse_assembly(node)
            kinds = "'openmp'" if node.get_suffix() in C_SUFFIXES else "'openmp', 'hip' or 'cuda'"
            raise UsageError(
                f"'{node}' is compiled for the host; if it has device code, set OFFLOAD_KIND to "
                f"{kinds}"
            )


def only_source(sources: list[Node], problem: str) -> Node:
    """Return the only source; raise UsageError with `problem` and their number."""
    if len(sources) != 1:
        raise UsageError(f"{problem}, not {len(sources)}")
    return sources[0]


def _as_text(env: Environment, item: Any) -> Any:
    if isinstance(item, SCons.Node.Node):
        return item
    name = os.fspath(item) if isinstance(item, os.PathLike) else item
    if not isinstance(name, str):
        raise UsageError(f"expected names of files, or nodes, as sources, found {item!r}")
    if not env.subst(name).strip():
        what = f" ('{name}')" if name else ""
        raise UsageError(f"expected the name of a file as source, found an empty text{what}")
    return name


def _check_file(node: Node) -> None:
    if not isinstance(node, SCons.Node.FS.Base):
        raise UsageError(f"expected files as sources, found '{node}', which is none")
    paths = {node.get_abspath(), node.srcnode().get_abspath()}
    if isinstance(node, SCons.Node.FS.Dir) or any(map(os.path.isdir, paths)):
        raise UsageError(f"'{node}' is a folder; give the files in it, such as Glob('{node}/*')")


def named(env: Environment, name: str, suffix: str) -> Node:
    """Return the node of a user's target name, with the suffix if it has none."""
    return env.fs.File(name if PurePath(name).suffix else name + env.subst(suffix))


def output_stem(env: Environment, target: str | None, source: Node) -> Stem:
    """Return the common prefix of several outputs' names: `target`, or the source's name."""
    if target is None:
        return Stem.of(source)
    head, tail = os.path.split(SCons.Util.splitext(target)[0])
    if tail.startswith("#") and not head:
        head, tail = "#", tail[1:]
    return Stem(env.fs.Dir(head or "."), tail)


def path_from_top(node: Node | Stem) -> str:
    """Return the name by which SCons finds a file from any folder."""
    path: str = node.get_internal_path()
    return path if PurePath(path).is_absolute() else f"#{path}"


def label(
    env: Environment, node: Node, kind: str, device: CompileTarget, *, relocatable: bool = False
) -> None:
    """Record on a node which device's image it is, and add it to that device's aliases."""
    info = info_of(node)
    info.code = DeviceCode(kind, device, relocatable)
    if kind in OffloadKind.ALL:  # bundles have no other kinds
        info.entry_id = _entry_id_of(device, kind)
    add_aliases(env, node, device)


_entry_id_of = functools.cache(CompileTarget.entry_id)


def target_texts(env: Environment) -> list[str]:
    """Return the IDs of ``OFFLOAD_TARGETS`` as given."""
    return [env.subst(text) for text in env.Split(env["OFFLOAD_TARGETS"])]


def given_ids(env: Environment) -> list[BundleEntryID]:
    """Return OFFLOAD_TARGETS as bundle entry IDs; raise UsageError if invalid."""
    return _read_ids(env, read_targets)


def packaged_ids(env: Environment) -> list[BundleEntryID]:
    """Return OFFLOAD_TARGETS with kinds of offload binaries; raise UsageError if invalid."""
    from offload_tool.operations.package import kind_number  # few builds package files

    def read(texts: Iterable[str], **checks: Any) -> list[BundleEntryID]:
        ids = [BundleEntryID.parse_any_kind(text, **checks) for text in texts]
        for entry in ids:
            kind_number(kind_outside_bundles(entry.kind), "llvm22", None)
        return ids

    return _read_ids(env, read)


def _read_ids(env: Environment, read: Any) -> list[BundleEntryID]:
    try:
        found: list[BundleEntryID] = read(
            target_texts(env),
            warn=lambda text: build_log.warn(env, f"OFFLOAD_TARGETS: {text}"),
            known=functools.partial(offload_arch.knows_processor, env),
        )
    except (EntryIDError, UsageError) as error:
        raise UsageError(f"OFFLOAD_TARGETS: {error}") from None
    return found


def add_identity(env: Environment, node: Node) -> Node:
    """Make a node depend on the compiler's identity; return it."""
    text = found_tools.toolchain(env).identity
    node.add_dependency([env.Value(text)])
    return node


def unsigned_program(command: Iterable[str]) -> list[str]:
    """Return a command whose program's path is not part of signatures; its options are."""
    program, *options = command
    return ["$(", program, "$)", *options]
