"""Commands run without a shell, however long they are."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import SCons.Errors
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.scons.spawn import command_spawn, shortened, split_args
from tests.scons.conftest import Project

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
SHOW = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]


@given(st.lists(WORDS, min_size=1))
def test_quoted_words_come_back(words: list[str]) -> None:
    """What SCons quotes comes back as it was, whatever it holds."""
    assert split_args([shlex.quote(word) for word in words]) == words


@pytest.mark.parametrize(
    "word", ["`id`", "-I$(pwd)", "$HOME/include", "-D${X}", "|", ";", "&&", ">", "2>&1"]
)
def test_what_only_a_shell_can_do(word: str) -> None:
    """An expansion or operator of shells is refused by name, and not passed on."""
    with pytest.raises(SCons.Errors.BuildError) as caught:
        split_args(["clang", word, "a.hip"])
    assert repr(word) in str(caught.value.errstr)
    assert "without a shell" in caught.value.errstr


def test_quote_that_is_not_closed() -> None:
    """A quote that is not closed is an error that shows the command."""
    with pytest.raises(SCons.Errors.BuildError) as caught:
        split_args(["clang", "-DX='1"])
    assert "clang -DX='1" in caught.value.errstr


def test_short_command() -> None:
    """A command that the system takes is run as it is."""
    with shortened(["clang", "-c", "a.hip"], 1) as short:
        assert short == ["clang", "-c", "a.hip"]


@given(st.lists(WORDS, max_size=5))
def test_long_command(words: list[str]) -> None:
    """A response file holds each word of a command that is too long, as LLVM reads it."""
    long = "-D" + "x" * 130_000
    with shortened(["lld", "-flavor", "gnu", long, *words], 3) as short:
        assert short[:3] == ["lld", "-flavor", "gnu"]
        text = Path(short[3].removeprefix("@")).read_bytes().decode()
        assert text == "".join(
            '"{}"\n'.format(word.replace("\\", "\\\\").replace('"', '\\"'))
            for word in (long, *words)
        )


def test_program_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that cannot be run is named, and fails as in a shell."""
    assert command_spawn(["/nowhere"])("sh", None, "x", ["/nowhere", "a"], {}) == 127
    assert "'/nowhere' cannot be run: No such file" in capsys.readouterr().err


def test_status_of_a_program() -> None:
    """The exit status is the program's."""
    words = [shlex.quote(word) for word in (sys.executable, "-c", "raise SystemExit(3)")]
    assert command_spawn(words[:1])("sh", None, "x", words, {}) == 3
    assert subprocess.run(SHOW, check=True, capture_output=True).stdout == b"[]\n"


def test_command_of_more_than_128_kib(project: Project) -> None:
    """A word of 130,000 bytes, and 1.2 MB of options, reach the compiler."""
    project.write(
        "k.hip", "#ifndef LAST\n#error\n#endif\n" + (project.folder / "k.hip").read_text()
    )
    project.sconstruct(
        "env['CPPDEFINES'] = {'VALUE': 1, 'LONG': 'x' * 130000}\n"
        "env.Append(CPPDEFINES=['V%d_%s' % (i, 'y' * 1000) for i in range(1100)] + ['LAST'])\n"
        "env['OFFLOAD_LAUNCHER'] = ''\n"
        "env.OffloadBundle('k.hipfb', 'k.hip')\nenv.OffloadHostObject('k.hip')\n"
    )
    assert project.run().status == 0
    project.assert_up_to_date()
