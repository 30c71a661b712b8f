"""What the tool knows about a node: one `NodeInfo` in one attribute.

SCons's own class of this name is another thing: the signature of a file, which it stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.scons.state.pass_state import PassRecords
from offload_tool.scons.types import Node


class DeviceCode(NamedTuple):
    """The device code that a node is: a device image, or a library of relocatable code."""

    kind: str
    device: CompileTarget
    relocatable: bool = False


@dataclass(frozen=True, slots=True)
class Packing:
    """The values of ``OFFLOAD_KPACK`` and related variables."""

    group: str
    paths: tuple[str, ...]
    """Archives, relative to the program's folder; the build writes to the first."""
    scheme: str
    interface: bool
    """Whether keys contain a digest of the kernels' interface."""


@dataclass(frozen=True, slots=True)
class PackedCode:
    """A code object that goes into an archive."""

    packing: Packing
    kernel_name: str
    node: Node


@dataclass(slots=True)
class NodeInfo:
    """The data of one node. What does not apply to the node is None or empty."""

    code: DeviceCode | None = None
    entry_id: BundleEntryID | None = None
    packaged_arch: str = ""
    """The processor that OpenMP's objects name for a CPU's code (see `openmp.packaged_arch`)."""
    records: PassRecords | None = None
    code_kinds: frozenset[str] | None = None
    """The offload kinds of the relocatable device code in an object or library, if known."""
    device_nodes: list[Node] | None = None
    """The nodes of the relocatable device code in an object or library, if this build makes it."""
    source_fatbins: list[Node] | None = None
    """CUDA's fat binaries of an object's or library's sources; None if they are unknown."""
    unbundled: tuple[dict[str, Any], Node] | None = None
    """The options and the library of a device-specific archive."""
    flags: str = ""
    """The variables of the command of SCons's whose flags may name files."""
    checked_link: tuple[str, tuple[Node, ...]] = ("", ())
    """The prefix of a link's variables, and the files whose device code it takes."""
    checked_files: set[str] = field(default_factory=set)
    """The real paths of these files, and of those that the link's check has read."""
    packed: list[PackedCode] = field(default_factory=list)
    """The code of an object or static library that goes to kpack archives."""
    archive_codes: dict[str, PackedCode] = field(default_factory=dict)
    kpack_archives: list[Node] = field(default_factory=list)
    plain_objects: dict[str, Any] = field(default_factory=dict)
    """The objects of a C or C++ source by command."""
    variants: dict[str, list[Any]] = field(default_factory=dict)
    """The choices of `first_free` that declarations of this name have taken."""


def info_of(node: Node) -> NodeInfo:
    """Return the data of a node, empty at first."""
    attributes = node.attributes
    found: NodeInfo | None = getattr(attributes, "offload", None)
    if found is None:
        attributes.offload = found = NodeInfo()
    return found


def code_of(node: Node) -> DeviceCode:
    """Return which device code a node is; raise LookupError if it is none."""
    found = info_of(node).code
    if found is None:
        raise LookupError(str(node))
    return found


def records_of(node: Node) -> PassRecords:
    """Return the records of a pass's output; raise LookupError if the node is none."""
    found = info_of(node).records
    if found is None:
        raise LookupError(str(node))
    return found
