"""The files that a command's words name, in all the ways in which clang takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool.clang.argument_files import (
    LINKERS_FOLDERS,
    files_read,
    include_folders,
    linked_files,
    linker_depfile,
    looked_up,
    possible_files,
    unlisted_by,
    unlisted_by_linker,
)


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["@words"], "words"),
        (["--config", "c.cfg"], "c.cfg"),
        (["--config=c.cfg"], "c.cfg"),
        (["-mlink-builtin-bitcode", "lib.bc"], "lib.bc"),
        (["-Xclang", "-mlink-builtin-bitcode", "-Xclang", "lib.bc"], "lib.bc"),
        (["-fprofile-use=p.profdata"], "p.profdata"),
        (["-fprofile-use=folder"], "folder/default.profdata"),
        (["-fprofile-use"], "default.profdata"),
        (["-fprofile-instr-use=p.profdata"], "p.profdata"),
        (["-fprofile-sample-use=p.txt"], "p.txt"),
        (["-fsanitize-ignorelist=list.txt"], "list.txt"),
        (["-fplugin=plugin.so"], "plugin.so"),
        (["-fpass-plugin=plugin.so"], "plugin.so"),
        (["-Xclang", "-load", "-Xclang", "plugin.so"], "plugin.so"),
        (["-include", "x.h"], "x.h"),
        (["-include", "x.h"], "x.h.pch"),
        (["-include", "x.h"], "x.h.gch"),
        (["-includex.h"], "x.h"),
        (["--include=x.h"], "x.h"),
        (["--include=x.h"], "x.h.pch"),
        (["--imacros", "x.h"], "x.h"),
        (["-include-pch", "x.pch"], "x.pch"),
        (["-imacros", "x.h"], "x.h"),
        (["-Wl,-T,script.ld"], "script.ld"),
        (["-Wl,--version-script=v.map"], "v.map"),
        (["-T", "script.ld"], "script.ld"),
        (["-Tscript.ld"], "script.ld"),
        (["-fbasic-block-sections=list=f.txt"], "f.txt"),
        (["-fmodule-file=m=m.pcm"], "m.pcm"),
        (["-fplugin=a=b.so"], "a=b.so"),
        (["-B", "folder"], "folder/ld.lld"),
        (["--prefix=folder"], "folder/ld.lld"),
    ],
)
def test_spellings(args: Sequence[str], name: str) -> None:
    """A file that an option takes is among those that may be named."""
    assert name in possible_files(args)


@pytest.mark.parametrize(
    "args",
    [
        ["-include", "x.h"],
        ["--include=x.h"],
        ["-include-pch", "x.h.pch"],
        ["-Xclang", "-include-pch", "-Xclang", "x.h.pch/."],
    ],
)
def test_folder_of_precompiled_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    """Each file in it may be the one that clang reads."""
    monkeypatch.chdir(tmp_path)
    Path("x.h.pch").mkdir()
    Path("x.h.pch/gfx906").touch()
    assert any(Path(name) == Path("x.h.pch/gfx906") for name in possible_files(args))


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (["-fprofile-use=folder"], "folder/default.profdata"),
        (["-Xarch_host", "-fprofile-use"], "default.profdata"),
        (["-fbuild-session-file=f"], "f"),
        (["-include-pch", "x.h.pch"], "x.h.pch"),
        (["-Xarch_host", "--include=x.h"], "x.h.gch"),
        (["--include", "x.h"], "x.h.pch"),
    ],
)
def test_looked_up(args: Sequence[str], name: str) -> None:
    """The driver itself looks for a file that an option takes."""
    assert name in looked_up(args)


@pytest.mark.parametrize("word", ["-DNAME=file", "-UNAME", "-Ifolder", "-Wfile", "-std=c++17"])
def test_no_files(word: str) -> None:
    """Macros, warnings and search folders name no files."""
    assert possible_files([word]) == ()


@pytest.mark.parametrize(
    ("args", "text", "expected"),
    [
        (["-ivfsoverlay", "o.yaml"], "{'use-external-names': false}", "o.yaml"),
        (["-ivfsoverlayo.yaml"], "\"use-external-names\" : 'false'", "o.yaml"),
        (["--vfsoverlay=o.yaml"], "use-external-names:\n  no", "o.yaml"),
        (["-Xclang", "-ivfsoverlay", "-Xclang", "o.yaml"], "use-external-names: 0", "o.yaml"),
        (["-Wp,-ivfsoverlay,o.yaml"], "use-external-names: 0", "o.yaml"),
        (["-ivfsoverlay", "o.yaml"], "use-external-names: true, use-external-names: no", "o.yaml"),
        (["-ivfsoverlay", "o.yaml"], "{'use-external-names': 'true'}", ""),
        (["-ivfsoverlay", "o.yaml"], "{}", ""),
        (["-ivfsoverlay", "o.yaml"], "{'use-external-name': false}", "o.yaml"),
        (["-Xclang=-ivfsoverlay", "-Xclang=o.yaml"], "use-external-names: 0", "o.yaml"),
        (["--config", "c.cfg"], "use-external-names: 0", "o.yaml"),
        (["o.yaml", "-ivfsoverlay", "none"], "use-external-names: false", ""),
        (["-include", "o.yaml"], "use-external-names: false", ""),
        (["-Xclang", "-remap-file", "-Xclang", "a;b"], "", "-remap-file"),
        (["-fapinotes-modules"], "", "-fapinotes-modules"),
        (["-Xclang", "-chain-include", "-Xclang", "x.h"], "", "-chain-include"),
    ],
)
def test_unlisted_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], text: str, expected: str
) -> None:
    """Depfiles name all files read, unless an overlay or a flag hides names."""
    monkeypatch.chdir(tmp_path)
    Path("o.yaml").write_text(text)
    Path("c.cfg").write_text("-ivfsoverlay o.yaml")
    assert unlisted_by(args) == expected


def test_folders_of_the_sysroot() -> None:
    """A ``=`` before a directory of headers stays: it means the sysroot."""
    args = ("-I=/inc", "-I", "b", "-I-x", "-isystem=/z", "--include-directory", "c")
    assert include_folders((*args, "--include-directory-after=d")) == (
        *("=/inc", "b", "-x", "=/z", "c", "d"),
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("-Xoffload-linker -lm", "-lm"),
        ("-Wl,-lm", "-lm"),
        ("-Wl,--as-needed -lm", ""),
        ("-Xoffload-linker -Tscript", "-Tscript"),
        ("-Xoffload-linker -script=script", "-script=script"),
        ("-Xoffload-linker script", "script"),
        ("-Xoffload-linker thin.a", "thin.a"),
        ("-Xoffload-linker fat.a -Xoffload-linker k.o -Xoffload-linker k.bc script", ""),
        ("-Xoffload-linker empty", ""),
        ("-Xoffload-linker --remap-inputs-file=script", "--remap-inputs-file=script"),
        ("-Xoffload-linker --version-script=script", ""),
        ("-Xoffload-linker --version-script -Xoffload-linker elsewhere", "elsewhere"),
    ],
)
def test_what_linkers_read_unnamed_in_a_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str, expected: str
) -> None:
    """Only arguments for a linker count: what it searches for, and files that name others."""
    monkeypatch.chdir(tmp_path)
    begins = {"script": "INPUT(x.o)", "thin.a": "!<thin>\n", "fat.a": "!<arch>\n", "empty": ""}
    for name, text in {**begins, "k.o": "\x7fELF"}.items():
        Path(name).write_text(text)
    Path("k.bc").write_bytes(b"BC\xc0\xde")
    assert unlisted_by_linker(args.split()) == expected


@pytest.mark.parametrize(
    "args",
    [
        "-L lib -lx",
        "--library-directory=lib -lx",
        "--library-directory lib -lx",
        "-Wl,--library-path,lib -lx",
        "-Llib --for-linker=-lx",
        "-Llib --for-linker -lx",
        "-Llib -Xlinker -lx",
        "--config=link.cfg",
        "--config link.cfg",
        "-lx --sysroot=root",
        "-lx --sysroot root",
        "-Lstub -Llib --static -lx",
        "-Lstub -Llib -static-pie -lx",
        "-Lstub -Llib -Wl,--Bstatic -lx",
    ],
)
def test_linked_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str) -> None:
    """A library is found in every form that the driver passes on."""
    monkeypatch.chdir(tmp_path)
    root = f"root{LINKERS_FOLDERS[-1]}"
    for name in ("lib/libx.a", "stub/libx.so", f"{root}/libx.a"):
        Path(name).parent.mkdir(parents=True)
        Path(name).touch()
    Path("link.cfg").write_text("-Llib $-lx\n")
    found = linked_files(args.split(), lambda name: name if Path(name).exists() else None)
    assert [*found] == [f"{root}/libx.a" if "root" in args else "lib/libx.a"]


DEPFILES = {
    "GNU ld": "x: \\\n  m.o \\\n  a b/lib$.a \\\n  gone\nm.o:\n\na b/lib$.a:\n\ngone:\n",
    "lld": "x: \\\n m.o \\\n a\\ b/lib$$.a\nm.o:\n\na\\ b/lib$$.a:\n",
}


@pytest.mark.parametrize("linker", DEPFILES)
def test_depfile_of_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linker: str) -> None:
    """A linker's depfile names what it has read, escaped or not; temporary files are gone."""
    monkeypatch.chdir(tmp_path)
    Path("a b").mkdir()
    for name in ("m.o", "a b/lib$.a"):
        Path(name).touch()
    Path("x.d").write_text(DEPFILES[linker])
    assert [*files_read("x.d")] == ["m.o", "a b/lib$.a"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("-Xlinker --dependency-file=a.d", "a.d"),
        ("-Wl,--dependency-file,a.d", "a.d"),
        ("-Wl,--dependency-file=a.d -Wl,-dependency-file=b.d", "b.d"),
        ("-MF a.d -lm", ""),
    ],
)
def test_flag_of_linkers_depfile(args: str, expected: str) -> None:
    """The last flag names the linker's depfile."""
    assert linker_depfile(args.split()) == expected
