"""What tells compilers apart, and programs: everything that changes their output, and no path."""

from __future__ import annotations

import re
import shlex
import struct
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.passes.cuda import find_ptxas
from offload_tool.toolchain.identity import (
    all_configuration_files,
    command_identity,
    find_program,
    identity_text,
    program_dependencies,
    program_identity,
)
from tests.conftest import Tool, found_toolchain, missing
from tests.scripts import script
from tests.toolchain.clang_in_parts import clang_in_parts, write_library
from tests.toolchain.conftest import search_anew


@pytest.fixture
def clang() -> str:
    """Return the path of a clang that is not a part of a wheel."""
    found = found_toolchain()
    if found.is_embedded:
        missing("a clang on PATH")
    return found.clang[0]


def identity(command: str) -> str:
    search_anew()
    return find_toolchain(clang=command).identity


def wrapper(path: Path, clang: str, args: str = "") -> Path:
    """Write a script that hands over to a compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Path(script(path, f'exec {shlex.quote(clang)} {args} "$@"'))


def test_words_after_the_compiler(clang: str) -> None:
    """Flags that OFFLOAD_CLANG gives after the program are part of it."""
    assert identity(f"{clang} -DW=1") != identity(f"{clang} -DW=2")
    assert identity(f"{clang} -DW=1") == identity(f"{clang} -DW=1")
    assert identity(clang) not in (identity(f"{clang} -DW=1"), "")


def test_wrapper_script(clang: str, tmp_path: Path) -> None:
    """A script as compiler is told by its text, wherever it lies."""
    first = identity(str(wrapper(tmp_path / "a/cc", clang)))
    assert identity(str(wrapper(tmp_path / "b/cc", clang))) == first
    assert identity(str(wrapper(tmp_path / "b/cc", clang, "-DW=1"))) != first
    assert first != identity(clang)
    assert str(tmp_path) not in first


def test_another_linker(clang: str, tmp_path: Path) -> None:
    """Another lld under the same compiler is seen."""
    lld = shlex.quote(find_toolchain(clang=clang).lld[0])
    command = f"{clang} -B{tmp_path}"
    script(tmp_path / "lld", f'exec {lld} "$@"')
    before = identity(command)
    assert "lld: script " in before
    script(tmp_path / "lld", f'# changed\nexec {lld} "$@"')
    assert identity(command) != before


def test_configuration_file(clang: str, tmp_path: Path) -> None:
    """What clang reads by itself counts by its content, for device jobs of OpenMP too."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        (folder / "clang.cfg").write_text("-DW=1\n@more\n")
        (folder / "more").write_text("-DV=1\n")

    def of(folder: Path) -> str:
        return identity(f"{clang} --config-user-dir={folder}").replace(str(folder), "")

    first = of(folders[0])
    assert first == of(folders[1])
    (folders[1] / "more").write_text("-DV=2\n")
    assert of(folders[1]) != first
    (folders[1] / "more").write_text("-DV=1\n")
    (folders[1] / "amdgcn-amd-amdhsa.cfg").write_text("-DU=1\n")
    assert of(folders[1]) != first


def test_named_configuration_file(clang: str, tmp_path: Path) -> None:
    """One that ``--config`` names counts by its content, not by its path."""
    for name in ("a.cfg", "b.cfg"):
        (tmp_path / name).write_text("-DW=1\n")
    first = identity(f"{clang} --config {tmp_path}/a.cfg")
    assert identity(f"{clang} --config={tmp_path}/b.cfg") == first
    (tmp_path / "a.cfg").write_text("-DW=2\n")
    assert identity(f"{clang} --config {tmp_path}/a.cfg") != first


def test_response_file(tmp_path: Path) -> None:
    """``@file`` counts by its content."""
    file = tmp_path / "words"
    file.write_text("-DW=1")
    before = command_identity([f"@{file}"], "")
    file.write_text("-DW=22")
    assert command_identity([f"@{file}"], "") != before
    assert str(tmp_path) not in before[0]


def test_included_configuration(tmp_path: Path) -> None:
    """Names in a configuration file are relative to it; a circle of files has an end."""
    (tmp_path / "a.cfg").write_text("# @no\n-DX=1 @<CFGDIR>/b.cfg\n")
    (tmp_path / "b.cfg").write_text("@a.cfg\n@gone\n")
    assert len(all_configuration_files([str(tmp_path / "a.cfg")])) == 3


def test_names_that_are_modes(tmp_path: Path) -> None:
    """``clang-22`` says nothing that the version does not; ``clang++`` is another mode."""
    for name in ("clang", "clang-22", "clang++"):
        script(tmp_path / name, "")
    plain = command_identity(["clang"], str(tmp_path))
    assert command_identity([str(tmp_path / "clang-22")], str(tmp_path)) == plain
    assert command_identity(["clang++"], str(tmp_path)) != plain


def test_parts_do_not_run_together() -> None:
    """Two lists of parts never give one text."""
    assert identity_text(["a; b"]) != identity_text(["a", "b"])


@pytest.fixture
def real(llvm: Tool) -> str:
    """Return the path of a clang."""
    return str(Path(llvm("clang")).resolve())


@pytest.mark.llvm
def test_library_of_a_program(tmp_path: Path, real: str) -> None:
    """A program is another one with another library, and the same in another folder."""
    program = clang_in_parts(tmp_path / "a", real, 1)
    before = program_identity(str(program))
    program.parent.parent.rename(tmp_path / "b")
    moved = tmp_path / "b/bin/clang"
    assert program_identity(str(moved)) == before != ""
    write_library(tmp_path / "b/lib", real, 2)
    assert program_identity(str(moved)) != before


@pytest.mark.llvm
def test_library_that_appears(tmp_path: Path, real: str) -> None:
    """A library counts that appears where the loader looked before, folder and all."""
    program = str(clang_in_parts(tmp_path, real, 1))
    before = program_identity(program)
    assert str(tmp_path / "bin/../first") in program_dependencies(program)
    write_library(tmp_path / "first", real, 2)
    assert program_identity(program) != before


@pytest.mark.llvm
def test_library_path(tmp_path: Path, real: str) -> None:
    """A library that LD_LIBRARY_PATH puts before the program's own counts, once it is there."""
    program = str(clang_in_parts(tmp_path, real, 1))
    write_library(tmp_path / "other", real, 2)
    path = f"{tmp_path}/later:{tmp_path}/none"
    before = program_identity(program, path)
    assert before == program_identity(program)
    (tmp_path / "other").rename(tmp_path / "later")
    assert program_identity(program, path) != before


@pytest.mark.llvm
def test_edited_library(tmp_path: Path, real: str) -> None:
    """A library that was edited is another one, although its build ID stays."""
    program = clang_in_parts(tmp_path, real, 1)
    before = program_identity(str(program))
    library = tmp_path / "lib/libcode.so"
    data = library.read_bytes()
    assert data.count(b"-DHERE=1") == 1
    library.write_bytes(data.replace(b"-DHERE=1", b"-DHERE=2"))
    assert program_identity(str(program)) != before


@pytest.mark.parametrize("at", [32, 64 + 8, 64 + 32], ids=["e_phoff", "p_offset", "p_filesz"])
def test_broken_program(tmp_path: Path, at: int) -> None:
    """A program that names no loader in the file has its content alone, and no error."""
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    data = bytearray(header + struct.pack("<IIQQQQQQ", 3, 4, 64, 0, 0, 56, 56, 4))
    data[at : at + 8] = b"\xff" * 8
    program = tmp_path / "program"
    program.write_bytes(data)
    found = program_identity(str(program))
    assert found
    program.write_bytes(data + b"\0")
    assert program_identity(str(program)) != found
    assert program_identity(str(tmp_path / "none")) == ""


def test_program_without_a_version() -> None:
    """A program that prints nothing is not taken; it is an error if the user names it."""
    silent, other = ("/bin/sh", "-c", ":"), ("/bin/sh", "-c", "echo made; echo 1.2")
    assert find_program("OFFLOAD_PTXAS", "", [silent, other], "") == (other, "1.2")
    expected = "OFFLOAD_PTXAS='sh' cannot be run: it prints no version; unset it"
    with pytest.raises(CompilerError, match=re.escape(expected)):
        find_program("OFFLOAD_PTXAS", "sh", [silent], "unset it")
    with pytest.raises(CompilerError, match='OFFLOAD_PTXAS="\'x" is not a command: No closing'):
        find_ptxas("'x")
