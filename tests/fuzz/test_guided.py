"""What the guided fuzzer has reached is read without it, and it begins where it should."""

from __future__ import annotations

import resource

import pytest

from tests.fuzz.guided import REACHED, _readers, inputs, read


def test_what_was_reached() -> None:
    """Each input is read, or refused by an error of this package, in little memory."""
    readers = _readers()
    given = inputs(readers)
    assert {data[0] % len(readers) for data in given.values()} == set(range(len(readers)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in given.values():
        read(data, readers)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    kept = list(REACHED.glob("*"))
    assert len(kept) > 100
    assert sum(path.stat().st_size for path in kept) < 1 << 20


def test_other_errors_are_findings() -> None:

    def broken(data: bytes) -> None:
        raise IndexError(data)

    with pytest.raises(IndexError):
        read(b"\0", [broken])
