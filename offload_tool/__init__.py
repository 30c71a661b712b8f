"""GPU offload bundles: target IDs, bundle entry IDs, and the files that hold device images.

The operations of the command line and of the SCons tool, in-process. Reading is lazy:
files are mapped, and opening a large one reads its header.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from offload_tool.errors import (
        CodeObjectError,
        CompilerError,
        ContentError,
        EntryIDError,
        FileError,
        FormatError,
        NoContainerError,
        OffloadError,
        TargetIDError,
        UnsupportedError,
        UsageError,
    )
    from offload_tool.formats.bundles.binary import Bundle, BundleEntry, read_bundle
    from offload_tool.formats.kernels.kernel import Kernel
    from offload_tool.formats.names.entry_id import BundleEntryID
    from offload_tool.formats.names.target_id import TargetID
    from offload_tool.operations.archiving import create_archive
    from offload_tool.operations.bundling import Compression, bundle_files
    from offload_tool.operations.embedding import embed_bundle
    from offload_tool.operations.extracting import ExtractedImage, extract_device_images
    from offload_tool.operations.image_data import iter_image_data, open_image
    from offload_tool.operations.kernel_listing import ImageKernels, iter_kernels
    from offload_tool.operations.listing import DeviceImage, iter_images, list_images
    from offload_tool.operations.matching import Device, Load, Match, NoImageError, match_images
    from offload_tool.operations.merging import MergeError, merge_files
    from offload_tool.operations.packaging import PackagedImage, package_images
    from offload_tool.operations.rejoining import JoinReport, join_file
    from offload_tool.operations.splitting import SplitPart, SplitReport, WheelOptions, split_file
    from offload_tool.operations.thinning import ThinReport, thin_file
    from offload_tool.operations.unarchiving import (
        MissingCodeObjectError,
        NotAnArchiveError,
        unbundle_archive,
    )
    from offload_tool.operations.unbundling import (
        MissingEntriesError,
        list_entry_ids,
        unbundle_file,
    )
    from offload_tool.operations.unpackaging import ImageFilter, extract_images
    from offload_tool.operations.wrapping import wrap_images

# Imported on first use: a command that only bundles does not load an ELF reader.
_HOMES = {
    "Bundle": "formats.bundles.binary",
    "BundleEntry": "formats.bundles.binary",
    "BundleEntryID": "formats.names.entry_id",
    "CodeObjectError": "errors",
    "CompilerError": "errors",
    "Compression": "operations.bundling",
    "ContentError": "errors",
    "Device": "operations.matching",
    "DeviceImage": "operations.listing",
    "EntryIDError": "errors",
    "ExtractedImage": "operations.extracting",
    "FileError": "errors",
    "FormatError": "errors",
    "ImageFilter": "operations.unpackaging",
    "ImageKernels": "operations.kernel_listing",
    "Kernel": "formats.kernels.kernel",
    "Load": "operations.matching",
    "Match": "operations.matching",
    "MergeError": "operations.merging",
    "MissingCodeObjectError": "operations.unarchiving",
    "MissingEntriesError": "operations.unbundling",
    "NoContainerError": "errors",
    "NoImageError": "operations.matching",
    "NotAnArchiveError": "operations.unarchiving",
    "OffloadError": "errors",
    "PackagedImage": "operations.packaging",
    "TargetID": "formats.names.target_id",
    "TargetIDError": "errors",
    "JoinReport": "operations.rejoining",
    "SplitPart": "operations.splitting",
    "SplitReport": "operations.splitting",
    "ThinReport": "operations.thinning",
    "UnsupportedError": "errors",
    "UsageError": "errors",
    "WheelOptions": "operations.splitting",
    "bundle_files": "operations.bundling",
    "create_archive": "operations.archiving",
    "embed_bundle": "operations.embedding",
    "extract_device_images": "operations.extracting",
    "extract_images": "operations.unpackaging",
    "iter_image_data": "operations.image_data",
    "iter_images": "operations.listing",
    "iter_kernels": "operations.kernel_listing",
    "list_entry_ids": "operations.unbundling",
    "list_images": "operations.listing",
    "match_images": "operations.matching",
    "merge_files": "operations.merging",
    "open_image": "operations.image_data",
    "package_images": "operations.packaging",
    "read_bundle": "formats.bundles.binary",
    "join_file": "operations.rejoining",
    "split_file": "operations.splitting",
    "thin_file": "operations.thinning",
    "unbundle_archive": "operations.unarchiving",
    "unbundle_file": "operations.unbundling",
    "wrap_images": "operations.wrapping",
}

__all__ = [
    "Bundle",
    "BundleEntry",
    "BundleEntryID",
    "CodeObjectError",
    "CompilerError",
    "Compression",
    "ContentError",
    "Device",
    "DeviceImage",
    "EntryIDError",
    "ExtractedImage",
    "FileError",
    "FormatError",
    "ImageFilter",
    "ImageKernels",
    "JoinReport",
    "Kernel",
    "Load",
    "Match",
    "MergeError",
    "MissingCodeObjectError",
    "MissingEntriesError",
    "NoContainerError",
    "NoImageError",
    "NotAnArchiveError",
    "OffloadError",
    "PackagedImage",
    "SplitPart",
    "SplitReport",
    "TargetID",
    "TargetIDError",
    "ThinReport",
    "UnsupportedError",
    "UsageError",
    "WheelOptions",
    "bundle_files",
    "create_archive",
    "embed_bundle",
    "extract_device_images",
    "extract_images",
    "iter_image_data",
    "iter_images",
    "iter_kernels",
    "join_file",
    "list_entry_ids",
    "list_images",
    "match_images",
    "merge_files",
    "open_image",
    "package_images",
    "read_bundle",
    "split_file",
    "thin_file",
    "unbundle_archive",
    "unbundle_file",
    "wrap_images",
]


if not TYPE_CHECKING:  # a type checker shall miss what is not there

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'offload_tool' has no attribute '{name}'")
        from importlib import import_module

        return getattr(import_module(f"offload_tool.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
