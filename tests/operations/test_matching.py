"""Which image a device loads, by the compatibility rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import TargetIDError
from offload_tool.operations.matching import Device, match_images
from tests.operations.fatbins import HOST, make_bundle


def loaded(path: Path, device: str) -> list[tuple[str, ...]]:
    """Give the target IDs, or kinds and target IDs, that a device loads in each container."""
    return [
        tuple(entry_id.rpartition("--")[2] for entry_id in match.ids)
        for match in match_images(path, Device.parse(device))
    ]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("gfx906", ("gfx906",)),
        ("gfx906:xnack+", ("gfx906",)),
        ("gfx90a:xnack+", ("gfx90a:xnack+",)),
        ("gfx90a:sramecc+:xnack-", ("gfx90a:xnack-",)),
        ("gfx90a", ()),
        ("gfx1030", ()),
        ("hipv4-amdgcn-amd-amdhsa--gfx906", ("gfx906",)),
        ("hip-amdgcn-amd-amdhsa--gfx906", ("gfx906",)),
        ("openmp-amdgcn-amd-amdhsa--gfx906", ()),
    ],
)
def test_rules(tmp_path: Path, device: str, expected: tuple[str, ...]) -> None:
    """A feature that an image sets must be set so on the device; one left open may be any."""
    images = {HOST: b"", "gfx906": b"1", "gfx90a:xnack+": b"2", "gfx90a:xnack-": b"3"}
    path = make_bundle(tmp_path / "b", images)
    assert loaded(path, device) == [expected]


def test_most_specific(tmp_path: Path) -> None:
    """Of several compatible images, the one that sets the most features is loaded."""
    # No tool bundles these together: the composition rules are against it.
    raw = bytearray(
        make_bundle(tmp_path / "b", {"gfx90a": b"1", "gfx906:xnack+": b"2"}).read_bytes()
    )
    path = tmp_path / "c"
    path.write_bytes(raw.replace(b"gfx906:", b"gfx90a:"))
    assert loaded(path, "gfx90a:xnack+") == [("gfx90a:xnack+",)]
    assert loaded(path, "gfx90a:xnack-") == [("gfx90a",)]
    assert loaded(path, "gfx90a") == [("gfx90a",)]


def test_one_for_each_kind(tmp_path: Path) -> None:
    """A target ID stands for devices of every offload kind; hip and hipv4 are one kind."""
    images = {
        "openmp-amdgcn-amd-amdhsa--gfx906": b"1",
        "hip-amdgcn-amd-amdhsa--gfx906": b"2",
        "hipv4-amdgcn-amd-amdhsa--gfx906": b"3",
    }
    path = make_bundle(tmp_path / "b", images)
    (match,) = match_images(path, Device.parse("gfx906"))
    assert match.ids == (*("openmp-amdgcn-amd-amdhsa--gfx906", "hipv4-amdgcn-amd-amdhsa--gfx906"),)


def test_reasons(tmp_path: Path) -> None:
    """Where there is no image, each one comes with the reason why not; hosts do not."""
    path = make_bundle(tmp_path / "b", {HOST: b"", "gfx906": b"1", "gfx90a:xnack+": b"2"})
    (match,) = match_images(path, Device.parse("gfx90a:xnack-"))
    assert match.ids == ()
    assert dict(match.reasons) == {
        "hipv4-amdgcn-amd-amdhsa--gfx906": "processor gfx906 is not gfx90a",
        "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+": "needs xnack+, not xnack-",
    }


def test_each_container(tmp_path: Path) -> None:
    """Every container is asked by itself, and numbered; one of a host alone is left out."""
    first = make_bundle(tmp_path / "1", {HOST: b"", "gfx906": b"1"}).read_bytes()
    host = make_bundle(tmp_path / "2", {HOST: b""}).read_bytes()
    last = make_bundle(tmp_path / "3", {"gfx1030": b"2"}).read_bytes()
    path = tmp_path / "all"
    path.write_bytes(first + host + last)
    matches = list(match_images(path, Device.parse("gfx1030")))
    assert [(m.index, len(m.ids)) for m in matches] == [(0, 0), (2, 1)]


@pytest.mark.parametrize("text", ["", "gfx90a:", "gfx906:xnack", "a b", "host-"])
def test_no_device(text: str) -> None:
    """What is no target ID and no bundle entry ID is refused (one colon at the end is clang's)."""
    if text == "gfx90a:":
        assert str(Device.parse(text).target) == "gfx90a"
    else:
        with pytest.raises(TargetIDError):
            Device.parse(text)
