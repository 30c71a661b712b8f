"""The version of the bytes that this package writes."""

from __future__ import annotations

from offload_tool.formats import FORMAT_VERSION
from tests.conftest import ROOT


def test_changelog_names_the_version() -> None:
    """Users read in the changelog when all bundles are made again."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"`FORMAT_VERSION` is {FORMAT_VERSION}." in text
