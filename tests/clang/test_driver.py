"""What clang's driver says it would run, and what of its jobs is not known."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from offload_tool.clang.driver import (
    jobs_of,
    option_values,
    query,
    query_front_end,
    with_terminal_args,
    without_removed,
)
from offload_tool.clang.job_plan import UnknownPlanError, job_in, unknown_arg
from offload_tool.errors import CompilerError
from tests.conftest import Tool, run_tool

COMPILE = (sys.executable, "-m", "offload_tool", "compile")
HIP = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx906", "-nogpulib", "-nogpuinc"]


@pytest.mark.llvm
def test_jobs_of_a_device_compile(llvm: Tool) -> None:
    """The front end's job, the link and the bundler's are told apart, with their options."""
    answer = query([llvm("clang"), *HIP, "-###", "-c", os.devnull])
    jobs = jobs_of(answer)
    assert ["-cc1" in job for job in jobs] == [True, False, False]
    assert list(option_values(jobs[0], "-target-cpu")) == ["gfx906"]
    assert jobs[-1][0].endswith("clang-offload-bundler")


@pytest.mark.llvm
@pytest.mark.parametrize(
    "text",
    [
        "a 'b' \"c\" \\ $d",
        "",
        "\\\\",
        "`x`",
        "é$",
        "\udce9",
        "a\n b\r\nc\\\n",
        '\n "\n',
        "\f\u2028\x85",
    ],
)
def test_words_are_as_they_were_given(text: str, llvm: Tool) -> None:
    """Whatever is in it, a word of the command is a word of the job."""
    macro = f"TEXT={text}"
    command = [llvm("clang"), *HIP, f"-D{macro}", "-DBEHIND", "-c"]
    (job,) = query_front_end(command, dict(os.environ)).jobs
    assert list(option_values(job, "-D")) == [macro, "BEHIND"]


def test_nothing_stays_of_a_driver_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver makes the temporary files that it names; they are gone however it ends."""
    program = tmp_path / "clang"
    program.write_text('#!/bin/sh\n: >"$TMPDIR/a-1b2c3d.o"\necho "$TMPDIR" >&2\nkill -9 $$\n')
    program.chmod(0o700)
    temporaries = tmp_path / "temporaries"
    temporaries.mkdir()
    variables = {**os.environ, "TMPDIR": str(temporaries)}
    answer = query([str(program), "-###"], variables)
    assert (answer.status, answer.errors) == (-9, f"{answer.folder}\n")
    assert Path(answer.folder).parent == temporaries
    assert list(temporaries.iterdir()) == []
    monkeypatch.setattr("offload_tool.io.temporary_directory.temporary_folder", _no_folder)
    assert query([str(program), "-###"], variables).folder == str(temporaries)


def _no_folder(*_: object) -> NoReturn:
    raise PermissionError


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CompilerError, match=r"^/none/clang cannot be run: "):
        query(["/none/clang", "--version"])
    assert query_front_end(["/none/clang"], {}).jobs == ()


def test_why_a_program_failed() -> None:
    """The last line of what it said; its status where it said nothing."""
    output = query([sys.executable, "-c", "import sys; sys.exit('first\\nlast')"])
    assert (output.status, output.reason) == (1, "last")
    assert query([sys.executable, "-c", "raise SystemExit(3)"]).reason == "exit status 3"
    raw = query([sys.executable, "-c", "import os; os.write(2, b'no \\xff'); raise SystemExit(1)"])
    assert (raw.errors, raw.reason) == ("no \udcff", "no \ufffd")


def test_removed_words() -> None:
    """Words by which the driver removes files go with their values; a missing file is a word."""
    args = ["c", "-MJ", "a.json", "-O1", "-MJb.json", "--serialize-diagnostics", "d", "-MD", "@no"]
    assert without_removed(args) == ["c", "-O1", "-MD", "@no"]
    assert without_removed(["c", "-O1", "@no"]) == ["c", "-O1", "@no"]


def test_removed_words_of_a_response_file(tmp_path: Path) -> None:
    """Words in a response file count, too."""
    (tmp_path / "words").write_text("-g -MJ a.json -O1")
    assert without_removed(["c", f"@{tmp_path}/words", "-w"]) == ["c", "-g", "-O1", "-w"]


@pytest.mark.llvm
@pytest.mark.parametrize("args", [["-MJ", "report"], ["--serialize-diagnostics", "report"]])
def test_question(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm: Tool
) -> None:
    """A question lets a report be."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report").write_text("written")
    assert query_front_end([llvm("clang"), "-c", "-x", "c", *args], dict(os.environ)).jobs
    assert (tmp_path / "report").exists()


@pytest.mark.llvm
@pytest.mark.parametrize(
    "args", [["-MJ", "report"], ["-MJreport"], ["-serialize-diagnostics", "report"], ["@words"]]
)
def test_report_of_a_compile(args: list[str], tmp_path: Path, llvm: Tool) -> None:
    """It is there after the first compile, for which the driver is asked, and after the second."""
    (tmp_path / "s.hip").write_text("__attribute__((global)) void kernel() {}\n")
    (tmp_path / "words").write_text("-MJ report")
    command = [*COMPILE, "s.hip", "-o", "k.o", "--target-id", "gfx906", "--depfile", "k.d"]
    command += ["--", "-nogpuinc", "-nogpulib", *args]
    for _ in range(2):
        run_tool(*command, cwd=tmp_path, env={**os.environ, "OFFLOAD_CLANG": llvm("clang")})
        (tmp_path / "report").unlink()


@pytest.mark.parametrize(
    "args",
    [
        ("-mllvm", "-print-after-all"),
        ("-mllvm=-print-after-all",),
        ("-plugin-opt=-print-after-all",),
        ("--plugin-opt=-stats",),
    ],
)
def test_options_of_llvm_that_write(args: tuple[str, ...]) -> None:
    """An option of LLVM's that makes each pass write or print something is rejected."""
    with pytest.raises(UnknownPlanError, match="lets LLVM write or say more"):
        job_in(["/x/lld", "-flavor", "gnu", *args, "-o", "out"])


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-mllvm", "-anything", "-z", "-L"), ""),
        (("-z", "-L", "-lfoo"), "-lfoo"),
        (("-mllvm", "-include", "--reproduce=x"), "--reproduce=x"),
    ],
)
def test_values_that_look_like_options(args: tuple[str, ...], expected: str) -> None:
    """A value of an option hides no option behind it."""
    assert unknown_arg(args) == expected


@pytest.mark.parametrize(
    "compiler", ["cc", "/x/amdclang++", "ccache clang++", "py -m ziglang clang"]
)
def test_colours_at_a_terminal(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option stands behind the compiler, before the user's, which override it."""
    monkeypatch.setattr(os, "isatty", lambda _: True)
    words = compiler.split()
    expected = [*words, "-fcolor-diagnostics", "-fno-color-diagnostics", "a.c"]
    assert with_terminal_args([*words, *expected[-2:]], {"TERM": "xterm"}) == expected
