"""What clang's driver says it would run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from offload_tool.clang.driver import ask, front_end_jobs, jobs_of, option_values
from offload_tool.errors import CompilerError

HIP = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx906", "-nogpulib", "-nogpuinc"]


@pytest.mark.llvm
def test_jobs_of_a_device_compile(llvm: Callable[[str], str]) -> None:
    """The front end's job, the link and the bundler's are told apart, with their options."""
    answer = ask([llvm("clang"), *HIP, "-###", "-c", os.devnull])
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
def test_words_are_as_they_were_given(text: str, llvm: Callable[[str], str]) -> None:
    """Whatever is in it, a word of the command is a word of the job."""
    macro = f"TEXT={text}"
    command = [llvm("clang"), *HIP, f"-D{macro}", "-DBEHIND", "-c"]
    (job,) = front_end_jobs(command, dict(os.environ))
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
    answer = ask([str(program), "-###"], variables)
    assert (answer.status, answer.errors) == (-9, f"{answer.folder}\n")
    assert Path(answer.folder).parent == temporaries
    assert list(temporaries.iterdir()) == []
    monkeypatch.setattr("offload_tool.io.temporary_directory.temporary_folder", _no_folder)
    assert ask([str(program), "-###"], variables).folder == str(temporaries)


def _no_folder(*_: object) -> NoReturn:
    raise PermissionError


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CompilerError, match=r"^/none/clang cannot be run: "):
        ask(["/none/clang", "--version"])
    assert front_end_jobs(["/none/clang"], {}) == ()


def test_why_a_program_failed() -> None:
    """The last line of what it said; its status where it said nothing."""
    said = ask([sys.executable, "-c", "import sys; sys.exit('first\\nlast')"])
    assert (said.status, said.reason) == (1, "last")
    assert ask([sys.executable, "-c", "raise SystemExit(3)"]).reason == "exit status 3"
    raw = ask([sys.executable, "-c", "import os; os.write(2, b'no \\xff'); raise SystemExit(1)"])
    assert (raw.errors, raw.reason) == ("no \udcff", "no \ufffd")
