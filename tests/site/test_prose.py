"""The rules of prose that a program can check, for pages and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.conftest import ROOT
from tests.site.conftest import load

LONGEST = 35
"""Words of a sentence; semicolons and colons end none."""
MARKER = load("reference").MARKER
PRIVATE = re.compile(r"(Give|Tell|Say|Let)s?\b")
NOT_PROSE = re.compile(
    r"```.*?```|^\|.*?$|^ {4,}.*?$|^#+ .*?$|^={4,}.*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield each docstring of the package, with its place."""
    for path in (ROOT / "offload_tool").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text


def too_long(text: str) -> list[str]:
    """Return the sentences of a text that have more words than `LONGEST`."""
    prose = NOT_PROSE.sub("\n\n", text)
    prose = re.sub(r"^\s*[-*] |:(?:raises|param)[^:]*:|::\n", "\n\n", prose, flags=re.MULTILINE)
    blocks = re.split(r"\n\s*\n", prose)
    sentences = (s for block in blocks for s in re.split(r"[.!?][)*`]*\s", block))
    return [" ".join(s.split()) for s in sentences if len(s.split()) > LONGEST]


def test_sentences_of_pages() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    # The generated parts are docstrings, help texts and messages.
    found = {page.name: too_long(page.read_text().partition(MARKER)[0]) for page in pages}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_sentences_of_docstrings() -> None:
    found = {place: too_long(text) for place, text in docstrings()}
    assert {place: texts for place, texts in found.items() if texts} == {}


def test_first_words_of_docstrings() -> None:
    """Functions return, check, raise or write; they do not give, tell, say or let."""
    assert [place for place, text in docstrings() if PRIVATE.match(text)] == []
