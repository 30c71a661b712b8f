"""AMD GPUs as LLVM 23 names them: triples such as ``amdgpu9.06``."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.formats.targets import triple as triples
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, is_compatible
from offload_tool.formats.targets.processors import AMDGPU_ARCHES, PROCESSORS, find_processor
from offload_tool.formats.targets.target_id import TargetID
from tests.conftest import Tool
from tests.formats.targets.test_bundle_entry_id_llvm import Bundler, differences

REST = "amd-amdhsa-"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("amdgcn", "amdgpu9.06", True),
        ("amdgpu9", "amdgpu9.06", True),
        ("amdgpu9", "amdgpu9.08", False),  # gfx9-generic's code does not run on gfx908
        ("amdgpu99.99", "amdgpu99.99", True),  # in LLVM 23, it matches nothing
        ("amdgpu99.99", "amdgpu98.99", False),
        ("amdgpu9.06", "r600", False),
    ],
)
def test_who_serves_whom(first: str, second: str, expected: bool) -> None:
    """The same GPU, a family and its members, and what leaves the GPU open serve each other."""
    pair = (f"{first}-{REST}", f"{second}-{REST}")
    assert (triples.incompatibility(*pair) is None) is expected
    assert (triples.incompatibility(*pair[::-1]) is None) is expected


def test_entries_of_both_spellings_serve_each_other() -> None:
    """Which LLVM wrote an ID makes no difference, as long as the processor is the same."""
    old, new = (f"hip-{arch}-{REST}-gfx906" for arch in ("amdgcn", "amdgpu9.06"))
    for entry, target in ((old, new), (new, old)):
        for features, served in (("", True), (":xnack+", True)):
            wanted = BundleEntryID.parse(target + features)
            assert is_compatible(BundleEntryID.read(entry), wanted) is served
    other = BundleEntryID.parse(f"hip-amdgcn-{REST}-gfx908")
    assert not is_compatible(BundleEntryID.read(new), other)


def test_an_architecture_is_a_name_of_its_processor() -> None:
    """As a target ID, too: it is the processor that the family or GPU is named after."""
    assert find_processor("amdgpu9.50") is PROCESSORS["gfx950"]
    assert find_processor("amdgpu9.4") is PROCESSORS["gfx9-4-generic"]
    assert str(TargetID.parse("amdgpu9.0a:xnack+:sramecc-")) == "gfx90a:sramecc-:xnack+"
    assert find_processor("amdgpu6") is None  # a family without a processor of its own


@pytest.fixture
def bundler(llvm23: Tool, tmp_path: Path) -> Bundler:
    return Bundler(llvm23("clang-offload-bundler"), tmp_path)


ARCHES = ["amdgcn", "amdgpu", *AMDGPU_ARCHES]


@pytest.mark.llvm
def test_ids_are_written_as_llvm_writes_them(bundler: Bundler) -> None:
    rests = ["amd-amdhsa-", "amd-amdhsa-unknown", "-amdhsa-", "amd-amdpal-gnu", "amdhsa-amd-x"]
    typed = [f"hip-{arch}-{rest}-" for arch in ARCHES for rest in rests]
    typed += [f"hip-amdgpu-amd-linux-gnu{n}-{name}" for n, name in enumerate(PROCESSORS)]
    assert [str(BundleEntryID.parse(text)) for text in typed] == bundler.written(typed)


@pytest.mark.llvm
def test_architectures_serve_each_other_as_in_llvm(bundler: Bundler) -> None:
    ids = [
        f"hip-{arch}-{REST}-{target}"
        for arch in ARCHES
        for target in ("gfx906", "gfx9-4-generic", "gfx1310")
    ]
    serving, different = differences(ids, ids, bundler.served(ids, ids))
    assert different == []
    assert serving > 1000
