"""Words that are not in the driver's plan, where they stand: in response files, attached, last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.launch.passthrough import why_args_not_split
from tests.launch.compiles import HIP, LAUNCH, TARGETS, ccache, in_ways, make_project

COMPILE = ("-c", "s.hip", "-o", "s.o")


@pytest.mark.parametrize("word", ["/dev/stdin", "@/dev/fd/63", "-include/dev/stdin", "-MJa.json"])
def test_words_that_pass(word: str) -> None:
    """Files that are open already, and the driver's own reports, are no matter of jobs."""
    assert word in why_args_not_split(["-c", word])


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

    def prepare(place: Path) -> None:
        make_project(place)
        (place / "reports").write_text("@more")
        (place / "more").write_text("-MJ s.json")
        (place / "records").write_text("-frecord-command-line")

    with_input = ("sh", "-c", '"$@" < value.h > printed', "sh")
    ways = (with_input, (*with_input, *LAUNCH), (*with_input, *LAUNCH))
    command = [llvm("clang++"), *HIP, *TARGETS, *words]
    results = []
    for each in in_ways(tmp_path, command, prepare, ccache(tmp_path / "cache"), ways):
        made = each.files
        results.append((each.status, set(made), made["printed"] == b"", made.get("s.o")))
    assert results[1:] == [results[0], results[0]]
