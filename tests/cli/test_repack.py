"""``offload-tool repack``: LLVM's bundler reads the result, with the same entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import BundleEntryID, bundle_files, list_entry_ids
from offload_tool.cli import main
from offload_tool.operations.bundle import Compression
from tests.conftest import Capture, Tool, run_tool

IDS = ("host-x86_64-unknown-linux-gnu-", "hip-amdgcn-amd-amdhsa--gfx906", "hip-amdgcn-amd-amdhsa--")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    items = []
    for number, text in enumerate(IDS):
        (tmp_path / f"in{number}").write_bytes(bytes([number]) * 1000 * number)
        items.append((BundleEntryID.read(text), f"in{number}"))
    bundle_files(items, "plain", file_type="bc", alignment=4096)
    bundle_files(items, "v3", file_type="bc", alignment=4096, compression=Compression())
    return tmp_path


@pytest.mark.llvm
@pytest.mark.parametrize("source", ["plain", "v3"])
@pytest.mark.parametrize(
    "options",
    [[], ["--align=1"], ["--compress=zstd"], ["--compress=zlib", "--level=9", "--version=2"]],
)
def test_entries_stay(folder: Path, llvm: Tool, source: str, options: list[str]) -> None:
    assert main(["repack", source, "-o", "out", *options]) == 0
    assert list_entry_ids("out", file_type="bc") == list(IDS)
    args = ["-type=bc", "-unbundle", "-input=out", f"-targets={','.join(IDS[:2])}"]
    run_tool(llvm("clang-offload-bundler"), *args, "-output=u0", "-output=u1")
    for number in range(2):
        assert (folder / f"u{number}").read_bytes() == (folder / f"in{number}").read_bytes()
    data = (folder / "out").read_bytes()
    assert data.startswith(b"CCOB") is (options != [] and options[0] != "--align=1")
    if "--version=2" in options:
        assert data[4:6] == b"\x02\0"
    if not options:
        assert data == (folder / "plain").read_bytes()


def test_in_place_and_untouched(folder: Path) -> None:
    """The output may be the input; with --restat, an equal file stays untouched."""
    assert main(["repack", "v3", "-o", "v3"]) == 0
    assert (folder / "v3").read_bytes() == (folder / "plain").read_bytes()
    before = Path("v3").stat().st_ino
    assert main(["repack", "plain", "-o", "v3", "--restat"]) == 0
    assert Path("v3").stat().st_ino == before


def test_mistakes(folder: Path, capsys: Capture) -> None:
    """Files without a bundle, or with several, and meaningless options are rejected."""
    (folder / "two").write_bytes((folder / "plain").read_bytes() * 2)
    for args, message in (
        (["in1"], "'in1': expected a bundle of the binary layout"),
        (["two"], "'two': 2 bundles"),
        (["plain", "--level=3"], "give --compress, too"),
        (["plain", "--align=0"], "alignment"),
        (["plain", f"--align={10**23}"], f"bundle alignment {10**23}: a bundle of entries so far"),
    ):
        assert main(["repack", *args, "-o", "out"]) == 1
        assert message in capsys.readouterr().err
        assert not (folder / "out").exists()
