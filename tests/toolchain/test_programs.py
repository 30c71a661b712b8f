"""What programs are: their files, and the libraries that the loader gives them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.toolchain.identity import find_program, program_dependencies, program_identity
from tests.toolchain.clang_in_parts import clang_in_parts, write_library


@pytest.fixture
def real(llvm: Callable[[str], str]) -> str:
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
