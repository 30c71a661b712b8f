"""Bundling and unbundling files: LLVM's bytes, and no partial outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from offload_tool import BundleEntryID, bundle_files, list_entry_ids, unbundle_file
from offload_tool.errors import UsageError
from offload_tool.operations.unbundle import MissingEntriesError
from tests.conftest import run_tool

HOST = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")
GPU = "hipv4-amdgcn-amd-amdhsa--"


def gpu(target: str) -> BundleEntryID:
    return BundleEntryID.parse(GPU + target)


def test_exact_entries_first(tmp_path: Path) -> None:
    """An entry serves the target with the same ID, in whatever order targets are given."""
    (tmp_path / "in").write_text("image")
    bundle_files([(gpu("gfx906"), tmp_path / "in")], tmp_path / "bundle")
    outputs = {gpu("gfx906:xnack+"): tmp_path / "a", gpu("gfx906"): tmp_path / "b"}
    unbundle_file(tmp_path / "bundle", outputs, allow_missing=True)
    assert [path.read_text() for path in outputs.values()] == ["", "image"]
    missing = {gpu("gfx906"): tmp_path / "c", gpu("gfx942"): tmp_path / "d"}
    with pytest.raises(MissingEntriesError, match=r"no entry for .*gfx942; .*gfx906") as caught:
        unbundle_file(tmp_path / "bundle", missing)
    assert caught.value.missing == (GPU + "gfx942",)
    assert not any(path.exists() for path in missing.values())


def test_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(256 << 20)
    script = (
        "from offload_tool import BundleEntryID, bundle_files, unbundle_file\n"
        f"ids = [BundleEntryID.parse({GPU!r} + t) for t in ('gfx906', 'gfx942')]\n"
        "bundle_files([(i, 'big') for i in ids], 'bundle', alignment=4096)\n"
        "unbundle_file('bundle', {i: f'out{n}' for n, i in enumerate(ids)})\n"
        "print(*(line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line))\n"
    )
    done = run_tool(sys.executable, "-c", script, cwd=tmp_path)
    assert int(done) < 64 << 10
    assert (tmp_path / "out1").stat().st_size == 256 << 20


def test_one_file_gets_one_entry(tmp_path: Path) -> None:
    """With `one_each`, an entry of two bundles is refused; without it, the first counts."""
    both, output = tmp_path / "both", tmp_path / "out"
    for number, content in enumerate((b"one", b"other")):
        (tmp_path / f"in{number}").write_bytes(content)
        bundle_files([(gpu("gfx906"), tmp_path / f"in{number}")], tmp_path / f"bundle{number}")
    both.write_bytes(b"".join((tmp_path / f"bundle{number}").read_bytes() for number in (0, 1)))
    with pytest.raises(UsageError, match=r"2 entries .*gfx906', at 0x\w+ \(3 bytes\), 0x\w+ \(5 "):
        unbundle_file(both, {gpu("gfx906"): output}, one_each=True)
    assert not output.exists()
    unbundle_file(both, {gpu("gfx906"): output})
    assert output.read_bytes() == b"one"


@pytest.mark.parametrize("is_elf", [True, False])
def test_linked_file_is_told_from_a_bundle(tmp_path: Path, is_elf: bool) -> None:
    """For a linked program alone, the error names the function for linked files."""
    program = Path(sys.executable) if is_elf else tmp_path / "text"
    if not is_elf:
        program.write_text("no bundle")
    with pytest.raises(MissingEntriesError, match="entries found: none") as caught:
        unbundle_file(program, {gpu("gfx906"): tmp_path / "out"})
    named = "linked files: offload_tool.extract_device_images" in str(caught.value)
    assert named == is_elf
    assert list_entry_ids(program) == []
