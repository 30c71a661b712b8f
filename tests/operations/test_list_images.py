"""Listing: every image of a file with its location; other files are rejected with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import BundleEntryID, bundle_files, embed_bundle, list_images
from offload_tool.errors import FileError, FormatError, NoContainerError

IDS = [
    "host-x86_64-unknown-linux-gnu-",
    "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-",
    "openmp-nvptx64-nvidia-cuda-unknown-sm_80",
    "hip-spirv64-amd-amdhsa--amdgcnspirv",
]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a bundle of four entries; the content of each is its index, repeated."""
    items: list[tuple[BundleEntryID, Path | None]] = [(BundleEntryID.parse(IDS[0]), None)]
    for index, text in enumerate(IDS[1:], 1):
        path = tmp_path / f"in{index}"
        path.write_bytes(bytes([index]) * index * 10)
        items.append((BundleEntryID.parse(text), path))
    bundle_files(items, tmp_path / "bundle", alignment=64)
    return tmp_path / "bundle"


def test_bundle(bundle: Path) -> None:
    """Each entry is listed in file order with its parts, offset and size."""
    images = list_images(bundle)
    assert [image.id for image in images] == IDS
    assert [image.size for image in images] == [0, 10, 20, 30]
    assert [image.kind for image in images] == ["host", "hipv4", "openmp", "hip"]
    assert [image.target_id for image in images] == [
        *("", "gfx90a:sramecc+:xnack-", "sm_80", "amdgcnspirv"),
    ]
    assert {(i.file, i.member, i.container, i.index) for i in images} == {
        (str(bundle), None, "bundle", 0)
    }
    data = bundle.read_bytes()
    for index, image in enumerate(images):
        assert image.offset is not None
        assert data[image.offset : image.offset + image.size] == bytes([index]) * image.size


def test_object_that_embeds_it(tmp_path: Path, bundle: Path) -> None:
    """In an ELF file, offsets are relative to the beginning of that file."""
    embedded = tmp_path / "embedded.o"
    embed_bundle(bundle, embedded, cuid="x", host_triple="x86_64-pc-linux-gnu")
    images = list_images(embedded)
    assert [image.id for image in images] == IDS
    data = embedded.read_bytes()
    assert images[3].offset is not None
    assert data[images[3].offset :][:30] == b"\3" * 30


def test_concatenated_bundles(tmp_path: Path, bundle: Path) -> None:
    """Consecutive bundles, with zeros between, are all listed and numbered."""
    twice = tmp_path / "twice"
    twice.write_bytes(bundle.read_bytes() + bytes(99) + bundle.read_bytes() + bytes(7))
    images = list_images(twice)
    assert [image.index for image in images] == [0] * 4 + [1] * 4
    assert [image.id for image in images] == IDS * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a bundle"),
        (b"#!/bin/sh", "found b'#!/bin/s'"),
        (b"\x7fELF" + bytes(5), "expected an ELF file, found"),
        (b"!<arch>\n", "found an archive without any"),
        (b"__CLANG_OFFLOAD_BUNDLE__", "number of bundle entries"),
    ],
    ids=["empty", "script", "cut-elf", "archive", "cut-bundle"],
)
def test_no_images(tmp_path: Path, content: bytes, message: str) -> None:
    """A file without images, or with broken ones, is rejected by name."""
    path = tmp_path / "file"
    path.write_bytes(content)
    broken = content.startswith((b"\x7fELF", b"__CLANG"))
    with pytest.raises(FormatError if broken else NoContainerError, match=message) as caught:
        list_images(path)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    """The error names a missing file."""
    with pytest.raises(FileError, match="nowhere"):
        list_images(tmp_path / "nowhere")
