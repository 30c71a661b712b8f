"""The user interface of ``offload-tool list --kernels``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.formats.kernel import Kernel
from offload_tool.operations.kernel_table import LOCATION_KEYS
from offload_tool.operations.list_images import iter_kernels
from tests.cli.conftest import schema_judge
from tests.conftest import Capture, needs_demangler
from tests.formats.kernel_info.code_objects import KERNEL, code_object, metadata
from tests.fuzz.seeds import HERE
from tests.operations.fatbins import make_bundle

SPILLING = KERNEL | {".name": "_Z1kPi", ".vgpr_spill_count": 7, ".agpr_count": 4}
KEYS = [*LOCATION_KEYS, "kernel", "demangled", *Kernel._fields[1:]]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    images = {
        "gfx906": code_object(metadata([KERNEL])),
        "gfx90a": code_object(metadata([KERNEL, SPILLING])),
    }
    return make_bundle(tmp_path / "b", images)


def test_table(bundle: Path, capsys: Capture) -> None:
    """A row has a kernel's resource needs, waves, and name; columns without values are left out."""
    assert main(["list", "--kernels", str(bundle)]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if "gfx9" in line]
    assert rows == [
        ["gfx906", "12", "20", "64", "16", "64", "256", "10", "k"],
        ["gfx90a", "12", "20", "64", "16", "64", "256", "8", "k"],
        ["gfx90a", "12", "4", "20", "64", "16", "7", "64", "256", "8", "_Z1kPi"],
    ]
    (head,) = (line for line in lines if "VGPRs" in line)
    assert "AGPRs" in head
    assert "SGPR spills" not in head
    assert lines[-1] == "  3 kernels in 2 device images; 1 kernel with spilled registers"


def test_json(bundle: Path, capsys: Capture) -> None:
    """--json has one object for each kernel, with the documented keys, in order."""
    needs_demangler()
    assert main(["list", "--kernels", "--json", "--demangle", str(bundle)]) == 0
    text = capsys.readouterr().out
    rows = json.loads(text)
    assert [list(row) for row in rows] == [KEYS] * 3
    assert text.count("\n") == len(rows) + 2
    kernels = [(each.image, kernel) for each in iter_kernels(bundle) for kernel in each.kernels]
    for row, (image, kernel) in zip(rows, kernels, strict=True):
        expected = [*(getattr(image, key) for key in LOCATION_KEYS), kernel.name]
        assert [row[key] for key in KEYS if key != "demangled"] == [*expected, *kernel[1:]]
    assert [row["demangled"] for row in rows] == ["k", "k", "k(int*)"]
    assert (rows[2]["agprs"], rows[2]["vgpr_spills"], rows[2]["sgpr_spills"]) == (4, 7, None)


def test_schema(bundle: Path, capsys: Capture) -> None:
    """The output conforms to its schema, which has the same keys, and the list's descriptions."""
    needs_demangler()
    judge = schema_judge("list", "--kernels-schema")
    rows, images = judge.schema["items"], schema_judge("list", "--schema").schema["items"]
    assert list(rows["properties"]) == rows["required"] == KEYS
    for key in LOCATION_KEYS:
        assert rows["properties"][key] == images["properties"][key]
    cubin = HERE / "seeds" / "sm_90a.cubin"
    for args in ([bundle], [cubin], [bundle, cubin, "--demangle"]):
        assert main(["list", "--kernels", "--json", *map(str, args)]) == 0
        kernels = json.loads(capsys.readouterr().out)
        assert kernels
        assert [error.message for error in judge.iter_errors(kernels)] == []
        for wrong in ({"more": 1}, {"vgprs": -1}, {"code_size": "1"}, {"kernel": None}):
            assert not judge.is_valid([kernels[0] | wrong]), wrong


def test_no_kernels(tmp_path: Path, capsys: Capture) -> None:
    """An image without kernels is not an error: an empty list, an empty table."""
    path = make_bundle(tmp_path / "b", {"gfx906": code_object(metadata([]))})
    assert main(["list", "--kernels", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["list", "--kernels", str(path)]) == 0
    assert "0 kernels in 1 device image" in capsys.readouterr().out


def test_hostile_name(tmp_path: Path, capsys: Capture) -> None:
    """Control characters in a kernel's name are escaped in tables; JSON has the original name."""
    evil = KERNEL | {".name": "\x1b[2J\n[bold]k"}
    path = make_bundle(tmp_path / "b", {"gfx906": code_object(metadata([evil]))})
    assert main(["list", "--kernels", "--demangle", str(path)]) == 0
    assert "\\x1b[2J\\n[bold]k" in capsys.readouterr().out
    assert main(["list", "--kernels", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["kernel"] == evil[".name"]


def test_demangle_alone(bundle: Path, capsys: Capture) -> None:
    assert main(["list", "--demangle", str(bundle)]) == 1
    assert "give it with --kernels" in capsys.readouterr().err
