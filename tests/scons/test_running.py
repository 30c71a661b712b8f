"""How commands run: by a shell where they must, and the user's actions as without this tool."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import SCons.Errors
from hypothesis import given, settings
from hypothesis import strategies as st
from SCons.Platform.posix import subprocess_spawn

from offload_tool.scons.spawn import command_spawn, pass_spawn, shortened
from offload_tool.util.shell_words import NeedsShellError, shell_words
from tests.conftest import run_tool, try_tool
from tests.scons.conftest import ALL, BODY, KERNEL, ONE, Project, checkout, contents, passes
from tests.scons.judging import own_clang

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(WORDS, min_size=1))
def test_quoted_words_come_back(args: list[str]) -> None:
    """What SCons quotes comes back as it was, whatever it holds."""
    assert shell_words(" ".join(map(shlex.quote, args))) == args


PIECES = ["a", "\\", "$", "'", '"', " ", "\n", "-D=", "${a}", "`", "~", "#", ":", "é"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_words_of_a_shell(pieces: list[str]) -> None:
    """A line is split as a shell splits it, or is left to the shell."""
    line = f"x{''.join(pieces)}"
    script = ["sh", "-c", f"printf '%s\\0' {line.rstrip()}"]
    done = subprocess.run(script, capture_output=True, check=False)
    try:
        args = shell_words(line.rstrip())
    except (NeedsShellError, ValueError):
        return
    if not {"\n", "#"} & {*pieces}:  # there, the shell begins another command, or a comment
        assert (done.stdout.decode().split("\0")[:-1], done.stderr) == (args, b"")


@pytest.mark.parametrize(
    "word",
    ["`id`", "-I$(pwd)", "$HOME/include", "-D${X}", "|", ";", "&&", ">", "2>&1", '"$HOME"', "~/a"],
)
def test_what_only_a_shell_can_do(word: str) -> None:
    """An expansion or operator of shells in a pass is refused by name, and not passed on."""
    with pytest.raises(SCons.Errors.BuildError) as caught:
        pass_spawn(lambda *_: 0)("sh", None, "clang", ["clang", word, "a.hip"], {})
    assert word.strip('"') in str(caught.value.errstr)
    assert "without a shell" in caught.value.errstr


def test_quote_that_is_not_closed() -> None:
    """A quote that is not closed is an error that shows the command."""
    with pytest.raises(SCons.Errors.BuildError) as caught:
        pass_spawn(lambda *_: 0)("sh", None, "clang", ["clang", "-DX='1"], {})
    assert "clang -DX='1" in caught.value.errstr


@given(st.lists(WORDS, max_size=5))
def test_long_command(args: list[str]) -> None:
    """A response file holds each word of a command that is too long, as LLVM reads it."""
    long = "-D" + "x" * 130_000
    with shortened(["lld", "-flavor", "gnu", long, *args], 3) as short:
        assert short[:3] == ["lld", "-flavor", "gnu"]
        text = Path(short[3].removeprefix("@")).read_bytes().decode()
        assert text == "".join(
            '"{}"\n'.format(word.replace("\\", "\\\\").replace('"', '\\"'))
            for word in (long, *args)
        )


def test_program_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that cannot be run is named, and fails as in a shell."""
    assert (
        command_spawn(["/nowhere"], subprocess_spawn)("sh", None, "x", ["/nowhere", "a"], {}) == 127
    )
    assert "'/nowhere' cannot be run: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams(project: Project, closed: str) -> None:
    """A build that prints warnings and lines succeeds; none of them gets into a file."""
    project.write("k.hip", f"#warning text\n{KERNEL}")
    project.sconstruct("env['OFFLOAD_LAUNCHER'] = ''\nenv.OffloadBundle('k.hip')\n")
    line = f"exec {sys.executable} -m SCons -Q {closed}"
    done = try_tool("sh", "-c", line, cwd=project.folder, env=project.environment)
    assert (done.returncode, project.run("-q").status) == (0, 0), done.stdout + done.stderr


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


ORIGINS = (
    *("env.Literal('\\\\$$ORIGIN/lib')", "r'\\$$ORIGIN/lib'", "'\\'$$ORIGIN/lib\\''"),
    *("r'\"\\$$ORIGIN/lib\"'", "env.Literal(r'\\$$ORIGIN/lib')", "r'\\$$ORIGIN/a b'"),
)


def test_paths_from_the_program(project: Project) -> None:
    """Each way to write $ORIGIN that SCons's own Program accepts gives the same run path."""
    for name in ("main.c", "own.c"):
        project.write(name, "int main(void) { return 0; }\n")
    ways = {f"RPATH=[{origin}]" for origin in ORIGINS}
    ways |= {f"LINKFLAGS=['-Wl,-rpath,' + {origin}]" for origin in ORIGINS[1:4]}
    ways.add("LINKFLAGS=['-Wl,-rpath,`echo /a`']")
    calls = "".join(
        f"env.OffloadProgram('ours{n}', 'main.c', {way})\nenv.Program('own{n}', 'own.o', {way})\n"
        for n, way in enumerate(sorted(ways))
    )
    project.sconstruct(f"env.Object('own.c')\n{calls}").build()
    for n, way in enumerate(sorted(ways)):
        ours, own = (run_path(project.folder / f"{name}{n}") for name in ("ours", "own"))
        assert ours == own, way


def run_path(program: Path) -> str:
    """Return the run path in a program."""
    dynamic = run_tool("readelf", "-d", program)
    return next((x.split("[")[1] for x in dynamic.splitlines() if "PATH" in x), "")


OBJECTS = "made = env.OffloadDeviceObject('k.hip') + env.OffloadHostObject('k.hip')\n"
MADE = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.host.o"]


def test_post_actions(project: Project) -> None:
    """A pass's output is what the user's action has made of it: once, for the cache, too."""
    project.write("k.hip", f'#include "h.h"\n{BODY}')
    project.write("h.h", ONE)
    more = "env.AddPostAction(made, 'echo more >> $TARGET && true')\n"
    project.sconstruct(f"env.CacheDir('../cache')\n{OBJECTS}{more}")
    assert project.build_once() == ALL
    assert all(data.count(b"more\n") == 1 for data in contents(project.folder, MADE).values())
    before = contents(project.folder, MADE)
    project.write("h.h", f"{ONE}// more\n")  # the same bitcode
    assert project.build_once() == ALL
    assert contents(project.folder, MADE) == before
    again = checkout(project, project.folder.parent / "again")
    assert again.build() == []
    assert contents(again.folder, MADE) == before


def test_post_action_that_fails(project: Project) -> None:
    """A compile whose post-action failed is repeated."""
    project.sconstruct(f"{OBJECTS}env.AddPostAction(made[0], 'test -e now')\n")
    project.fails()
    project.fails()
    project.write("now", "")
    assert passes("k.hip", "gfx906")[0] in project.build_once()


BUNDLES = """\
env.Replace(OFFLOAD_LAUNCHER='', OFFLOAD_DIRECT={})
for name in 'abcd': env.OffloadBundle(f'{{name}}.hip')
env.OffloadCompilationDatabase()
"""


@pytest.mark.llvm
def test_without_the_driver(project: Project) -> None:
    """OFFLOAD_DIRECT changes no output and command; neither way rebuilds what the other made."""
    own_clang()
    for name in "abcd":
        project.write(f"{name}.hip", KERNEL.replace("kernel", name))
    project.sconstruct(BUNDLES.format(False)).build()
    names = [file.name for file in project.folder.glob("*.co")] + ["compile_commands.json"]
    by_driver = contents(project.folder, names)
    project.sconstruct(BUNDLES.format(True)).assert_up_to_date()
    project.build("-c")
    project.build("-j2")
    assert contents(project.folder, names) == by_driver
    project.assert_up_to_date()
    project.sconstruct(BUNDLES.format(False)).assert_up_to_date()


UNUSED = "-fno-plt -fstack-clash-protection -mtune=native -Xarch_gfx906 -DX"
HOST_ALONE = "-Xarch_host -fsanitize=address"


def test_flags_that_one_side_uses(project: Project) -> None:
    """A flag that only some passes use is no error with -Werror; one that none uses fails all."""
    body = f"env.Append(CCFLAGS='-Werror {UNUSED} {HOST_ALONE} $MORE')\n{OBJECTS}"
    assert project.sconstruct(body).build_once() == ALL
    failed = project.sconstruct(f"env['MORE'] = '-lmissing'\n{body}").fails("-k")
    assert failed.errors.count("-lmissing: 'linker' input unused [-Werror,-Wunused") == 3
    warned = project.sconstruct(f"env['MORE'] = '-Wno-error -lmissing'\n{body}").done()
    assert warned.errors.count("warning: -lmissing: 'linker' input unused") == 1
