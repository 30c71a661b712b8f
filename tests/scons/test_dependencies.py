"""Dependencies are exact: no change is missed, and a second build does nothing."""

from __future__ import annotations

import os
import time

import pytest

from tests.scons.conftest import KERNEL, SCONSTRUCT, Project, passes

BOTH = ("gfx906", "gfx90a:xnack+")
ALL = passes("k.hip", "host", *BOTH)
NODES = "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
FOLDERS = "env['CPPPATH'] = ['first', 'second']\n"
VALUED = "#include <value.h>\n" + KERNEL.replace("VALUE", "HERE")


@pytest.fixture
def folders(project: Project) -> Project:
    """Return a built project whose header is in the second of two folders."""
    project.write("k.hip", VALUED)
    project.write("first/other.h", "")
    project.write("second/value.h", "#define HERE 1\n")
    project.sconstruct(FOLDERS + NODES)
    assert project.build_once() == ALL
    return project


def test_header_appears_later_on_the_path(folders: Project) -> None:
    """A header of the same name in a later folder means nothing."""
    folders.sconstruct("env['CPPPATH'] = ['second', 'first']\n" + NODES)
    folders.build()
    folders.write("first/value.h", "#define HERE 2\n")
    folders.assert_up_to_date()


def test_header_appears_beside_the_source(folders: Project) -> None:
    """A header beside the source goes before one on the path, if it is included with quotes."""
    folders.write("value.h", "#define HERE 2\n")
    folders.assert_up_to_date()
    folders.write("k.hip", VALUED.replace("<value.h>", '"value.h"'))
    assert folders.build_once() == ALL


def test_generated_header_appears_earlier_on_the_path(folders: Project) -> None:
    """A header that the build makes, in an earlier folder, is there before the compile."""
    folders.write("value.txt", "#define HERE 2\n")
    folders.sconstruct(
        "env.Command('first/value.h', 'value.txt', Copy('$TARGET', '$SOURCE'))\n" + FOLDERS + NODES
    )
    assert folders.build_once() == ALL


def test_header_of_an_unread_branch_appears(project: Project) -> None:
    """A header that appears where only another target's preprocessing looks means nothing."""
    special = (
        '#if defined(__gfx90a__)\n#if __has_include("no")\n#endif\n#include "special.h"\n#endif\n'
    )
    project.write("k.hip", special + KERNEL)
    header = project.write("special.h", "")
    project.sconstruct(NODES)
    project.build()
    header.unlink()
    project.write("second/special.h", "")
    project.sconstruct("env['CPPPATH'] = ['second']\n" + NODES)
    project.build()  # other flags
    project.assert_up_to_date()
    project.write("special.h", "// appears\n")
    assert project.build_once() == passes("k.hip", "gfx90a:xnack+")


def test_included_by_a_flag(project: Project) -> None:
    """A header that a flag includes is a dependency of the passes that have it, and made first."""
    flags = "env.Append(OFFLOAD_FLAGS=['-include', 'forced.h'])\n"
    project.write("k.hip", KERNEL.replace("VALUE", "VALUE + FORCED"))
    generated = "env.Command('forced.h', 'forced.txt', Copy('$TARGET', '$SOURCE'))\n"
    project.write("forced.txt", "#define FORCED 1\n")
    project.sconstruct(
        "env.Append(OFFLOAD_HOST_FLAGS=['-DFORCED=0'])\n" + flags + NODES + generated
    )
    assert project.build_once() == ALL
    project.write("forced.txt", "#define FORCED 2\n")
    assert project.build_once() == passes("k.hip", *BOTH)


def test_deleted_header_that_is_missed(folders: Project) -> None:
    """Without a header that is included the compiler stops; with it all is as before."""
    (folders.folder / "second/value.h").unlink()
    run = folders.run("-k")
    assert run.status != 0
    assert "'value.h' file not found" in run.errors
    folders.write("second/value.h", "#define HERE 1\n")
    folders.build_once()


@pytest.mark.parametrize("duplicate", [False, True])
def test_variant_folder(project: Project, duplicate: bool) -> None:
    """In a variant folder, with copies or without, the same holds."""
    project.write("src/value.h", "#define HERE 1\n")
    project.write("src/k.hip", VALUED.replace("<value.h>", '"value.h"'))
    project.write("src/include/other.h", "")
    project.write("src/SConscript", "Import('env')\nenv['CPPPATH'] = ['include', '.']\n" + NODES)
    project.sconstruct(
        f"SConscript('src/SConscript', variant_dir='out', duplicate={duplicate}, exports='env')\n"
    )
    expected = passes("out/k.hip" if duplicate else "src/k.hip", "host", *BOTH)
    assert project.build() == expected
    assert (project.folder / "out/k.gfx906.co").exists()
    project.assert_up_to_date()
    project.write("src/value.h", "#define HERE 2\n")
    assert project.build_once() == expected
    project.write("src/k.hip", VALUED)
    assert project.build_once() == expected
    project.write("src/include/value.h", "#define HERE 3\n")
    assert project.build_once() == expected


def test_subdirectories(project: Project) -> None:
    """Sources of SConscripts in folders share headers; those of one concern that one."""
    project.write("include/all.h", "#define HERE 1\n")
    for name in ("a", "b"):
        project.write(f"{name}/{name}.hip", '#include <all.h>\n#include "own.h"\n' + KERNEL)
        project.write(f"{name}/own.h", "")
        project.write(
            f"{name}/SConscript",
            f"Import('env')\nenv.OffloadDeviceObject('{name}.hip', OFFLOAD_ARCH='gfx906')\n",
        )
    project.sconstruct(
        "env['CPPPATH'] = ['#include']\nSConscript(['a/SConscript', 'b/SConscript'], 'env')\n"
    )
    both = sorted(passes("a/a.hip", "gfx906") + passes("b/b.hip", "gfx906"))
    assert project.build_once() == both
    project.write("a/own.h", "// changed\n")
    assert project.build() == passes("a/a.hip", "gfx906")
    project.write("include/all.h", "#define HERE 2\n")
    assert project.build_once() == both


def test_repository(project: Project) -> None:
    """Sources and headers may be in a repository; local ones go before them."""
    there = project.folder.parent / "repository"
    other = Project(there)
    other.write("k.hip", VALUED)
    other.write("include/value.h", "#define HERE 1\n")
    (project.folder / "k.hip").unlink()
    project.sconstruct(f"Repository({str(there)!r})\nenv['CPPPATH'] = ['include']\n" + NODES)
    expected = passes(f"{there}/k.hip", "host", *BOTH)
    assert project.build_once() == expected
    other.write("include/value.h", "#define HERE 2\n")
    assert project.build_once() == expected
    project.write("include/value.h", "#define HERE 3\n")
    assert project.build_once() == expected
    project.write("k.hip", VALUED.replace("HERE", "HERE + 1"))
    assert project.build_once() == ALL


def test_generated_headers_of_generated_headers(project: Project) -> None:
    """All headers that the build makes are there before the first compile, nested ones too."""
    project.write("inner.txt", "#define HERE 1\n")
    project.write("outer.txt", '#include "inner.h"\n')
    project.write("k.hip", '#include "outer.h"\n' + KERNEL.replace("VALUE", "HERE"))
    generate = "".join(
        f"env.Command('{name}.h', '{name}.txt', Copy('$TARGET', '$SOURCE'))\n"
        for name in ("outer", "inner", "late")
    )
    project.write("late.txt", "#define LATE 1\n")
    project.sconstruct(NODES + generate)
    assert project.build_once("k.gfx906.co") == passes("k.hip", "gfx906")
    project.write("inner.txt", "#define HERE 2\n")
    assert project.build_once("k.gfx906.co") == passes("k.hip", "gfx906")
    # One that is included only now has not been made yet.
    project.write("outer.txt", '#include "inner.h"\n#include "late.h"\n')
    assert project.build("k.gfx906.co") == passes("k.hip", "gfx906")
    assert (project.folder / "late.h").exists()
    project.assert_up_to_date("k.gfx906.co")


def test_generated_source(project: Project) -> None:
    """A source that the build makes is compiled once, and anew when it comes out different."""
    project.write("k.txt", KERNEL)
    (project.folder / "k.hip").unlink()
    project.sconstruct(NODES + "env.Command('k.hip', 'k.txt', Copy('$TARGET', '$SOURCE'))\n")
    assert project.build_once() == ALL
    project.write("k.txt", KERNEL + "// a comment\n")
    assert project.build_once() == ALL


def test_header_of_one_openmp_pass(project: Project) -> None:
    """A C source has no dependencies but those of its pass, though SCons could scan it."""
    project.write("only.h", "#define ONLY 1\n")
    project.write(
        "k.c", '#ifdef __gfx90a__\n#include "only.h"\n#endif\nint f(void) { return 1; }\n'
    )
    project.sconstruct("env.OffloadDeviceObject('k.c', OFFLOAD_KIND='openmp')\n")
    assert project.build_once() == passes("k.c", "host-ir", *BOTH)
    project.write("only.h", "#define ONLY 2\n")
    assert project.build_once() == passes("k.c", "gfx90a:xnack+")


@pytest.mark.parametrize(
    "decider", ["content", "content-timestamp", "timestamp-match", "timestamp-newer"]
)
def test_deciders(project: Project, decider: str) -> None:
    """With each of SCons's deciders, a second build does nothing and a change is seen."""
    project.write("value.h", "#define HERE 1\n")
    project.write("only.h", "")
    project.write(
        "k.hip", '#ifdef __gfx90a__\n#include "only.h"\n#endif\n#include "value.h"\n' + KERNEL
    )
    project.sconstruct(f"env.Decider({decider!r})\n" + NODES)
    assert project.build_once() == ALL
    later = time.time() + 5
    for name, expected in (("value.h", ALL), ("only.h", passes("k.hip", "gfx90a:xnack+"))):
        os.utime(project.write(name, "#define HERE 2\n"), (later, later))
        assert project.build() == expected
        if decider != "timestamp-newer":  # for which the header stays newer than the object
            project.assert_up_to_date()
        os.utime(project.folder / name, (later - 10, later - 10))
        project.build()


PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"


def test_new_include(project: Project) -> None:
    """An include that a change brings is followed from then on, also one in a header."""
    project.sconstruct(PROGRAM)
    project.write("inner.h", "#define INNER 1\n")
    project.build()
    project.write("outer.h", '#include "inner.h"\n')
    project.write("k.hip", '#include "outer.h"\n' + KERNEL.replace("VALUE", "INNER"))
    assert project.build_once() == passes("k.hip", "host", *BOTH)
    project.write("inner.h", "#define INNER 2\n")
    assert project.build_once() == passes("k.hip", "host", *BOTH)


def test_include_that_no_pass_reads(project: Project) -> None:
    """A header under #if 0 is not a dependency, and not a reason to compile for ever."""
    project.write("never.h", "")
    project.write("k.hip", '#if 0\n#include "never.h"\n#endif\n' + KERNEL)
    project.sconstruct(PROGRAM)
    project.build_once()
    project.write("never.h", "// changed\n")
    project.assert_up_to_date()


def test_deleted_header(project: Project) -> None:
    """A header that is deleted and no longer included does not stop the build."""
    header = project.write("gone.h", "#define GONE 1\n")
    project.write("k.hip", '#include "gone.h"\n' + KERNEL.replace("VALUE", "GONE"))
    project.sconstruct(PROGRAM)
    project.build()
    header.unlink()
    project.write("k.hip", KERNEL)
    assert project.build_once() == passes("k.hip", "host", *BOTH)


def test_blanks_in_names(project: Project) -> None:
    """Folders and headers with blanks in their names are dependencies like any other."""
    project.write("a dir/my header.h", "#define MINE 1\n")
    project.write("a dir/k.hip", '#include "my header.h"\n' + KERNEL.replace("VALUE", "MINE"))
    project.sconstruct("env.OffloadBundle('a dir/k.hip')\n")
    project.build_once()
    project.write("a dir/my header.h", "#define MINE 2\n")
    assert len(project.build_once()) == 2


def test_failed_compile_is_repeated(project: Project) -> None:
    """A compile that failed leaves no output, and the old source builds at once again."""
    project.sconstruct(PROGRAM)
    project.build()
    project.write("k.hip", KERNEL + "this is not C++\n")
    run = project.run()
    assert run.status != 0
    assert "k.hip" in run.errors
    project.write("k.hip", KERNEL)
    project.build_once()


def test_sconstruct_head_is_what_users_write() -> None:
    """The tests load the tool as the README says."""
    assert 'toolpath=[PyPackageDir("offload_tool.scons")]' in SCONSTRUCT
