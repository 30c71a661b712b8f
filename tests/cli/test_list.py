"""The user interface of ``offload-tool list``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool import Compression, DeviceImage, list_images
from offload_tool.cli import main
from offload_tool.formats.codec import Method
from offload_tool.formats.cuda.fatbin import NewCudaEntry, plan_cuda_fatbin
from offload_tool.util.frozen import as_dict
from tests.conftest import Capture
from tests.formats.object_files import make_elf
from tests.fuzz.seeds import bundle as bundle_of
from tests.operations.fatbins import HOST, make_bundle

ID = "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "b", {"gfx90a:xnack+": bytes(1234)})


def test_table(bundle: Path, capsys: Capture) -> None:
    """The table names file, target ID, kind, offset, size and share, and the total."""
    assert main(["list", str(bundle)]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "gfx90a" in line)
    assert row.split() == [
        *("gfx90a:xnack+", "hipv4", "amdgcn-amd-amdhsa-", "0x1000", "1,234", "100.0", "%")
    ]
    assert str(bundle) in printed
    assert "1 device image, 1,234 bytes" in printed
    assert not any(line.endswith(" ") for line in printed.splitlines())


def test_table_without_rich(bundle: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rich, as in a copy of the package in a project, one line says so; JSON works."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["list", str(bundle)]) == 1
    assert "tables need the package 'rich'; install it, or use --json" in capsys.readouterr().err
    assert main(["list", "--json", str(bundle)]) == 0


def test_json(bundle: Path, capsys: Capture) -> None:
    """--json prints a list of objects with the fields of `DeviceImage`, in their order."""
    assert main(["list", "--json", str(bundle), str(bundle)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == json.loads(json.dumps([as_dict(image) for image in list_images(bundle)] * 2))
    assert list(rows[0]) == [*DeviceImage.__match_args__]
    found = {key: rows[0][key] for key in ("file", "id", "offset", "size", "section", "covers")}
    assert list(found.values()) == [str(bundle), ID, 4096, 1234, None, []]


def test_targets(fallbacks: Path, capsys: Capture) -> None:
    """--target lists a device's images with reasons, and which processors generic code covers."""
    assert main(["list", str(fallbacks), "--target", "gfx950"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if " hip" in line)
    assert row.split()[:5] == ["gfx9-4-generic", "gfx942", "gfx950", "hipv4", "amdgcn-amd-amdhsa-"]
    assert row.endswith("gfx950: generic, gfx9-4-generic covers gfx950, of which no image serves")
    assert main(["list", str(fallbacks), "--json", "--target", "gfx950", "--target=gfx90a"]) == 0
    generic, spirv = json.loads(capsys.readouterr().out)
    assert generic["covers"] == ["gfx942", "gfx950"]
    assert [load["rule"] for load in generic["loads"]] == ["generic"]
    assert [(load["device"], load["rule"]) for load in spirv["loads"]] == [("gfx90a", "spirv")]


def test_hostile_id(tmp_path: Path, capsys: Capture) -> None:
    """Control characters in an ID are escaped, and never reach the terminal."""
    evil = b"hip-\x1b[2J-\n-\0-[bold]-\xff"
    path = tmp_path / "evil"
    path.write_bytes(bundle_of({evil: b""}))
    assert main(["list", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b[2J" not in printed
    assert "\\x1b[2J" in printed
    assert "[bold]" in printed
    assert main(["list", "--json", str(path)]) == 0
    (image,) = json.loads(capsys.readouterr().out)
    assert (image["kind"], image["id"]) == ("hip", evil.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["table", "json"])
def test_error(tmp_path: Path, bundle: Path, capsys: Capture, extra: list[str]) -> None:
    """A broken file among several is one line on stderr and status 1; the others are listed."""
    broken = tmp_path / "broken"
    broken.write_bytes(bundle.read_bytes()[:-1])
    assert main(["list", *extra, str(broken), str(bundle)]) == 1
    captured = capsys.readouterr()
    assert "1234" in captured.out.replace(",", "")
    assert captured.err.startswith(f"offload-tool: error: '{broken}', offset 0x20, entry 1")
    assert captured.err.count("\n") == 1
    assert main(["list", *extra, str(broken)]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)  # not even an empty list of JSON


def test_totals(tmp_path: Path, capsys: Capture) -> None:
    """At the end, the images of each target ID are summed over all files, without hosts."""
    first = make_bundle(
        tmp_path / "1", {HOST: b"h" * 99, "gfx906": bytes(100), "gfx90a": bytes(50)}
    )
    second = make_bundle(tmp_path / "2", {"gfx906": bytes(50)})
    assert main(["list", str(first), str(second)]) == 0
    totals = capsys.readouterr().out.partition("per target ID")[2]
    rows = [line.split() for line in totals.splitlines() if "gfx" in line]
    assert rows == [["gfx906", "2", "150", "75.0", "%"], ["gfx90a", "1", "50", "25.0", "%"]]


def test_compressed_sizes(tmp_path: Path, capsys: Capture) -> None:
    path = make_bundle(tmp_path / "b", {"gfx906": bytes(50_000)}, compression=Compression())
    assert main(["list", str(path)]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "gfx906" in line).split()
    assert row[3:] == ["-", "50,000", str(path.stat().st_size), "100.0", "%"]
    assert f"50,000 bytes, {path.stat().st_size} compressed" in printed


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_folder_with_broken_compressed_bundles(tmp_path: Path, method: Method) -> None:
    """Each broken bundle of a folder is one line; Python with all warnings enabled adds none."""
    folder = tmp_path / "folder"
    folder.mkdir()
    compression = Compression(method=method)
    good = make_bundle(folder / "good", {"gfx906": bytes(5000)}, compression=compression)
    data = good.read_bytes()
    (folder / "cut").write_bytes(data[:-1])
    (folder / "damaged").write_bytes(data[:-9] + bytes(9))
    command = [sys.executable, "-X", "dev", "-m", "offload_tool", "list", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1 device image, 5,000 bytes" in done.stdout
    assert [line.partition(", offset")[0] for line in done.stderr.splitlines()] == [
        f"offload-tool: error: '{folder / name}'" for name in ("cut", "damaged")
    ]


def test_memory_of_a_large_library(tmp_path: Path) -> None:
    """4000 fat binaries in 192 MB are listed as JSON within 100 MB, mapped pages included."""
    ptx = b".version 7.0\n.target sm_80\n.address_size 64\n"
    fatbin = b"".join(plan_cuda_fatbin([NewCudaEntry("sm_80", ptx)]).chunks())
    library = tmp_path / "library.so"
    library.write_bytes(make_elf(extra={b".nv_fatbin": fatbin * 4000}))
    with library.open("r+b") as file:
        file.truncate(192 << 20)
    program = (
        "import sys; from offload_tool.cli import main; main(sys.argv[1:]); sys.stdout.flush();"
        "print(*(line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line),"
        "file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "list", "--json", library]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = json.loads(done.stdout)
    assert (len(rows), rows[-1]["index"], rows[-1]["target_id"]) == (4000, 3999, "compute_80")
    assert done.stdout == json.dumps(rows, indent=2) + "\n"
    assert int(done.stderr) < 100_000_000 >> 10
