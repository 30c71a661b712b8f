"""Device code apart from the host: what ``OFFLOAD_KPACK`` makes of a program or library.

::

    a.hip --+-- a.gfx942.co ----+
            |                   +-- .kpack/GROUP_gfx942.kpack
    b.hip --+-- b.gfx942.co ----+
            |                             one archive for each target ID, group and place
            |   a.kpackref -- a.fatbin.o -+
            +-- a.host.o ---- a.kpack.o --+-- program

The program waits for the archives, but depends on none: a code object that changes, or a target
that is added, is a matter of one archive. Each source has a key of its own, so that neither the
order of sources nor which targets the others have means anything. Host objects of ``-flto`` cannot
be changed; there a call that the link wraps does at start what is done to the others here.
What is linked has one more marker, for AMD's tools, which look for one in `.rocm_kpack_ref`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Util

from offload_tool import passes
from offload_tool.errors import UsageError
from offload_tool.formats.kpack.archive import SCHEMES, archive_name, kernel_key
from offload_tool.formats.kpack.marker import PLACEHOLDER
from offload_tool.formats.target.compile_target import CompileTarget
from offload_tool.scons import actions, compat, readers
from offload_tool.scons.graph.aliases import add_aliases
from offload_tool.scons.graph.declare import NodeBuilder, declared
from offload_tool.scons.languages.kpack_leftovers import watch_archive
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.scons.graph.units import Unit
    from offload_tool.scons.types import Environment, Folder, Node

_DEFAULT_FOLDER = ".kpack"
WRAP_SOURCE = str(Path(passes.__file__).with_name("runtime") / "kpack_wrap.c")
WRAP_FLAG = "-Wl,--wrap=__hipRegisterFatBinary"

_KPACK = NodeBuilder(actions.KPACK)
_MARK = NodeBuilder(actions.MARK)
_MARKER = NodeBuilder(actions.MARKER)


@frozen
class Packing:
    """What ``OFFLOAD_KPACK`` and the variables beside it say."""

    group: str
    paths: tuple[str, ...]
    """Of archives, from the program's folder on; they are written to the first."""
    scheme: str
    interface: bool
    """Whether keys have a digest of the kernels' interface in them."""

    def archive(self, device: CompileTarget) -> str:
        """Return the path of the archive for a device, from the program's folder on."""
        return self.paths[0].replace(PLACEHOLDER, device.name, 1)


@frozen
class PackedCode:
    """A code object that goes into an archive."""

    packing: Packing
    kernel_name: str
    device: CompileTarget
    node: Any


@dataclass
class _Contents:
    """What an archive node holds."""

    packing: Packing
    device: CompileTarget
    codes: dict[str, Any] = field(default_factory=dict)
    """The node of each kernel name."""
    nodes: set[Any] = field(default_factory=set)

    def text(self) -> str:
        rows = sorted((name, node.get_internal_path()) for name, node in self.codes.items())
        packing = self.packing
        return readers.spec(
            group=packing.group,
            target_id=self.device.name,
            scheme=packing.scheme,
            interface=packing.interface,
            codes=rows,
        )


def packing_of(env: Environment, name: str) -> Packing | None:
    """Read the variables, for what is called `name`; None where nothing is to be apart.

    :raises UsageError: one of them cannot be used.
    """
    given = env["OFFLOAD_KPACK"]
    if not given:
        return None
    group = name if given is True else given
    if "/" in group or "\\" in group or group.startswith("."):
        raise UsageError(f"OFFLOAD_KPACK: expected the name of a group, found {group!r}")
    default = posixpath.join(_DEFAULT_FOLDER, archive_name(group, PLACEHOLDER))
    items = SCons.Util.flatten([env["OFFLOAD_KPACK_PATHS"]])
    paths = tuple(env.subst(str(item)) for item in items if item) or (default,)
    if posixpath.isabs(paths[0]) or PLACEHOLDER not in paths[0]:
        raise UsageError(
            f"OFFLOAD_KPACK_PATHS: expected a path from the folder of the program or library on, "
            f"with {PLACEHOLDER} in it, to be the first, found {paths[0]!r}"
        )
    scheme = env.subst(str(env["OFFLOAD_KPACK_COMPRESS"]))
    if scheme not in SCHEMES:
        expected = " or ".join(map(repr, SCHEMES))
        raise UsageError(f"OFFLOAD_KPACK_COMPRESS: expected {expected}, found {scheme!r}")
    return Packing(group, paths, scheme, env["OFFLOAD_KPACK_INTERFACE"])


def check_kind(unit: Unit) -> None:
    """Refuse sources whose runtimes know no archives.

    :raises UsageError: it is one.
    """
    if unit.kind != "hip":
        raise UsageError(
            f"'{unit.source}': OFFLOAD_KPACK is for HIP; no runtime of {unit.kind.upper()} looks "
            "for device code outside of the program"
        )


def uses_lto(env: Environment) -> bool:
    """Return whether host objects are bitcode."""
    words = env.subst_list("$CXXFLAGS $CCFLAGS $OFFLOAD_HOST_FLAGS")[0]
    given = [str(word) for word in words if str(word).startswith(("-flto", "-fno-lto"))]
    return bool(given) and given[-1] != "-fno-lto"


def kernel_name_of(unit: Unit, codes: Sequence[Any]) -> str:
    """Return the name under which a source's code objects are in archives.

    It is that of the source's outputs, of another one where these go by other names.
    """
    name = unit.name
    if unit.owner is not None:
        plain = {f"{unit.name}.{code.attributes.offload_device.filename}" for code in codes}
        if any(SCons.Util.splitext(code.name)[0] not in plain for code in codes):
            name = unit.owner.names_for(name)[1]
    return posixpath.normpath(posixpath.join(unit.folder.get_internal_path(), name))


def marked_host(env: Environment, host: Node, folder: Folder | None = None) -> Node:
    """Declare the copy of a host object, or a library, whose wrappers are for markers.

    Of a library from elsewhere it goes to `folder`.
    """
    stem, suffix = SCons.Util.splitext(host.name)
    outside = folder is not None and not host.is_under(env.fs.Top)
    place = folder if folder is not None and outside else host.dir
    return _MARK(env, place.File(f"{stem}.kpack{suffix}"), [host], _OFFLOAD_SPEC=readers.spec())[0]


def marker_node(
    env: Environment, names: Iterable[Node], packing: Packing, kernel_name: str, codes: list[Node]
) -> Node:
    """Declare the file with a marker, which knows of code objects no more than the interface."""
    spec = readers.spec(kernel_name=kernel_name, paths=packing.paths, interface=packing.interface)
    return declared(_MARKER, env, names, codes if packing.interface else [], _OFFLOAD_SPEC=spec)


def codes_of(nodes: Iterable[Any]) -> list[PackedCode]:
    """Return what objects and static libraries have apart from them, for what they are linked into.

    A shared library finds its archives by itself, from its own folder on.
    """
    found: list[PackedCode] = []
    for node in nodes:
        found += getattr(getattr(node, "attributes", None), "offload_kpack", ())
    return found


def attach_archives(env: Environment, node: Node, codes: Iterable[PackedCode]) -> None:
    """Make a program, library or object wait for the archives that it looks for.

    :raises UsageError: two code objects would have one key in one archive.
    """
    found = list(dict.fromkeys(codes))
    if not found:
        return
    archives = dict.fromkeys(_archive_node(env, node.dir, code) for code in found)
    node.attributes.offload_kpack_archives = list(archives)
    node.add_prerequisite(list(archives))


def given_archives(nodes: Iterable[Any]) -> list[Any]:
    """Return the archives of programs, libraries and objects.

    :raises UsageError: one of them has none.
    """
    found: dict[Any, None] = {}
    for node in nodes:
        archives = getattr(node.attributes, "offload_kpack_archives", None)
        if not archives:
            raise UsageError(
                f"'{node}' was built without OFFLOAD_KPACK; set it there to have kpack archives"
            )
        found.update(dict.fromkeys(archives))
    return list(found)


def _archive_node(env: Environment, folder: Folder, code: PackedCode) -> Any:
    node: Any = folder.File(code.packing.archive(code.device))
    watch_archive(env, folder, code.packing.paths[0], node)
    contents: _Contents | None = getattr(node.attributes, "offload_kpack_contents", None)
    if contents is None:
        contents = _Contents(code.packing, code.device)
        node.attributes.offload_kpack_contents = contents
        variables = {"_OFFLOAD_SPEC": _spec_of, "_OFFLOAD_TARGET_ID": code.device.name}
        _KPACK(env, node, [code.node], **variables)
        add_aliases(env, node, code.device)
    elif code.node not in contents.nodes:
        compat.add_source(node, code.node)
    _check_equal(node, contents, code)
    contents.codes[code.kernel_name] = code.node
    contents.nodes.add(code.node)
    return node


def _check_equal(node: Any, contents: _Contents, code: PackedCode) -> None:
    ours, theirs = contents.packing, code.packing
    for name in ("group", "scheme", "interface"):
        if getattr(ours, name) != getattr(theirs, name):
            found = f"{getattr(ours, name)!r} and {getattr(theirs, name)!r}"
            raise UsageError(
                f"the archive '{node}' is given two values for its {name}: {found}; "
                "set one, or use another OFFLOAD_KPACK_PATHS for one of them"
            )
    other = contents.codes.get(code.kernel_name, code.node)
    if other is not code.node:
        raise UsageError(
            f"'{other}' and '{code.node}' would have the key '{kernel_key(code.kernel_name)}' in "
            f"'{node}'; give one of them a group of its own (OFFLOAD_KPACK)"
        )


def _spec_of(
    target: list[Any],
    source: list[Any],
    env: Environment,
    for_signature: bool,
) -> str:
    """Return what an archive is made of, which is known when all SConscripts have been read."""
    contents: _Contents = target[0].attributes.offload_kpack_contents
    return contents.text().replace("$", "$$")


def packed_files(node: Any) -> tuple[Packing, str, list[tuple[str, str]]]:
    """Return what the action of an archive needs: its target ID, and names and paths of code."""
    contents: _Contents = node.attributes.offload_kpack_contents
    codes = [(name, str(code)) for name, code in contents.codes.items()]
    return contents.packing, contents.device.name, codes
