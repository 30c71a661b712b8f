"""GPU offload bundles: target IDs, bundle entry IDs, and the files that hold device images.

The operations of the command line and of the SCons tool, in-process. Reading is lazy:
files are mapped, and opening a large one reads its header.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offload_tool.errors import OffloadError
    from offload_tool.formats.bundle import Bundle, BundleEntry, read_bundle
    from offload_tool.formats.entry_id import BundleEntryID
    from offload_tool.formats.target_id import TargetID
    from offload_tool.operations.bundling import Compression, bundle_files
    from offload_tool.operations.embedding import embed_bundle
    from offload_tool.operations.listing import DeviceImage, list_images
    from offload_tool.operations.unbundling import list_entry_ids, unbundle_file

# Imported on first use: a command that only bundles does not load an ELF reader.
_HOMES = {
    "Bundle": "formats.bundle",
    "BundleEntry": "formats.bundle",
    "BundleEntryID": "formats.entry_id",
    "Compression": "operations.bundling",
    "DeviceImage": "operations.listing",
    "OffloadError": "errors",
    "TargetID": "formats.target_id",
    "bundle_files": "operations.bundling",
    "embed_bundle": "operations.embedding",
    "list_entry_ids": "operations.unbundling",
    "list_images": "operations.listing",
    "read_bundle": "formats.bundle",
    "unbundle_file": "operations.unbundling",
}

__all__ = [
    "Bundle",
    "BundleEntry",
    "BundleEntryID",
    "Compression",
    "DeviceImage",
    "OffloadError",
    "TargetID",
    "bundle_files",
    "embed_bundle",
    "list_entry_ids",
    "list_images",
    "read_bundle",
    "unbundle_file",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'offload_tool' has no attribute '{name}'")
    return getattr(importlib.import_module(f"offload_tool.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
