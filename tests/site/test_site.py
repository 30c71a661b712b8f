"""The site that .ci/run has built, in the folder OFFLOAD_SITE: links and anchors."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import ROOT

SITE = Path(os.environ.get("OFFLOAD_SITE", ""))
pytestmark = pytest.mark.skipif(
    "OFFLOAD_SITE" not in os.environ, reason="OFFLOAD_SITE names no folder with the built site"
)


class Page(HTMLParser):
    """What a page links to and loads, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id":
                self.anchors.append(value or "")
            elif tag == "a" and name == "href":
                self.links.append(value or "")
            elif name in {"href", "src"}:
                self.loaded.append(value or "")


@pytest.fixture(scope="module")
def pages() -> dict[Path, Page]:
    found = {path.resolve(): Page(path) for path in SITE.rglob("*.html")}
    assert found
    return found


def test_links(pages: dict[Path, Page]) -> None:
    """Every link within the site leads to a page, and to an anchor that is on it."""
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", f"{path.name}: {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.name}: {link}"
            if parts.fragment:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"
                checked += 1
    assert checked > 100


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    """Scripts, styles and pictures are files of the site."""
    for path, page in pages.items():
        for link in page.loaded:
            parts = urlsplit(link)
            assert not parts.scheme, f"{path.name}: {link}"
            assert not parts.netloc, f"{path.name}: {link}"
            assert not parts.path or (path.parent / unquote(parts.path)).is_file(), link


def test_anchors_are_one_each(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        twice = {anchor for anchor in page.anchors if page.anchors.count(anchor) > 1}
        assert not twice, path.name


def test_every_page_can_be_reached(pages: dict[Path, Page]) -> None:
    """Each page of docs/ is in the site, and in the table of contents of the first page."""
    docs = ROOT / "docs"
    wanted = {str(path.relative_to(docs).with_suffix(".html")) for path in docs.rglob("*.md")}
    first = pages[(SITE / "index.html").resolve()]
    assert wanted <= {urlsplit(link).path for link in first.links} | {"index.html"}
    assert wanted <= {str(path.relative_to(SITE.resolve())) for path in pages}
