"""The table of the default set is of tests that there are."""

from __future__ import annotations

from tests.selection import chosen, without_tests

TESTS = [
    "tests/scons/test_rebuild_table.py::test_page[nothing-HIP]",
    "tests/scons/test_rebuild_table.py::test_page[nothing-CUDA]",
    "tests/scons/test_new.py::test_new",
    *(f"tests/cli/test_new.py::test_new[{number}]" for number in range(9)),
    *(f"tests/site/test_new.py::test_new[{number}]" for number in range(9)),
    "tests/io/test_files.py::test_new",
    "tests/io/test_files.py::test_comparing_takes_no_memory_for_the_content",
]


def test_chosen() -> None:
    """A pattern chooses tests of its files, a number bounds cases; slow tests are left out."""
    assert chosen(TESTS) == {
        "tests/scons/test_rebuild_table.py::test_page[nothing-HIP]",
        *(f"tests/cli/test_new.py::test_new[{number}]" for number in range(2)),
        *(f"tests/site/test_new.py::test_new[{number}]" for number in range(9)),
        "tests/io/test_files.py::test_new",
    }


def test_rule_without_tests() -> None:
    gone = without_tests(TESTS)
    assert "tests/scons/test_rdc.py" in gone
    assert "tests/scons/test_rebuild_table.py::test_table_is_complete" in gone
    assert "tests/scons/test_rebuild_table.py::*-HIP]" not in gone
    assert "tests/cli/*" not in gone
