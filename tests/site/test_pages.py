"""What the README and all pages have in common, as they are read in the repository."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
WORDS = 20
"""A page has at least so many, beside its blocks."""


@cache
def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: those of its headings, and the ones that it writes."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
    return slugs | {*re.findall(r'<a id="(.*?)"', prose(page))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    """Each link leads to a file that is there; to a page with text, and to an anchor on it."""
    for link in re.findall(r'\]\(([^)\s]+)\)|href="(.*?)"', prose(page)):
        address = urlsplit("".join(link))
        if address.scheme:
            continue
        target = (page.parent / address.path).resolve() if address.path else page
        assert target.exists(), link
        if target.suffix == ".md":
            assert len(re.findall(r"\w{2,}", prose(target))) >= WORDS, link
            assert not address.fragment or address.fragment in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_installing(page: Path) -> None:
    """The package is on no index: pages install a checkout, `-e .` or that of `$CHECKOUT`."""
    for words in re.findall(r"pip install ([^`&;]*?)(?:[`&;]|$)", page.read_text(), re.MULTILINE):
        assert "offload-tool" not in re.sub(r'"offload-tool(\[\w+\])? @ \$CHECKOUT"', "", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_of_offload_sources(page: Path) -> None:
    """Flags that SCons's own compiler may not know are in no variable that it reads."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"\b(CC|CXX|C|CPP)FLAGS[ =+\[(]+.*-no(gpu|cuda)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_marks_of_merges(page: Path) -> None:
    """A page has no lines that Git wrote for a conflict."""
    assert not re.search(r"^(<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)
