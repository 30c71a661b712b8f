"""Selection of the image that a device loads, by the compatibility rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.containers.find import find_containers
from offload_tool.errors import TargetIDError
from offload_tool.operations.check import Rule, check_libraries
from offload_tool.operations.extract import extract_device_images
from offload_tool.operations.list_images import iter_images, list_images
from offload_tool.operations.match import Device, candidates_of, match_images, may_load
from offload_tool.operations.thin import thin_file
from tests.formats.cuda.test_fatbin import cuda_fatbin
from tests.formats.object_files import elf_header
from tests.fuzz.seeds import bundle
from tests.operations.fatbins import HOST, entry_id, make_bundle


def loaded(path: Path, device: str) -> list[tuple[str, ...]]:
    """Return the target IDs (with kinds on request) that a device loads from each container."""
    return [
        tuple(entry_id.rpartition("--")[2] for entry_id in match.ids)
        for match in match_images(path, Device.parse(device))
    ]


def test_most_specific(tmp_path: Path) -> None:
    """Of several compatible images, the device loads the one that sets the most features."""
    # No tool bundles these together: the composition rules forbid it.
    path = tmp_path / "c"
    ids = (entry_id(target).encode() for target in ("gfx90a", "gfx90a:xnack+"))
    path.write_bytes(bundle(dict.fromkeys(ids, b"1")))
    assert loaded(path, "gfx90a:xnack+") == [("gfx90a:xnack+",)]
    assert loaded(path, "gfx90a:sramecc+:xnack+") == [("gfx90a:xnack+",)]
    assert loaded(path, "gfx90a:xnack-") == [("gfx90a",)]
    assert loaded(path, "gfx90a") == [("gfx90a",)]


def test_one_for_each_kind(tmp_path: Path) -> None:
    """A target ID covers devices of every offload kind; hip and hipv4 are one kind."""
    images = {
        "openmp-amdgcn-amd-amdhsa--gfx906": b"1",
        "hip-amdgcn-amd-amdhsa--gfx906": b"2",
        "hipv4-amdgcn-amd-amdhsa--gfx906": b"3",
    }
    path = make_bundle(tmp_path / "b", images)
    (match,) = match_images(path, Device.parse("gfx906"))
    assert match.ids == (*("openmp-amdgcn-amd-amdhsa--gfx906", "hipv4-amdgcn-amd-amdhsa--gfx906"),)


SPIRV = "hip-spirv64-amd-amdhsa--amdgcnspirv"
FALLBACKS = {HOST: b"", "gfx9-4-generic": b"1", "gfx11-generic": b"2", SPIRV: b"3"}


def test_native_first(tmp_path: Path) -> None:
    """Native code is preferred to generic code, and that to SPIR-V, in any order."""
    images = {SPIRV: b"3", "gfx9-4-generic": b"1", "gfx942:xnack-": b"4", "gfx942:xnack+": b"5"}
    for names in (list(images), list(images)[::-1]):
        path = make_bundle(tmp_path / "b", {name: images[name] for name in names})
        assert loaded(path, "gfx942:sramecc-:xnack-") == [("gfx942:xnack-",)]
        assert loaded(path, "gfx942") == [("gfx9-4-generic",)]
        assert loaded(path, "gfx90a") == [("amdgcnspirv",)]


def test_empty_images(tmp_path: Path) -> None:
    """HIP's runtime treats an empty image as missing: it loads generic code, or nothing."""
    path = make_bundle(tmp_path / "b", {"gfx942": b"", "gfx9-4-generic": b"1"})
    assert loaded(path, "gfx942") == [("gfx9-4-generic",)]
    path = make_bundle(tmp_path / "b", {"gfx942": b""})
    (match,) = match_images(path, Device.parse("gfx942"))
    assert match.loads == ()
    assert "empty" in dict(match.reasons)["hipv4-amdgcn-amd-amdhsa--gfx942"]


def test_openmp_fallbacks(tmp_path: Path) -> None:
    """OpenMP's images are separate from HIP's: its devices load generic code, not SPIR-V."""
    openmp = {"openmp-amdgcn-amd-amdhsa--gfx9-4-generic": b"4"}
    path = make_bundle(tmp_path / "b", {SPIRV: b"3", **openmp})
    assert loaded(path, "gfx942") == [("amdgcnspirv", "gfx9-4-generic")]
    path = make_bundle(tmp_path / "b", FALLBACKS)
    assert loaded(path, "openmp-amdgcn-amd-amdhsa--gfx942") == [()]


def test_generic_version(tmp_path: Path) -> None:
    """Runtimes load and reject generic code without a generic version: match warns of it."""
    for version, is_told in ((1, False), (0, True)):
        header = elf_header(3, 224, version << 24, b"\x40\4")
        path = make_bundle(tmp_path / "b", {"gfx11-generic": header})
        (match,) = match_images(path, Device.parse("gfx1100"))
        assert ("the loader refuses it" in match.loads[0].reason) is is_told


def test_open_features(tmp_path: Path) -> None:
    """A device may load more than its name implies: thin keeps all of it, and match lists it."""
    images = {"gfx942:xnack+": b"1", "gfx9-4-generic": b"2", SPIRV: b"3", "gfx90a": b"4"}
    path = make_bundle(tmp_path / "b", images)
    (match,) = match_images(path, Device.parse("gfx942"))
    assert match.loads[0].reason.endswith("--gfx942:xnack+ where the device has xnack+")
    (found,) = find_containers(path)
    ids = list(images)
    for device, kept in {
        "gfx942": {"gfx942:xnack+", "gfx9-4-generic"},
        "gfx942:xnack+": {"gfx942:xnack+"},
        "gfx942:xnack-": {"gfx9-4-generic"},
        "gfx90a": {"gfx90a"},
        "hip-amdgcn-amd-amdhsa--gfx942": {"gfx942:xnack+", "gfx9-4-generic"},
    }.items():
        assert {
            ids[at] for at in may_load(candidates_of(found.images), Device.parse(device))
        } == kept


PAIR = {"gfx90a:xnack+": b"1", "gfx90a:xnack-": b"2"}


def test_each_setting(tmp_path: Path) -> None:
    """A name that leaves a feature open is served by the images for each setting together."""
    path, device = make_bundle(tmp_path / "b", PAIR), Device.parse("gfx90a")
    (match,) = match_images(path, device)
    assert [load.id for load in match.loads] == [entry_id(target) for target in PAIR]
    assert [load.reason[-27:] for load in match.loads] == [
        f"where the device has {setting}" for setting in ("xnack+", "xnack-")
    ]
    assert [image.target_id for image in iter_images(path, devices=[device])] == list(PAIR)
    assert len(extract_device_images(path, tmp_path / "out", devices=[device])) == 2
    thin_file(path, tmp_path / "thin", keep=[device])
    assert (tmp_path / "thin").read_bytes() == path.read_bytes()
    assert not [*check_libraries([path], [Rule(targets=(device,))])]


def test_one_setting(tmp_path: Path) -> None:
    """An image for one setting of an open feature does not serve the name; messages say which."""
    path = make_bundle(tmp_path / "b", {"gfx90a:xnack+": b"1"})
    (match,) = match_images(path, Device.parse("gfx90a"))
    assert (match.ids, dict(match.reasons)) == (
        (),
        {entry_id("gfx90a:xnack+"): "needs xnack+, which gfx90a leaves open"},
    )
    (fault,) = check_libraries([path], [Rule(targets=(Device.parse("gfx90a"),))])
    lacking = "gfx90a:sramecc+:xnack-, gfx90a:sramecc-:xnack-"
    assert fault.message == f"no image for {lacking}; there are gfx90a:xnack+"


def test_passed_over(tmp_path: Path) -> None:
    """SPIR-V is kept besides generic code that some runtimes do not find for a gfx906."""
    images = {"gfx9-generic": b"2", SPIRV: b"3"}
    (found,) = find_containers(make_bundle(tmp_path / "b", images))
    assert may_load(candidates_of(found.images), Device.parse("gfx906")) == {0, 1}
    assert may_load(candidates_of(found.images), Device.parse("gfx900")) == {0}


def test_each_container(tmp_path: Path) -> None:
    """Every container is matched separately, and numbered; one with only a host is left out."""
    first = make_bundle(tmp_path / "1", {HOST: b"", "gfx906": b"1"}).read_bytes()
    host = make_bundle(tmp_path / "2", {HOST: b""}).read_bytes()
    last = make_bundle(tmp_path / "3", {"gfx1030": b"2"}).read_bytes()
    path = tmp_path / "all"
    path.write_bytes(first + host + last)
    matches = list(match_images(path, Device.parse("gfx1030")))
    assert [(m.index, len(m.ids)) for m in matches] == [(0, 0), (2, 1)]


@pytest.mark.parametrize("text", ["", "gfx906:xnack", "a b", "host-"])
def test_no_device(text: str) -> None:
    """Texts that are no target ID or entry ID are rejected; a trailing colon (clang) is allowed."""
    assert str(Device.parse("gfx90a:").target) == "gfx90a"
    with pytest.raises(TargetIDError):
        Device.parse(text)


STORED = [
    *("host-x86_64-unknown-linux-gnu-", "hip-amdgcn-amd-amdhsa-gfx906"),
    *("hipv4-amdgcn--amdhsa--gfx908", "none-amdgcn-amd-amdhsa--gfx940"),
    *("hipv4-amdgcn-amd-amdhsa--", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-:sramecc+"),
    *("hip-spirv64-amd-amdhsa--amdgcnspirv", "hip-amdgcn-amd-amdhsa--gfx9-4-generic:xnack+"),
    *("hipv4-amdgcn-amd-amdhsa--kaveri", "hipv4-amdgcn-amd-amdhsa--gfx9999"),
    *("cuda-nvptx64-nvidia-cuda--sm_90a", "sycl-spir64_gen-unknown-unknown--pvc"),
    *("openmp-x86_64-pc-linux-gnu-", "cuda fat binary"),
]


@pytest.mark.parametrize("stored", STORED)
def test_listed_ids(tmp_path: Path, stored: str) -> None:
    """Every ID printed by `list` selects that image in all commands that take devices."""
    path = tmp_path / "in"
    is_cuda = stored == "cuda fat binary"
    path.write_bytes(cuda_fatbin() if is_cuda else bundle({stored.encode(): b"image"}))
    for image in list_images(path):
        for text in filter(None, (image.id, image.target_id)):
            device = Device.parse(text)
            assert image.id in [row.id for row in iter_images(path, devices=[device])]
            (match,) = match_images(path, device)
            assert image.id in match.ids
            made = extract_device_images(path, tmp_path / "out", devices=[device])
            assert image.id in [row.id for row in made]
            thin_file(path, tmp_path / "thin", keep=[device])
            assert image.id in [row.id for row in list_images(tmp_path / "thin")]
            is_host = image.kind == "host"
            assert is_host or not [*check_libraries([path], [Rule(targets=(device,))])]
