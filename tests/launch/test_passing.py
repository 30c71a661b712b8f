"""What is not split is run as it was given, in our process; and a link called ``hipcc`` to us."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from offload_tool.launch.passthrough import find_hipcc, why_args_not_split
from offload_tool.launch.query_plan import PassedThroughError, find_plan
from offload_tool.launch.scheduler import Queries
from tests.conftest import ROOT, Tool, program, run_tool, try_tool
from tests.launch.compiles import (
    CUID,
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
    out, messages = process.communicate("input")
    assert process.returncode == 7
    assert out == f"{process.pid} {words} input\n"
    assert messages.startswith("offload-tool launch: passed through: ")


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
    args = [llvm("clang++"), *HIP, *TARGETS, "-c", "@words"]
    done = run([*LAUNCH, *args], tmp_path)
    assert done.returncode == 0
    assert "passed through: the driver would write several results" in done.stderr
    found = files(tmp_path)
    run(args, tmp_path)
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
    # With a folder of PATH that the user may not enter, it might be there.
    done = run([*LAUNCH, "no-such-compiler", "-c", "s.hip"], tmp_path, {"PATH": os.defpath})
    assert done.returncode == 1
    assert "error: 'no-such-compiler' cannot be run: No such file" in done.stderr


@pytest.mark.llvm
def test_removed_folder(tmp_path: Path, llvm: Tool) -> None:
    """Without a current folder, the driver compiles what it can."""
    make_project(tmp_path)
    files = ["-c", f"{tmp_path}/s.hip", "-o", f"{tmp_path}/s.o"]
    enter = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    command = ["sh", "-c", enter, "-", *LAUNCH, llvm("clang++"), *HIP, *TARGETS, *files]
    done = run(command, tmp_path)
    assert done.returncode == 0
    assert "passed through: '.': the current folder was removed" in done.stderr
    assert "report it" not in done.stderr


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


@pytest.mark.parametrize(
    "word",
    ["/dev/stdin", "@/dev/fd/63", "-include/dev/stdin", "-MJa.json", "-Eonly", "-ast-dump=json"],
)
def test_words_that_pass(word: str) -> None:
    """Open files, the driver's own reports and other jobs are no matter of a plan's jobs."""
    assert word in why_args_not_split(["-c", word])


_JOBS = """ "clang" "-cc1" "-triple" "amdgcn-amd-amdhsa" "-o" "f/image" "s.hip"
 "clang" "-cc1" "-record-command-line" "clang -###" "-embed" "f/image" "-o" "s.o" "s.hip"
"""


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("Configuration file: clang.cfg", "'more.cfg': '-MJ' asks for something else"),
        (_JOBS, "the output contains the command as the driver gets it"),
    ],
)
def test_words_of_the_driver_itself(
    plan: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configuration files that the driver finds have the same effect as arguments."""
    monkeypatch.chdir(tmp_path)
    Path("clang.cfg").write_text("@more.cfg")
    Path("more.cfg").write_text("-MJ x.json # a report")
    Path("clang").touch(mode=0o755)
    queries = Queries("f", cast("Any", None), {})
    monkeypatch.setattr(queries, "run", lambda _: [plan])
    with pytest.raises(PassedThroughError, match=reason):
        find_plan(["./clang", "-c", "s.hip"], {}, queries)


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


def call(path: list[Path], args: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``hipcc`` with these folders as PATH, and those of the system."""
    folders = [*map(str, path), "/usr/bin", "/bin"]
    more = {"PATH": ":".join(folders), "PYTHONPATH": str(ROOT), "HIP_PATH": "", "ROCM_PATH": ""}
    return try_tool("hipcc", *args, cwd=folder, env=environment(more), timeout=60)


@pytest.fixture
def folders(tmp_path: Path, llvm: Tool) -> list[Path]:
    """Return two folders with our link, as of two environments, and one with the real hipcc."""
    made = [tmp_path / name for name in ("ours", "other", "real")]
    for folder in made:
        folder.mkdir()
        (folder / "hipcc").symlink_to(program("offload-tool"))
    (tmp_path / "real/hipcc").unlink()
    # hipcc replaces its own option by clang's, and adds some.
    change = 'shift; [ "$a" = --genco ] && a=--offload-device-only; set -- "$@" "$a"'
    compile_it = f'exec {llvm("clang++")} -x hip -nogpuinc -nogpulib -DADDED=1 "$@"'
    script(tmp_path / "real/hipcc", f"for a; do {change}; done\n{compile_it}")
    make_project(tmp_path)
    source = f"#ifndef ADDED\n#error\n#endif\n{(tmp_path / 's.hip').read_text()}"
    (tmp_path / "s.cpp").write_text(source)
    return made


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("words", "passes"),
    [("-c s.cpp", "gfx90a:xnack+ and the host"), ("--genco s.cpp", "gfx90a:xnack+; at once")],
)
def test_first_on_path(words: str, passes: str, folders: list[Path], tmp_path: Path) -> None:
    """The real hipcc further on is asked, with what it adds; C++ sources are HIP sources.

    ``--genco`` for several targets is split into a pass for each, and gives the same bundle.
    """
    command = [CUID, *TARGETS, *words.split(), "-o", "s.o"]
    assert call(folders[2:], command, tmp_path).returncode == 0
    expected = (tmp_path / "s.o").read_bytes()
    (tmp_path / "s.o").unlink()
    done = call(folders, command, tmp_path)
    assert (done.returncode, (tmp_path / "s.o").read_bytes()) == (0, expected), done.stderr
    assert f"launch: split: gfx906, {passes}" in done.stderr


def test_no_other(tmp_path: Path) -> None:
    """Where there is no other one, an error says so, and nothing is called in a circle."""
    if shutil.which("hipcc"):
        pytest.skip("there is one")
    (tmp_path / "hipcc").symlink_to(program("offload-tool"))
    done = call([tmp_path], ["-c", "s.hip"], tmp_path)
    assert done.returncode == 1
    assert "PATH has no other hipcc" in done.stderr


def test_where_rocm_is(tmp_path: Path) -> None:
    """Behind PATH, the real hipcc is looked for in $HIP_PATH, then in $ROCM_PATH."""
    for name in ("first", "hip", "rocm"):
        (tmp_path / name / "bin").mkdir(parents=True)
    ours = tmp_path / "first/hipcc"
    ours.symlink_to(program("offload-tool"))
    for name in ("hip", "rocm"):
        script(tmp_path / name / "bin/hipcc", "")
    environ = {"PATH": str(tmp_path / "first"), "ROCM_PATH": str(tmp_path / "rocm")}
    assert find_hipcc(str(ours), environ) == f"{tmp_path}/rocm/bin/hipcc"
    environ["HIP_PATH"] = str(tmp_path / "hip")
    assert find_hipcc(str(ours), environ) == f"{tmp_path}/hip/bin/hipcc"
    (tmp_path / "hip/bin/hipcc").chmod(0o644)
    assert find_hipcc(str(ours), environ) == f"{tmp_path}/rocm/bin/hipcc"
