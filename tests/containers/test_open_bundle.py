"""Compressed bundles that pass by: nothing is kept, and nothing wrong is seen."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from offload_tool import BundleEntryID, Compression, FormatError, list_entry_ids, unbundle_file
from offload_tool.io.paths import STDOUT
from offload_tool.operations.bundle import write_bundle

HOST = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")
DEVICES = [BundleEntryID.parse(f"hipv4-amdgcn-amd-amdhsa--{name}") for name in ("gfx906", "gfx90a")]
LARGE = 17 << 20
"""Bytes of an image: more than is decompressed in memory."""


def packed(folder: Path, size: int, **options: object) -> tuple[Path, list[bytes]]:
    """Write a compressed bundle of an image for each device; give it, and the images."""
    block = random.Random(size).randbytes(4096)
    images = [bytes([number]) * 7 + (block * (size // 4096 + 1))[:size] for number in range(2)]
    inputs = []
    for entry, image in zip(DEVICES, images, strict=True):
        file = folder / f"{entry.target_id}.co"
        file.write_bytes(image)
        inputs.append((entry, file))
    bundle = folder / "bundle.ccob"
    write_bundle(inputs, bundle, file_type="bc", compression=Compression(**options))  # type: ignore[arg-type]
    return bundle, images


def test_a_large_bundle_needs_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed, and taken apart, where there is no folder for temporary files."""
    bundle, images = packed(tmp_path, LARGE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert list_entry_ids(bundle, file_type="bc") == [str(entry) for entry in DEVICES]
    outputs = {entry: tmp_path / f"out{number}" for number, entry in enumerate(DEVICES)}
    unbundle_file(bundle, dict(reversed(outputs.items())), file_type="bc")
    assert [file.read_bytes() for file in outputs.values()] == images


def test_damage_at_the_end_is_found_before_anything_is_seen(tmp_path: Path) -> None:
    """Neither the entries' IDs nor an output are given of what has another hash."""
    bundle, _ = packed(tmp_path, LARGE)
    data = bytearray(bundle.read_bytes())
    data[24] ^= 1  # of the hash
    bundle.write_bytes(data)
    with pytest.raises(FormatError, match="hash stored in the header"):
        list_entry_ids(bundle, file_type="bc")
    before = set(tmp_path.iterdir())
    with pytest.raises(FormatError, match="hash stored in the header"):
        unbundle_file(bundle, {DEVICES[0]: tmp_path / "out"}, file_type="bc")
    assert set(tmp_path.iterdir()) == before


def test_standard_output_gets_nothing_of_a_damaged_bundle(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """What cannot be taken back is written when the hash is known to be right."""
    bundle, images = packed(tmp_path, 100_000)
    unbundle_file(bundle, {DEVICES[1]: STDOUT}, file_type="bc")
    assert capfdbinary.readouterr().out == images[1]
    data = bytearray(bundle.read_bytes())
    data[24] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(FormatError, match="hash stored in the header"):
        unbundle_file(bundle, {DEVICES[1]: STDOUT}, file_type="bc")
    assert capfdbinary.readouterr().out == b""


@pytest.mark.parametrize("level", [None, 19])
def test_a_table_that_is_longer_than_the_beginning(tmp_path: Path, level: int | None) -> None:
    """What is not in the first bytes that come out is read all the same."""
    names = [BundleEntryID.parse(f"{DEVICES[0]}{'x' * 60_000}{number}") for number in range(30)]
    image = tmp_path / "image"
    image.write_bytes(b"code")
    bundle = tmp_path / "bundle.ccob"
    items = [(name, image) for name in names]
    write_bundle(items, bundle, file_type="bc", compression=Compression(level=level))
    assert list_entry_ids(bundle, file_type="bc") == [str(name) for name in names]
    unbundle_file(bundle, {names[-1]: tmp_path / "out"}, file_type="bc")
    assert (tmp_path / "out").read_bytes() == b"code"


def test_all_of_it_for_a_host_without_an_entry(tmp_path: Path) -> None:
    """Where no target has an entry, the host gets the decompressed bundle, as before."""
    bundle, images = packed(tmp_path, LARGE)
    unbundle_file(bundle, {HOST: tmp_path / "out"}, file_type="bc", allow_missing=True)
    whole = (tmp_path / "out").read_bytes()
    assert whole.startswith(b"__CLANG_OFFLOAD_BUNDLE__")
    assert whole.endswith(images[1])
