"""kpack archives in all commands that read files: list, extract, match, thin, merge, check."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from offload_tool.containers.find import find_containers
from offload_tool.errors import OffloadError, UnsupportedError
from offload_tool.formats.kpack.archive import NONE, SCHEMES, ZSTD, read_kpack
from offload_tool.operations.check import Rule, check_libraries
from offload_tool.operations.extract import extract_device_images
from offload_tool.operations.list_images import (
    iter_image_data,
    iter_images,
    list_images,
    open_image,
)
from offload_tool.operations.match import Device, match_images
from offload_tool.operations.merge import MergeError, merge_files
from offload_tool.operations.thin import thin_file
from tests.formats.kpack_archives import write_archive

CODE = {
    (f"lib/a.so#{number}", target): f"{number}{target}".encode() * 99
    for number in range(3)
    for target in ("gfx90a:xnack+", "gfx942")
}


def write(path: Path, rows: Iterable[tuple[str, str]], scheme: str) -> Path:
    """Write an archive with some of `CODE`."""
    return write_archive(path, [(*row, CODE[row]) for row in rows], scheme=scheme)


@pytest.fixture(params=SCHEMES)
def archive(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return an archive with all of `CODE`."""
    return write(tmp_path / "demo.kpack", CODE, request.param)


def test_list_and_read(archive: Path) -> None:
    """Each key is a member with its own container, with the bytes of its code objects."""
    images = list_images(archive)
    assert [(image.member, image.target_id) for image in images] == list(CODE)
    assert {image.container for image in images} == {"kpack"}
    assert [image.index for image in images] == [0, 0, 1, 1, 2, 2]
    data = {(i.member, i.target_id): bytes(view) for i, view in iter_image_data(archive)}
    assert data == CODE
    for image in images:
        with open_image(image) as view:
            assert view == CODE[image.member or "", image.target_id]
        if image.offset is not None:
            whole = archive.read_bytes()
            assert whole[image.offset :][: image.size] == CODE[image.member or "", image.target_id]
    is_plain = read_kpack(memoryview(archive.read_bytes())).scheme == NONE
    assert {image.offset is not None for image in images} == {is_plain}


def test_in_wheels_and_folders(archive: Path, tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "a.whl", "w", method) as wheel:
            wheel.write(archive, "demo/.kpack/demo.kpack")
        found = list(iter_images(tmp_path / "a.whl"))
        assert [image.member for image in found][::2] == [
            f"demo/.kpack/demo.kpack(lib/a.so#{number})" for number in range(3)
        ]
    (tmp_path / "a.whl").unlink()
    assert len(list(iter_images(tmp_path))) == 6


def test_extract_and_match(archive: Path, tmp_path: Path) -> None:
    """Commands select the images that a device would load, key by key."""
    device = Device.parse("gfx90a:sramecc+:xnack+")
    assert [match.ids for match in match_images(archive, device)] == 3 * [
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+",)
    ]
    written = extract_device_images(archive, tmp_path / "out", devices=[device])
    assert [image.path.read_bytes() for image in written] == [
        CODE[f"lib/a.so#{number}", "gfx90a:xnack+"] for number in range(3)
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_thin_and_merge(tmp_path: Path, scheme: str) -> None:
    """Thinning returns the archive of one target unchanged, and merging joins them again."""
    parts = [
        write(tmp_path / f"{target}.kpack", [row for row in CODE if row[1] == target], scheme)
        for target in ("gfx90a:xnack+", "gfx942")
    ]
    both = tmp_path / "both.kpack"
    merge_files(parts, both)
    assert {(i.member, i.target_id): bytes(d) for i, d in iter_image_data(both)} == CODE
    thin_file(both, tmp_path / "thin.kpack", keep=[Device.parse("gfx942")])
    assert (tmp_path / "thin.kpack").read_bytes() == parts[1].read_bytes()
    with pytest.raises(MergeError, match=r"both have .* for gfx942"):
        merge_files([both, parts[1]], tmp_path / "twice.kpack")


def test_merge_of_schemes(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"{name}.kpack", CODE, name) for name in SCHEMES]
    with pytest.raises(MergeError, match=f"the first has scheme {NONE}, the second scheme {ZSTD}"):
        merge_files(parts, tmp_path / "out.kpack")


def test_unknown_keys(archive: Path, tmp_path: Path) -> None:
    """An archive with unknown fields in its table is not rewritten, and is named once."""
    data = archive.read_bytes()
    at = int.from_bytes(data[8:16], "little")
    assert data[at] < 0x8F
    archive.write_bytes(data[:at] + bytes([data[at] + 1]) + data[at + 1 :] + b"\xa5build\x01")
    with pytest.raises(UnsupportedError, match="'build', whose meaning is unknown"):
        thin_file(archive, tmp_path / "out.kpack", keep=[Device.parse("gfx942")])
    with pytest.raises(UnsupportedError) as caught:
        merge_files([archive, archive], tmp_path / "out.kpack")
    assert str(caught.value).count(str(archive)) == 1


def test_check(archive: Path, tmp_path: Path) -> None:
    """An archive that is checked alone must have each target; those in a folder, together."""
    rule = Rule(targets=(Device.parse("gfx942"), Device.parse("gfx1100")))
    faults = list(check_libraries([archive], [rule], notes=lambda _: None))
    assert [fault.message for fault in faults] == [
        "no image for gfx1100; there are gfx90a:xnack+, gfx942"
    ]
    assert [fault.message for fault in check_libraries([tmp_path], [rule])] == [
        "no image for gfx1100 in any of 1 kpack archives; there are gfx90a:xnack+, gfx942"
    ]


def test_broken_archive(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.kpack").write_bytes(archive.read_bytes()[:-3])
    problems: list[OffloadError] = []
    assert len(list(iter_images(tmp_path, skipped=problems.append))) == 6
    assert "broken.kpack" in str(problems[0])


def test_begin_of_a_compressed_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a#0", "gfx942", bytes(range(256)) * 9999), ("b#0", "gfx942", b"")]
    path = write_archive(tmp_path / "demo.kpack", rows, scheme=ZSTD)
    monkeypatch.setattr("offload_tool.formats.kpack.archive.unpacked_kpack_image", None)
    found = [bytes(i.content.begin(300)) for one in find_containers(path) for i in one.images]
    assert found == [row[2][:300] for row in rows]
