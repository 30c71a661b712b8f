"""Images as files: all or none, with safe names."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import Compression
from offload_tool.errors import FileError, FormatError, OffloadError, UnsupportedError
from offload_tool.operations.extract import extract_device_images
from offload_tool.operations.match import Device, NoImageError
from tests.formats.cuda.test_fatbin import CUBIN, CUBIN_AT, cuda_fatbin
from tests.formats.object_files import make_elf
from tests.fuzz.seeds import bundle
from tests.operations.archives import thin_archive
from tests.operations.fatbins import HOST, code, make_bundle, zip_of

IMAGES = {HOST: b"host", "gfx906": code("gfx906"), "gfx90a:xnack+": b"BC\xc0\xde" + bytes(9)}
ID = "hipv4-amdgcn-amd-amdhsa--"


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("compression", [None, Compression()], ids=["plain", "compressed"])
def test_all(tmp_path: Path, compression: Compression | None) -> None:
    """Without devices, every device image is written, named after file, container and ID."""
    path = make_bundle(tmp_path / "b.hipfb", IMAGES, compression=compression)
    images = extract_device_images(path, tmp_path / "out")
    assert written(tmp_path / "out") == {
        f"b.hipfb.0.{ID}gfx906": IMAGES["gfx906"],
        f"b.hipfb.0.{ID}gfx90a_xnack+.bc": IMAGES["gfx90a:xnack+"],
    }
    assert [image.path for image in images] == sorted((tmp_path / "out").iterdir())
    assert [image.size for image in images] == [5000, 13]


def test_devices(tmp_path: Path) -> None:
    """With devices, each one's images are written; a host's by its entry ID."""
    path = make_bundle(tmp_path / "b", IMAGES)
    devices = [Device.parse("gfx906:xnack-"), Device.parse(HOST)]
    images = extract_device_images(path, tmp_path / "out", devices=devices)
    assert [image.id for image in images] == [HOST, f"{ID}gfx906"]
    assert (tmp_path / "out" / f"b.0.{HOST}").read_bytes() == b"host"


def test_device_without_image(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "b", IMAGES)
    devices = [Device.parse("gfx906"), Device.parse("gfx90a")]
    lacking = r"gfx90a:sramecc\+:xnack-, gfx90a:sramecc-:xnack-"
    with pytest.raises(NoImageError, match=f"no image for {lacking}; images found: hipv4-.*gfx906"):
        extract_device_images(path, tmp_path / "out", devices=devices)
    assert not (tmp_path / "out").exists()


def test_host_object(tmp_path: Path) -> None:
    """The host entry of an object bundle is the object without the bundle's sections."""
    path = make_bundle(tmp_path / "b.o", {HOST: make_elf(), "gfx906": b"code"}, file_type="o")
    (image,) = extract_device_images(path, tmp_path / "out", devices=[Device.parse(HOST)])
    assert image.path.suffix == ".o"
    assert b"__CLANG_OFFLOAD_BUNDLE__" not in image.path.read_bytes()


def test_hostile_names(tmp_path: Path) -> None:
    """IDs and members that look like paths cannot lead out of the folder or collide."""
    names = (b"../../x", b".._.._x", b"/etc/x", b"X\n\0", b"x\n\0", b"y" * 1000, b"q", b"Q")
    data = bundle({b"hip-a-b-c--" + name: b"!" for name in names})
    path, out = tmp_path / "x.whl", tmp_path / "out"
    zip_of(path, {"../../evil/-lib": data, "../../evil_-lib": data})
    before = sorted(tmp_path.parent.iterdir())
    images = extract_device_images(path, out)
    assert len(images) == len(written(out)) == 16
    assert len({image.path.name.lower() for image in images}) == 16
    assert all(image.path.parent == out for image in images)
    assert all(len(image.path.name) < 220 for image in images)
    assert sorted(tmp_path.parent.iterdir()) == before
    again = extract_device_images(path, out)
    assert [image.path for image in again] == [image.path for image in images]


def test_folder_in_the_way(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "b", IMAGES)
    (tmp_path / "out" / f"b.0.{ID}gfx90a_xnack+.bc").mkdir(parents=True)
    with pytest.raises(FileError, match="is a folder"):
        extract_device_images(path, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == [f"b.0.{ID}gfx90a_xnack+.bc"]


def test_broken_later(tmp_path: Path) -> None:
    data = make_bundle(tmp_path / "b", IMAGES).read_bytes()
    (tmp_path / "two").write_bytes(data + data[:-1])
    with pytest.raises(FormatError):
        extract_device_images(tmp_path / "two", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_cuda(tmp_path: Path) -> None:
    """PTX is written without its NUL, and compressed images are unpacked."""
    path = tmp_path / "x.fatbin"
    path.write_bytes(cuda_fatbin())
    images = extract_device_images(path, tmp_path / "out")
    name = "x.fatbin.0.cuda-nvptx64-nvidia-cuda-unknown-"
    assert [image.path.name for image in images] == [f"{name}compute_80.ptx", f"{name}sm_90.cubin"]
    assert [image.path.read_bytes() for image in images] == [b".version 8.0", CUBIN]


def test_cuda_that_is_scrambled(tmp_path: Path) -> None:
    """Images that only NVIDIA can read are reported once, and not written."""
    path = tmp_path / "x.fatbin"
    data = bytearray(cuda_fatbin())
    data[CUBIN_AT + 40 : CUBIN_AT + 44] = (0x12011).to_bytes(4, "little")
    path.write_bytes(data * 3)
    problems: list[OffloadError] = []
    images = extract_device_images(path, tmp_path / "out", skipped=problems.append)
    assert {image.path.suffix for image in images} == {".ptx"}
    (problem,) = problems
    assert "3 of the images cuda-nvptx64-nvidia-cuda-unknown-sm_90 cannot be" in str(problem)
    with pytest.raises(UnsupportedError, match="not publicly known"):
        extract_device_images(path, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_damaged_cuda(tmp_path: Path) -> None:
    data = bytearray(cuda_fatbin())
    data[CUBIN_AT + 64] ^= 0xFF
    (tmp_path / "m.fatbin").write_bytes(data)
    path = thin_archive(tmp_path / "x.a", ["m.fatbin"])
    with pytest.raises(FormatError, match=r"x\.a\(m\.fatbin\)', offset 0xa0, payload"):
        extract_device_images(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
