"""Response files and configuration files, beside what clang 22 makes of each."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool.clang.argument_files import all_args, possible_files
from offload_tool.clang.driver import QueryResult, job_args
from offload_tool.clang.response_file import configuration_args, expand_command
from offload_tool.errors import UsageError
from offload_tool.toolchain.identity import all_configuration_files
from tests.conftest import Tool, try_tool

READ = {
    "plain": b"-DA=1 two\tthree\rfour\nfive\r\nsix",
    "empty": b"",
    "blanks-only": b" \t\r\n\n",
    "other-blanks": b"a\x0bb a\x0cb \xc2\xa0",
    "double-quotes": rb'"a b" "c\"d" "e\\f" "g\h" "$i" i"j k"l',
    "single-quotes": rb"'a b' 'c\'d' 'e\\f' 'g\h' 'i" + b"\"' j'k l'm \"n'\"",
    "empty-quotes": b"a \"\" '' b''c",
    "backslashes": rb"a\ b \c \\d \"e \'f",
    "backslash-line": b"a\\\nb c\\\r\nd",
    "line-in-quotes": b"'a\nb' \"c\r\nd\"",
    "open-double": b'a "b c ',
    "open-single": b"a 'b c\n",
    "backslash-at-end": b"a b\\",
    "backslash-at-end-of-quote": b'a "b\\',
    "comment": b"# a\n-DB=2 // c",
    "variables": b"$HOME ~ * {a,b} %TEMP% `c`",
    "nul": b"a\0b c 'd\0e' f",
    "utf8-mark": b"\xef\xbb\xbf-DA=1 \xc3\xa9",
    "utf8-mark-later": b"a\n\xef\xbb\xbfb",
    "utf16-le": "\ufeff-DA=1 '\xe9 \U0001f600'".encode("utf-16-le"),
    "utf16-be": "\ufeff-DA=1 '\xe9 \U0001f600'".encode("utf-16-be"),
    "utf16-mark-only": b"\xff\xfe",
    "no-text": b"a\xff\xfe \xe9 b",
    "nested": b"before @plain @sub/more @missing after",
    "nested-quoted": rb"'@plain' @\plain \@plain ",
    "nested-empty": b"a @empty b",
    "sub/more": b"more @plain '@sub/plain'",
    "sub/plain": b"of-folder",
    "twice": b"@plain @plain",
    "long": b"a " + b" " * (3 << 20) + b"@plain",
}
REFUSED = {
    "itself": b"one @itself",
    "each-other": b"@sub/back",
    "sub/back": b"@./each-other",
    "names-folder": b"a @sub",
    "names-below-file": b"@plain/x",
    "utf16-odd": b"\xff\xfea\0b",
    "utf16-surrogate": b"\xff\xfe\x00\xd8a\x00",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with all files of both tables."""
    (tmp_path / "sub").mkdir()
    for name, content in {**READ, **REFUSED, "t.c": b""}.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(clang: str, args: Sequence[str]) -> QueryResult:
    """Let the driver say what it would do for some words."""
    command = [clang, "-###", "-frecord-command-line", "-c", "t.c", *args]
    done = subprocess.run(command, capture_output=True)
    return QueryResult(done.returncode, "", os.fsdecode(done.stderr))


def recorded(answer: QueryResult) -> list[str]:
    """Return the words after "t.c" that the driver has taken, as it notes them in an object."""
    line = next(line for line in answer.errors.split("\n ") if '"-cc1"' in line)
    args = job_args(line)
    text = args[args.index("-record-command-line") + 1]
    split = [re.sub(r"(?s)\\(.)", r"\1", found) for found in re.findall(r"(?:\\.|[^ \\])+", text)]
    return split[split.index("t.c") + 1 :]


def as_noted(args: Sequence[str]) -> list[str]:
    """Return words as the driver notes them: it parts macros from their option."""
    parts = (["-D", word[2:]] if word.startswith("-D") else [word] for word in args)
    return [part for found in parts for part in found]


@pytest.mark.llvm
@pytest.mark.parametrize("name", READ)
def test_words_are_those_of_clang(name: str, folder: Path, llvm: Tool) -> None:
    """Each file gives the words that clang's driver has taken from it."""
    expansion = expand_command([f"@{name}"])
    assert as_noted(expansion.args) == recorded(asked(llvm("clang"), [f"@{name}"]))
    assert expansion.files[0] == name


@pytest.mark.llvm
@pytest.mark.parametrize("name", [*REFUSED, "", "sub", "plain/x"])
def test_refused_as_by_clang(name: str, folder: Path, llvm: Tool) -> None:
    """A file that clang refuses is refused in clang's words."""
    with pytest.raises(UsageError) as caught:
        expand_command([f"@{name}"])
    assert asked(llvm("clang"), [f"@{name}"]).errors.splitlines()[0] == str(caught.value)


@pytest.mark.parametrize("quoting", ["--rsp-quoting=windows", "--driver-mode=cl"])
def test_quoting_of_windows(quoting: str, folder: Path) -> None:
    """Another quoting is refused by name, for a command that has a response file."""
    assert expand_command([quoting]).args == (quoting,)
    with pytest.raises(UsageError, match=quoting):
        expand_command([quoting, "@plain"])


def test_pipe(folder: Path) -> None:
    """A pipe can be read once, by the compiler: it is not opened."""
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match="'@pipe' is a FIFO; expected a regular file"):
        all_args(["@pipe"])
    assert all_args(["@/dev/null"]) == ()


def test_files_are_named(folder: Path) -> None:
    """Every response file that a command reads is among the files that it names."""
    assert {"nested", "plain", "sub/more", "sub/plain"} <= {*possible_files(["@nested"])}


def test_changed_file_is_read_again(folder: Path) -> None:
    """Another content of the same size and time gives other words."""
    for content in ("-DA=11", "-DA=22"):
        (folder / "plain").write_text(content)
        os.utime("plain", (1, 1))
        assert all_args(["@plain"]) == (content,)


CONFIGURATIONS = {
    "comments": b"# -DNO\n  # -DNO \\\n-DA=1 # -DB=2\n#\n\n",
    "continued": b"-DA=\\\n1 -DB=2 \\\r\n -DC=\\3\n-DD=4\\",
    "quotes": b"'-DA=b c' \"-DB=d \\\n e\" -DC=f\\ g",
    "marked": "\ufeff-DA=1 -DB=2".encode("utf-16"),
    "including": b"-DA=1 # @sub.cfg/part\n@<CFGDIR>/other\n--config=./third",
}


@pytest.mark.llvm
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configuration_files(name: str, tmp_path: Path, llvm: Tool) -> None:
    """Configuration files, with those that they include, give clang's macros, in order."""
    (tmp_path / "sub.cfg").mkdir()
    for file, content in CONFIGURATIONS.items():
        (tmp_path / file).write_bytes(content)
    for file in ("sub.cfg/part", "other", "third"):
        (tmp_path / file).write_text(f"-DI={file}")
    command = [llvm("clang"), f"--config={tmp_path}/{name}", "-###", "-c", "-x", "c", os.devnull]
    done = try_tool(*command)
    args = job_args(next(line for line in done.stderr.split("\n ") if '"-cc1"' in line))
    macros = [args[at + 1] for at, word in enumerate(args) if word == "-D"]
    found = [
        word.removeprefix("-D")
        for file in all_configuration_files([f"{tmp_path}/{name}"])
        for word in configuration_args(file)
        if word.startswith("-D")
    ]
    assert macros
    assert found == macros
