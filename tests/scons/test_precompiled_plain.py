"""Precompiled headers of the C and C++ sources of offload programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from offload_tool.scons.precompiled import PCH_FOLDER
from tests.scons.conftest import Project, Run
from tests.scons.test_precompiled import ON, pchs, said

HEADER = """\
#pragma once
#if __has_include(<asked.h>)
#include <asked.h>
#endif
static inline int twice(int x) { return x + x; }
#ifdef __cplusplus
template <class T> T thrice(T x) { return x + x + x; }
#endif
"""
BODY = '#include "own.h"\nint {name}(int x) {{ return twice(x) + OWN + __LINE__; }}\n'
BEGIN = "// text\n#include <header.h>\n"
NAMES = ("a.cpp", "b.cc", "c.cxx")


def write(project: Project, names: tuple[str, ...] = NAMES, begin: str = BEGIN) -> None:
    project.write("second/header.h", HEADER)
    project.write("first/empty.h", "")
    project.write("own.h", "#define OWN 1\n")
    for name in names:
        project.write(name, begin + BODY.format(name=name.partition(".")[0]))


def build(
    project: Project, *lines: str, names: tuple[str, ...] = NAMES, run: tuple[str, ...] = ()
) -> Run:
    call = f"env.OffloadStaticLibrary('all', {[*names]!r})" if names else ""
    flags = "env.Append(CPPPATH=['#first', '#second'], CCFLAGS=['-O2'])"
    begin = "env.Replace(OFFLOAD_LAUNCHER='', OFFLOAD_SUMMARY=True)"
    project.sconstruct("\n".join([begin, flags, *lines, call]))
    return project.run(*run)


def objects(project: Project) -> dict[str, bytes]:
    files = sorted(project.folder.rglob("*.o")) + sorted(project.folder.rglob("*.os"))
    return {str(file.relative_to(project.folder)): file.read_bytes() for file in files}


def twin(project: Project, folder: Path) -> Project:
    """Give a copy of a project that has no precompiled headers."""
    other = Project(folder / "twin" / project.folder.name)
    shutil.copytree(project.folder, other.folder)
    return other


def assert_same(project: Project, other: Project, *lines: str, **options: tuple[str, ...]) -> Run:
    """Build both, with and without; they run the same, say the same and make the same."""
    run, plain = build(project, ON, *lines, **options), build(other, *lines, **options)
    assert (run.status, run.actions, run.errors) == (plain.status, plain.actions, plain.errors)
    assert objects(project) == objects(other)
    return run


def test_changes(project: Project, tmp_path: Path) -> None:
    """After each change the same is compiled, to the same bytes, as without."""
    write(project)
    other = twin(project, tmp_path)
    assert said(assert_same(project, other)) == "3 compiles with, 0 without"
    changes = {
        "second/header.h": HEADER.replace("x + x;", "x * x;"),
        "own.h": "#define OWN 2\n",
        "first/header.h": HEADER.replace("x + x;", "x - x;"),
        "first/asked.h": "#define ASKED\n",
        "a.cpp": BEGIN + BODY.format(name="aa"),
    }
    for name, text in changes.items():
        for each in (project, other):
            each.write(name, text)
        run = assert_same(project, other)
        assert run.status == 0, run.output + run.errors
    project.assert_up_to_date()


def test_an_edit_that_only_content_tells(project: Project, tmp_path: Path) -> None:
    """An edit of a header that leaves its size and time is in no object of a later compile."""
    write(project)
    other = twin(project, tmp_path)
    assert_same(project, other)
    for each in (project, other):
        header = each.folder / "second/header.h"
        before = header.stat()
        each.write("second/header.h", HEADER.replace("x + x;", "x - x;"))
        os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
        for name in NAMES:
            each.write(name, BEGIN + BODY.format(name=f"other_{name[0]}"))
            later = (each.folder / name).stat().st_mtime + 5  # SCons counts seconds
            os.utime(each.folder / name, (later, later))
    run = assert_same(project, other, "env.Decider('timestamp-match')")
    assert said(run) == "3 compiles with, 0 without"


def test_languages(project: Project, tmp_path: Path) -> None:
    """Sources of C have one of their own, those of an assembler none, shared objects another."""
    names = (*NAMES, "d.c", "e.c", "f.c", "g.S")
    write(project, names[:-1])
    project.write("g.S", "#include <empty.h>\n.globl g\ng: ret\n")
    other = twin(project, tmp_path)
    shared = f"env.OffloadSharedLibrary('some', {[*NAMES]!r})"
    run = assert_same(project, other, shared, names=names)
    assert run.status == 0, run.output + run.errors
    assert said(run) == "9 compiles with, 0 without"
    assert {name.rsplit(".", 2)[0] for name in pchs(project)} == {
        *("host.c++.1", "host.c++.2", "host.c.1"),
    }


def test_in_no_signature(project: Project) -> None:
    """Turned on or off, nothing is compiled; a CacheDir serves both; ``scons -c`` removes them."""
    cache = "CacheDir('../cache')"
    write(project)
    build(project, cache)
    made = objects(project)
    assert build(project, ON, cache).up_to_date
    assert pchs(project) == []
    assert build(project, ON, cache, run=("-c",)).status == 0
    run = build(project, ON, cache)
    assert said(run) == ""
    assert objects(project) == made
    shutil.rmtree(project.folder.parent / "cache")
    build(project, ON, cache, run=("-c",))
    assert said(build(project, ON, cache)) == "3 compiles with, 0 without"
    build(project, cache, run=("-c",))
    assert not objects(project)
    assert "Retrieved `a.o'" in build(project, cache).output
    assert objects(project) == made
    assert build(project, ON, run=("-c",)).status == 0
    assert not (project.folder / PCH_FOLDER).exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("env.Append(CCFLAGS=['-g', '-ffile-compilation-dir=.'])", "debug information (-g)"),
        ("env.Append(CXXFLAGS=['-MMD'])", "files beside its output"),
        ("env.Append(CCFLAGS=['-x', 'c++'])", "a language of its own (-x)"),
        ("env.Append(CCFLAGS=['@words'])", "a response file"),
        ("env.Append(CCFLAGS=['-fsanitize=undefined'])", "sanitizers"),
        ("env.Append(CCFLAGS=['-fkeep-static-consts'])", "each static constant is emitted"),
        ("env['ENV']['DEPENDENCIES_OUTPUT'] = 'd'", "the variable DEPENDENCIES_OUTPUT"),
        ("env['CXXCOM'] = env['CXXCOM'].replace('-c', '-S -c')", "a command of its own"),
        ("env.Append(CPPDEFINES={'S': '__attribute__((section(\"s\")))'})", "a section of its own"),
    ],
)
def test_flags_without(project: Project, tmp_path: Path, line: str, reason: str) -> None:
    """What was seen to differ, or is not known, is compiled as before, and told."""
    write(project)
    project.write("words", "-DX")
    run = assert_same(project, twin(project, tmp_path), line)
    assert run.status == 0, run.output + run.errors
    assert said(run) == f"0 compiles with, 3 without (3: {reason})"


def test_a_compiler_that_is_a_script(project: Project) -> None:
    """What a script or a compiler cache does with a command, nobody knows."""
    write(project)
    clang = shutil.which("clang-22") or shutil.which("clang")
    script = project.write("clang", f'#!/bin/sh\nexec {clang} "$@"\n')
    script.chmod(0o755)
    run = build(project, ON, f"env['OFFLOAD_CLANG'] = {str(script)!r}")
    assert said(run) == "0 compiles with, 3 without (3: a compiler that is a script)"
    run = build(project, ON, f"env['OFFLOAD_CLANG'] = 'env {clang}'")
    assert said(run) == "0 compiles with, 3 without (3: a compiler of several words)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("struct S { S(); ~S(); }; static S object;", "its headers define '_ZL6object'"),
        ("__attribute__((used)) static int used = 3;", "its headers define '_ZL4used'"),
        ('asm(".set name, 1");', "its headers define 'name'"),
        ('inline int v __attribute__((section("s"))) = 3;', "has a section of its own"),
        ("#pragma GCC visibility push(hidden)", "has a pragma without its end"),
        ('#pragma push_macro("X")', "has a pragma without its end"),
        ("#pragma weak thrice", "has a pragma that is lost"),
        ("#define DAY __DATE__", "has __DATE__"),
        ("#warning told", "messages while it was made"),
    ],
)
def test_headers_without(project: Project, tmp_path: Path, text: str, reason: str) -> None:
    """Headers whose code would be other code, or at another place, have none."""
    write(project)
    project.write("second/header.h", f"{HEADER}{text}\n")
    run = assert_same(project, twin(project, tmp_path))
    assert run.status == 0, run.output + run.errors
    assert said(run).startswith("0 compiles with, 3 without (3: ")
    assert reason in said(run)


def test_iostream(project: Project, tmp_path: Path) -> None:
    """The object by which libstdc++ makes its streams is where it is without."""
    begin = "#include <iostream>\n" + BEGIN
    write(project, begin=begin)
    for name in NAMES:
        code = f"struct T {{ T() {{ std::cout << 1; }} }} t_{name[0]};\n"
        project.write(name, begin + code + BODY.format(name=name[0]))
    assert said(assert_same(project, twin(project, tmp_path))) == "3 compiles with, 0 without"


def test_messages(project: Project, tmp_path: Path) -> None:
    """A source with warnings, or mistakes, says what it says without; ``-Werror`` fails."""
    write(project)
    project.write("a.cpp", BEGIN + "#warning told\n" + BODY.format(name="a"))
    other = twin(project, tmp_path)
    run = assert_same(project, other)
    assert run.errors.count("warning: told") == 1
    assert said(run) == "2 compiles with, 1 without (1: messages of the compiler)"
    for flag in ("-Werror", "-Wunused-macros"):
        assert_same(project, other, f"env.Append(CCFLAGS=[{flag!r}])", run=("-k",))


def test_own_after_edits(project: Project, tmp_path: Path) -> None:
    """A source that is edited alone gets a precompiled header of all that it begins with."""
    names = ("a.cpp",)
    begin = '#include "own.h"\n#define LOCAL 2\n#include <header.h>\n'
    write(project, names, begin)
    other = twin(project, tmp_path)
    assert_same(project, other, names=names)
    for number in range(3):
        for each in (project, other):
            each.write("a.cpp", begin + BODY.format(name=f"a{number}"))
        run = assert_same(project, other, names=names)
    assert said(run) == "1 compiles with, 0 without"
    assert len(list((project.folder / PCH_FOLDER).glob("*/host.c++.1.*.pch"))) == 1
    for each in (project, other):
        each.write("own.h", "#define OWN 3\n")
    assert_same(project, other, names=names)


def test_no_own_of_macros_that_clang_warns_of(project: Project, tmp_path: Path) -> None:
    """Clang warns of macros in a source that nothing uses, and not of those in a header."""
    names, begin = ("a.cpp",), '#include "own.h"\n#define LOCAL 2\n#include <header.h>\n'
    write(project, names, begin)
    other = twin(project, tmp_path)
    flags = "env.Append(CCFLAGS=['-Wunused-macros'])"
    for number in range(4):
        for each in (project, other):
            each.write("a.cpp", begin + BODY.format(name=f"a{number}"))
        run = assert_same(project, other, flags, names=names)
        assert "macro is not used" in run.errors


def test_variant_folders_and_repositories(project: Project, tmp_path: Path) -> None:
    """In variant folders, and of a Repository, sources use them, too."""
    write(project)
    for name in (*NAMES, "own.h"):
        (project.folder / name).rename(project.write(f"src/{name}", ""))
    project.write("src/SConscript", f"Import('env')\nenv.OffloadStaticLibrary('l', {[*NAMES]})\n")
    call = "SConscript('src/SConscript', 'env', variant_dir='out{0}', duplicate={0})"
    both = "\n".join(call.format(copies) for copies in (0, 1))
    other = twin(project, tmp_path)
    run = assert_same(project, other, both, names=())
    assert run.status == 0, run.output + run.errors
    assert said(run) == "6 compiles with, 0 without"
    away = Project(tmp_path / "away")
    away.folder.mkdir()
    shutil.copy(project.folder / "count", away.folder / "count")
    shutil.rmtree(project.folder / "out0")
    shutil.rmtree(project.folder / "out1")
    run = build(away, f"Repository({str(project.folder)!r})", ON, both, names=())
    assert run.status == 0, run.output + run.errors
    assert said(run) == "6 compiles with, 0 without"


def test_flags_that_change_after_the_call(project: Project, tmp_path: Path) -> None:
    """Two environments that differ only later do not use one precompiled header."""
    write(project, (*NAMES, "x.cpp", "y.cpp", "z.cpp"))
    later = (
        "more = env.Clone()",
        "more.OffloadStaticLibrary('more', ['x.cpp', 'y.cpp', 'z.cpp'])",
        "more.Append(CPPDEFINES={'OTHER': 1})",
    )
    run = assert_same(project, twin(project, tmp_path), *later)
    assert run.status == 0, run.output + run.errors
    assert "3: flags that were changed after they were given" in said(run)


def test_check(project: Project) -> None:
    """``OFFLOAD_PCH_CHECK`` compiles again without."""
    write(project)
    run = build(project, ON, "env.Replace(OFFLOAD_PCH_CHECK=1)")
    assert run.status == 0
    assert said(run) == "3 compiles with, 0 without"


def test_compile_commands(project: Project, tmp_path: Path) -> None:
    """``compile_commands.json`` has the commands without."""
    write(project)
    other = twin(project, tmp_path)
    line = "env.OffloadCompilationDatabase('compile_commands.json')"
    assert_same(project, other, line)
    texts = [
        (each.folder / "compile_commands.json").read_text().replace(str(each.folder), "")
        for each in (project, other)
    ]
    assert texts[0] == texts[1]


def test_a_program_runs(project: Project) -> None:
    """A program of such objects is linked, and does what its sources say."""
    write(project)
    project.write("main.cpp", BEGIN + "int a(int);\nint main() { return a(2) == 9 ? 0 : 1; }\n")
    names = (*NAMES, "main.cpp")
    lines = f"env.OffloadProgram('prog', {[*names]})"
    run = build(project, ON, lines, names=())
    assert run.status == 0, run.output + run.errors
    assert said(run) == "4 compiles with, 0 without"
    assert subprocess.run([project.folder / "prog"], check=False).returncode == 0
