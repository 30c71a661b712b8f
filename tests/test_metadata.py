"""What pyproject.toml says of the package is true, and the same everywhere."""

from __future__ import annotations

import re

import pytest

from offload_tool.formats import FORMAT_VERSION
from offload_tool.passes.choose_compiler import _GET_EMBEDDED
from tests.conftest import ROOT

tomllib = pytest.importorskip("tomllib")  # since Python 3.11
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
POLICY = (ROOT / "docs/versioning.md").read_text()


def test_pythons() -> None:
    """The classifiers name each Python from the oldest that is allowed on, as the policy does."""
    found = re.search(r"^\| Python \| 3\.(\d+) to 3\.(\d+) \|$", POLICY, re.MULTILINE)
    assert found
    oldest, newest = map(int, found.groups())
    assert PROJECT["requires-python"] == f">=3.{oldest}"
    versions = [c for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.", c)]
    assert versions == [
        f"Programming Language :: Python :: 3.{minor}" for minor in range(oldest, newest + 1)
    ]


def test_scons() -> None:
    assert "scons>=4.6,<5" in PROJECT["dependencies"]
    assert "| SCons | 4.6 and later, before 5;" in POLICY


def test_version() -> None:
    """The changelog has a section of this version; the policy names its file."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## .*\b{re.escape(PROJECT['version'])}\b", changelog, re.MULTILINE)


def test_format_version() -> None:
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert f"`FORMAT_VERSION` is {FORMAT_VERSION}." in newest


def test_embedded_compiler() -> None:
    """What messages say to install is the version of the extra."""
    (wanted,) = PROJECT["optional-dependencies"]["embedded"]
    found = re.search(r"'ziglang==0\.(\d+)\.\*'", _GET_EMBEDDED)
    assert found
    assert wanted == f"ziglang>=0.{found[1]},<0.{int(found[1]) + 1}"
