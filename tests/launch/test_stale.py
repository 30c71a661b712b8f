"""OFFLOAD_LAUNCH_CACHE beside what no depfile lists: the object is the driver's after each change.

Each case failed once, or stands for a sentence of docs/launch.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offload_tool.io.file_digests import make_marker
from offload_tool.launch.split_compile import run_split
from tests.launch.compiles import HIP, LAUNCH, environment, make_project, run

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

TARGET = ("--offload-arch=gfx906", "-I.", "-c", "s.hip", "-o", "s.o")
CACHE = {"OFFLOAD_LAUNCH_CACHE": "cache"}


class Project:
    """A project, compiled by us with a cache, and by the driver."""

    def __init__(self, folder: Path, clang: str) -> None:
        self.folder = folder
        self.clang = clang
        self.words: list[str] = []
        make_project(folder)

    def add(self, text: str) -> None:
        """Put something behind the source."""
        with (self.folder / "s.hip").open("a") as file:
            file.write(f"{text}\n")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def command(self) -> list[str]:
        # Ours come first: what is looked for first is to be that of the test.
        return [self.clang, *HIP, *self.words, *TARGET]

    def ours(self, **more: str) -> subprocess.CompletedProcess[str]:
        # A file that is as new as the compile may change once more in the same moment.
        settle(self.folder)
        done = run([*LAUNCH, *self.command()], self.folder, {**CACHE, **more})
        assert "launch: split: " in done.stderr
        return done

    def is_right(self, **more: str) -> bool:
        """Return whether our object and status are the driver's."""
        found = []
        done = self.ours(**more)
        for one in (done, None):
            if one is None:
                one = run(self.command(), self.folder, more)
            path = self.folder / "s.o"
            found.append((one.returncode, path.read_bytes() if path.exists() else b""))
            path.unlink(missing_ok=True)
        return found[0] == found[1]


def settle(folder: Path) -> None:
    """Wait until the clock of files has gone on."""
    begin = make_marker(str(folder.with_name("marker")))
    while make_marker(str(folder.with_name("marker"))) <= begin:
        time.sleep(0.002)


def hits(done: subprocess.CompletedProcess[str]) -> int:
    return done.stderr.count(": from the cache")


@pytest.fixture
def project(tmp_path: Path, llvm: Callable[[str], str]) -> Project:
    return Project(tmp_path / "project", llvm("clang++"))


pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("directive", [".incbin", ".include"])
def test_assembler_reads(directive: str, project: Project) -> None:
    """A file that the assembler alone reads, which no depfile lists, is read each time."""
    project.add(
        f'#ifndef __HIP_DEVICE_COMPILE__\nasm(".data\\n{directive} \\"data\\"\\n.text");\n#endif'
    )
    project.write("data", ".byte 1\n")
    assert project.is_right()
    project.write("data", ".byte 2\n")
    assert project.is_right()


@pytest.mark.parametrize("where", ["source", "header", "words", "response"])
def test_time(where: str, project: Project) -> None:
    """A pass that may hold the time of its compile is not kept, wherever that is spelled."""
    if where == "source":
        project.add("const char *when = __TIME__;")
    elif where == "header":
        project.write("value.h", "#define VALUE 3\nstatic const char *when = __TIMESTAMP__;\n")
    else:
        project.add("const char *when = WHEN;")
        project.words = ["-DWHEN=__DATE__"]
        if where == "response":
            project.write("words", "-DWHEN=__DATE__")
            project.words = ["@words"]
    assert [project.ours().returncode, hits(project.ours())] == [0, 0]


def test_copy_in_place_of_a_link(project: Project) -> None:
    """A header that was a link to another one is another file when it is a copy (#pragma once)."""
    text = "#pragma once\n#ifdef SEEN\n#define TWICE 1\n#endif\n#define SEEN\n"
    project.write("a.h", text)
    link = project.folder / "b.h"
    link.symlink_to("a.h")
    project.add('#include "a.h"\n#include "b.h"\n#ifdef TWICE\nint twice;\n#endif')
    assert project.is_right()
    link.unlink()
    project.write("b.h", text)
    assert project.is_right()
    assert hits(project.ours()) == 2


def test_has_include_of_an_absolute_name(project: Project) -> None:
    """A file that appears under the absolute name that __has_include asks for is seen."""
    name = project.folder / "later/x.h"
    project.add(f'#if __has_include("{name}")\nint there;\n#endif')
    assert project.is_right()
    project.write("later/x.h", "")
    assert project.is_right()


EARLIER = {
    "-iwithprefixbefore": ["-iprefix", "ROOT/", "-iwithprefixbefore", "first"],
    "-iwithsysroot": ["-isysroot", "ROOT", "-iwithsysroot", "/first"],
    "-isystem=": ["-isysroot", "ROOT", "-isystem", "=/first"],
    "-I=": ["-isysroot", "ROOT", "-I=/first"],
    "-iframework": ["-iframework", "ROOT"],
    "-I//": ["-IROOT//first//"],
}


@pytest.mark.parametrize("option", EARLIER)
def test_earlier_folder(option: str, project: Project) -> None:
    """A header that appears in an earlier folder is seen, however that folder is named."""
    root = project.folder / "root"
    (root / "first").mkdir(parents=True)
    project.write("second/sub/found.h", "#define FOUND 1\n")
    project.words = [word.replace("ROOT", str(root)) for word in EARLIER[option]]
    project.words += ["-isystem", "second"]
    project.add("#include <sub/found.h>\nint found = FOUND;")
    assert project.is_right()
    folder = "sub.framework/Headers" if option == "-iframework" else "first/sub"
    project.write(f"root/{folder}/found.h", "#define FOUND 2\n")
    assert project.is_right()


def test_overlay(project: Project) -> None:
    """Overlays give headers other names, so passes with one are not kept."""
    real = {"type": "file", "name": "virtual.h", "external-contents": f"{project.folder}/real.h"}
    root = {"type": "directory", "name": str(project.folder), "contents": [real]}
    overlay = project.write("overlay", json.dumps({"version": 0, "roots": [root]}))
    project.write("real.h", "int real = 1;\n")
    project.words = ["-ivfsoverlay", str(overlay)]
    project.add(f'#include "{project.folder}/virtual.h"')
    assert project.is_right()
    project.write("real.h", "int real = 2;\n")
    assert project.is_right()


def test_name_with_a_comma(project: Project) -> None:
    """A file that a word names counts, whatever its name is."""
    name = "list,a=b"
    project.write(name, "src:nothing\n")
    for word in ("-fsanitize=integer-divide-by-zero", f"-fsanitize-ignorelist={name}"):
        project.words += ["-Xarch_host", word]
    project.add("int divided(int a, int b) { return a / b; }")
    assert project.is_right()
    project.write(name, "src:*s.hip\n")
    assert project.is_right()


@pytest.mark.parametrize("driver", ["--offload-new-driver", "--no-offload-new-driver"])
@pytest.mark.parametrize("spelling", ["-lfound", "first/libfound.a"])
def test_library_of_a_link(spelling: str, driver: str, project: Project) -> None:
    """A library for the link of device code is read as it is, however it is found."""
    project.add("__attribute__((device)) int found(); __global__ void f(int *x) { *x = found(); }")
    project.words = [driver, "-Xoffload-linker", "-Lfirst", "-Xoffload-linker", spelling]
    for value in (1, 2):
        project.write("found.c", f"int _Z5foundv() {{ return {value}; }}\n")
        target = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx906", "-nogpulib", "-fvisibility=hidden")
        place = project.write("first/libfound.a", "")  # a linker takes an object under any name
        words = [project.clang, "-x", "c", *target, "-c", "found.c", "-o", place]
        assert run(words, project.folder).returncode == 0
        command = run(project.command(), project.folder)
        assert command.returncode == 0, command.stderr
        expected = (project.folder / "s.o").read_bytes()
        done = run([*LAUNCH, *project.command()], project.folder, CACHE)
        assert done.returncode == 0, done.stderr
        assert (project.folder / "s.o").read_bytes() == expected


def test_output_is_no_input(project: Project) -> None:
    """The object of an earlier compile is no input, though the words of a depfile name it."""
    project.words = ["-MD"]
    project.ours()
    project.write("value.h", "#define VALUE 4\n")
    assert hits(project.ours()) == 0
    (project.folder / "s.o").unlink()
    assert hits(project.ours()) == 2


def test_what_a_pass_prints(project: Project) -> None:
    """What passes print to standard output is the driver's text, each time."""
    project.add("struct Laid { int out; }; int laid = sizeof(Laid);")
    project.words = ["-Xclang", "-fdump-record-layouts"]

    def printed(done: subprocess.CompletedProcess[str]) -> str:
        return re.sub("0x[0-9a-f]+", "", done.stdout)

    expected = printed(run(project.command(), project.folder))
    assert "Laid" in expected
    assert [printed(project.ours()) for _ in range(2)] == [expected] * 2


def test_folder_is_in_the_key(project: Project) -> None:
    """The folder of the build is part of the key: another checkout compiles for itself."""
    cache = str(project.folder.with_name("shared"))
    project.ours(OFFLOAD_LAUNCH_CACHE=cache)
    assert hits(project.ours(OFFLOAD_LAUNCH_CACHE=cache)) == 2
    other = project.folder.with_name("moved")
    project.folder.rename(other)
    project.folder = other
    assert hits(project.ours(OFFLOAD_LAUNCH_CACHE=cache)) == 0


@pytest.mark.parametrize("variable", ["HIP_PATH", "ROCM_PATH", "CPATH", "SOURCE_DATE_EPOCH"])
def test_variable_is_in_the_key(variable: str, project: Project) -> None:
    """A variable that the compiler heeds is part of the key."""
    folder = str(project.folder) if variable != "SOURCE_DATE_EPOCH" else "1"
    project.ours()
    assert hits(project.ours(**{variable: folder})) == 0
    assert hits(project.ours(**{variable: folder})) == 2
    assert hits(project.ours()) == 2


@pytest.mark.parametrize(
    "words",
    [
        *(["-save-temps"], ["-save-temps=obj"], ["-g", "-gsplit-dwarf"], ["-ftime-trace"]),
        *(["-fmodules", "-fmodules-cache-path=modules"], ["-Xclang", "-load", "-Xclang", "PLUGIN"]),
    ],
    ids=" ".join,
)
def test_not_kept(words: list[str], project: Project) -> None:
    """A compile that writes more, that uses modules, or plugins, is compiled each time."""
    project.words = [word.replace("PLUGIN", library(project)) for word in words]
    done = [project.ours() for _ in range(2)]
    assert [(one.returncode, hits(one)) for one in done] == [(0, 0)] * 2, done[0].stderr


def library(project: Project) -> str:
    """Return a shared library that any program can load."""
    text = project.write("plugin.c", "int of_no_use;\n")
    made = project.folder / "plugin.so"
    done = run([project.clang, "-x", "c", "-shared", "-fPIC", text, "-o", made], project.folder)
    assert done.returncode == 0, done.stderr
    return str(made)


@pytest.mark.parametrize("which", ["output", "depfile", "said", "manifest"])
def test_damaged_result_leaves_no_trace(which: str, project: Project) -> None:
    """What a damaged result says is not told; the pass is run."""
    project.add("#warning hear me")
    first = project.ours()
    for path in (project.folder / "cache").rglob(which):
        data = path.read_bytes()
        path.write_bytes(data[:3] + bytes([data[3] ^ 1]) + data[4:])
    second = project.ours()
    assert (second.returncode, hits(second)) == (0, 0)
    assert second.stderr == first.stderr
    assert hits(project.ours()) == 2


def test_any_byte_of_a_manifest(project: Project) -> None:
    """Whichever byte of a manifest is changed, its result is not taken."""
    project.ours()
    for path in (project.folder / "cache").rglob("manifest"):
        data = path.read_bytes()
        at = data.index(b'"names"') + 14  # a name that is looked for
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert hits(project.ours()) == 0


def test_header_that_comes_meanwhile(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that comes between its lookup and the end of the compile is seen the next time."""
    project.words = ["-Ifirst", "-Isecond"]
    (project.folder / "first").mkdir()
    project.write("second/found.h", "#define FOUND 1\n")
    project.add("#include <found.h>\n__global__ void other(int *x) { *x = FOUND; }")
    lld = project.write("tools/lld", "")
    real = shutil.which(f"{Path(project.clang).resolve().parent}/lld")
    assert real
    place = f"{project.folder}/first/found.h"
    lld.write_text(f'#!/bin/sh\necho "#define FOUND 2" >{place}\nexec {real} "$@"\n')
    lld.chmod(0o755)
    monkeypatch.chdir(project.folder)
    settle(project.folder)
    environ = environment({**CACHE, "COMPILER_PATH": str(lld.parent), "OFFLOAD_LAUNCH_JOBS": "1"})
    assert run_split(project.command(), environ, [].append)[0] == 0
    monkeypatch.undo()
    assert project.is_right(COMPILER_PATH=str(lld.parent))


def test_one_response_file_for_all(project: Project) -> None:
    """Two sources that one response file names, one after the other, have different IDs."""
    objects = []
    for name in ("one", "two"):
        project.write(f"{name}.hip", "static __attribute__((device)) int state;\n")
        project.write("words", f"{name}.hip -o s.o")
        words = [*HIP[:-1], "-fgpu-rdc", "--offload-arch=gfx906", "-c", "@words"]
        done = run([*LAUNCH, project.clang, *words], project.folder)
        assert done.returncode == 0, done.stderr
        objects.append((project.folder / "s.o").read_bytes())
    # Clang writes no leading zeros of the 16 digits.
    ids = [re.search(rb"__hip_cuid_([0-9a-f]+)\0", text) for text in objects]
    assert len({found[1] for found in ids if found}) == 2


def test_unusable_cache(project: Project) -> None:
    """A cache that cannot be written is as none, and nothing is said of it."""
    cache = project.write("cache", "a file")
    for _ in range(2):
        assert project.is_right()
    assert cache.read_text() == "a file"
    if os.geteuid():
        return
    assert project.is_right(OFFLOAD_LAUNCH_CACHE="/proc/nowhere")
