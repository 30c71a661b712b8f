"""kpack archives, and host programs with code in them, in all commands that read files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.containers.find import find_containers
from offload_tool.errors import UnsupportedError
from offload_tool.formats.kpack.archive import NONE, SCHEMES, ZSTD, read_kpack
from offload_tool.formats.kpack.marker import KpackMarker
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
from tests.conftest import Capture
from tests.formats.kpack_archives import write_archive
from tests.formats.marked_programs import marked_program
from tests.operations.fatbins import zip_of

CODE = {
    (f"lib/a.so#{number}", target): f"{number}{target}".encode() * 99
    for number in range(3)
    for target in ("gfx90a:xnack+", "gfx942")
}


def write(path: Path, rows: Iterable[tuple[str, str]], scheme: str) -> Path:
    return write_archive(path, [(*row, CODE[row]) for row in rows], scheme=scheme)


@pytest.fixture(params=SCHEMES)
def archive(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
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
        wheel = zip_of(tmp_path / "a.whl", {"demo/.kpack/demo.kpack": archive}, method)
        found = list(iter_images(wheel))
        assert [image.member for image in found][::2] == [
            f"demo/.kpack/demo.kpack(lib/a.so#{number})" for number in range(3)
        ]
    wheel.unlink()
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


def test_begin_of_a_compressed_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a#0", "gfx942", bytes(range(256)) * 9999), ("b#0", "gfx942", b"")]
    path = write_archive(tmp_path / "demo.kpack", rows, scheme=ZSTD)
    monkeypatch.setattr("offload_tool.formats.kpack.archive.unpacked_kpack_image", None)
    found = [bytes(i.content.begin(300)) for one in find_containers(path) for i in one.images]
    assert found == [row[2][:300] for row in rows]


# -- host programs -----------------------------------------------------------------------

MARKER = KpackMarker("lib/a.so", ("../.kpack/demo_@GFXARCH@.kpack",))
KEYS = ("lib/a.so#0", "lib/a.so#2")
"""Those of the library's wrappers."""


@pytest.fixture(params=[False, True])
def library(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a library in an installed tree, with two wrappers and archives for two targets."""
    for name in ("lib", ".kpack"):
        (tmp_path / name).mkdir()
    for target in ("gfx90a:xnack+", "gfx942"):
        rows = [row for row in CODE if row[1] == target]
        write(tmp_path / f".kpack/demo_{target}.kpack", rows, NONE)
    path = tmp_path / "lib/a.so"
    path.write_bytes(marked_program((MARKER, 0), (MARKER, 2), relocated=request.param))
    return path


def test_what_the_archives_have(library: Path, tmp_path: Path) -> None:
    """Each wrapper is a container with its images in the archives, and a stored size of 0.

    In a folder, the archives themselves are listed.
    """
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere/link.so"
    link.symlink_to("../lib/a.so")
    for path in (library, link):
        images = list_images(path)
        assert [(i.index, i.target_id, i.stored_size, i.offset) for i in images] == [
            (index, target, 0, None) for index in (0, 1) for target in ("gfx90a:xnack+", "gfx942")
        ]
        assert {image.container for image in images} == {"kpack-marker"}
    for image, data in iter_image_data(library):
        assert data == CODE[KEYS[image.index], image.target_id]
    assert {image.container for image in iter_images(tmp_path)} == {"kpack"}


def test_match_of_hosts(library: Path) -> None:
    """A device gets the image that the loader finds, or an error lists the existing ones."""
    found = list(match_images(library, Device.parse("gfx942:sramecc+:xnack-")))
    assert [match.ids for match in found] == 2 * [("hipv4-amdgcn-amd-amdhsa--gfx942",)]
    missing = list(match_images(library, Device.parse("gfx90a:xnack-")))
    assert [match.ids for match in missing] == [(), ()]


def faults(*paths: Path, targets: Sequence[str] = ()) -> list[str]:
    rule = Rule(targets=tuple(map(Device.parse, targets)))
    return [f"{Path(f.library).name}: {f.message}" for f in check_libraries(paths, [rule])]


@pytest.mark.parametrize("alone", [True, False])
def test_check_of_hosts(library: Path, alone: bool) -> None:
    """A host program must have each target, whether it or its tree is checked."""
    path = library if alone else library.parent.parent
    assert faults(path, targets=["gfx942"]) == []
    expected = "a.so: no image for gfx1100; there are gfx90a:xnack+, gfx942"
    assert faults(path, targets=["gfx1100"]) == [expected]
    (library.parent.parent / ".kpack/demo_gfx942.kpack").unlink()
    assert faults(path, targets=["gfx942"]) == [
        "a.so: no image for gfx942; there are gfx90a:xnack+"
    ]


@pytest.mark.parametrize("is_zipped", [False, True])
def test_archives_alone(library: Path, tmp_path: Path, *, is_zipped: bool) -> None:
    """Without a program, one archive must have code for each target; a note names the gap."""
    place = tmp_path / ".kpack"
    if is_zipped:
        place = zipped(tmp_path / "device.whl", tmp_path, ".kpack/*")
    notes: list[str] = []
    rule = Rule(targets=tuple(map(Device.parse, ("gfx942", "gfx90a:xnack+", "gfx1100"))))
    assert [str(fault) for fault in check_libraries([place], [rule], notes=notes.append)] == [
        f"{place}: no image for gfx1100 in any of 2 kpack archives; there are gfx90a:xnack+, gfx942"
    ]
    assert notes == [
        f"'{place}': 2 kpack archives and no program that looks for them; whether each program "
        "gets its code was not judged"
    ]
    assert list(check_libraries([place], [Rule()], notes=notes.append)) == []
    assert len(notes) == 1
    assert faults(tmp_path, targets=["gfx942"]) == []


def test_nothing_there(library: Path) -> None:
    for path in (library.parent.parent / ".kpack").iterdir():
        path.unlink()
    expected = "there is no kpack archive ../.kpack/demo_@GFXARCH@.kpack from its folder"
    assert f"a.so: {expected}" in faults(library)
    notes: list[str] = []
    assert list(iter_images(library, strays=notes.append)) == []
    assert expected in notes[0]


def test_of_another_build(library: Path) -> None:
    library.write_bytes(marked_program((MARKER, 0), (MARKER._replace(kernel_name="lib/b"), 0)))
    [fault] = faults(library)
    assert "none of 2 archives has code for 'lib/b#0': is it of another build?" in fault


def test_broken_archive_of_a_host(library: Path) -> None:
    path = library.parent.parent / ".kpack/demo_gfx942.kpack"
    path.write_bytes(path.read_bytes()[:-5])
    assert "a kpack archive is skipped: " in faults(library)[0]
    assert {image.target_id for image in iter_images(library)} == {"gfx90a:xnack+"}


def zipped(path: Path, root: Path, *patterns: str, prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        for at, file in enumerate(sorted(f for pattern in patterns for f in root.glob(pattern))):
            method = (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)[at % 2]
            wheel.write(file, prefix + str(file.relative_to(root)), method)
    return path


@pytest.mark.parametrize("prefix", ["", "demo-1.data/platlib/"])
def test_in_a_wheel(library: Path, tmp_path: Path, prefix: str) -> None:
    """A library in a wheel gets its images from the archives in the same wheel."""
    wheel = zipped(tmp_path / "a.whl", tmp_path, "lib/*", ".kpack/*", prefix=prefix)
    seen = []
    for image, data in iter_image_data(wheel):
        if image.container == "kpack-marker":
            assert image.member == f"{prefix}lib/a.so"
            assert data == CODE[KEYS[len(seen) // 2], image.target_id]
            seen.append((image.target_id, image.stored_size))
    assert seen == [("gfx90a:xnack+", 0), ("gfx942", 0)] * 2
    matches = [m for m in match_images(wheel, Device.parse("gfx942:xnack-")) if m.ids]
    assert [match.member for match in matches].count(f"{prefix}lib/a.so") == 2
    assert faults(wheel, targets=["gfx942"]) == []
    [fault] = faults(wheel, targets=["gfx942", "gfx1100"])
    assert fault.endswith("a.so): no image for gfx1100; there are gfx90a:xnack+, gfx942")


def test_totals_of_a_wheel(library: Path, tmp_path: Path, capsys: Capture) -> None:
    """The sums of a wheel count each code object once, however many wrappers use it."""
    assert library.is_file()
    wheel = zipped(tmp_path / "a.whl", tmp_path, "lib/*", ".kpack/*")
    assert main(["list", str(wheel)]) == 0
    total = sum(map(len, CODE.values()))
    assert f"{len(CODE)} device images, {total:,} bytes" in capsys.readouterr().out


def test_wheels_together(library: Path, tmp_path: Path) -> None:
    """Wheels for the host and for devices are checked as if they were installed together."""
    assert library.is_file()
    host = zipped(tmp_path / "host.whl", tmp_path, "lib/*")
    one = zipped(tmp_path / "one.whl", tmp_path, ".kpack/*gfx942*")
    two = zipped(tmp_path / "two.whl", tmp_path, ".kpack/*gfx90a*")
    told = partial(faults, targets=["gfx942", "gfx90a:xnack+"])
    assert told(host, one, two) == told(two, one, host) == []
    assert told(host, one) == ["a.so): no image for gfx90a:xnack+; there are gfx942"]
    expected = "a.so): there is no kpack archive ../.kpack/demo_@GFXARCH@.kpack from its folder "
    assert expected + "in the zip file" in told(host)


def test_wheels_of_a_folder(library: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    zipped(tmp_path / "dist/host.whl", tmp_path, "lib/*")
    assert len(faults(tmp_path / "dist")) == 2
    zipped(tmp_path / "dist/device.whl", tmp_path, ".kpack/*")
    assert faults(tmp_path / "dist") == []


def test_wheels_see_no_files(library: Path, tmp_path: Path) -> None:
    """Paths in a library of a wheel are searched in the wheel only, wherever they lead."""
    for path in (f"{tmp_path}/.kpack/demo_@GFXARCH@.kpack", ".kpack/demo_@GFXARCH@.kpack"):
        library.write_bytes(marked_program((MARKER._replace(search_paths=(path,)), 0)))
        wheel = zipped(tmp_path / "a.whl", tmp_path, "lib/*")
        assert f"there is no kpack archive {path}" in faults(wheel)[0]
        assert list(iter_images(wheel)) == []


def test_broken_archive_in_a_wheel(library: Path, tmp_path: Path) -> None:
    assert library.is_file()
    path = tmp_path / ".kpack/demo_gfx942.kpack"
    path.write_bytes(path.read_bytes()[:-5])
    wheel = zipped(tmp_path / "a.whl", tmp_path, "lib/*", ".kpack/*")
    notes: list[str] = []
    images = iter_images(wheel, skipped=lambda _: None, strays=notes.append)
    assert {i.target_id for i in images if i.member == "lib/a.so"} == {"gfx90a:xnack+"}
    assert f"skipped: {wheel}(.kpack/demo_gfx942.kpack)" in notes[0].replace("'", "")
