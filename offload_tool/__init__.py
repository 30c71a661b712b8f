"""GPU offload bundles: target IDs, bundle entry IDs, and the files that hold device images.

In-process operations for the command line and the SCons tool. Reading is lazy: files are mapped,
and opening a large file reads only its header.
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
    from offload_tool.formats.bundle.binary import Bundle, BundleEntry, read_bundle
    from offload_tool.formats.kernel import Kernel
    from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
    from offload_tool.formats.targets.target_id import TargetID
    from offload_tool.operations.archive import create_archive
    from offload_tool.operations.bundle import Compression, bundle_files
    from offload_tool.operations.embed import EmbedOptions, embed_bundle
    from offload_tool.operations.extract import ExtractedImage, extract_device_images
    from offload_tool.operations.join import JoinReport, join_file
    from offload_tool.operations.list_images import (
        DeviceImage,
        ImageKernels,
        iter_image_data,
        iter_images,
        iter_kernels,
        list_images,
        open_image,
    )
    from offload_tool.operations.match import Device, Load, Match, NoImageError, match_images
    from offload_tool.operations.merge import MergeError, merge_files
    from offload_tool.operations.package import PackagedImage, package_images
    from offload_tool.operations.split import SplitPart, SplitReport, WheelOptions, split_file
    from offload_tool.operations.thin import ThinReport, thin_file
    from offload_tool.operations.unarchive import (
        ArchiveOptions,
        MissingCodeObjectError,
        NotAnArchiveError,
        unbundle_archive,
    )
    from offload_tool.operations.unbundle import (
        MissingEntriesError,
        list_entry_ids,
        unbundle_file,
    )
    from offload_tool.operations.unpackage import ExtractOptions, ImageFilter, extract_images
    from offload_tool.operations.wrap import WrapOptions, wrap_images

# Imported on first use: a command that only bundles does not load the ELF reader.
_NAMES = {
    "errors": (
        "CodeObjectError",
        "CompilerError",
        "ContentError",
        "EntryIDError",
        "FileError",
        "FormatError",
        "NoContainerError",
        "OffloadError",
        "TargetIDError",
        "UnsupportedError",
        "UsageError",
    ),
    "formats.bundle.binary": ("Bundle", "BundleEntry", "read_bundle"),
    "formats.kernel": ("Kernel",),
    "formats.targets.bundle_entry_id": ("BundleEntryID",),
    "formats.targets.target_id": ("TargetID",),
    "operations.archive": ("create_archive",),
    "operations.bundle": ("Compression", "bundle_files"),
    "operations.embed": ("EmbedOptions", "embed_bundle"),
    "operations.extract": ("ExtractedImage", "extract_device_images"),
    "operations.join": ("JoinReport", "join_file"),
    "operations.list_images": (
        "DeviceImage",
        "ImageKernels",
        "iter_image_data",
        "iter_images",
        "iter_kernels",
        "list_images",
        "open_image",
    ),
    "operations.match": ("Device", "Load", "Match", "NoImageError", "match_images"),
    "operations.merge": ("MergeError", "merge_files"),
    "operations.package": ("PackagedImage", "package_images"),
    "operations.split": ("SplitPart", "SplitReport", "WheelOptions", "split_file"),
    "operations.thin": ("ThinReport", "thin_file"),
    "operations.unarchive": (
        "ArchiveOptions",
        "MissingCodeObjectError",
        "NotAnArchiveError",
        "unbundle_archive",
    ),
    "operations.unbundle": ("MissingEntriesError", "list_entry_ids", "unbundle_file"),
    "operations.unpackage": ("ExtractOptions", "ImageFilter", "extract_images"),
    "operations.wrap": ("WrapOptions", "wrap_images"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "ArchiveOptions",
    "Bundle",
    "BundleEntry",
    "BundleEntryID",
    "CodeObjectError",
    "CompilerError",
    "Compression",
    "ContentError",
    "Device",
    "DeviceImage",
    "EmbedOptions",
    "EntryIDError",
    "ExtractOptions",
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
    "WrapOptions",
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


if not TYPE_CHECKING:  # type checkers must report unknown names

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'offload_tool' has no attribute '{name}'")
        from importlib import import_module

        return getattr(import_module(f"offload_tool.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
