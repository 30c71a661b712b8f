"""Depfiles as clang writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.clang.depfile import parse_depfile, read_depfile
from offload_tool.errors import FileError
from offload_tool.passes.command import dependency_flags
from tests.conftest import Tool, run_tool


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("object: a.hip\n", ["a.hip"]),
        ("object: a.hip \\\n  b.h \\\n  c/d.h\n", ["a.hip", "b.h", "c/d.h"]),
        ("object: with\\ blank.h cash$$.h \\#.h back\\slash.h\n",
         ["with blank.h", "cash$.h", "#.h", "back\\slash.h"]),
        ("object: C:/x.h\n", ["C:/x.h"]),
        ("object:\n", []),
        ("", []),
    ],
    ids=["one", "continued", "escaped", "colon", "none", "empty"],
)  # fmt: skip
def test_parse(text: str, names: list[str]) -> None:
    """Continued lines and escaped characters are read as make reads them."""
    assert parse_depfile(text) == names


def test_missing(tmp_path: Path) -> None:
    """A depfile that the compiler did not write is an error that names it."""
    with pytest.raises(FileError, match=r"none\.d"):
        read_depfile(tmp_path / "none.d")


@pytest.mark.llvm
def test_names_with_odd_characters_from_clang(tmp_path: Path, llvm: Tool) -> None:
    """Names that clang escaped come back as they are, in the order they were read."""
    names = ["plain.h", "with blank.h", "cash$.h", "hash#.h", "x:y.h", "two  b.h"]
    for name in names:
        (tmp_path / name).touch()
    source = tmp_path / "a b.hip"
    source.write_text("".join(f'#include "{name}"\n' for name in names))
    flags = ["-x", "hip", "-nogpuinc", "-nogpulib", "--cuda-device-only", "--offload-arch=gfx906"]
    depfile = tmp_path / "out.d"
    command = [llvm("clang"), *flags, *dependency_flags("out.d"), "-S", source.name, "-o", "out.s"]
    run_tool(*command, cwd=tmp_path)
    assert read_depfile(depfile) == [source.name, *names]
