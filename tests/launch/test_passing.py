"""What is not split is run as it was given, in our process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool.launch.passthrough import why_args_not_split
from tests.conftest import Tool, run_tool
from tests.launch.compiles import (
    HIP,
    LAUNCH,
    TARGETS,
    ccache,
    environment,
    files,
    in_ways,
    make_project,
    run,
)
from tests.scripts import script

PASSED = [
    ["-c", "plain.cpp"],
    ["-x", "hip", "-E", "s.hip"],
    ["-x", "hip", "-S", "s.hip"],
    ["-x", "hip", "-fsyntax-only", "s.hip"],
    ["-x", "hip", "-c", "-"],
    ["-x", "hip", "--offload-host-only", "-c", "s.hip"],
    ["s.o", "-o", "program"],
    ["--version"],
    [],
]


def echoing(folder: Path) -> Path:
    """Make a compiler that prints its process, its words and its standard input."""
    program = folder / "compiler"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "print(os.getpid(), sys.argv[1:], sys.stdin.read())\nsys.exit(7)\n"
    )
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("words", PASSED, ids=" ".join)
def test_nothing_is_lost(words: list[str], tmp_path: Path) -> None:
    """The compiler gets our process, its words, our standard input, and its status is ours."""
    command = [*LAUNCH, str(echoing(tmp_path)), *words]
    process = subprocess.Popen(
        command,
        env=environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, said = process.communicate("input")
    assert process.returncode == 7
    assert out == f"{process.pid} {words} input\n"
    assert said.startswith("offload-tool launch: passed through: ")


def test_two_dashes(tmp_path: Path) -> None:
    """Two dashes may precede the compiler, as with ``offload-tool compile``."""
    compiler = str(echoing(tmp_path))
    done = run([*LAUNCH, "--", compiler, "-c", "--", "plain.cpp"], tmp_path)
    assert done.returncode == 7
    assert "['-c', '--', 'plain.cpp']" in done.stdout


@pytest.mark.llvm
def test_unknown_plan(tmp_path: Path, llvm: Tool) -> None:
    """Two sources, which nothing but the driver's plan shows here, are the driver's."""
    make_project(tmp_path)
    (tmp_path / "words").write_text("s.hip other.hip")
    (tmp_path / "other.hip").write_bytes((tmp_path / "s.hip").read_bytes())
    words = [llvm("clang++"), *HIP, *TARGETS, "-c", "@words"]
    done = run([*LAUNCH, *words], tmp_path)
    assert done.returncode == 0
    assert "passed through: the driver would write several results" in done.stderr
    found = files(tmp_path)
    run(words, tmp_path)
    assert files(tmp_path) == found


@pytest.mark.llvm
def test_script(tmp_path: Path, llvm: Tool) -> None:
    """A script around clang may do more than to call it, and is called."""
    make_project(tmp_path)
    wrapper = script(tmp_path / "clang++", f'{llvm("clang++")} "$@" && touch done')
    done = run([*LAUNCH, wrapper, *HIP, *TARGETS, "-c", "s.hip"], tmp_path)
    assert (done.returncode, (tmp_path / "done").exists()) == (0, True)
    assert "is a script, which may do more than to call a compiler" in done.stderr


@pytest.mark.llvm
def test_no_compiler(tmp_path: Path) -> None:
    """A compiler that is not there is an error of one line."""
    done = run([*LAUNCH, "no-such-compiler", "-c", "s.hip"], tmp_path)
    assert done.returncode == 1
    assert "error: 'no-such-compiler' cannot be run: No such file" in done.stderr


def test_usage(tmp_path: Path) -> None:
    """Without a compiler there is a line with the usage."""
    done = run(LAUNCH, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: offload-tool launch COMPILER ARGS...\n"


def test_little_is_loaded(tmp_path: Path) -> None:
    """To pass a command through, no module is loaded that takes long."""
    code = (
        "import sys, os; sys.argv[1:] = ['launch', 'c++', '-c', 'a.cpp']\n"
        "os.execvpe = lambda *_: print(*sys.modules)\n"
        "from offload_tool.__main__ import main; main()"
    )
    done = run_tool(sys.executable, "-c", code, env={**os.environ, "OFFLOAD_LAUNCH_VERBOSE": ""})
    loaded = {name for name in done.split() if name.startswith("offload_tool")}
    assert loaded == {
        *("offload_tool", "offload_tool.__main__", "offload_tool.cli"),
        *("offload_tool.cli.launch", "offload_tool.launch", "offload_tool.launch.passthrough"),
        *("offload_tool.clang", "offload_tool.clang.options"),
        *("offload_tool.util", "offload_tool.util.which"),
    }


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
def test_words_that_are_not_in_the_plan(words: list[str], tmp_path: Path, llvm: Tool) -> None:
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
