"""Objects and depfiles under names that are more than plain files: as the driver treats them."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offload_tool.launch import split_compile
from offload_tool.launch.query_plan import PassedThroughError
from offload_tool.launch.write_result import why_not_replaced
from tests.conftest import Tool
from tests.launch.compiles import HIP, in_ways, make_project

if TYPE_CHECKING:
    from collections.abc import Callable

    Both = Callable[[Callable[[Path], None], list[str]], tuple[object, object]]

pytestmark = pytest.mark.llvm


def seen(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return what each name in a folder is: its sort, mode, number of names and content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(path for path in folder.iterdir() if path.suffix != ".manifest"):
        status = path.lstat()
        plain = stat.S_ISREG(status.st_mode)
        target = str(path.readlink()) if path.is_symlink() else ""
        content = path.read_bytes() if plain else b""
        found[path.name] = (status.st_mode, status.st_nlink, status.st_rdev, target, content)
    return found


@pytest.fixture
def both(tmp_path: Path, llvm: Tool) -> Both:
    """Return a function that compiles both ways; gives status, messages and what there is then."""

    def compile_both(prepare: Callable[[Path], None], words: list[str]) -> tuple[object, object]:
        def project(place: Path) -> None:
            make_project(place)
            prepare(place)

        command = [llvm("clang++"), *HIP, "--offload-arch=gfx906,gfx942", *words]
        driver, ours = (
            (
                each.status,
                [line for line in each.said.splitlines() if "offload-tool" not in line],
                seen(each.folder),
            )
            for each in in_ways(tmp_path, command, project)
        )
        return driver, ours

    return compile_both


def device(place: Path) -> None:
    """Make a device like /dev/null, which only root can."""
    try:
        os.mknod(place / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("devices are root's to make")


def mistake(place: Path) -> None:
    device(place)
    (place / "s.hip").write_text("this is an error\n")


def folder(place: Path) -> None:
    (place / "d").mkdir()


def links(place: Path) -> None:
    for end in ("o", "d"):
        (place / f"old.{end}").write_text("old")
        (place / f"s.{end}").symlink_to(f"old.{end}")


def hard_links(place: Path) -> None:
    for end in ("o", "d"):
        (place / f"old.{end}").write_text("old")
        os.link(place / f"old.{end}", place / f"s.{end}")


NAMES = [
    *((prepare, words) for prepare in (device, mistake) for words in ("-o null", "-MD -MF null")),
    *((folder, words) for words in ("-o no/s.o", "-MD -MF no/s.d", "-o value.h/s.o", "-o d")),
    *((prepare, "-MD") for prepare in (links, hard_links)),
]


@pytest.mark.parametrize(("prepare", "words"), NAMES)
def test_names(prepare: Callable[[Path], None], words: str, both: Both) -> None:
    """Objects and depfiles go where the driver's go, and messages are the driver's.

    A device stays one, also after an error. A link gives way to an object, and leads to a depfile.
    """
    driver, ours = both(prepare, ["-c", "s.hip", "-o", "s.o", *words.split()])
    assert _but_count(ours) == _but_count(driver)


def _but_count(result: object) -> object:
    """Return a result without the lines that count messages, which name the first target."""
    status, lines, files = result  # type: ignore[misc]
    return status, [line for line in lines if " generated when" not in line], files


def test_crash(both: Both) -> None:
    """A compiler that crashes is run again as it was given: status and report are the driver's."""

    def prepare(place: Path) -> None:
        (place / "s.hip").write_text("#pragma clang __debug crash\n")

    driver, ours = both(prepare, ["-c", "s.hip", "-o", "s.o"])
    assert ours[0] == driver[0]  # type: ignore[index]
    assert ours[2] == driver[2]  # type: ignore[index]


@pytest.mark.parametrize(
    ("of_folder", "of_file", "told"),
    [(0o555, 0o666, "the folder '{}'"), (0o777, 0o444, "'{}/s.o'")],
)
def test_not_writable(of_folder: int, of_file: int, told: str) -> None:
    """Where its folder takes no files, one is written into; one that is read-only is refused."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "s.o").write_text("old")
        (folder / "s.o").chmod(of_file)
        folder.chmod(of_folder)
        before = os.geteuid()
        if before == 0:
            os.seteuid(65534)  # nobody
        try:
            reason = why_not_replaced(str(folder / "s.o"))
        finally:
            os.seteuid(before)
            folder.chmod(0o755)
        assert reason == f"{told.format(folder)} cannot be written"
        (folder / "s.o").chmod(0o644)
        assert why_not_replaced(str(folder / "s.o")) == ""


def test_depfile_of_a_job_that_cannot_be_read(tmp_path: Path) -> None:
    """A job without a depfile adds nothing; one that cannot be read is an error, not nothing."""
    assert split_compile._depfile_text(str(tmp_path / "none")) == b""
    with pytest.raises(PassedThroughError, match="Is a directory"):
        split_compile._depfile_text(str(tmp_path))
