"""Compressed bundles unbundled during decompression, with the same results as afterwards."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

from offload_tool import BundleEntryID, Compression, list_entry_ids, unbundle_file
from offload_tool.errors import FormatError, OffloadError
from offload_tool.io import STDOUT
from offload_tool.io.limits import Budget, Limits, limited
from tests.formats.bundle.test_binary import bundle_of
from tests.formats.compressed import ZLIB, ZSTD, compressed
from tests.operations.fatbins import make_bundle

GPU = "hip-amdgcn-amd-amdhsa--"
IDS = ("host-x86_64-unknown-linux-gnu-", f"{GPU}gfx906", f"{GPU}gfx90a", f"{GPU}gfx942")
SIZES = (0, 1, 5000, (1 << 18) - 300, 1 << 18, 600_000)


def bundle(contents: list[bytes], alignment: int = 1) -> bytearray:
    return bytearray(bundle_of(dict(zip(IDS, contents, strict=False)), alignment))


def changed(chance: random.Random, data: bytearray, end: int) -> bytearray:
    for _ in range(2):
        data[chance.randrange(min(end, len(data)))] = chance.randrange(256)
    return data


def random_file(chance: random.Random) -> bytes:
    """Return a compressed bundle, intact or not, alone or with data after it."""
    contents = [chance.randbytes(chance.choice(SIZES)) for _ in range(chance.randint(1, 4))]
    data = bundle(contents, chance.choice((1, 4096)))
    if chance.random() < 0.3:
        data = changed(chance, data, 150)  # another table, with a correct hash
    packed = compressed(bytes(data), chance.randint(1, 3), chance.choice((ZLIB, ZSTD)))
    end = chance.choice((b"", b"", b"", bytes(9), b"x", packed))
    damage = chance.choice((0, 0, 0, 40, len(packed)))
    return bytes(changed(chance, bytearray(packed + end), damage) if damage else packed + end)


def results(path: Path, wanted: list[BundleEntryID], **options: object) -> list[object]:
    """Return the results of listing and unbundling: IDs and bytes, or errors."""
    outputs = {target: path.with_name(f"out{n}") for n, target in enumerate(wanted)}
    found: list[object] = []
    try:
        found.append(list_entry_ids(path, file_type="bc", **options))  # type: ignore[arg-type]
    except OffloadError as error:
        found.append(str(error))
    for output in outputs.values():
        output.write_bytes(b"old")
    try:
        unbundle_file(path, outputs, file_type="bc", **options)  # type: ignore[arg-type]
    except OffloadError as error:
        found.append(str(error))
    return [*found, *(output.read_bytes() for output in outputs.values())]


@pytest.mark.parametrize("seed", range(40))
def test_equal(tmp_path: Path, seed: int) -> None:
    """Entries, outputs and errors equal those of a run that decompresses the whole bundle first."""
    chance = random.Random(seed)
    (tmp_path / "in").write_bytes(random_file(chance))
    wanted = [BundleEntryID.parse(name) for name in chance.sample(IDS, chance.randint(1, 3))]
    whole = results(tmp_path / "in", wanted, opened=lambda _: None)
    assert results(tmp_path / "in", wanted) == whole


@pytest.mark.parametrize("method", [ZLIB, ZSTD])
def test_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int) -> None:
    contents = [b"", bytes(9 << 20), b"x" * (9 << 20)]
    (tmp_path / "in").write_bytes(compressed(bytes(bundle(contents)), 3, method))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a temporary file")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    wanted = [BundleEntryID.parse(name) for name in IDS[1:3]]
    assert results(tmp_path / "in", wanted) == [list(IDS[:3]), *contents[1:]]


@pytest.mark.parametrize(("entry", "size"), [(0, 900), (1, 900_000)], ids=["empty", "large"])
def test_damage_at_the_end(tmp_path: Path, entry: int, size: int) -> None:
    """A wrong hash is detected before an output appears, and if no entry is to be written."""
    data = compressed(bytes(bundle([b"", b"x" * size])), digest=bytes(8))
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(b"old")
    for output in (os.devnull, tmp_path / "out"):
        with pytest.raises(FormatError, match="hash stored in the header"):
            unbundle_file(tmp_path / "in", {BundleEntryID.parse(IDS[entry]): output})
    with pytest.raises(FormatError, match="hash stored in the header"):
        list_entry_ids(tmp_path / "in")
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"in": data, "out": b"old"}


def test_what_is_unpacked_may_be_written(tmp_path: Path) -> None:
    content = bytes(900_000)
    (tmp_path / "in").write_bytes(compressed(bytes(bundle([b"", content]))))
    with limited(Budget(Limits(unpacked=1 << 20, written=1000))):
        unbundle_file(tmp_path / "in", {BundleEntryID.parse(IDS[1]): tmp_path / "out"})
    assert (tmp_path / "out").read_bytes() == content


def test_direct_outputs_get_nothing_of_what_is_damaged(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    content = b"x" * 30_000
    target = BundleEntryID.parse(IDS[1])
    for name, digest in (("bad", bytes(8)), ("good", None)):
        (tmp_path / name).write_bytes(compressed(bytes(bundle([b"", content])), digest=digest))
    read, write = os.pipe()
    try:
        for output in (f"/dev/fd/{write}", STDOUT):
            with pytest.raises(FormatError, match="hash"):
                unbundle_file(tmp_path / "bad", {target: output})
            unbundle_file(tmp_path / "good", {target: output})
        assert os.read(read, 1 << 16) == capfdbinary.readouterr().out == content
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("level", [None, 19])
def test_table_longer_than_what_comes_out_first(tmp_path: Path, level: int | None) -> None:
    names = [f"hipv4-amdgcn-amd-amdhsa--gfx906{'x' * 60_000}{number}" for number in range(30)]
    make_bundle(
        tmp_path / "in", dict.fromkeys(names, b"code"), compression=Compression(level=level)
    )
    assert list_entry_ids(tmp_path / "in", file_type="bc") == names
    wanted = BundleEntryID.parse(names[-1])
    unbundle_file(tmp_path / "in", {wanted: tmp_path / "out"}, file_type="bc")
    assert (tmp_path / "out").read_bytes() == b"code"


def test_whole_bundle_for_a_host_without_an_entry(tmp_path: Path) -> None:
    data = bytes(bundle([b"", b"x" * (17 << 20)]))
    data = data.replace(b"host-", b"hips-", 1)  # no host
    (tmp_path / "in").write_bytes(compressed(data))
    outputs = {BundleEntryID.parse(IDS[0]): tmp_path / "out"}
    unbundle_file(tmp_path / "in", outputs, file_type="bc", allow_missing=True)
    assert (tmp_path / "out").read_bytes() == data
