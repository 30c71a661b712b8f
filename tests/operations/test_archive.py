"""Archives of files: llvm-ar's bytes, readable by other archivers and linkers."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.errors import FileError, UsageError
from offload_tool.formats.objects.ar import plan_archive
from offload_tool.operations.archive import create_archive
from tests.conftest import Tool, run_tool


@pytest.mark.llvm
@pytest.mark.parametrize("suffixes", [("o", "bc", "txt"), ()], ids=["mixed", "none"])
def test_same_bytes_as_llvm_ar(tmp_path: Path, llvm: Tool, suffixes: tuple[str, ...]) -> None:
    """An object, bitcode and other files, of long names and empty ones too."""
    for name in ("a_name_of_more_than_15_bytes.txt", "empty.txt"):
        member(tmp_path, name, b"odd" * (name != "empty.txt")).chmod(0o700)
    source = member(tmp_path, "s.c", b"int f(void) { return 1; } int data = 1;\n")
    for flags in (["-o", "s.o"], ["-emit-llvm", "-o", "s.bc"]):
        run_tool(llvm("clang"), "-c", source, *flags, cwd=tmp_path)
    paths = sorted(path for suffix in suffixes for path in tmp_path.glob(f"*.{suffix}"))
    if paths:
        assert main(["archive", "-o", str(tmp_path / "ours.a"), *map(str, paths)]) == 0
    else:
        create_archive([], tmp_path / "ours.a")
    run_tool(llvm("llvm-ar"), "rcsD", "--format=gnu", tmp_path / "theirs.a", *paths)
    assert (tmp_path / "ours.a").read_bytes() == (tmp_path / "theirs.a").read_bytes()


def member(folder: Path, name: str, content: bytes = b"x") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_output_is_one_of_the_members(tmp_path: Path) -> None:
    path = member(tmp_path, "m", b"content")
    create_archive([("m", path), ("again", path)], path)
    assert path.read_bytes().count(b"content") == 2


@pytest.mark.parametrize("name", ["", ".", "..", "../m", "/m", "a/m", "m/", "m\0", "m\n"])
def test_names_that_are_no_file_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="expected a plain file name") as caught:
        create_archive([(name, tmp_path / "some-file")], tmp_path / "out.a")
    assert str(caught.value).startswith(f"'{tmp_path}/some-file': ")
    assert "\n" not in str(caught.value)


def test_equal_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'a/m\.o' and 'b/m\.o'; give one"):
        create_archive([("m.o", "a/m.o"), ("n.o", "x"), ("m.o", "b/m.o")], tmp_path / "out.a")
    assert not (tmp_path / "out.a").exists()


def test_files_that_cannot_be_members(tmp_path: Path) -> None:
    for path, error in (("none", FileError), (tmp_path, FileError), ("/dev/null", UsageError)):
        with pytest.raises(error, match=f"'{path}': "):
            create_archive([("m", path)], tmp_path / "out.a")
    assert list(tmp_path.iterdir()) == []


def test_unreadable_bitcode(tmp_path: Path) -> None:
    """Unreadable bitcode becomes a member without symbols, with a warning, as in LLVM."""
    path = member(tmp_path, "m.bc", b"BC\xc0\xde" + b"\xff" * 60)
    warnings: list[str] = []
    create_archive([("m.bc", path)], tmp_path / "out.a", warn=warnings.append)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"'{path}': ")
    assert (tmp_path / "out.a").read_bytes()[8:13] == b"m.bc/"


def test_member_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = member(tmp_path, "m")
    monkeypatch.setattr(
        "offload_tool.operations.archive.plan_archive",
        lambda members: (path.write_bytes(b"longer"), plan_archive(members))[1],
    )
    with pytest.raises(FileError, match="m': changed its size"):
        create_archive([("m", path)], tmp_path / "out.a")
    assert not (tmp_path / "out.a").exists()
