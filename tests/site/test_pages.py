"""All pages: their links, the rules of prose, the README, and the table of differences."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from offload_tool.cli.llvm.bundler import BUNDLER_COMMAND_LINE
from offload_tool.cli.parser import whole_parser
from tests.conftest import ROOT
from tests.site.conftest import load

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
    for names in re.findall(r"pip install ([^`&;]*?)(?:[`&;]|$)", page.read_text(), re.MULTILINE):
        assert "offload-tool" not in re.sub(r'"offload-tool(\[\w+\])? @ \$CHECKOUT"', "", names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_of_offload_sources(page: Path) -> None:
    """Flags that SCons's own compiler may not know are in no variable that it reads."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"\b(CC|CXX|C|CPP)FLAGS[ =+\[(]+.*-no(gpu|cuda)", text)


# -- the table of differences from LLVM's programs --------------------------------------

DIFFERENCES = ROOT / "docs/differences.md"
NOT_DIFFERENCES = {"test_which_tool_is_meant", "test_llvm_23", "test_modules_of_llvm_23"}
"""In the same parts of the files, but of what is the same, or of LLVM 23."""


def named_tests() -> set[tuple[str, str]]:
    """Return (file, test) of each row."""
    return set(re.findall(r"`([\w/]+\.py)::(\w+)`", DIFFERENCES.read_text()))


def test_differences_name_tests_that_there_are() -> None:
    rows = [line for line in DIFFERENCES.read_text().splitlines() if line.startswith("| ")]
    assert all("::test_" in row or row.endswith("| test |") for row in rows)
    for file, test in named_tests():
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text()


def test_every_difference_is_in_the_table() -> None:
    for file in ("cli/test_bundler.py", "cli/test_packager.py", "cli/test_wrapper.py"):
        text = (ROOT / "tests" / file).read_text()
        part = re.split(r"\n# -+ where we differ.*\n", text)[1]
        found = {*re.findall(r"^def (test_\w+)", part, re.MULTILINE)} - NOT_DIFFERENCES
        assert {(file, test) for test in found} <= named_tests()


# -- the README --------------------------------------------------------------------------

README = (ROOT / "README.md").read_text()


def test_two_commands_do_all_the_set_up() -> None:
    """The first sh block is two lines; each sets up an environment of its own and uses it."""
    block = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert block
    main_job, tests = block[1].splitlines()
    for line in (main_job, tests):
        first, install, *rest = [shlex.split(part) for part in line.split(" && ")]
        assert first == ["python3", "-m", "venv", ".venv"]
        assert install[:2] == [".venv/bin/pip", "install"]
        assert rest
    assert main_job.endswith(".venv/bin/offload-tool list build/saxpy/saxpy")
    assert tests.endswith(".venv/bin/pytest")


def test_one_version() -> None:
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert f"offload-tool bundler {version[1]} " in BUNDLER_COMMAND_LINE.version


def test_every_command_is_in_the_table() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    rows = "\n".join(re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE))
    shown = whole_parser().format_help().partition("  COMMAND\n")[2]
    commands = re.findall(r"^    (\w+)(?: |$)", shown, re.MULTILINE)
    assert len(commands) > 15
    assert [name for name in commands if not re.search(rf"`{name}\b", rows)] == []


# -- the rules of prose that a program can check, for pages and docstrings ------------------

LONGEST = 35
"""Words of a sentence; semicolons and colons end none."""
MARKER = load("reference").MARKER
PRIVATE = re.compile(r"(Give|Tell|Say|Let)s?\b")
NOT_PROSE = re.compile(
    r"```.*?```|^\|.*?$|^ {4,}.*?$|^#+ .*?$|^={4,}.*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[str, str]]:
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
