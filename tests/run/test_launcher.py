"""What a launcher is given, and what becomes of what it tells."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool.passes.command import Command
from offload_tool.run.launcher import run_launched
from tests.conftest import found_toolchain, run_tool
from tests.manifest.test_pass_run import shell


class Launcher:
    """Runs compiles, and keeps their commands."""

    compiler = "a compiler"

    def __init__(self, folder: Path, flags: Sequence[str] = (), left: str | None = None) -> None:
        self.folder, self.flags, self.left = folder, flags, left
        self.seen: list[tuple[bool, list[str]]] = []
        """Whether it was to be used, and the command."""

    def __call__(self, launcher: Sequence[str], command: Command) -> int:
        self.seen.append((bool(launcher), command.argv()))
        status = subprocess.run(command.argv(), check=False).returncode
        if self.left is not None:
            Path("k.d").write_text(self.left)
        return status

    def run(self) -> int:
        flags = ("-x", "c", "-Werror", "-Wall", "-c", "-Ia", "-Ib", *self.flags)
        command = Command(tuple(found_toolchain().clang), flags, "k.o", "k.c", "k.d")
        return run_launched(("cache",), command, os.environ, self.compiler, self)

    @property
    def key(self) -> str:
        """The word that was added."""
        (word,) = (word for word in self.seen[0][1] if word.startswith("-frandom-seed="))
        return word


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found_toolchain()
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        Path(name).mkdir()
    Path("b/value.h").write_text("#pragma once\nint value;\n")
    Path("k.c").write_text("#include <value.h>\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("#include <value.h>\n", "cp b/value.h a"),
        ("#if __has_include(<extra.h>)\n#include <extra.h>\n#endif\n", "touch a/extra.h"),
        ('#include "b/value.h"\n#include "b/again.h"\n', "rm b/again.h; cp b/value.h b/again.h"),
    ],
    ids=("earlier", "asked for", "copy of a link"),
)
def test_same_files_have_one_key(folder: Path, text: str, change: str) -> None:
    """The word is the same for the same names, whatever the files hold, and not for others."""
    Path("b/again.h").symlink_to("value.h")
    Path("k.c").write_text(text)
    first, again, other = (Launcher(folder, ["-w"]) for _ in range(3))
    assert first.run() == 0
    Path("b/value.h").write_text("#pragma once\nextern int value, more;\n")
    assert again.run() == 0
    shell(change)
    assert other.run() == 0
    assert first.key == again.key != other.key


def test_compilers_have_a_key_each(folder: Path) -> None:
    """A compiler of which the launcher sees no difference, as of its libraries, has another key."""
    first, other = Launcher(folder), Launcher(folder)
    other.compiler = "another compiler"
    assert first.run() == other.run() == 0
    assert first.key != other.key


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("int a[] = {\n%: /* a\nb */ em\\\nbed <value.bin>\n};\n", ["-w", "--embed-dir=b"]),
        ("int f(void);\n", ["-fsanitize=address", "-fsanitize-ignorelist=b/value.bin"]),
    ],
    ids=("embed", "named by a flag"),
)
def test_contents_that_no_cache_compares(folder: Path, text: str, flags: list[str]) -> None:
    """The word is another one if the content of such a file is: ccache 4.7.5 reads none of them."""
    Path("k.c").write_text(text)
    made = [Launcher(folder, flags) for _ in range(3)]
    for launcher, content in zip(made, ("fun:1", "fun:2", "fun:1"), strict=True):
        Path("b/value.bin").write_text(content)
        assert launcher.run() == 0
    assert made[0].key == made[2].key != made[1].key


def test_no_effect(folder: Path) -> None:
    """The word changes no byte of the output."""
    made = Launcher(folder, ["-g"])
    assert made.run() == 0
    data = Path("k.o").read_bytes()
    (_, command) = made.seen[0]
    run_tool(*(word for word in command if word != made.key))
    assert Path("k.o").read_bytes() == data


def test_commands_in_the_output(folder: Path) -> None:
    """A compile whose output holds its command runs without the launcher, and as it is."""
    made = Launcher(folder, ["-grecord-command-line"])
    assert made.run() == 0
    assert [used for used, _ in made.seen] == [False]
    assert b"frandom-seed" not in Path("k.o").read_bytes()


def test_depfile_that_a_cache_left_out(folder: Path) -> None:
    """The depfile of an output from a cache lists what the preprocessor reads."""
    assert Launcher(folder, left="").run() == 0
    assert "b/value.h" in Path("k.d").read_text()


def test_other_files(folder: Path) -> None:
    """Where the depfile names other files than are read now, the compile runs again here."""
    Path("a/value.h").write_text("int value;\n")
    made = Launcher(folder, left="object: k.c b/value.h\n")
    assert made.run() == 0
    assert [used for used, _ in made.seen] == [True, False]


def test_source_that_fails(folder: Path) -> None:
    """Where the preprocessor fails, no cache knows the command, and its status is told."""
    Path("b/value.h").write_text("#error no\n")
    one, two = Launcher(folder), Launcher(folder)
    assert one.run() == two.run() == 1
    assert one.key != two.key


@pytest.mark.parametrize("flag", ["-fembed-bitcode", "--offload-arch=amdgcnspirv", "-remap-file"])
def test_what_no_cache_knows(flag: str) -> None:
    """No cache has an output with the command, and so the folder, or of files by other names."""
    seen: list[Sequence[str]] = []
    command = Command(("clang++",), (flag, "-c"), "k.o", "k.hip")
    run_launched(("cache",), command, {}, "a compiler", lambda *run: seen.append(run[0]) or 0)
    assert seen == [()]
