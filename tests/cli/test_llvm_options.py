"""Command lines are parsed, rejected and explained as by LLVM's own tools."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_tool.clang.response_file import expand_response_files
from offload_tool.cli.llvm.bundler import BUNDLER_COMMAND_LINE, run_bundler
from offload_tool.cli.llvm.option_parser import CommandLine, ParsingEnded, Values, parse
from offload_tool.cli.llvm.packager import PACKAGER_COMMAND_LINE
from offload_tool.cli.llvm.wrapper import WRAPPER_COMMAND_LINE
from offload_tool.errors import UsageError
from tests.conftest import Capture, Tool

TOOL = "/some/where/clang-offload-bundler"

# The bundler's option parser rejects each of these, and `REFUSED_VALUES` behind "-type=o".
REFUSED = [
    *("", "foo", "foo bar", "-foo", "--foo", "---", "- -type=o", "'' -type=o", "--", "-- foo"),
    *("-- -type=bc", "-- --", "-- -- -type=bc", "---type=bc", "--typ=bc", "--typ", "-typeo"),
    *("-Type=o", "-type", "-type=o -type", "-type=o -targets", "-input", "-type=o -inputs"),
    *("-type=o -bundle-align", "-type=o -compression-level", "-type=o -list=on -list"),
    *("-type=o -unbundle maybe", "-type=o -unbundle false", "-type=o -bundle-align -1"),
    *("-compression-level -type=bc", "-bundle-align=x -bundle-align=1", "--print-options"),
    *("-h", "-hh=foo", "-type=o --foo -h", "-h0", "-hx=1 -type=o", "-hlist -type=o", "-hhelp"),
    *("-htype=o -type=o", "---h -type=o", "-=foo -type=o", "--=foo", "-foo=bar", "-hel=bar"),
    *("-helpp=bar", "-lst=bar", "-lst=", "-inptu=a,b=c", "--unbundel", "-unbundle1"),
    *("-verbos=1", "--foo --bar -type", "--help-lis", "--print-optionss"),
    "-type=bc b\N{LATIN SMALL LETTER E WITH ACUTE} -tip\N{LATIN SMALL LETTER E WITH ACUTE}",
]
REFUSED_VALUES = {
    "-unbundle": "maybe tRUE true=1 yes 2",
    "-list": "x=y",
    "-###": "foo",
    "-verbose": "-1",
    "-bundle-align": "'' x -1 +1 ' 1' '1 ' 018 08 0x 0xg 0b 0b12 0o 0o8 0O7 0_1 1_000 --1 1.0 "
    f"\N{ARABIC-INDIC DIGIT FOUR} 4294967296 18446744073709551617 {'9' * 5000}",
    "-compression-level": "'' x - +1 --1 2147483648 -2147483649 9223372036854775808",
    "--help": "false ''",
    "--help-hidden": "1",
    "--version": "1",
    "--print-options": "2",
    "-h": "foo",
}

# The option parser accepts each of these; the real tool may reject them later.
ACCEPTED = [
    *("-type=", "-type=bc", "--type=bc", "-type bc", "-type ''", "-type -list"),
    *("-type -- -list", "-type=bc -type=o", "-type=bc --", "-type=bc -unbundle"),
    *("-type=bc -unbundle=", "-type=bc -###", "-type=bc -bundle-align 4294967295"),
    *("-type=bc -compression-level -1", "-type=bc -targets= -targets=a,,b -targets=,"),
    *("-type=bc -input=a,b -input c,d", "-type=bc -inputs=a,b --inputs c,d"),
    "-type=bc -hip-openmp-compatible -allow-missing-bundles -check-input-archive",
    "-type=bc --print-options --print-all-options=1",
]
ACCEPTED_VALUES = {
    **dict.fromkeys(("-unbundle", "-list", "-compress"), "TRUE True true 1 FALSE False false 0"),
    "-verbose": "0 1",
    "-###": "1",
    "-bundle-align": "0 00 0x10 0XfF 0b11 0B11 0o17 017 000000000000000000000000000000000001",
    "-compression-level": "-1 -0x10 -0 2147483647 -2147483648",
    "-h": "false",
    "-hhh": "0",
}

INFORMATION = [
    *("--help", "-help", "--help foo", "--help --foo", "--foo --help", "-type --help --help"),
    *("--bundle-align=x -unbundle=2 foo --help-hidden", "--help-hidden", "--help-list"),
    *("--help-list-hidden -h", "-type=o -h", "-type=o --h", "-type=o -hh", "-type=o -h=0 -h"),
]

# tests/clang/test_response_file.py compares the parsing of files with clang.
RESPONSE_FILES = {
    "plain": b"-type=bc one",
    "quotes": rb"""'a\nb' "a\"b" 'a\'b' a\ b -t'y'pe=bc -"foo"=1 "unterminated """,
    "empty-arguments": b"-type \"\" '' a''b",
    "utf16-odd": b"\xff\xfea\0b",
    "no-text": b"a\xff\xfe -b\xff -typ\xe9=\xff",
    "nested": b"one @sub/more @missing \\@plain '@plain'",
    "sub/more": b"more @plain",
    "itself": b"one @itself",
    "names-folder": b"@sub later",
    "options-end": b"-- foo -type=bc",
    "value-follows": b"-type",
}

WITH_RESPONSE_FILES = [
    *(f"@{name}" for name in RESPONSE_FILES),
    *("@missing", "@@plain", "@plain @plain", "-type @plain", "-- @plain"),
    *("@value-follows @plain", "@sub/../missing"),
    # The response file itself is rejected; the real tool continues without any arguments.
    *("@", "@sub", "@plain/x", "--foo @sub", "--help @sub", "@itself", "@names-folder"),
    "@utf16-odd",
]

OTHER_TOOLS = {
    "llvm-offload-wrapper": WRAPPER_COMMAND_LINE,
    "llvm-offload-binary": PACKAGER_COMMAND_LINE,
}

OTHER_REFUSED = {
    "llvm-offload-wrapper": [
        *("", "-h", "-o", "a", "a -o", "--kind", "--kind= a", "--kind=foo a", "--kind=HIP a"),
        *("--kin=foo", "--kind=hip", "--kind=hip -oX a", "--kind=hip -oX=1 a"),
        *("--kind=hip -o=x -hoy a", "--kind=hip a --trple=", "--kind=hip a --trple=x", "--xh"),
        *("--foo", "-- --kind=hip"),
    ],
    "llvm-offload-binary": [
        *("-o", "a b c", "a -- -b", "--image", "--kind=foo", "--kind=", "--triple=x", "-oX"),
        *("-oX=1", "-hkind", "-hox", "--foo a b", "--archive=maybe"),
    ],
}


def lines(values: Mapping[str, str]) -> list[str]:
    """Return a command line for each value of an option."""
    pairs = ((option, value) for option in values for value in shlex.split(values[option]))
    return [f"-type=o {option}={shlex.quote(value)}" for option, value in pairs]


@dataclass(frozen=True)
class Done:
    """A tool's output in bytes, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


def run(tool: str, arguments: Sequence[str], folder: Path) -> Done:
    done = subprocess.run(
        [tool, *arguments],
        cwd=folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    return Done(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr))


def ended(tool: str, arguments: Sequence[str], command_line: CommandLine) -> ParsingEnded:
    with pytest.raises(ParsingEnded) as caught:
        parse(tool, command_line, arguments)
    return caught.value


def refusal(tool: str, arguments: Sequence[str], command_line: CommandLine) -> str:
    end = ended(tool, arguments, command_line)
    assert not end.text
    return f"{end}\n"


def refused_by_parser(done: Done, tool: str) -> bool:
    """Return parser messages without the tool's own: only they begin with the plain file name."""
    return done.returncode == 1 and done.stderr.startswith(f"{Path(tool).name}: ")


@pytest.mark.llvm
@pytest.mark.parametrize("line", [*REFUSED, *lines(REFUSED_VALUES)])
def test_refused_as_llvm_does(line: str, llvm: Tool, tmp_path: Path) -> None:
    """A wrong command line leads to LLVM's message on standard error, byte for byte."""
    tool = llvm("clang-offload-bundler")
    arguments = shlex.split(line)
    done = run(tool, arguments, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert refusal(tool, arguments, BUNDLER_COMMAND_LINE) == done.stderr


@pytest.mark.llvm
@pytest.mark.parametrize("line", [*ACCEPTED, *lines(ACCEPTED_VALUES)])
def test_accepted_as_llvm_does(line: str, llvm: Tool, tmp_path: Path) -> None:
    """Arguments that LLVM's parser accepts are accepted; later checks report their errors."""
    tool = llvm("clang-offload-bundler")
    done = run(tool, shlex.split(line), tmp_path)
    assert not refused_by_parser(done, tool), done.stderr
    assert isinstance(parse(tool, BUNDLER_COMMAND_LINE, shlex.split(line)), Values)


@pytest.mark.llvm
@pytest.mark.parametrize("line", INFORMATION)
def test_help_as_llvm_gives_it(line: str, llvm: Tool, tmp_path: Path, capfd: Capture) -> None:
    """Help texts are equal byte for byte, and so is the preceding text on standard error."""
    tool = llvm("clang-offload-bundler")
    done = run(tool, shlex.split(line), tmp_path)
    status = run_bundler(tool, shlex.split(line), {})
    output = capfd.readouterr()
    assert Done(status, output.out, output.err) == done
    assert status == 0


@pytest.fixture
def response_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sub").mkdir()
    for name, content in RESPONSE_FILES.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.llvm
@pytest.mark.parametrize("line", WITH_RESPONSE_FILES)
def test_response_files_as_llvm_reads_them(line: str, llvm: Tool, response_files: Path) -> None:
    """Response files are expanded as by LLVM: quoting, nesting, encodings, missing files.

    A broken one leads to LLVM's message; unlike LLVM, nothing runs after it.
    """
    tool = llvm("clang-offload-bundler")
    arguments = [*shlex.split(line), "--end", "--end"]  # always has an error
    done = run(tool, arguments, response_files)
    if refused_by_parser(done, tool):
        assert refusal(tool, arguments, BUNDLER_COMMAND_LINE) == done.stderr
    else:
        broken = refusal(tool, arguments, BUNDLER_COMMAND_LINE)
        assert f"{broken}{tool}: error: no output file specified!\n" == done.stderr


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, table in OTHER_REFUSED.items() for line in table]
)
def test_other_tools_refuse(name: str, line: str, llvm: Tool, tmp_path: Path) -> None:
    """Enums, positional arguments and one-letter options with values are rejected as by LLVM."""
    tool = llvm(name)
    done = run(tool, shlex.split(line), tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert refusal(tool, shlex.split(line), OTHER_TOOLS[name]) == done.stderr


@pytest.mark.llvm
@pytest.mark.parametrize("option", ["--help", "--help-hidden", "--help-list", "--help-list-hidden"])
@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_other_tools_help(name: str, option: str, llvm: Tool, tmp_path: Path) -> None:
    """The layout of help texts is right for enums, short options and positional arguments."""
    tool = llvm(name)
    end = ended(tool, [option], OTHER_TOOLS[name])
    assert (end.lines, end.text) == ((), run(tool, [option], tmp_path).stdout)


def misspelled(names: Sequence[str], generator: random.Random) -> str:
    """Return two halves of names, joined and often mistyped, or random letters."""
    if generator.random() < 0.3:
        return "".join(generator.choices("abcdeilmnoprstuv-#h=", k=generator.randint(1, 24)))
    first, second = generator.sample(names, 2)
    word = first[: generator.randint(0, len(first))] + second[generator.randint(0, len(second)) :]
    if word and generator.random() < 0.5:
        at = generator.randrange(len(word))
        word = word[:at] + generator.choice("abcxyz") + word[at + 1 :]
    return word + generator.choice(["", "", "", "=x"])


@pytest.mark.llvm
@pytest.mark.parametrize("name", ["clang-offload-bundler", *OTHER_TOOLS])
def test_suggestions(name: str, llvm: Tool, tmp_path: Path) -> None:
    """The suggestion for any misspelling is LLVM's, even if two options are equally near."""
    tool = llvm(name)
    command_line = {**OTHER_TOOLS, "clang-offload-bundler": BUNDLER_COMMAND_LINE}[name]
    known = ["h", *(option.name for option in command_line.options)]
    known += ["help", "help-hidden", "help-list", "help-list-hidden", "version"]
    known += ["print-options", "print-all-options"]
    generator = random.Random(22)
    args = [f"--{misspelled(known, generator)}" for _ in range(1500)]
    exact = {f"--{option}" for option in (*known, "")}
    args = [word for word in args if word.split("=")[0] not in exact]
    assert len(args) > 1200
    done = run(tool, args, tmp_path)
    assert refusal(tool, args, command_line) == done.stderr


FRAGMENTS = [
    *("-type=o", "--type", "-list", "--list=0", "-unbundle=2", "-bundle-align", "0x10", "-1"),
    *("-targets=a,b", "-input", "--inputs=x,", "-", "--", "", "foo", "-foo=1", "-h", "-hh=0"),
    *("-hq", "--compression-level=-3", "-verbose=False", "--help=1", "--lits", "-###", "@none"),
]


@pytest.mark.llvm
@settings(max_examples=80)
@given(arguments=st.lists(st.sampled_from(FRAGMENTS), max_size=6))
def test_combinations(
    arguments: list[str], llvm: Tool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any combination of arguments is accepted or rejected as by LLVM, with the same message."""
    tool = llvm("clang-offload-bundler")
    done = run(tool, arguments, tmp_path_factory.getbasetemp())
    if refused_by_parser(done, tool):
        assert refusal(tool, arguments, BUNDLER_COMMAND_LINE) == done.stderr
    else:
        try:
            wants_help = parse(tool, BUNDLER_COMMAND_LINE, arguments).flag("h")
        except ParsingEnded as end:
            wants_help = bool(end.text)
        assert wants_help == (done.returncode == 0)


def test_bundler_arguments() -> None:
    """Each option's value is returned, in order; the two spellings of inputs stay separate."""
    line = (
        "-type=bc -type o -targets=a,b --targets c, -input=x,y -input - -inputs=p,q "
        "-output=m,n -list=0 -list -bundle-align=4096 -compress=false -compression-level=-0x3 -###"
    )
    values = parse(TOOL, BUNDLER_COMMAND_LINE, line.split())
    assert values.text("type") == "o"
    assert values.texts("targets") == ("a", "b", "c", "")
    assert (values.texts("input"), values.texts("inputs")) == (("x,y", "-"), ("p", "q"))
    assert values.texts("output") == ("m,n",)
    assert values.flag("list")
    assert values.flag("###")
    assert not values.flag("compress", default=True)
    assert values.number("bundle-align", 1) == 4096
    assert values.number("compression-level", None) == -3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0", 0), ("00", 0), ("017", 15), ("0o17", 15), ("0x1F", 31), ("0XfF", 255)),
        *(("0b101", 5), ("0B1", 1), ("4294967295", 2**32 - 1), ("0" * 200 + "1", 1)),
    ],
)
def test_integers(text: str, value: int) -> None:
    """Integers are decimal, hexadecimal, octal or binary, by their prefix."""
    read = parse(TOOL, BUNDLER_COMMAND_LINE, ["-type=o", f"-bundle-align={text}"])
    assert read.number("bundle-align", 1) == value


def test_enums_and_positionals() -> None:
    """Choices, one-letter options and positional arguments are parsed; after --, all are inputs."""
    values = parse(
        "wrapper", WRAPPER_COMMAND_LINE, ["a", "-o", "out", "--kind=cuda", "-", "--", "-o", "--"]
    )
    assert values.positionals == ["a", "-", "-o", "--"]
    assert values.text("o") == "out"
    assert values.text("kind") == "cuda"
    assert values.text("triple") is None


def test_long_chain_of_response_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Response files may nest deeper than Python's recursion limit."""
    monkeypatch.chdir(tmp_path)
    for number in range(1200):
        (tmp_path / str(number)).write_text(f"@{number + 1} {number}")
    expected = [f"@{1200}", *(str(number) for number in reversed(range(1200)))]
    assert expand_response_files(["@0"]) == expected


@given(content=st.binary(max_size=60))
def test_any_response_file(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A file with any content leads to arguments without NULs, or to one of our errors."""
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) and len(content) % 2:
        with pytest.raises(UsageError, match="Could not convert UTF16"):
            expand_response_files([f"@{path}"])
    else:
        with suppress(UsageError):
            assert not any("\0" in word for word in expand_response_files([f"@{path}"]))


@given(
    arguments=st.lists(
        st.sampled_from(FRAGMENTS)
        | st.text(max_size=12).map(lambda text: f"-{text}")
        | st.builds("-{}={}".format, st.sampled_from(["type", "bundle-align", "h"]), st.text()),
        max_size=8,
    )
)
def test_any_arguments(arguments: list[str]) -> None:
    """Any arguments are parsed, answered with a text, or rejected with at least one line."""
    try:
        answer: object = parse("tool", BUNDLER_COMMAND_LINE, arguments)
    except ParsingEnded as end:
        answer = end.lines or end.text
    assert answer
    assert isinstance(answer, (Values, str, tuple))
