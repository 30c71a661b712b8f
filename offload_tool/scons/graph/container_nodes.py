"""The nodes that hold device images: bundles, offload binaries, modules that register them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from offload_tool.errors import UsageError
from offload_tool.formats.target.bundle_entry_id import (
    BundleEntryID,
    check_composition,
    check_hosts,
)
from offload_tool.formats.target.compile_target import CompileTarget
from offload_tool.scons import actions, readers
from offload_tool.scons.graph.declare import NodeBuilder, declared
from offload_tool.scons.graph.units import entry_id, given_ids, identified

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

# The fat binary's host entry is empty and always has this name, as the driver writes it.
_EMPTY_HOST_ENTRY = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")

_BUNDLE = NodeBuilder(actions.BUNDLE)
_PACKAGE = NodeBuilder(actions.PACKAGE)
_WRAP = NodeBuilder(actions.WRAP)


def bundle_node(
    env: Environment, names: Iterable[Node], nodes: list[Node], file_type: str = "bc"
) -> Node:
    """Declare the bundle of nodes that carry entry IDs, and of files that are given them.

    It gets the first of `names` that is free.
    """
    plain = [node for node in nodes if entry_id(node) is None]
    given = given_ids(env)
    if len(plain) != len(given):
        raise UsageError(
            f"OFFLOAD_TARGETS gives {len(given)} bundle entry IDs for the {len(plain)} files of "
            f"'{next(iter(names))}' that carry none ({', '.join(map(str, plain)) or 'no file'}); "
            "expected one for each, in order"
        )
    remaining = iter(given)
    ids = [_bundled_id(node, file_type) or next(remaining) for node in nodes]
    check_composition(ids)
    if given:
        check_hosts(ids, bundling=True)
    entries: list[tuple[str, int | None]] = [(str(i), at) for at, i in enumerate(ids)]
    # A fat binary begins with an empty host entry; a list of IDs says itself what it wants.
    is_fat_binary = not given and file_type == "bc"
    if is_fat_binary and not any(entry_id.kind == "host" for entry_id in ids):
        entries.insert(0, (str(_EMPTY_HOST_ENTRY), None))
    spec = readers.spec(
        alignment=env["OFFLOAD_BUNDLE_ALIGN"],
        compression=readers.compression(env),
        entries=entries,
        file_type=file_type,
    )
    return declared(_BUNDLE, env, names, nodes, _OFFLOAD_SPEC=spec)


def object_bundle(env: Environment, names: Iterable[Node], devices: list[Node], host: Node) -> Node:
    """Declare the object bundle of relocatable device code; the host is last, as in LLVM."""
    entries = [(str(_in_library(device)), at) for at, device in enumerate(devices)]
    entries.append((str(entry_id(host)), len(devices)))
    spec = readers.spec(alignment=1, compression=(None, None), entries=entries, file_type="o")
    made = declared(_BUNDLE, env, names, [*devices, host], _OFFLOAD_SPEC=spec)
    made.attributes.offload_device_nodes = devices
    return made


def _bundled_id(node: Node, file_type: str) -> BundleEntryID | None:
    """Return the entry ID of a node in a bundle; object bundles are what libraries are made of."""
    is_module = getattr(node.attributes, "offload_relocatable", False)
    return _in_library(node) if file_type == "o" and is_module else entry_id(node)


def _in_library(node: Node) -> BundleEntryID:
    """Return the entry ID of relocatable code: the driver calls it ``hip``, not ``hipv4``."""
    device, kind = node.attributes.offload_device, node.attributes.offload_kind
    return BundleEntryID.parse(f"{kind}-{device.triple}-{device.target_id or ''}")


def package_node(
    env: Environment,
    names: Iterable[Node],
    nodes: list[Node],
    given: dict[Any, tuple[str, CompileTarget]] | None = None,
    keys: Callable[[Node], dict[str, str]] = lambda _: {},
    base: Node | None = None,
) -> Node:
    """Declare the offload binary of nodes that know their kind and device, or are `given` them.

    `keys` returns what else to say of an image; `base` is the offload binary to which they are
    added. The node gets the first of `names` that is free.
    """
    images = []
    for node in nodes:
        told = (given or {}).get(node)
        known = told or (node.attributes.offload_kind, node.attributes.offload_device)
        others = {"keys": told_keys} if (told_keys := keys(node)) else {}
        images.append(_described(*known) | _image_kind(node) | others)
    has_base: dict[str, Any] = {} if base is None else {"base": True}
    spec = readers.spec(images=images, **has_base)
    sources = nodes if base is None else [*nodes, base]
    return declared(_PACKAGE, env, names, sources, _OFFLOAD_SPEC=spec)


def _described(kind: str, device: CompileTarget) -> dict[str, Any]:
    """Return what the driver says of an image in an offload binary."""
    arch = str(device.target_id) if device.target_id is not None else ""
    return {"kind": kind, "triple": device.packaged_triple, "arch": arch}


def _image_kind(node: Node) -> dict[str, str]:
    """Return what the content is, where its name tells something else than clang's link expects."""
    is_cubin = node.get_suffix() == ".cubin"
    return {"image_kind": "OBJECT"} if is_cubin and node.attributes.offload_relocatable else {}


def wrap_node(
    env: Environment, names: Iterable[Node], images: list[Node], kind: str, **options: Any
) -> Node:
    """Declare the module that registers images (or packages of them) in a host program.

    It gets the first of `names` that is free.
    """
    spec = readers.spec(kind=kind, triple=readers.host_triple(env), **options)
    variables = readers.toolchain_variables(env)
    return identified(env, [declared(_WRAP, env, names, images, **variables, _OFFLOAD_SPEC=spec)])[
        0
    ]
