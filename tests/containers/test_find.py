"""Containers in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.containers.find import find_containers
from offload_tool.errors import FormatError
from tests.formats.compressed import compressed
from tests.operations.fatbins import HOST, make_bundle


def test_what_stands_behind_a_bundle(tmp_path: Path) -> None:
    """Anything behind an uncompressed bundle is passed over, as by LLVM; not behind another."""
    bundle = make_bundle(tmp_path / "b", {HOST: b"", "gfx906": b"image"})
    plain = bundle.read_bytes()
    path = tmp_path / "x"
    for data, count in ((plain + bytes(9) + plain + b"more", 2), (compressed(plain) + plain, 2)):
        path.write_bytes(data)
        assert len(list(find_containers(path))) == count
    path.write_bytes(compressed(plain) + b"more")
    with pytest.raises(FormatError, match="expected zeros or another bundle after a compressed"):
        list(find_containers(path))
