"""Device libraries: heterogeneous device archives (HDA) and what a device link takes of them.

::

    a.hip, b.hip --> a.o, b.o --> libgeometry.a --+--> libgeometry.gfx906.a    (DSA)
                     (object       (HDA)          +--> libgeometry.gfx90a.a    (DSA)
                      bundles)

A DSA whose bytes come out the same is left as it is, and nothing behind it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import SCons.Util

from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.scons import actions, settings
from offload_tool.scons.declaring import NodeBuilder
from offload_tool.scons.nodes import add_aliases, label

if TYPE_CHECKING:
    from offload_tool.compiler.device import Device

__all__ = ["archive_node", "device_archive_node", "device_archive_nodes"]

_ARCHIVE = NodeBuilder(actions.ARCHIVE)
_DEVICE_ARCHIVE = NodeBuilder(actions.DEVICE_ARCHIVE)


def archive_node(env: Any, archive: Any, members: list[Any]) -> Any:
    """Declare the archive of bundles; each member is called as its file."""
    return _ARCHIVE(env, archive, members, _OFFLOAD_SPEC=settings.spec())[0]


def device_archive_nodes(env: Any, library: Any, stem: Any = None) -> list[Any]:
    """Declare the device-specific archives of a library, one per device of ``OFFLOAD_ARCH``."""
    devices = settings.devices(env, "hip")
    return [device_archive_node(env, library, device, stem) for device in devices]


def device_archive_node(env: Any, library: Any, device: Device, stem: Any = None) -> Any:
    """Declare the device-specific archive of a library for one device."""
    stem = stem or library.dir.File(SCons.Util.splitext(library.name)[0])
    node = stem.dir.File(f"{stem.name}.{device.filename}{env.subst('$LIBSUFFIX')}")
    entry = BundleEntryID.parse(f"hip-{device.triple}-{device.target_id}")
    spec = settings.spec(entry=str(entry))
    if node.has_builder() and getattr(node.attributes, "offload_spec", None) == (spec, library):
        return node  # several programs use the library
    _DEVICE_ARCHIVE(env, node, library, _OFFLOAD_SPEC=spec, _OFFLOAD_TARGET_ID=device.name)
    env.Precious(node)  # the action leaves an equal one as it is
    node.attributes.offload_spec = (spec, library)
    label(node, "hip", device)
    node.attributes.offload_relocatable = True
    add_aliases(env, node, device)
    return node
