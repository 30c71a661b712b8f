"""Containers in a file, and which of them a device link is yet to take its part of."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import BundleEntryID, bundle_files, embed_bundle
from offload_tool.containers.find import find_containers, has_relocatable_code
from offload_tool.errors import FileError, FormatError
from offload_tool.operations.embed import embed_offload_binary
from tests.formats.compressed import compressed
from tests.formats.object_files import make_elf
from tests.formats.test_offload_binary import binary
from tests.operations.archives import archive
from tests.operations.fatbins import HOST, make_bundle


def host(folder: Path) -> Path:
    path = folder / "host.o"
    path.write_bytes(make_elf())
    return path


def object_bundle(folder: Path, kind: str) -> Path:
    """Make the object of the old offload driver's relocatable code."""
    (folder / "image").write_bytes(b"image")
    rows = [(HOST, host(folder)), (f"{kind}-amdgcn-amd-amdhsa--gfx906", folder / "image")]
    entries = [(BundleEntryID.parse(name), path) for name, path in rows]
    bundle_files(entries, folder / "bundle.o", file_type="o")
    return folder / "bundle.o"


def offloading(folder: Path, kind: int) -> Path:
    """Make the object of the new driver."""
    (folder / "package").write_bytes(binary(offload_kind=kind))
    embed_offload_binary(host(folder), folder / "package", folder / "new.o")
    return folder / "new.o"


def test_both_drivers(tmp_path: Path) -> None:
    """Objects of both offload drivers have such code, alone and in an archive."""
    for path in (object_bundle(tmp_path, "hip"), offloading(tmp_path, 4)):
        assert has_relocatable_code(path)
        assert has_relocatable_code(archive(tmp_path / f"{path.stem}.a", host(tmp_path), path))


def test_other_code(tmp_path: Path) -> None:
    """OpenMP's code, bundles that are linked, bare bundles and host code are no such code."""
    bundle = make_bundle(tmp_path / "b", {HOST: b"", "gfx906": b"image"})
    embed_bundle(bundle, tmp_path / "linked.o", cuid="x", host_triple="x86_64-linux-gnu")
    for path in (
        *(object_bundle(tmp_path, "openmp"), offloading(tmp_path, 1), bundle),
        *(tmp_path / "linked.o", host(tmp_path), archive(tmp_path / "x.a", host(tmp_path))),
    ):
        assert not has_relocatable_code(path), path


def test_broken_files(tmp_path: Path) -> None:
    """Of what is broken the link may complain; a file that cannot be read is an error."""
    data = object_bundle(tmp_path, "hip").read_bytes()
    (tmp_path / "cut.o").write_bytes(data[: len(data) // 2])
    (tmp_path / "text").write_text("INPUT(-lm)")
    assert not has_relocatable_code(tmp_path / "cut.o")
    assert not has_relocatable_code(tmp_path / "text")
    with pytest.raises(FileError, match=r"none"):
        has_relocatable_code(tmp_path / "none")


def test_what_stands_behind_a_bundle(tmp_path: Path) -> None:
    """Anything behind an uncompressed bundle is passed over, as by LLVM; not behind another."""
    bundle = make_bundle(tmp_path / "b", {HOST: b"", "gfx906": b"image"})
    plain = bundle.read_bytes()
    path = tmp_path / "x"
    for data, count in ((plain + bytes(9) + plain + b"more", 2), (compressed(plain) + plain, 2)):
        path.write_bytes(data)
        assert len(list(find_containers(path))) == count
    path.write_bytes(compressed(plain) + b"more")
    with pytest.raises(FormatError, match="expected zeros or another bundle after a compressed"):
        list(find_containers(path))
