"""The bytes of device images equal the extracted files, in every kind of input."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from offload_tool import (
    Compression,
    ContentError,
    Device,
    DeviceImage,
    FileError,
    FormatError,
    NoContainerError,
    OffloadError,
    UnsupportedError,
    embed_bundle,
    extract_device_images,
    iter_image_data,
    iter_images,
    list_images,
    open_image,
)
from tests.formats.compressed import compressed_offload_binary
from tests.formats.cuda.test_fatbin import CUBIN, CUBIN_AT, cuda_fatbin
from tests.formats.object_files import make_coff, make_elf
from tests.operations.archives import archive_of
from tests.operations.fatbins import HOST, code, make_bundle, make_package, zip_of

IMAGES = {HOST: b"host", "gfx906": code("gfx906"), "gfx90a:xnack+": b"BC\xc0\xde" + bytes(9)}


def plain(path: Path) -> Path:
    return make_bundle(path, IMAGES)


def compressed(path: Path) -> Path:
    return make_bundle(path, IMAGES, compression=Compression())


def object_bundle(path: Path) -> Path:
    return make_bundle(path, {HOST: make_elf(), **dict(list(IMAGES.items())[1:])}, file_type="o")


def coff_bundle(path: Path) -> Path:
    mark = b"__CLANG_OFFLOAD_BUNDLE__"
    rows = {mark + HOST.encode(): b"\0", mark + b"hip-amdgcn-amd-amdhsa--gfx906": b"code"}
    path.write_bytes(make_coff(rows))
    return path


def text(path: Path) -> Path:
    """Write a text bundle, with text before it."""
    make_bundle(path, {HOST: b"int i;", "gfx906": b"int j;"}, file_type="ii")
    path.write_bytes(b"some text\n" + path.read_bytes())
    return path


def compressed_text(path: Path) -> Path:
    images = {HOST: b"h", "gfx906": b"dd"}
    return make_bundle(path, images, file_type="s", compression=Compression())


def packed_twice(path: Path) -> Path:
    """Write a wheel with bundles in an archive and in a zip file, packed, and one stored."""
    members = {"p.o": plain(path.with_name("p")), "c.o": compressed(path.with_name("c"))}
    files = {name: file.read_bytes() for name, file in members.items()}
    archive = archive_of(path.with_name("lib.a"), files | {"readme": b"hello"})
    inner = zip_of(path.with_name("inner.zip"), {"b": members["p.o"]})
    zip_of(path, {"lib.a": archive, "notes.txt": b"nothing", "inner.zip": inner})
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.write(archive, "stored.a")
    return path


def several(path: Path) -> Path:
    """Write bundles, two of them compressed, with zeros between and behind."""
    parts = [compressed(path.with_name("1")), plain(path.with_name("2")), path.with_name("1")]
    path.write_bytes(b"".join(part.read_bytes() + bytes(n) for n, part in enumerate(parts, 332)))
    return path


def section(path: Path) -> Path:
    """Write an object that embeds them."""
    embed_bundle(several(path.with_name("s")), path, cuid="x", host_triple="x86_64-linux-gnu")
    return path


def same_ids(path: Path) -> Path:
    """Write one offload binary with two images of one ID and size."""
    return make_package(path, [("gfx906", b"x" * 500), ("gfx906", b"y" * 500)], generation=23)


def packed_package(path: Path) -> Path:
    """Write the same, compressed as a whole."""
    path.write_bytes(compressed_offload_binary(same_ids(path).read_bytes()))
    return path


def cuda(path: Path) -> Path:
    path.write_bytes(cuda_fatbin() + bytes(40) + cuda_fatbin())
    return path


USUAL = (("host", "", 4), ("hipv4", "gfx906", 5000), ("hipv4", "gfx90a:xnack+", 13))
PLAIN, STORED = ("bundle", USUAL, True), ("bundle", USUAL, False)
PACKED = ("compressed-bundle", USUAL, False)
OBJECT = "__CLANG_OFFLOAD_BUNDLE__*"
CUDA = (("cuda", "compute_80", 16), ("cuda", "sm_90", len(CUBIN)))
LISTED = {  # member, section, container, its images, and whether they have an offset in the file
    plain: [(None, None, *PLAIN)],
    compressed: [(None, None, *PACKED)],
    object_bundle: [(None, OBJECT, "bundle", (("host", "", 0), *USUAL[1:]), True)],
    coff_bundle: [(None, OBJECT, "bundle", (("host", "", 0), ("hip", "gfx906", 4)), True)],
    text: [(None, None, "bundle", (("host", "", 6), ("hipv4", "gfx906", 6)), True)],
    compressed_text: [
        (None, None, "compressed-bundle", (("host", "", 1), ("hipv4", "gfx906", 2)), False)
    ],
    packed_twice: [
        *(("lib.a(p.o)", None, *STORED), ("lib.a(c.o)", None, *PACKED)),
        ("inner.zip(b)", None, *STORED),
        *(("stored.a(p.o)", None, *PLAIN), ("stored.a(c.o)", None, *PACKED)),
    ],
    several: [(None, None, *each) for each in (PACKED, PLAIN, PACKED)],
    section: [(None, ".hip_fatbin", *each) for each in (PACKED, PLAIN, PACKED)],
    same_ids: [(None, None, "offload-binary", (("hip", "gfx906", 500),) * 2, True)],
    packed_package: [(None, None, "offload-binary", (("hip", "gfx906", 500),) * 2, False)],
    cuda: [(None, None, "cuda-fatbin", CUDA, True)] * 2,
}
MAKERS = [*LISTED]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_listed(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Containers are found wherever they are; of packed ones, stored sizes add up to the whole."""
    found = []
    for _, images in groupby(list_images(make(tmp_path / "input")), key=lambda each: each.index):
        first, *_ = rows = [*images]
        shown = tuple((each.kind, each.target_id, each.size) for each in rows)
        is_in_place = rows[-1].offset is not None
        found.append((first.member, first.section, first.container, shown, is_in_place))
        assert len({(each.member, each.section, each.container) for each in rows}) == 1
        if first.container == "compressed-bundle":
            assert sum(each.stored_size for each in rows) == first.container_size
    assert found == LISTED[make]


@pytest.mark.parametrize(
    "make", [each for each in MAKERS if each != coff_bundle], ids=lambda make: make.__name__
)
def test_same_as_extracted(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Images have the same bytes if read in sequence, separately, or extracted; or in place."""
    path = make(tmp_path / "input")
    listed = list_images(path)
    in_turn = [(image, bytes(data)) for image, data in iter_image_data(path)]
    assert [image for image, _ in in_turn] == listed
    random.Random(1).shuffle(in_turn)
    for image, data in in_turn:
        with open_image(image) as view:
            assert bytes(view) == data
        assert image.kind == "host" or image.image_kind == "ptx" or len(data) == image.size
        assert b"__CLANG_OFFLOAD_BUNDLE__" not in data  # that of a host object's sections neither
        if image.offset is not None and image.stored_size == image.size:
            assert path.read_bytes()[image.offset :][: len(data)] == data
    extracted = extract_device_images(path, tmp_path / "out")
    device = [(image.id, data) for image, data in in_turn if image.kind != "host"]
    assert sorted((image.id, image.path.read_bytes()) for image in extracted) == sorted(device)


def test_views_stay_valid(tmp_path: Path) -> None:
    views = [data for _, data in iter_image_data(packed_twice(tmp_path / "w.whl"))]
    again = [bytes(data) for _, data in iter_image_data(tmp_path / "w.whl")]
    assert [bytes(view) for view in views] == again


def test_devices(tmp_path: Path) -> None:
    found = list(iter_image_data(compressed(tmp_path / "b"), devices=[Device.parse("gfx906")]))
    assert [bytes(data) for _, data in found] == [IMAGES["gfx906"]]
    assert found[0][0].loads[0][0] == "gfx906"


@pytest.mark.parametrize("make", [plain, compressed], ids=["range", "compressed"])
def test_changed_file(tmp_path: Path, make: object) -> None:
    path = make(tmp_path / "b")  # type: ignore[operator]
    images = list_images(path)
    make_bundle(path, {"gfx1100": b"x"}, compression=Compression())
    with pytest.raises(FileError, match="found it changed; list it again"), open_image(images[-1]):
        pass


def test_scrambled_by_nvidia(tmp_path: Path) -> None:
    """Images that only NVIDIA's programs can unpack are unsupported, not broken."""
    path = tmp_path / "c.fatbin"
    content = bytearray(cuda_fatbin())
    content[CUBIN_AT + 40 : CUBIN_AT + 44] = (0x12011).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(UnsupportedError, match="not publicly"), open_image(list_images(path)[1]):
        pass
    problems: list[OffloadError] = []
    given = [image for image, _ in iter_image_data(path, skipped=problems.append)]
    assert len(given) == len(problems) == 1
    with pytest.raises(UnsupportedError):
        list(iter_image_data(path))


def test_host_of_coff(tmp_path: Path) -> None:
    """The host object of a COFF file is unsupported, and its device images are read."""
    path = coff_bundle(tmp_path / "b.obj")
    problems: list[OffloadError] = []
    given = [bytes(data) for _, data in iter_image_data(path, skipped=problems.append)]
    assert (given, len(problems)) == ([b"code"], 1)
    with pytest.raises(UnsupportedError, match="expected an ELF file, found COFF"):
        list(iter_image_data(path))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_nothing_is_left_open(tmp_path: Path) -> None:
    path = packed_twice(tmp_path / "w.whl")
    images = list_images(path)
    before = open_files()
    for image in images:
        with open_image(image):
            pass
    with pytest.raises(KeyError), open_image(images[0]):
        raise KeyError
    assert open_files() == before


def test_three_ways_of_no_use(tmp_path: Path) -> None:
    """Broken, unsupported and empty files raise distinct errors; all are content errors."""
    data = bytearray(compressed(tmp_path / "b").read_bytes())
    newer, broken, empty = tmp_path / "newer", tmp_path / "broken", tmp_path / "empty.o"
    broken.write_bytes(data[:-5])
    data[4] = 9  # the version
    newer.write_bytes(data)
    empty.write_bytes(make_elf())
    for path, error in (
        (broken, FormatError),
        (newer, UnsupportedError),
        (empty, NoContainerError),
    ):
        with pytest.raises(ContentError) as caught:
            list_images(path)
        assert type(caught.value) is error
        assert caught.value.path is not None
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    with pytest.raises(NoContainerError, match="expected a bundle"):
        list_images(tmp_path / "t.tar")


def test_encrypted_member(tmp_path: Path) -> None:
    """A zip member that is encrypted, or compressed in an unknown way, is unsupported."""
    path = packed_twice(tmp_path / "w.whl")
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\1\2")  # in the directory: flags at 8, method at 10
    data[at + 8] |= 1
    data[6] |= 1
    (tmp_path / "secret.zip").write_bytes(data)
    with pytest.raises(UnsupportedError, match="encrypted"):
        list_images(tmp_path / "secret.zip")


def test_indexes_of_images(tmp_path: Path) -> None:
    """Images are numbered within their container, even if devices select some of them."""
    path = several(tmp_path / "s")
    places = [(image.index, image.image_index) for image in list_images(path)]
    assert places == [(container, at) for container in range(3) for at in range(3)]
    chosen: list[DeviceImage] = list(iter_images(path, devices=[Device.parse("gfx906")]))
    assert [(image.index, image.image_index) for image in chosen] == [(0, 1), (1, 1), (2, 1)]
