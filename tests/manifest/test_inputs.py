r"""Arguments of passes, and names with backslashes, for which clang's depfiles have slashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.clang.options import HOST_IR
from offload_tool.manifest.inputs import general_args, with_backslashes


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("a\\b/a\\b.hip", ["clang", "-c", "a\\b/a\\b.hip"]),
        ("a\\b/x.h", ["clang", "-c", "a\\b/a\\b.hip"]),
        ("a\\b/include/x.h", ["clang", "-Ia\\b/include", "-c", "k.hip"]),
        ("a\\b/include/x.h", ["clang", "-isystem", "a\\b/include", "-c", "k.hip"]),
        ("a\\b.h", ["clang", "-include", "a\\b.h", "-c", "k.hip"]),
        ("a\\b.h", ["clang", "--include=a\\b.h", "-c", "k.hip"]),
    ],
)
def test_names_of_the_command(name: str, args: list[str]) -> None:
    """A file that the command names, or that is below a folder it names, is found again.

    So it is where another file has the name with slashes; both count then.
    """
    written = name.replace("\\", "/")
    put(name)
    assert with_backslashes([written], args) == [name]
    put(written)
    assert with_backslashes([written], args) == [name, written]


@pytest.mark.parametrize("name", ["x\\y.h", "d/x\\y.h", "d\\e/f/x\\y\\z.h", "a\\\\b.h"])
def test_names_that_the_command_lacks(name: str, here: Path) -> None:
    """A header with a backslash in its own name, or in that of its folder, is found on disk."""
    put(name)
    written = name.replace("\\", "/")
    assert with_backslashes([written], ["clang", "-c", "k.hip"]) == [name]
    assert with_backslashes([f"{here}/{written}"], ["clang"]) == [f"{here}/{name}"]


def test_other_names() -> None:
    """Names without backslashes stay as they are, and in order, files that are gone too."""
    put("k.hip", "d/x.h", "b\\c")
    names = ["k.hip", "d/x.h", "gone.h", "gone/too.h", "k.hip"]
    assert with_backslashes(names, ["clang", "-DA=\\b", "k.hip"]) == names[:-1]


def test_arguments_of_all_sources() -> None:
    """Passes over two sources of OpenMP have the same arguments, so that one query is for both."""

    def args_of(name: str) -> list[str]:
        front_end = [HOST_IR, f"{name}.host.bc", "-O1"]
        passed_on = [each for arg in front_end for each in ("-Xclang", arg)]
        command = ["clang", f"-DNAME={name}", *passed_on, "-O2", "-o", f"{name}.o", f"{name}.c"]
        return general_args(command, (f"{name}.o", f"{name}.c"))

    assert args_of("a") == args_of("b")
    assert args_of("a")[-3:] == ["-Xclang", "-O1", "-O2"]
