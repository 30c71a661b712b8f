"""The device code in objects and archives that a link is yet to take."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import BundleEntryID, bundle_files, embed_bundle
from offload_tool.containers.relocatable import relocatable_kinds
from offload_tool.errors import FileError, FormatError
from offload_tool.operations.embed import embed_offload_binary
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


@pytest.mark.parametrize(("kind", "number"), [("hip", 4), ("openmp", 1)])
def test_both_drivers(tmp_path: Path, kind: str, number: int) -> None:
    """Objects of both offload drivers have such code, alone and in an archive."""
    for path in (object_bundle(tmp_path, kind), offloading(tmp_path, number)):
        assert relocatable_kinds(path) == {kind}
        library = archive(tmp_path / f"{path.stem}.a", host(tmp_path), path)
        assert relocatable_kinds(library) == {kind}


def test_other_code(tmp_path: Path) -> None:
    """Bundles that are linked, bare bundles and host code are no such code."""
    bundle = make_bundle(tmp_path / "b", {HOST: b"", "gfx906": b"image"})
    embed_bundle(bundle, tmp_path / "linked.o", cuid="x", host_triple="x86_64-linux-gnu")
    library = archive(tmp_path / "x.a", host(tmp_path))
    for path in (bundle, tmp_path / "linked.o", host(tmp_path), library):
        assert not relocatable_kinds(path), path


def test_broken_host_code(tmp_path: Path) -> None:
    """Of broken host code the link may complain; it hides no other member's device code."""
    data = object_bundle(tmp_path, "hip").read_bytes()
    (tmp_path / "cut.o").write_bytes(data[: len(data) // 2])
    (tmp_path / "text").write_text("INPUT(-lm)")
    assert not relocatable_kinds(tmp_path / "cut.o")
    assert not relocatable_kinds(tmp_path / "text")
    library = archive(tmp_path / "x.a", tmp_path / "cut.o", tmp_path / "bundle.o")
    assert relocatable_kinds(library) == {"hip"}
    with pytest.raises(FileError, match=r"none"):
        relocatable_kinds(tmp_path / "none")


def test_broken_device_code(tmp_path: Path) -> None:
    """Device code that cannot be read is an error, not taken for none."""
    (tmp_path / "package").write_bytes(binary(offload_kind=4)[:-8])
    embed_offload_binary(host(tmp_path), tmp_path / "package", tmp_path / "new.o")
    with pytest.raises(FormatError, match=r"new\.o"):
        relocatable_kinds(tmp_path / "new.o")
