"""What is compiled again after a change: only what the change can reach."""

from __future__ import annotations

from tests.scons.conftest import KERNEL, SCONSTRUCT, Project, passes

BOTH = ("gfx906", "gfx90a:xnack+")
PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"


def test_new_include(project: Project) -> None:
    """An include that a change brings is followed from then on, also one in a header."""
    project.sconstruct(PROGRAM)
    project.write("inner.h", "#define INNER 1\n")
    project.build()
    project.write("outer.h", '#include "inner.h"\n')
    project.write("k.hip", '#include "outer.h"\n' + KERNEL.replace("VALUE", "INNER"))
    assert project.build() == passes("k.hip", "host", *BOTH)
    project.assert_up_to_date()
    project.write("inner.h", "#define INNER 2\n")
    assert project.build() == passes("k.hip", "host", *BOTH)
    project.assert_up_to_date()


def test_include_that_no_pass_reads(project: Project) -> None:
    """A header under #if 0 is not a dependency, and not a reason to compile for ever."""
    project.write("never.h", "")
    project.write("k.hip", '#if 0\n#include "never.h"\n#endif\n' + KERNEL)
    project.sconstruct(PROGRAM)
    project.build()
    project.assert_up_to_date()
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
    assert project.build() == passes("k.hip", "host", *BOTH)
    project.assert_up_to_date()


def test_blanks_in_names(project: Project) -> None:
    """Folders and headers with blanks in their names are dependencies like any other."""
    project.write("a dir/my header.h", "#define MINE 1\n")
    project.write("a dir/k.hip", '#include "my header.h"\n' + KERNEL.replace("VALUE", "MINE"))
    project.sconstruct("env.OffloadBundle('a dir/k.hip')\n")
    project.build()
    project.assert_up_to_date()
    project.write("a dir/my header.h", "#define MINE 2\n")
    assert len(project.build()) == 2
    project.assert_up_to_date()


def test_failed_compile_is_repeated(project: Project) -> None:
    """A compile that failed leaves no output, and the old source builds at once again."""
    project.sconstruct(PROGRAM)
    project.build()
    project.write("k.hip", KERNEL + "this is not C++\n")
    run = project.run()
    assert run.status != 0
    assert "k.hip" in run.errors
    project.write("k.hip", KERNEL)
    project.build()
    project.assert_up_to_date()


def test_sconstruct_head_is_what_users_write() -> None:
    """The tests load the tool as the README says."""
    assert 'toolpath=[PyPackageDir("offload_tool.scons")]' in SCONSTRUCT
