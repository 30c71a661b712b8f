"""The files that a command's words name, in all the ways in which clang takes them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from offload_tool.clang.argument_files import finds_libraries, include_folders, possible_files


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["@words"], "words"),
        (["--config", "c.cfg"], "c.cfg"),
        (["--config=c.cfg"], "c.cfg"),
        (["-mlink-builtin-bitcode", "lib.bc"], "lib.bc"),
        (["-Xclang", "-mlink-builtin-bitcode", "-Xclang", "lib.bc"], "lib.bc"),
        (["-fprofile-use=p.profdata"], "p.profdata"),
        (["-fprofile-use=folder"], "folder/default.profdata"),
        (["-fprofile-use"], "default.profdata"),
        (["-fprofile-instr-use=p.profdata"], "p.profdata"),
        (["-fprofile-sample-use=p.txt"], "p.txt"),
        (["-fsanitize-ignorelist=list.txt"], "list.txt"),
        (["-fplugin=plugin.so"], "plugin.so"),
        (["-fpass-plugin=plugin.so"], "plugin.so"),
        (["-Xclang", "-load", "-Xclang", "plugin.so"], "plugin.so"),
        (["-include", "x.h"], "x.h"),
        (["-include", "x.h"], "x.h.pch"),
        (["-include", "x.h"], "x.h.gch"),
        (["-includex.h"], "x.h"),
        (["--include=x.h"], "x.h"),
        (["-include-pch", "x.pch"], "x.pch"),
        (["-imacros", "x.h"], "x.h"),
        (["-Wl,-T,script.ld"], "script.ld"),
        (["-Wl,--version-script=v.map"], "v.map"),
        (["-T", "script.ld"], "script.ld"),
        (["-Tscript.ld"], "script.ld"),
        (["-fbasic-block-sections=list=f.txt"], "f.txt"),
        (["-fmodule-file=m=m.pcm"], "m.pcm"),
        (["-fplugin=a=b.so"], "a=b.so"),
        (["-B", "folder"], "folder/ld.lld"),
        (["--prefix=folder"], "folder/ld.lld"),
    ],
)
def test_spellings(args: Sequence[str], name: str) -> None:
    """A file that an option takes is among those that may be named."""
    assert name in possible_files(args)


@pytest.mark.parametrize("word", ["-DNAME=file", "-UNAME", "-Ifolder", "-Wfile", "-std=c++17"])
def test_no_files(word: str) -> None:
    """Macros, warnings and search folders name no files."""
    assert possible_files([word]) == ()


def test_folders_of_the_sysroot() -> None:
    """A ``=`` before a directory of headers stays: it means the sysroot."""
    assert include_folders(("-I=/inc", "-I", "b", "-I-x", "-isystem=/z")) == (
        "=/inc",
        "b",
        "-x",
        "=/z",
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-Xoffload-linker", "-lm"), True),
        (("-Wl,-lm",), True),
        (("-Wl,--as-needed", "-lm"), False),
    ],
)
def test_libraries_of_linkers_in_a_compile(args: tuple[str, ...], expected: bool) -> None:
    """Only arguments for a linker count; ``-lm`` of a host link is none."""
    assert finds_libraries(args) is expected
