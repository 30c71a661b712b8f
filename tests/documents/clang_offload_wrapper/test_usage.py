"""Section Usage."""

from __future__ import annotations

from tests.documents.conftest import Beside


def test_target_ids(beside: Beside) -> None:
    """'--offload-arch=gfx906 gfx906-binary.out': OffloadWrapper refuses what it would not use."""
    beside.refused(
        "env.OffloadWrapper('w.bc', 'a.in', OFFLOAD_KIND='openmp', OFFLOAD_TARGETS='gfx906')\n",
        "OffloadWrapper: OFFLOAD_TARGETS would mean nothing",
    )
