"""The table of docs/untrusted.md, row by row: checks of files that other processes made."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.errors import LimitError, OffloadError, UsageError
from offload_tool.io import InputFile
from offload_tool.io.file_digests import DigestCache, digest_of
from offload_tool.io.limits import Budget, Limits, limited
from offload_tool.io.temporary_directory import _boot_id, temporary_folder
from offload_tool.launch.jobserver import slots_of
from offload_tool.manifest.manifest import read_record
from offload_tool.pch.recipe import read_options, write_options
from offload_tool.sccache_dist.cluster import load_cluster
from offload_tool.sccache_dist.config import read_token
from offload_tool.toolchain import disk_cache
from tests.conftest import Capture, try_tool
from tests.fuzz.seeds import GFX906, bundle, zipped
from tests.untrusted.test_output_folders import test_names_below_links as output_folder
from tests.untrusted.test_walks import test_a_kpack_marker_of_files_elsewhere as kpack_archive
from tests.untrusted.test_walks import test_a_thin_archive_of_files_elsewhere as thin_archive
from tests.untrusted.test_walks import test_an_input_that_is_no_file as input_file

BUNDLE = bundle({GFX906: b"image"})
DOCUMENT = Path(__file__).parents[2] / "docs/untrusted.md"
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a second user, too")


ELSEWHERE = {
    "input_file": input_file,
    "member_of_a_thin_archive": thin_archive,
    "kpack_archive_beside_a_program": kpack_archive,
    "output_folder": output_folder,
}
"""Rows with tests in other modules."""


def run(*args: str, cwd: Path | None = None) -> str:
    """Run a command that must reject its input; return its messages."""
    done = try_tool(sys.executable, "-m", "offload_tool", *args, cwd=cwd, timeout=60, stdin=0)
    assert done.returncode == 1, done.stderr
    return done.stderr


def as_nobody(action: Callable[[], object]) -> None:
    """Run `action` as another user; it must succeed."""
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            action()
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Return a folder that all users can write to."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    for parent in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    return folder


def test_the_table_and_the_tests_agree() -> None:
    table = DOCUMENT.read_text().partition("## What is read that")[2].partition("\n\n`tests")[0]
    rows = re.findall(r"^\| ([a-z][^|]*?) \|", table, re.MULTILINE)
    rows.remove("what")
    names = {row.replace(" ", "_").replace("`", "") for row in rows}
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert names == (tests | set(ELSEWHERE)) - {"the_table_and_the_tests_agree"}


def test_member_of_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads out of a wheel, and a member that is too large, are rejected."""
    wheel = tmp_path / "a-1-py3-none-any.whl"
    wheel.write_bytes(zipped({"../out": BUNDLE}))
    text = run("thin", str(wheel), "--keep", "gfx906", "-o", str(tmp_path / "out.whl"))
    assert "its name leads out of the wheel" in text
    wheel.write_bytes(zipped({"large": BUNDLE + bytes(1 << 20)}))
    monkeypatch.setenv("OFFLOAD_MAX_UNPACKED", "1K")
    assert "OFFLOAD_MAX_UNPACKED" in run("list", str(wheel))


def test_response_file(tmp_path: Path, capsys: Capture) -> None:
    """A FIFO and a device are rejected; files that include each other do not loop."""
    os.mkfifo(tmp_path / "fifo")
    assert "is a FIFO" in run("bundler", f"@{tmp_path / 'fifo'}")
    assert "is a device" in run("bundler", "@/dev/zero")
    for name, inner in (("a", "b"), ("b", "c")):
        (tmp_path / name).write_text(f"@{tmp_path / inner} " * 1000)
    (tmp_path / "c").write_text("-help " * 1000)
    assert main(["bundler", f"@{tmp_path / 'a'}"]) == 1
    assert "OFFLOAD_MAX_REREAD" in capsys.readouterr().err


@as_root
def test_temporary_folder_of_an_earlier_run(shared: Path) -> None:
    """Another user's folder, and the targets of their links, stay."""
    own = shared / "own"
    own.mkdir()
    (own / "kept").write_text("kept")

    def plant() -> None:
        (shared / f"x-{_boot_id()}-1").mkdir()
        (shared / f"x-{_boot_id()}-2").symlink_to(own)

    as_nobody(plant)
    (shared / f"x-{_boot_id()}-3").mkdir()
    with temporary_folder("x-", shared):
        pass
    left = {path.name[-2:] for path in shared.iterdir()}
    assert left == {"wn", "-1", "-2"}
    assert (own / "kept").read_text() == "kept"


@pytest.fixture
def recomputed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """Return a function that returns whether a cached answer is computed again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    disk_cache.cache_folder.cache_clear()

    def is_recomputed() -> bool:
        found = []
        answer = disk_cache.cached_result(
            ["question"], lambda: found.append(1) or "right", lambda _: [str(DOCUMENT)]
        )
        assert answer == "right"
        return bool(found)

    yield is_recomputed
    disk_cache.cache_folder.cache_clear()


@as_root
def test_cache_folder(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of another user, one that others can write to, and their links are not used."""
    made = shared / "offload_tool"
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    monkeypatch.setenv("TMPDIR", str(shared.parent))
    monkeypatch.setattr("tempfile.tempdir", None)
    own = shared.parent / "own"
    own.mkdir(mode=0o700)

    def used() -> str:
        disk_cache.cache_folder.cache_clear()
        return disk_cache.cache_folder()

    fallback = str(shared.parent / f"offload_tool-{os.getuid()}")
    as_nobody(made.mkdir)
    assert used() == fallback
    made.rmdir()
    made.mkdir(mode=0o700)
    made.chmod(0o770)
    assert used() == fallback
    made.rmdir()
    as_nobody(lambda: made.symlink_to(own))
    assert used() == fallback
    made.unlink()
    assert used() == str(made)
    disk_cache.cache_folder.cache_clear()


def test_answer_of_the_driver(recomputed: Callable[[], bool], tmp_path: Path) -> None:
    """A file that another user put there is not used, and the driver is queried."""
    assert recomputed()
    assert not recomputed()
    [file] = tmp_path.rglob("*.json")
    good = json.loads(file.read_bytes().partition(b"\n")[2])

    def signed(**other: object) -> bytes:
        text = json.dumps({**good, "result": "wrong", **other}).encode()
        return digest_of(text).encode() + b"\n" + text

    lie = signed()

    def put(content: bytes, mode: int = 0o600) -> None:
        file.unlink(missing_ok=True)
        file.write_bytes(content)
        file.chmod(mode)

    put(lie, 0o620)
    assert recomputed()
    (tmp_path / "lie").write_bytes(lie)
    file.unlink()
    file.symlink_to(tmp_path / "lie")
    assert recomputed()
    file.unlink()
    os.mkfifo(file)
    assert recomputed()
    damaged = lie.replace(b"wrong", b"other")
    for content in (b"[" * 100_000, b"{}", damaged, signed(package="other"), bytes(2 << 20)):
        put(content)
        assert recomputed()
    for text in (b"[1]", b"null", b"{}", b"no JSON", b"[" * 100_000):  # of the right checksum
        put(digest_of(text).encode() + b"\n" + text)
        assert recomputed()
    put(signed(witnesses=[]))
    assert recomputed()
    witness = {str(DOCUMENT): [1, 2, 3, 4]}
    put(signed(witnesses=witness))
    assert recomputed()
    if os.geteuid() == 0:
        put(lie)
        os.chown(file, NOBODY, NOBODY)
        assert recomputed()


@pytest.mark.parametrize(
    "content", [b"", b"{}\n{}\n{}\n{}\n", b"[" * 100_000, b'{"version": 1}\n{}\n{}\n{}\n', b"\xff"]
)
def test_manifest(content: bytes, tmp_path: Path) -> None:
    """A file that is not a manifest of this version counts as missing; a FIFO does not block."""
    (tmp_path / "m").write_bytes(content)
    os.mkfifo(tmp_path / "fifo")
    for name in ("m", "fifo", "."):
        assert read_record(str(tmp_path / name), DigestCache()) is None


def test_words_kept_beside_a_PCH(tmp_path: Path) -> None:  # noqa: N802 - the row's name
    """A file that is not a JSON list counts as missing."""
    file = str(tmp_path / "x")
    write_options(file, ["a", "b"], is_guarded=True)
    assert read_options(file) == (("a", "b"), True)
    for content in ("", "1", "{", "[" * 100_000, "\udcff"):
        Path(file).write_bytes(content.encode(errors="surrogateescape"))
        assert read_options(file) is None


def test_folder_of_dist_init(shared: Path) -> None:
    """A folder that others can write to, or another user's, is rejected."""
    (shared / "env").touch()
    with pytest.raises(UsageError, match="others than its owner can write to it"):
        load_cluster(shared)
    (shared / "in").mkdir(mode=0o755)
    (shared / "in").chmod(0o755)
    (shared / "in" / "env").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="'env' is not that of this folder"):
        load_cluster(shared / "in")
    if os.geteuid() == 0:
        os.chown(shared / "in", NOBODY, NOBODY)
        with pytest.raises(UsageError, match="another user's"):
            load_cluster(shared / "in")


@pytest.mark.parametrize("content", [b"", b"two words", b"two\nlines", b"a" * 5000, b"\xff"])
def test_token_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match="does not hold a token alone"):
        read_token(tmp_path / "token")


def test_jobserver(tmp_path: Path) -> None:
    """Files other than pipes, and mismatched pipe ends, leave one job."""
    (tmp_path / "file").write_bytes(b"+" * 100)
    reader, other = os.pipe(), os.pipe()
    auths = [f"fifo:{tmp_path / 'file'}", "fifo:/dev/zero", f"{reader[0]},{other[1]}", "98,99", "x"]
    for auth in auths:
        slots = slots_of({"MAKEFLAGS": f"-j8 --jobserver-auth={auth}"})
        assert slots.origin.startswith("one: ")
        assert slots.take()
        assert not slots.take()
    for descriptor in (*reader, *other):
        os.close(descriptor)


@pytest.mark.parametrize("name", ["MAX_UNPACKED", "MAX_REREAD", "MAX_DEPTH", "KPACK_OUTSIDE"])
def test_variable_of_the_environment(name: str, tmp_path: Path) -> None:
    """An invalid limit ends the run with an error that names it."""
    with pytest.raises(OffloadError, match=f"OFFLOAD_{name}"):
        Limits.of({f"OFFLOAD_{name}": "some"})
    (tmp_path / "x").write_bytes(bytes(100))
    budget = Budget(Limits.of({"OFFLOAD_MAX_REREAD": "10"}))
    with limited(budget), InputFile(tmp_path / "x"), pytest.raises(LimitError):
        budget.reread(811)
