"""The user interface of ``offload-tool diff``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.formats.kernel import Kernel
from tests.cli.conftest import schema_judge
from tests.conftest import Capture
from tests.operations.fatbins import make_bundle
from tests.operations.test_diff import code


@pytest.fixture
def builds(tmp_path: Path) -> list[str]:
    """Return two files: a kernel that needs more, a removed one, and a new target."""
    old = make_bundle(tmp_path / "1", {"gfx906": code(a=8, b=8)})
    new = make_bundle(tmp_path / "2", {"gfx906": code(a=1200), "gfx90a": code(a=8)})
    return [str(old), str(new)]


def test_tables(builds: list[str], capsys: Capture) -> None:
    """Targets come first, then kernels; for two files, there is no column for libraries."""
    assert main(["diff", *builds]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gfx90a", "added", "-", "to", "1", "-", "to", "1", "0", "+0"] in lines
    assert ["gfx906", "changed", "vgprs", "8", "to", "1,200", "a"] in lines
    assert ["gfx906", "removed", "b"] in lines
    assert not any("library" in line for line in lines)
    assert main(["diff", builds[0], builds[0]]) == 0
    assert capsys.readouterr().out == "nothing changed\n"


def test_json(builds: list[str], capsys: Capture) -> None:
    judge = schema_judge("diff", "--schema")
    assert judge.schema["$defs"]["kernel"]["required"] == list(Kernel._fields)
    assert main(["diff", "--json", *builds]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [error.message for error in judge.iter_errors(found)] == []
    assert [(row["change"], row["target"]) for row in found["targets"]] == [("added", "gfx90a")]
    assert [row["change"] for row in found["kernels"]] == ["changed", "removed"]
    assert found["kernels"][0]["after"]["vgprs"] == 1200
    assert found["kernels"][1]["after"] is None
    assert not judge.is_valid(found | {"more": 1})
    assert main(["diff", "--json", builds[0], builds[0]]) == 0
    assert json.loads(capsys.readouterr().out) == {"targets": [], "kernels": []}


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", ""])
def test_no_percent(text: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diff", f"--tolerance={text}", "a", "b"])
    assert ended.value.code == 2
    assert f"expected percent, such as 2.5, found '{text}'" in capsys.readouterr().err
