"""What is compiled again after a change: only what the change can reach."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from offload_tool.toolchain.select import find_toolchain
from tests.scons.conftest import KERNEL, SCONSTRUCT, Project, passes

BOTH = ("gfx906", "gfx90a:xnack+")
PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"


def test_first_and_second_build(project: Project) -> None:
    """The first build compiles each source once per target ID and once for the host."""
    project.sconstruct(PROGRAM)
    assert project.build() == passes("k.hip", "host", *BOTH)
    project.assert_up_to_date()


def test_flags_of_one_target(project: Project) -> None:
    """OFFLOAD_ARCH_FLAGS of one target compile that target's code alone."""
    project.sconstruct(PROGRAM)
    project.build()
    project.sconstruct("env['OFFLOAD_ARCH_FLAGS'] = {'gfx906': ['-O3']}\n" + PROGRAM)
    assert project.build() == passes("k.hip", "gfx906")
    project.assert_up_to_date()


def test_added_removed_and_reordered_targets(project: Project) -> None:
    """A new target compiles itself; removing one, or another order, compiles nothing."""
    project.sconstruct(PROGRAM)
    project.build()
    project.sconstruct("env['OFFLOAD_ARCH'] = 'gfx1100 gfx906 gfx90a:xnack+'\n" + PROGRAM)
    assert project.build() == passes("k.hip", "gfx1100")
    project.sconstruct("env['OFFLOAD_ARCH'] = 'gfx90a:xnack+,gfx906,gfx1100'\n" + PROGRAM)
    project.assert_up_to_date()
    project.sconstruct("env['OFFLOAD_ARCH'] = 'gfx90a:xnack+'\n" + PROGRAM)
    run = project.run()
    assert (run.status, run.compiles) == (0, [])
    assert "BUNDLE k.hipfb" in run.output
    project.assert_up_to_date()


def test_header_of_one_target(project: Project) -> None:
    """A header that only one target's preprocessing reaches concerns that target alone."""
    project.write("special.h", "#define EXTRA 1\n")
    project.write(
        "k.hip",
        '#if defined(__gfx90a__)\n#include "special.h"\n#else\n#define EXTRA 0\n#endif\n'
        + KERNEL.replace("VALUE", "VALUE + EXTRA"),
    )
    project.sconstruct(PROGRAM)
    assert project.build() == passes("k.hip", "host", *BOTH)
    project.assert_up_to_date()
    project.write("special.h", "#define EXTRA 2\n")
    assert project.build() == passes("k.hip", "gfx90a:xnack+")
    project.assert_up_to_date()


def test_header_of_the_host_pass(project: Project) -> None:
    """A header that only the host pass reaches compiles no device code."""
    project.write("host.h", "#define RESULT 1\n")
    project.write(
        "k.hip",
        '#ifndef __HIP_DEVICE_COMPILE__\n#include "host.h"\n#else\n#define RESULT 0\n#endif\n'
        + KERNEL.replace("return 1", "return RESULT"),
    )
    project.sconstruct(PROGRAM)
    project.build()
    project.write("host.h", "#define RESULT 2\n")
    assert project.build() == passes("k.hip", "host")
    project.assert_up_to_date()


def test_comment(project: Project) -> None:
    """After a comment everything compiles once; nothing that follows runs."""
    project.sconstruct(PROGRAM)
    project.build()
    project.write("k.hip", KERNEL + "// a comment\n")
    run = project.run()
    assert run.compiles == passes("k.hip", "host", *BOTH)
    assert not any(word in run.output for word in ("BUNDLE", "EMBED", " -o prog"))
    project.assert_up_to_date()


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


def test_generated_header(project: Project) -> None:
    """A header that the build makes is there in the first build, and is followed."""
    generate = (
        "import os\n"
        "env.Command('made.h', 'value.txt', Copy('$TARGET', '$SOURCE'))\n"
        "env.Append(CPPPATH=['.'])\n"
    )
    project.write("value.txt", "#define MADE 1\n")
    project.write("k.hip", "#include <made.h>\n" + KERNEL.replace("VALUE", "MADE"))
    project.sconstruct(generate + PROGRAM)
    assert project.build() == passes("k.hip", "host", *BOTH)
    project.assert_up_to_date()
    project.write("value.txt", "#define MADE 2\n")
    assert project.build() == passes("k.hip", "host", *BOTH)
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


def test_alignment(project: Project) -> None:
    """Another bundle alignment compiles nothing."""
    project.sconstruct(PROGRAM)
    project.build()
    project.sconstruct("env['OFFLOAD_BUNDLE_ALIGN'] = 256\n" + PROGRAM)
    run = project.run()
    assert (run.status, run.compiles) == (0, [])
    assert "BUNDLE" in run.output


def test_launcher_is_in_no_signature(project: Project) -> None:
    """Switching the compiler launcher compiles nothing."""
    project.sconstruct(PROGRAM)
    project.build()
    shutil.copy(project.folder / "count", project.folder / "other")
    project.sconstruct("env['OFFLOAD_LAUNCHER'] = File('#other').abspath\n" + PROGRAM)
    project.assert_up_to_date()


def test_compiler_version(project: Project, tmp_path: Path) -> None:
    """Another version of the compiler compiles everything again."""
    project.sconstruct(PROGRAM)
    project.build()
    clang = find_toolchain()
    if clang.origin.startswith("embedded"):
        pytest.skip("a script around the embedded compiler lacks what that one is given")
    fake = tmp_path / "clang-next"
    fake.write_text(
        "#!/bin/sh\n"
        f'[ "$*" != --version ] || exec echo "clang version 99.0.0"\n'
        f'exec {shlex.join(clang.clang)} "$@"\n'
    )
    fake.chmod(0o755)
    project.environment["OFFLOAD_CLANG"] = str(fake)
    assert project.build() == passes("k.hip", "host", *BOTH)
    project.assert_up_to_date()


def test_variant_folder(project: Project) -> None:
    """In a variant folder without copies, the same holds for headers beside the source."""
    project.write("src/val.h", "#define VAL 1\n")
    project.write("src/k.hip", '#include "val.h"\n' + KERNEL.replace("VALUE", "VAL"))
    project.write("src/runtime.c", (project.folder / "runtime.c").read_text())
    project.write("src/SConscript", "Import('env')\n" + PROGRAM)
    project.sconstruct(
        "SConscript('src/SConscript', variant_dir='out', duplicate=False, exports='env')\n"
    )
    assert project.build() == passes("src/k.hip", "host", *BOTH)
    assert (project.folder / "out" / "k.gfx90a_xnack+.co").exists()
    project.assert_up_to_date()
    project.write("src/val.h", "#define VAL 2\n")
    assert project.build() == passes("src/k.hip", "host", *BOTH)
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


def test_cache_dir_with_another_checkout(project: Project, tmp_path: Path) -> None:
    """A second checkout with the same CacheDir compiles nothing, and is then up to date."""
    body = f"env.CacheDir({str(tmp_path / 'cache')!r})\n" + PROGRAM
    project.sconstruct(body)
    assert project.build() == passes("k.hip", "host", *BOTH)
    other = Project(tmp_path / "other" / "checkout", project.environment)
    shutil.copytree(
        project.folder,
        other.folder,
        ignore=shutil.ignore_patterns(".sconsign*", "*.o", "*.co", "*.hipfb", "prog"),
    )
    count = other.folder / "count"
    count.write_text(count.read_text().replace(str(project.folder), str(other.folder)))
    assert other.build() == []
    assert (other.folder / "k.gfx906.co").exists()
    other.assert_up_to_date()
    (other.folder / "k.hip").write_text(KERNEL.replace("VALUE", "VALUE + 1"))
    assert other.build() == passes("k.hip", "host", *BOTH)


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
