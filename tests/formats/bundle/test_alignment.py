"""The alignment of a bundle is found from its layout."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offload_tool.formats.bundle.alignment import find_alignment
from offload_tool.formats.bundle.binary import Bundle, BundleEntry, plan_bundle

SIZES = st.lists(st.integers(0, 10_000), min_size=1, max_size=5)


def planned(sizes: list[int], alignment: int) -> Bundle:
    layout = plan_bundle([(f"hip-a-b-c-d-{at}", size) for at, size in enumerate(sizes)], alignment)
    return Bundle(layout.entries, 0, layout.size)


@given(st.lists(SIZES, min_size=1, max_size=3), st.sampled_from([1, 2, 8, 256, 4096, 1 << 16]))
def test_same_layout(many: list[list[int]], alignment: int) -> None:
    """What is found gives the same layouts, of all bundles."""
    found = find_alignment([planned(sizes, alignment) for sizes in many])
    for sizes in many:
        assert planned(sizes, found) == planned(sizes, alignment)


@given(SIZES)
def test_fat_binaries(sizes: list[int]) -> None:
    """The alignment of fat binaries is preferred."""
    assert find_alignment([planned(sizes, 4096)]) == 4096


def test_no_such_layout() -> None:
    """Where no alignment gives the layout, it is one that all offsets are multiples of."""
    entries = (BundleEntry("hip-a-b-c-d-1", 4096 * 3, 1), BundleEntry("hip-a-b-c-d-2", 512, 1))
    assert find_alignment([Bundle(entries, 0, 4096 * 3 + 1)]) == 512
    assert find_alignment([Bundle((), 0, 32)]) == 4096
