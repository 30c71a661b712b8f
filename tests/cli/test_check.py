"""The user interface of ``offload-tool check``, and its rule file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.cli.check import read_rules
from offload_tool.errors import UsageError
from offload_tool.operations.check import Rule
from offload_tool.operations.match import Device
from tests.conftest import ROOT, Capture
from tests.operations.fatbins import make_bundle
from tests.operations.test_check import code


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a folder ``lib`` of two libraries."""
    (tmp_path / "lib").mkdir()
    make_bundle(tmp_path / "lib/a.so", {"gfx906": code("k"), "gfx90a": code("k", "more")})
    make_bundle(tmp_path / "lib/b.so", {"gfx906": code("k")})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_lines(here: Path, capsys: Capture) -> None:
    """A fault is a line; targets may be given together, separately, and with blanks."""
    assert main(["check", "lib", "--targets", "gfx906,gfx90a", "--same-kernels"]) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        "lib/a.so: bundle 0: gfx906 has no kernel 'more', which another target has",
        "lib/b.so: no image for gfx90a; there are gfx906",
    ]
    assert output.err == ""
    assert main(["check", "lib", "--targets", "gfx906, gfx906", "--targets=gfx906"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["check", "lib", "--max-size", "1G", "--no-spills"]) == 0


def test_wrong_words(here: Path, capsys: Capture) -> None:
    assert main(["check", "lib", "--targets", "gfx906:wrong+"]) == 1
    assert "wrong" in capsys.readouterr().err
    for nothing in ("", " , "):
        assert main(["check", "lib", "--targets", nothing]) == 1
        assert f"expected target IDs with commas, found {nothing!r}" in capsys.readouterr().err
    assert main(["check", "lib", "--max-size", "big"]) == 1
    assert "--max-size: expected a number or a size such as 512M" in capsys.readouterr().err


def test_rules(here: Path, capsys: Capture) -> None:
    """Each rule applies to the libraries that it names; options are one rule for all."""
    Path("rules").write_text(
        '[[rule]]\npaths = ["a.so"]\ntargets = ["gfx90a"]\n'
        '[[rule]]\npaths = ["b.so", "c.so"]\nmax-size = 1\n'
    )
    assert main(["check", "lib", "--rules", "rules"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert re.fullmatch("lib/b.so: device images take [0-9]+ bytes, more than 1", line)
    assert main(["check", "lib", "--rules", "rules", "--targets", "gfx906,gfx942"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 3
    Path("more").write_text('[[rule]]\npaths = ["*"]\n')
    assert main(["check", "lib", "--rules", "rules", "--rules", "more"]) == 1
    assert capsys.readouterr().out.splitlines() == [line]


def test_example(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "checking.md").read_text()
    (tmp_path / "r").write_text(text.partition("```toml\n")[2].partition("```")[0])
    gfx90a, gfx942 = map(Device.parse, ("gfx90a", "gfx942"))
    paths = ("lib/libmath.so", "kernels/*.hsaco")
    assert read_rules(tmp_path / "r") == [
        Rule(paths, (gfx90a, gfx942), same_kernels=True, no_spills=True, max_size=50 << 20),
        Rule(("*.so",), (gfx942,)),
    ]


WRONG = {
    "": "expected tables .*, found nothing",
    "a = ": "expected TOML: ",
    "\xff": "expected TOML: ",
    "rule = 1": "expected tables .*, found rule",
    "rule = []": "expected tables .*, found rule",
    "rule = [1]": "expected a table, found 1",
    "[[rule]]\n[other]": "expected tables .*, found rule, other",
    "[[rule]]": "expected paths, a list of patterns",
    '[[rule]]\npaths = "x"': "expected a list of strings for paths, found 'x'",
    '[[rule]]\npaths = ["x"]\n[[rule]]\npath = ["y"]': "expected the keys .*, found path",
    '[[rule]]\npaths = ["x"]\ntargets = [1]': "expected a list of strings for targets",
    '[[rule]]\npaths = ["x"]\ntargets = ["gfx906:no+"]': ".*no",
    '[[rule]]\npaths = ["x"]\nno-spills = 1': "expected true or false for no-spills, found 1",
    '[[rule]]\npaths = ["x"]\nmax-size = "big"': "max-size: expected a number or a size",
    '[[rule]]\npaths = ["x"]\nmax-size = -1': "expected a number of bytes, or '50M'",
    '[[rule]]\npaths = ["x"]\nmax-size = true': "expected a number of bytes, or '50M'",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_rules(text: str, tmp_path: Path) -> None:
    """An invalid rule is an error that names the file, and the rule by its number."""
    path = tmp_path / "r"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=f"^'{path}'[,:] .*{WRONG[text]}"):
        read_rules(path)
