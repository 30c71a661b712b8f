"""GPU offload bundles: target IDs, bundle entry IDs, and the files that hold device images.

In-process operations for the command line and the SCons tool. Reading is lazy: files are mapped,
and opening a large file reads only its header.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from offload_tool.errors import CodeObjectError as CodeObjectError
    from offload_tool.errors import CompilerError as CompilerError
    from offload_tool.errors import ContentError as ContentError
    from offload_tool.errors import EntryIDError as EntryIDError
    from offload_tool.errors import FileError as FileError
    from offload_tool.errors import FormatError as FormatError
    from offload_tool.errors import NoContainerError as NoContainerError
    from offload_tool.errors import OffloadError as OffloadError
    from offload_tool.errors import TargetIDError as TargetIDError
    from offload_tool.errors import UnsupportedError as UnsupportedError
    from offload_tool.errors import UsageError as UsageError
    from offload_tool.formats.bundle.binary import Bundle as Bundle
    from offload_tool.formats.bundle.binary import BundleEntry as BundleEntry
    from offload_tool.formats.bundle.binary import read_bundle as read_bundle
    from offload_tool.formats.kernel import Kernel as Kernel
    from offload_tool.formats.targets.bundle_entry_id import BundleEntryID as BundleEntryID
    from offload_tool.formats.targets.target_id import TargetID as TargetID
    from offload_tool.operations.archive import create_archive as create_archive
    from offload_tool.operations.bundle import Compression as Compression
    from offload_tool.operations.bundle import bundle_files as bundle_files
    from offload_tool.operations.embed import EmbedOptions as EmbedOptions
    from offload_tool.operations.embed import embed_bundle as embed_bundle
    from offload_tool.operations.extract import ExtractedImage as ExtractedImage
    from offload_tool.operations.extract import extract_device_images as extract_device_images
    from offload_tool.operations.join import JoinReport as JoinReport
    from offload_tool.operations.join import join_file as join_file
    from offload_tool.operations.list_images import DeviceImage as DeviceImage
    from offload_tool.operations.list_images import ImageKernels as ImageKernels
    from offload_tool.operations.list_images import iter_image_data as iter_image_data
    from offload_tool.operations.list_images import iter_images as iter_images
    from offload_tool.operations.list_images import iter_kernels as iter_kernels
    from offload_tool.operations.list_images import list_images as list_images
    from offload_tool.operations.list_images import open_image as open_image
    from offload_tool.operations.match import Device as Device
    from offload_tool.operations.match import Load as Load
    from offload_tool.operations.match import Match as Match
    from offload_tool.operations.match import NoImageError as NoImageError
    from offload_tool.operations.match import match_images as match_images
    from offload_tool.operations.merge import MergeError as MergeError
    from offload_tool.operations.merge import merge_files as merge_files
    from offload_tool.operations.package import PackagedImage as PackagedImage
    from offload_tool.operations.package import package_images as package_images
    from offload_tool.operations.split import SplitPart as SplitPart
    from offload_tool.operations.split import SplitReport as SplitReport
    from offload_tool.operations.split import WheelOptions as WheelOptions
    from offload_tool.operations.split import split_file as split_file
    from offload_tool.operations.thin import ThinReport as ThinReport
    from offload_tool.operations.thin import thin_file as thin_file
    from offload_tool.operations.unarchive import ArchiveOptions as ArchiveOptions
    from offload_tool.operations.unarchive import MissingCodeObjectError as MissingCodeObjectError
    from offload_tool.operations.unarchive import NotAnArchiveError as NotAnArchiveError
    from offload_tool.operations.unarchive import unbundle_archive as unbundle_archive
    from offload_tool.operations.unbundle import MissingEntriesError as MissingEntriesError
    from offload_tool.operations.unbundle import list_entry_ids as list_entry_ids
    from offload_tool.operations.unbundle import unbundle_file as unbundle_file
    from offload_tool.operations.unpackage import ExtractOptions as ExtractOptions
    from offload_tool.operations.unpackage import ImageFilter as ImageFilter
    from offload_tool.operations.unpackage import extract_images as extract_images
    from offload_tool.operations.wrap import WrapOptions as WrapOptions
    from offload_tool.operations.wrap import wrap_images as wrap_images

# Imported on first use: a command that only bundles does not load the ELF reader.
_NAMES = {
    "errors": (
        *("CodeObjectError", "CompilerError", "ContentError", "EntryIDError", "FileError"),
        *("FormatError", "NoContainerError", "OffloadError", "TargetIDError", "UnsupportedError"),
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
        *("DeviceImage", "ImageKernels", "iter_image_data", "iter_images", "iter_kernels"),
        *("list_images", "open_image"),
    ),
    "operations.match": ("Device", "Load", "Match", "NoImageError", "match_images"),
    "operations.merge": ("MergeError", "merge_files"),
    "operations.package": ("PackagedImage", "package_images"),
    "operations.split": ("SplitPart", "SplitReport", "WheelOptions", "split_file"),
    "operations.thin": ("ThinReport", "thin_file"),
    "operations.unarchive": (
        *("ArchiveOptions", "MissingCodeObjectError", "NotAnArchiveError", "unbundle_archive"),
    ),
    "operations.unbundle": ("MissingEntriesError", "list_entry_ids", "unbundle_file"),
    "operations.unpackage": ("ExtractOptions", "ImageFilter", "extract_images"),
    "operations.wrap": ("WrapOptions", "wrap_images"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # type checkers must report unknown names

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'offload_tool' has no attribute '{name}'")
        from importlib import import_module

        return getattr(import_module(f"offload_tool.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__]
