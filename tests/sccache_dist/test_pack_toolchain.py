"""The packed compiler is complete, runs on its own, and comes out the same every time."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.io import replace_file
from offload_tool.sccache_dist import pack_toolchain
from offload_tool.sccache_dist.pack_toolchain import compiler_names, compiler_programs
from offload_tool.toolchain.probe import Toolchain
from offload_tool.toolchain.select import find_toolchain
from offload_tool.util.frozen import replaced
from tests.conftest import missing

pytestmark = pytest.mark.llvm


def pack_programs(programs: Iterable[str], path: Path) -> list[Path]:
    with replace_file(path) as file:
        return pack_toolchain.pack_programs(programs, file)


@pytest.fixture
def toolchain(llvm: Callable[[str], str]) -> Toolchain:
    return find_toolchain(clang=llvm("clang"))


def test_runs_alone(toolchain: Toolchain, tmp_path: Path) -> None:
    """Alone in an empty root folder, the packed compiler compiles and links device code."""
    if os.geteuid() != 0:
        pytest.skip("only root may change the root folder")
    archive, root = tmp_path / "t.tar.gz", tmp_path / "root"
    pack_programs(compiler_programs(toolchain), archive)
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        assert packed.getmember("tmp").mode == 0o1777
    assert names == ["tmp", *sorted(names[1:])]
    root.mkdir()
    subprocess.run(["/bin/tar", "-xf", archive, "-C", root], check=True)
    (root / "s.hip").write_text("__attribute__((global)) void k(int *p) { *p = 1; }\n")
    flags = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx90a", "-nogpulib", "-nogpuinc"]
    flags += ["--no-gpu-bundle-output", "-cuid=1", "-c", "s.hip", "-o"]
    subprocess.run(
        ["/usr/sbin/chroot", root, toolchain.clang[0], *flags, "out"],
        env={"PATH": "/nowhere"},
        check=True,
    )
    here = tmp_path / "here"
    subprocess.run([*toolchain.clang, *flags, here], cwd=root, check=True)
    assert (root / "out").read_bytes() == here.read_bytes()


def test_deterministic(tmp_path: Path) -> None:
    """Equal files give equal archives, whenever and in whatever order they are packed."""
    programs = ["/bin/sh", "/usr/bin/env"]
    archives = [tmp_path / "a", tmp_path / "b"]
    pack_programs(programs, archives[0])
    os.utime(tmp_path)
    pack_programs(reversed(programs), archives[1])
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as packed:
        for member in packed:
            assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
            assert (member.uname, member.gname) == ("", "")


def test_links_step_by_step(tmp_path: Path) -> None:
    """Every symbolic link on the way to a file is packed as it is, folders' links too."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "data").write_text("x")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "absolute").symlink_to(tmp_path / "folder" / "data")
    (tmp_path / "first").symlink_to("real/../absolute")
    files = pack_programs([str(tmp_path / "first")], tmp_path / "t.tar.gz")
    assert files == [real / "data"]
    top = str(tmp_path).lstrip("/")
    with tarfile.open(tmp_path / "t.tar.gz") as packed:
        links = {m.name: m.linkname for m in packed if m.issym() and m.name.startswith(top)}
        assert packed.getmember(f"{top}/real").isdir()
    assert links == {
        f"{top}/first": "real/../absolute",
        f"{top}/absolute": str(tmp_path / "folder" / "data"),
        f"{top}/folder": "real",
    }


def test_link_loop(tmp_path: Path) -> None:
    """Links in a circle are an error, not an endless loop, and no archive is left."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Exception, match="symbolic links"):
        pack_programs([str(tmp_path / "a")], tmp_path / "t.tar.gz")
    assert not (tmp_path / "t.tar.gz").exists()


def test_names_of_a_linked_compiler(toolchain: Toolchain, tmp_path: Path) -> None:
    """A compiler called through links is known by each of its names."""
    link = tmp_path / "clang"
    link.symlink_to(toolchain.clang[0])
    linked = replaced(toolchain, clang=(str(link),))
    names = compiler_names(linked)
    assert names[0] == str(link)
    assert os.path.realpath(toolchain.clang[0]) in names


def test_refuses_what_is_no_compiler_program(toolchain: Toolchain, tmp_path: Path) -> None:
    """Launchers, scripts and commands with options are refused, each with its reason."""
    script, launcher = tmp_path / "clang", tmp_path / "ccache"
    script.write_text(f'#!/bin/sh\nexec {toolchain.clang[0]} "$@"\n')
    script.chmod(0o755)
    launcher.write_bytes(Path("/bin/true").read_bytes())
    launcher.chmod(0o755)
    named = {
        ("ccache", "clang"): "without a launcher or options",
        (str(launcher),): "is ccache, not a compiler",
    }
    for command, message in named.items():
        with pytest.raises(CompilerError, match=message):
            compiler_programs(replaced(toolchain, clang=command))
    scripted = replaced(toolchain, clang=(str(script),))
    with pytest.raises(CompilerError, match="is a script"):
        pack_programs(compiler_programs(scripted), tmp_path / "t.tar.gz")
    assert not (tmp_path / "t.tar.gz").exists()


def test_refuses_the_embedded_compiler() -> None:
    """The embedded compiler is refused: sccache does not know it as one."""
    pytest.importorskip("ziglang")
    with pytest.raises(CompilerError, match=r"embedded compiler .* cannot be distributed"):
        compiler_programs(find_toolchain(clang="embedded"))


def test_missing_library(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A program whose library is found only through LD_LIBRARY_PATH is refused by its name."""
    clang = llvm("clang")
    if not Path("/usr/include/stdio.h").exists():
        missing("libc6-dev")
    for name, text in (
        ("l.c", "int f(void) { return 0; }"),
        ("m.c", "int f(void); int main(void){ return f(); }"),
    ):
        (tmp_path / name).write_text(text)
    library = tmp_path / "libhidden.so"
    subprocess.run([clang, "-shared", "-o", library, tmp_path / "l.c"], check=True)
    subprocess.run([clang, "-o", tmp_path / "m", tmp_path / "m.c", library], check=True)
    library.rename(tmp_path / "elsewhere.so")
    with pytest.raises(CompilerError, match=r"does not find \S*libhidden\.so;"):
        pack_programs([str(tmp_path / "m")], tmp_path / "t.tar.gz")
