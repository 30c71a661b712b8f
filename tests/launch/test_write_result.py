"""What a compile leaves and says: objects and depfiles under any names, messages told once."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offload_tool.launch import split_compile
from offload_tool.launch.query_plan import PassedThroughError
from offload_tool.launch.write_result import is_error_in_source, merge_messages, why_not_replaced
from tests.conftest import Tool
from tests.launch.compiles import HIP, LAUNCH, TARGETS, environment, in_ways, make_project, run
from tests.terminal import Terminal

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

    def compile_both(prepare: Callable[[Path], None], args: list[str]) -> tuple[object, object]:
        def project(place: Path) -> None:
            make_project(place)
            prepare(place)

        command = [llvm("clang++"), *HIP, "--offload-arch=gfx906,gfx942", *args]
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


HOST = b"""In file included from s.hip:1:
a.h:2:3: warning: one [-Wone]
    2 | x
      | ^
In file included from s.hip:1:
b.h:1:1: note: of one
1 warning generated when compiling for host.
"""


def test_same_is_told_once() -> None:
    """Messages of device passes that the host pass has, notes included, are left out."""
    device = HOST.replace(b"for host", b"for gfx906")
    assert merge_messages(HOST, {"gfx906": device}) == HOST


def test_new_is_told_with_its_targets() -> None:
    """Others follow the host's, under their target IDs, with notes and lines of source."""
    new = b"s.hip:9:1: warning: two [-Wtwo]\n    9 | y\ns.hip:8:1: note: of two\n"
    found = merge_messages(HOST, {"gfx906": new + HOST, "gfx942": HOST + new, "gfx90a": b""})
    assert found == HOST + b"In device code for gfx906, gfx942:\n" + new


def test_colours_do_not_matter() -> None:
    """Lines are told apart as without colours."""
    new = b"\x1b[1ms.hip:9:1: \x1b[0m\x1b[0;1;35mwarning: \x1b[0mtwo\n    9 | y\n"
    text = new + b"1 warning generated when compiling for gfx906.\n"
    assert merge_messages(b"", {"gfx906": text}) == b"In device code for gfx906:\n" + new


AT_LINE = b"s.hip:1:2: error: text\n"
COUNTED = AT_LINE + b"1 error generated when compiling for gfx906.\n"


@pytest.mark.parametrize(
    ("text", "is_in_source"),
    [
        (COUNTED, True),
        (b"\x1b[1ms.hip(1,2): \x1b[0m\x1b[0;1;31merror: \x1b[0mtext\n1 error generated.\n", True),
        (COUNTED[:-5], False),
        (AT_LINE, False),
        (b"error: unable to open output file 'a.bc': 'No space'\n1 error generated.\n", False),
        (b"", False),
    ],
)
def test_errors_in_the_source(text: bytes, is_in_source: bool) -> None:
    assert is_error_in_source(text) == is_in_source


@pytest.mark.llvm
@pytest.mark.parametrize("where", ["", "__gfx90a__", "__HIP_DEVICE_COMPILE__"])
def test_error(where: str, tmp_path: Path, llvm: Tool) -> None:
    """An error is told once, has the driver's status, and there is no object any more."""
    make_project(tmp_path)
    source = tmp_path / "s.hip"
    condition = f"defined({where})" if where else "1"
    source.write_text(f"{source.read_text()}#if {condition}\nint bad = none;\n#endif\n")
    (tmp_path / "s.o").write_bytes(b"old")
    args = [llvm("clang++"), *HIP, *TARGETS, "-MD", "-c", "s.hip", "-o", "s.o"]
    ours = run([*LAUNCH, *args], tmp_path, {"OFFLOAD_LAUNCH_JOBS": "3"})  # all have begun
    assert ours.returncode == run(args, tmp_path).returncode == 1
    assert ours.stderr.count("use of undeclared identifier 'none'") == 1
    devices = {"": "", "__gfx90a__": "gfx90a:xnack+"}.get(where, "gfx906, gfx90a:xnack+")
    assert (f"In device code for {devices}:\n" in ours.stderr) == bool(devices)
    assert not (tmp_path / "s.o").exists()
    assert list(tmp_path.glob("*.tmp")) == []


@pytest.mark.llvm
def test_driver_warning(tmp_path: Path, llvm: Tool) -> None:
    """What the driver says itself is told once, before all else."""
    make_project(tmp_path)
    args = [llvm("clang++"), *HIP, *TARGETS, "-pie", "-lm", "-c", "s.hip", "-o", "s.o"]
    ours, driver = run([*LAUNCH, *args], tmp_path), run(args, tmp_path)
    assert "argument unused" in driver.stderr
    lines = ours.stderr.splitlines(keepends=True)
    messages = [line for line in lines if not line.startswith("offload-tool launch: ")]
    assert "".join(messages) == driver.stderr


@pytest.mark.llvm
@pytest.mark.parametrize("more", [[], ["-Wl,--unused"]], ids=["plain", "driver warns"])
def test_colours_at_a_terminal(more: list[str], tmp_path: Path, llvm: Tool) -> None:
    """Where a user sees the messages, they have the driver's colours."""
    make_project(tmp_path)
    with (tmp_path / "s.hip").open("a") as file:
        file.write("int unused(int x) { int y; return 1; }\n")
    command = [llvm("clang++"), *HIP, *TARGETS, "-Wall", *more, "-c", "s.hip", "-o", "s.o"]
    told = []
    for launch in ((), LAUNCH):
        with Terminal() as terminal:
            subprocess.run(
                [*launch, *command],
                cwd=tmp_path,
                env=environment({"TERM": "xterm", "OFFLOAD_LAUNCH_VERBOSE": "1"}),
                stderr=terminal.descriptor,
                check=True,
            )
            told.append(terminal.end())
    assert b"split: " in told[1]
    lines = [[x for x in text.splitlines() if b" generated when" not in x] for text in told]
    driver, ours = ({x for x in text if b"\x1b[" in x} for text in lines)
    assert driver
    assert ours == driver
