"""What `benchmarks.replay` reads of a history, and how it compares objects: no test measures."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.project_copy import code_of
from benchmarks.replay import History
from tests.conftest import Tool, run_tool

SOURCE = """\
extern int hidden(const char *);
static const char *names[] = {"one", "two"};
int used(int n) { return hidden(names[n]) + hidden("three"); }
double half(double x) { return x * 0.375; }
"""


def git(folder: Path, *args: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    run_tool("git", *identity, "-C", str(folder), *args)


@pytest.fixture(params=["", "ggml/"])
def clone(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a repository of ggml, or of llama.cpp; its third commit touches no device code."""
    git(tmp_path, "init", "clone")
    folder = tmp_path / "clone"
    states = (
        {"src/ggml-cuda/a.cu": "1", "include/ggml.h": "1", "README": "1"},
        {"src/ggml-cuda/a.cu": "2", "src/ggml-cuda/b.cu": "2"},
        {"include/ggml.h": "3", "src/ggml-cpu/c.c": "3"},
        {"src/ggml-cuda/a.cu": "4", "src/ggml-cuda/b.cu": ""},
    )
    for number, files in enumerate(states, start=1):
        for name, text in files.items():
            path = folder / f"{request.param}{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if not text:
                path.unlink()
        git(folder, "add", "-A")
        git(folder, "commit", "-m", f"change {number}")
    return folder


def test_history(clone: Path, tmp_path: Path) -> None:
    """Commits of device code come with all changes of copied files since the one before."""
    history = History(clone, Namespace())
    first, *commits = history.commits(2)
    assert [history.title(each).split(" ", 1)[1] for each in commits] == ["change 2", "change 4"]
    history.unpack(first, tmp_path / "first")
    assert (tmp_path / "first/src/ggml-cuda/a.cu").read_text() == "1"
    assert dict(history.changes(first, commits[0])) == {
        "src/ggml-cuda/a.cu": b"2",
        "src/ggml-cuda/b.cu": b"2",
    }
    assert dict(history.changes(*commits)) == {
        "include/ggml.h": b"3",
        "src/ggml-cpu/c.c": b"3",
        "src/ggml-cuda/a.cu": b"4",
        "src/ggml-cuda/b.cu": None,
    }


def test_options(clone: Path) -> None:
    """Options replace what is known of a project."""
    given = Namespace(code="include", sources=["x/y.hip", "clamp"], copied=None)
    history = History(clone, given)
    _, *commits = history.commits(2)
    assert [history.title(each).split(" ", 1)[1] for each in commits] == ["change 1", "change 3"]
    assert history.project.copied == ("include", "src")
    paths = [*map(history.project.path, history.project.sources)]
    assert paths == ["x/y.hip", "src/ggml-cuda/clamp.cu"]


@pytest.mark.llvm
def test_code_of(tmp_path: Path, llvm: Tool) -> None:
    """A relocatable link changes nothing; other code, data or callees do."""

    def compiled(text: str) -> object:
        source, made, linked = (tmp_path / name for name in ("a.c", "a.o", "linked.o"))
        source.write_text(text)
        command = [llvm("clang"), "-O2", "-fPIC", "-c", source, "-o", made]
        run_tool(*command)
        run_tool(llvm("ld.lld"), "-r", "-O2", made, "-o", linked)
        assert code_of(made) == code_of(linked)
        return code_of(made)

    plain = compiled(SOURCE)
    assert compiled(f"// a comment\n{SOURCE}") == plain
    for old, new in (
        ("two", "twa"),
        ("0.375", "0.875"),
        ("hidden(", "visible("),
        ("[n]", "[n + 1]"),
    ):
        assert compiled(SOURCE.replace(old, new)) != plain
