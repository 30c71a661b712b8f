"""Words that are not in the driver's plan, where they stand: in response files, attached, last."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from offload_tool.launch.decision import reason_in_words
from offload_tool.launch.given_words import UnreadableWordsError, given_words
from tests.launch.compiles import HIP, LAUNCH, TARGETS, files, make_project, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMPILE = ("-c", "s.hip", "-o", "s.o")


def test_response_files_within_others(tmp_path: Path) -> None:
    """Their words follow their names; carriage returns and quotes are the driver's."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_bytes(b'\xef\xbb\xbf"-DX=a b"\r\n-O1\r\n')
    outer.write_text(f"-g @{inner} @missing")
    found = given_words(["-c", f"@{outer}"])
    assert found == ["-c", f"@{outer}", "-g", f"@{inner}", "-DX=a b", "-O1", "@missing"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe-\0O\0", "is in UTF-16"),
        (b"'open", "No closing quotation"),
        (b"-DX " * (1 << 19), "no small regular file"),
        (b"@words", "too deep"),
    ],
)
def test_not_readable_as_the_driver_does(
    content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is read in another way here says nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").write_bytes(content)
    with pytest.raises(UnreadableWordsError, match=reason):
        given_words(["@words"])


def test_pipes_are_left_to_the_driver(tmp_path: Path) -> None:
    """What can be read once only is not read here."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableWordsError, match="regular file"):
        given_words([f"@{tmp_path}/pipe"])


@pytest.mark.parametrize("word", ["/dev/stdin", "@/dev/fd/63", "-include/dev/stdin", "-MJa.json"])
def test_words_that_pass(word: str) -> None:
    """Files that are open already, and the driver's own reports, are no matter of jobs."""
    assert word in reason_in_words(["-c", word])


@pytest.mark.llvm
@pytest.mark.parametrize(
    "words",
    [
        ["-MJs.json", *COMPILE],
        ["@reports", *COMPILE],
        ["@records", *COMPILE],
        ["-c", "s.hip", "-o-"],
        ["-MD", "-MF-", *COMPILE],
        ["-c", "s.hip", "-o"],
        ["-include", "/dev/stdin", *COMPILE],
        ["-mllvm", "-info-output-file=told", "-mllvm", "-stats", *COMPILE],
        ["-Xclang", "-diagnostic-log-file", "-Xclang", "told", *COMPILE],
        ["-Xoffload-linker", "--dependency-file=told", *COMPILE],
    ],
    ids=" ".join,
)
def test_nothing_is_lost(words: list[str], tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """What the driver would write and print is there, twice with a cache, and its status."""
    results = []
    for launch in ((), LAUNCH, LAUNCH):
        place = tmp_path / "build"
        make_project(place)
        (place / "reports").write_text("@more")
        (place / "more").write_text("-MJ s.json")
        (place / "records").write_text("-frecord-command-line")
        command = [*launch, llvm("clang++"), *HIP, *TARGETS, *words]
        with_input = ["sh", "-c", '"$@" < value.h > printed', "sh", *command]
        done = run(with_input, place, {"OFFLOAD_LAUNCH_CACHE": str(tmp_path / "cache")})
        made = files(place)
        results.append((done.returncode, set(made), made["printed"] == b"", made.get("s.o")))
        place.rename(tmp_path / f"done{len(results)}")
    assert results[1:] == [results[0], results[0]]
