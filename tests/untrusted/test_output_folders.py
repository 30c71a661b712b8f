"""Writes into a folder stay in it: no link below the folder is followed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from offload_tool.errors import FileError
from offload_tool.io.output_folder import new_folder
from offload_tool.operations.extract import extract_device_images
from offload_tool.operations.join import join_file
from offload_tool.operations.match import Device
from offload_tool.operations.split import split_file
from offload_tool.operations.thin import thin_file
from tests.fuzz.seeds import hip_library

GFX906 = [Device.parse("gfx906")]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return a folder with a HIP library and a text, in subfolders."""
    folder = tmp_path / "in"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/a.so").write_bytes(hip_library())
    (folder / "text").write_text("text")
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that the test must not change."""
    folder = tmp_path / "elsewhere"
    folder.mkdir(mode=0o750)
    (folder / "kept").write_text("kept")
    os.utime(folder, (1, 1))
    yield folder
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert (folder / "kept").read_text() == "kept"
    assert (folder.stat().st_mode & 0o777, folder.stat().st_mtime) == (0o750, 1)


@pytest.mark.parametrize("inside", [False, True], ids=["elsewhere", "in-the-host"])
def test_join_of_a_folder_over_a_link(
    library: Path, elsewhere: Path, tmp_path: Path, *, inside: bool
) -> None:
    """A part's folder is not laid over a link of the host's, wherever it leads."""
    split_file(library, tmp_path / "parts", in_parts=True)
    host, *parts = sorted((tmp_path / "parts").iterdir(), reverse=True)
    (host / "data").symlink_to("lib" if inside else elsewhere)
    (parts[0] / "data").mkdir(mode=0o777)
    (parts[0] / "data/file").write_text("of the part")
    with pytest.raises(FileError, match=r"/data': is in the host's folder, too, as a link"):
        join_file(host, parts, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("operation", ["join", "thin", "split", "extract"])
def test_a_link_in_the_output_folder(
    operation: str, library: Path, elsewhere: Path, tmp_path: Path
) -> None:
    split_file(library, tmp_path / "whole")
    out = tmp_path / "out"
    out.mkdir()
    link = out / "lib"
    if operation == "extract":
        names = [image.path.name for image in extract_device_images(library, tmp_path / "names")]
        (out / names[0]).symlink_to(elsewhere / "kept")
        extract_device_images(library, out)
        assert not any(path.is_symlink() for path in out.iterdir())
        return
    link.symlink_to(elsewhere)
    run = {
        "join": lambda: join_file(tmp_path / "whole", [], out),
        "thin": lambda: thin_file(library, out, keep=GFX906),
        "split": lambda: split_file(library, out),
    }[operation]
    with pytest.raises(FileError, match=f"{link}': is a link; a folder is to be written there"):
        run()
    assert [path.name for path in out.iterdir()] == ["lib"]


def test_a_link_takes_the_place_of_a_folder_in_between(
    library: Path, elsewhere: Path, tmp_path: Path
) -> None:
    """A folder that another process replaces by a link during the renames is not entered."""
    out = tmp_path / "out"
    (out / "lib").mkdir(parents=True)

    def swap(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and arguments[1] == "a.so" and not (out / "old").exists():
            (out / "lib").rename(out / "old")
            (out / "lib").symlink_to(elsewhere)

    with hooked(swap):
        thin_file(library, out, keep=GFX906)
    assert (out / "old/a.so").is_file()


@pytest.mark.parametrize("name", ["", ".", "..", "a//b", "a/../b", "../a", "a/", "/a"])
def test_names_that_lead_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is no name of a file below"), new_folder(tmp_path) as made:
        made.write(name, None)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_names_below_links(elsewhere: Path, tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as made:
        made.link("link", str(elsewhere))
        for action in (
            lambda: made.folder("link", 0o777),
            lambda: made.folder("link/inner"),
            lambda: made.link("link/other", "target"),
            lambda: made.remove("link/kept"),
            lambda: made.kind("link/kept"),
        ):
            with pytest.raises(FileError, match="'link' is a link: nothing is written through one"):
                action()
        with pytest.raises(FileError, match="'link' is a link"), made.file("link/new"):
            pass
        with pytest.raises(FileError, match="File exists"), made.file("link"):
            pass
    assert (tmp_path / "out/link").readlink() == elsewhere


@pytest.mark.parametrize(
    "operation", ["join", "thin", "thin in place", "split", "parts", "extract"]
)
def test_all_is_written_below_the_descriptor(operation: str, library: Path, tmp_path: Path) -> None:
    """No operation writes below its output folder by a path, which could lead through a link."""
    out = tmp_path / "out"
    split_file(library, tmp_path / "whole")
    wrong = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE):
            return
        if event == "open" or event in CHANGES:
            for path in arguments[: 2 if event in ("os.rename", "os.symlink", "os.link") else 1]:
                below = str(path).partition(f"{folder}/")[2]
                if "/" in below or (below and event == "open"):
                    wrong.append((event, str(path)))

    folder = library if operation == "thin in place" else out
    with hooked(look):
        if operation == "join":
            join_file(tmp_path / "whole", [], out)
        elif operation == "extract":
            extract_device_images(library, out)
        elif operation.startswith("thin"):
            thin_file(library, folder, keep=GFX906)
        else:
            split_file(library, out, in_parts=operation == "parts")
    assert any(path.is_file() for path in folder.rglob("*"))
    assert wrong == []


CHANGES = frozenset(
    f"os.{name}"
    for name in (
        "chmod", "chown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "truncate",
        "utime",
    )
)  # fmt: skip
_hooks: list[Any] = []


def _call_hooks(event: str, arguments: tuple[Any, ...]) -> None:
    for hook in tuple(_hooks):
        _hooks.remove(hook)  # a hook does not see its own events
        try:
            hook(event, arguments)
        finally:
            _hooks.append(hook)


@contextmanager
def hooked(hook: Any) -> Iterator[None]:
    """Call `hook` with each of Python's audit events while the block runs."""
    if not getattr(sys, "_offload_hooked", False):
        sys.addaudithook(_call_hooks)
        sys._offload_hooked = True  # type: ignore[attr-defined]  # there is no way to remove one
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)
