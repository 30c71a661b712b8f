"""Shell completion, by the shells themselves."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool.cli import main
from tests.conftest import missing

LINES = [
    ("ex", {"extract"}, set()),
    ("list --js", {"--json"}, set()),
    ("list --target gfx90", {"gfx908", "gfx90a"}, {"kernels.hipfb"}),
    ("list --ker", {"--kernels", "--kernels-schema"}, {"--json"}),
    ("check --no", {"--no-spills"}, set()),
    ("diff --tol", {"--tolerance"}, set()),
    ("list ker", {"kernels.hipfb"}, set()),
    ("list --json ker", {"kernels.hipfb"}, set()),
    ("extract kernels.hipfb -o fo", {"folder/"}, {"forest.txt"}),
    ("compile --kind o", {"openmp"}, set()),
    ("compile --emit", {"--emit-host-ir"}, set()),
    ("dist i", {"init"}, {"list"}),
    ("dist init --sch", {"--scheduler"}, {"--target"}),
    ("completion f", {"fish"}, set()),
    ("bundler --unb", {"--unbundle"}, set()),
    ("bundler -unb", {"-unbundle"}, set()),
    ("bundler -type hi", {"hipi"}, set()),
    ("bundler -type=hi", {"hipi"}, set()),
    ("bundler -type=bc -input=ker", {"kernels.hipfb"}, set()),
    ("bundler -type=bc -unbundle -outp", {"-output"}, set()),
    ("packager --kind-numbering=llvm", {"llvm22"}, set()),
    ("wrapper --kind=hi", {"hip"}, set()),
    ("wrapper -kind hip ker", {"kernels.hipfb"}, set()),
]
"""What is typed, what must be offered, and what must not."""

BASH = """
source ./script.bash
[[ $(complete -p offload-tool) == *" -F _offload_tool offload-tool" ]] || exit 9
compopt() { :; }  # the shell has it only where a user presses a key
COMP_WORDS=("$@")
COMP_CWORD=$(( $# - 1 ))
_offload_tool offload-tool "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

ZSH = """
zmodload zsh/zpty
zpty shell 'TERM=dumb PS1= zsh -f -i'
zpty -w shell 'unsetopt zle_bracketed_paste prompt_cr; fpath=($PWD/functions $fpath)'
zpty -w shell 'autoload -Uz compinit && compinit -u -d dump; bindkey "^I" complete-word'
zpty -w shell 'compadd() { builtin compadd -O hits "$@"; print -rl -- $hits >>hits'
zpty -w shell 'builtin compadd "$@" }'
zpty -w shell "print -r 're''ady'"
zpty -r shell seen '*ready*' || exit 9
zpty -w -n shell "offload-tool $1"$'\\t'
for tenth in {1..200}; do [[ -s hits ]] && break; sleep 0.1; done  # typed ahead, it offers nothing
zpty -w -n shell $'\\C-u'"print -r 'do''ne'"$'\\n'
zpty -r shell seen '*done*' || exit 9
"""


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    """Return the script of each shell."""
    given = {}
    for shell in ("bash", "fish", "zsh"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(["completion", shell]) == 0
        given[shell] = out.getvalue()
    return given


@pytest.fixture
def folder(tmp_path: Path, scripts: dict[str, str]) -> Path:
    """Return a folder with the scripts and something to complete."""
    for shell, script in scripts.items():
        (tmp_path / f"script.{shell}").write_text(script)
    (tmp_path / "kernels.hipfb").touch()
    (tmp_path / "forest.txt").touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


def found(shell: str) -> str:
    program = shutil.which(shell)
    if program is None:
        missing(shell)
        raise AssertionError  # missing() does not return
    return program


def offered(command: list[str], folder: Path) -> set[str]:
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


def check(given: set[str], wanted: set[str], unwanted: set[str]) -> None:
    with_folders = given | {f"{name}/" for name in given}  # bash itself appends the slash
    assert wanted <= with_folders
    assert not unwanted & given


def bash_words(line: str) -> list[str]:
    """Split as bash does for COMP_WORDS: "=" is a word."""
    words = []
    for word in line.split(" "):
        name, equals, value = word.partition("=")
        words += [name, equals, value] if value else [name, equals] if equals else [name]
    return words


@pytest.mark.parametrize(("line", "wanted", "unwanted"), LINES)
def test_bash(folder: Path, line: str, wanted: set[str], unwanted: set[str]) -> None:
    """Bash offers commands, options, values and files, also after "="."""
    words = ["offload-tool", *bash_words(line)]
    check(offered([found("bash"), "-c", BASH, "bash", *words], folder), wanted, unwanted)


def test_bash_after_equals(folder: Path) -> None:
    """Directly after "=" all values are offered, and words beyond the cursor do not matter."""
    words = ["offload-tool", "wrapper", "--kind", "="]
    assert {"hip", "cuda", "openmp"} <= offered([found("bash"), "-c", BASH, "bash", *words], folder)


@pytest.mark.parametrize(("line", "wanted", "unwanted"), LINES)
def test_fish(folder: Path, line: str, wanted: set[str], unwanted: set[str]) -> None:
    """So does fish, which gives the whole word where there is a "="."""
    command = 'source ./script.fish; complete -C "offload-tool $argv"'
    given = offered([found("fish"), "-N", "-c", command, *line.split(" ")], folder)
    check({word.rpartition("=")[2] for word in given}, wanted, unwanted)


@pytest.mark.parametrize(("line", "wanted", "unwanted"), LINES[::3])  # each takes a second
def test_zsh(folder: Path, line: str, wanted: set[str], unwanted: set[str]) -> None:
    """So does zsh, asked through a terminal."""
    (folder / "functions").mkdir()
    (folder / "script.zsh").rename(folder / "functions/_offload-tool")
    offered([found("zsh"), "-f", "-c", ZSH, "zsh", line], folder)
    check(set((folder / "hits").read_text().splitlines()), wanted, unwanted)


def test_without_shtab(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where shtab is not installed, one line says so."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'offload-tool[completion]'" in capsys.readouterr().err
