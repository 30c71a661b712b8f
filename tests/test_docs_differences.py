"""The table of differences from LLVM's programs: each row has a test, each such test a row."""

from __future__ import annotations

import re

from tests.conftest import ROOT

PAGE = ROOT / "docs/differences.md"
NOT_DIFFERENCES = {
    *("test_called_by_llvms_name", "test_called_by_llvms_names", "test_called_by_name"),
    *("test_which_tool_is_meant", "test_llvm_23", "test_modules_of_llvm_23"),
}
"""In the same parts of the files, but of what is the same, or of LLVM 23."""


def named_tests() -> set[tuple[str, str]]:
    """Return (file, test) of each row."""
    return set(re.findall(r"`(cli/\w+\.py)::(\w+)`", PAGE.read_text()))


def test_rows_name_tests_that_there_are() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert all("::test_" in row or row.endswith("| test |") for row in rows)
    for file, test in named_tests():
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text()


def test_every_difference_is_in_the_table() -> None:
    for file in ("cli/test_bundler.py", "cli/test_packager.py", "cli/test_wrapper.py"):
        text = (ROOT / "tests" / file).read_text()
        part = re.split(r"\n# -+ where we differ.*\n", text)[1]
        found = {(file, test) for test in re.findall(r"^def (test_\w+)", part, re.MULTILINE)}
        shown = {row for row in found if row[1] not in NOT_DIFFERENCES}
        assert shown == {row for row in named_tests() if row[0] == file}
