"""Answers about the machine hold where they were given: one spelling may mean another thing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload_tool.clang.driver import QueryResult
from offload_tool.clang.environment import folder_key
from offload_tool.passes import capability_check
from offload_tool.passes.capability_check import Job
from offload_tool.toolchain import disk_cache
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.memoize import memoized


def test_folder_and_path_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arguments are asked once in one folder with one PATH, and again elsewhere."""
    asked: list[str] = []

    @memoized(8)
    def find(name: str) -> str:
        asked.append(name)
        return str(Path(name).resolve())

    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert {find("x"), find("x")} == {str(tmp_path / "x")}
    monkeypatch.chdir(tmp_path / "b")
    assert find("x") == str(tmp_path / "b/x")
    monkeypatch.setenv("PATH", "/nowhere")
    find("x")
    assert asked == ["x"] * 3
    find.cache_clear()
    find("x")
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("word", "is_meant"),
    [
        ("--rocm-path=rocm", True),
        ("rocm/bin", True),
        ("-isysrootrocm", True),
        ("--rocm-path=other", False),
        ("--rocm-path={folder}/rocm", False),
        ("rocm", False),
        ("-stdlib=libc++", False),
    ],
)
def test_words_that_mean_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, *, is_meant: bool
) -> None:
    """A word is about the folder of the process if it names, relatively, something there."""
    (tmp_path / "rocm/bin").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    expected = [str(tmp_path)] if is_meant else []
    assert folder_key(["clang", word.format(folder=tmp_path)]) == expected


def test_kept_answers_of_relative_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept on disk of a relative flag is not the answer in another folder."""
    monkeypatch.setattr(disk_cache, "cache_folder", lambda: tmp_path)
    asked: list[str] = []

    def query(args: list[str], _environment: object) -> QueryResult:
        asked.append(json.dumps(args))
        return QueryResult(0, "", "")

    monkeypatch.setattr(capability_check, "query", query)
    monkeypatch.setattr(capability_check, "query_plan", query)
    for name in ("a", "b"):
        (tmp_path / name / "gcc").mkdir(parents=True)
    job = Job("cuda", ("sm_80",), ("--gcc-toolchain=gcc", "-nogpuinc", "-nogpulib"))
    clang = "/usr/bin/clang"
    toolchain = Toolchain((clang,), (), (), (), (), "22.1.8", "identity", clang, "")
    counts = []
    for name in ("a", "b", "a"):
        monkeypatch.chdir(tmp_path / name)
        job.find_equipment(toolchain, {})
        counts.append(len(asked))
    assert counts[0] < counts[1] == counts[2]
