"""Device libraries: what is written again after a change, and what takes the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.formats.objects.ar import ArchiveReader
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.scons.conftest import BOTH, BUNDLE, Project, passes
from tests.scons.relocatable import RELOCATABLE

DSAS = ("libparts.gfx906.a", "libparts.gfx90a_xnack+.a")
LIBRARY = "library = env.OffloadArchive('parts', ['a.hip', 'b.hip'])\n"
REGISTERED = [f"{BUNDLE} 1", "kernel _Z6kernelPi", "unloaded 1"]
PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c', library])\n"

KERNEL = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((device)) int a();
__attribute__((device)) int b();
__attribute__((global)) void kernel(int* p) { *p = a() + b(); }
int host_b();
int host_value() { return host_b(); }
"""
# The factor is a device's alone, so that the host pass does not see the change.
PART = """\
#ifndef FACTOR
#define FACTOR 1
#endif
__attribute__((device)) int NAME() { return 7 * FACTOR; }
int host_NAME() { return 1; }
"""


@pytest.fixture
def library(project: Project) -> Project:
    """Return a project with two sources for a library, and one that uses it."""
    project.write("k.hip", KERNEL)
    for name in "abc":
        project.write(f"{name}.hip", PART.replace("NAME", name))
    return project


def stamps(project: Project, *names: str) -> list[tuple[int, int]]:
    """Return what tells whether files were written: their inodes and times."""
    found = [(project.folder / name).stat() for name in names]
    return [(status.st_ino, status.st_mtime_ns) for status in found]


def member_names(path: Path) -> list[str]:
    return [member.name for member in ArchiveReader(memoryview(path.read_bytes()), path=path)]


def test_first_build(library: Project) -> None:
    """A library is compiled once, archived, taken apart per target, and linked per target.

    The host linker takes it as any static library.
    """
    run = library.sconstruct(RELOCATABLE + LIBRARY + PROGRAM).done()
    compiles = [passes(name, "host", *BOTH) for name in ("a.hip", "b.hip", "k.hip")]
    assert run.compiles == [line for lines in compiles for line in lines]
    order = [line for line in run.actions if not line.startswith("HIP")]
    for earlier, later in (
        ("BUNDLE a.o", "ARCHIVE libparts.a"),
        ("ARCHIVE libparts.a", "ARCHIVE [gfx906] libparts.gfx906.a"),
        ("ARCHIVE [gfx906] libparts.gfx906.a", "LINK [gfx906] prog.gfx906.co"),
        ("LINK [gfx90a:xnack+] prog.gfx90a_xnack+.co", "BUNDLE prog.hipfb"),
        ("BUNDLE prog.hipfb", "EMBED prog.fatbin.o"),
        ("EMBED prog.fatbin.o", "-> prog"),
    ):
        assert order.index(earlier) < order.index(later)
    assert len(order) == len(set(order))
    assert member_names(library.folder / "libparts.a") == ["a.o", "b.o"]
    program = memoryview(library.read("prog"))
    names = {s.name for s in read_elf_tables(program).named_symbols() if s.defined}
    assert "_Z6host_bv" in names  # k.hip asks for it
    assert "_Z6host_av" not in names  # no one does: the member stays out
    assert library.start() == REGISTERED
    library.assert_up_to_date()


PARTS = "parts = ['a.hip', 'b.hip']{}\nlibrary = env.OffloadArchive('parts', parts)\n".format
MORE = PARTS(" + env.OffloadObject('c.hip', OFFLOAD_ARCH='gfx906')")
ONE_MEMBER = (
    "flags = {{'gfx906': ['-DFACTOR={}']}}\n"
    "a = env.OffloadObject('a.hip', OFFLOAD_ARCH_FLAGS=flags)\n"
    "library = env.OffloadArchive('parts', [a, 'b.hip'])\n"
).format
ARCHS = f"env['OFFLOAD_ARCH'] = {{}}\n{LIBRARY}".format
CHANGES = {  # the library before and after, what is compiled, and the targets that are linked
    "one target's flags of one member": (
        *(ONE_MEMBER(2), ONE_MEMBER(3), passes("a.hip", "gfx906"), ["gfx906"]),
    ),
    "a member with code for one target": (
        *(PARTS(""), MORE, passes("c.hip", "host", "gfx906"), ["gfx906"]),
    ),
    "a member that goes": (MORE, PARTS(""), [], ["gfx906"]),
    "a target more": (
        *(LIBRARY, ARCHS([*BOTH, "gfx942"]), [f"{name}.hip gfx942" for name in "abk"], ["gfx942"]),
    ),
    "a target less": (LIBRARY, ARCHS(["gfx906"]), [], []),
}


@pytest.mark.parametrize(
    ("before", "after", "compiled", "linked"), CHANGES.values(), ids=CHANGES.keys()
)
def test_change(
    library: Project, before: str, after: str, compiled: list[str], linked: list[str]
) -> None:
    """A change reaches the archives and links of its targets; those of others stay as they are."""
    images = ("prog.gfx906.co", "prog.gfx90a_xnack+.co")
    library.sconstruct(RELOCATABLE + before + PROGRAM).build()
    old = stamps(library, *DSAS, *images)
    run = library.sconstruct(RELOCATABLE + after + PROGRAM).done()
    assert run.compiles == compiled
    links = [line for line in run.actions if line.startswith("LINK")]
    assert links == [f"LINK [{name}] prog.{name}.co" for name in linked]
    assert run.actions[-1] == "-> prog"
    kept = [now == then for now, then in zip(stamps(library, *DSAS, *images), old, strict=True)]
    assert kept == [name not in linked for name in BOTH] * 2
    library.assert_up_to_date()


def test_two_programs_share_a_library(library: Project) -> None:
    """Two programs of one library share its compiles and its archives per target."""
    library.write("m.hip", KERNEL.replace("kernel", "other"))
    run = library.sconstruct(
        RELOCATABLE
        + LIBRARY
        + PROGRAM
        + "env.OffloadProgram('second', ['m.hip', 'runtime.c', library])\n"
    ).done("-j2")
    assert len(run.compiles) == 12
    assert sum(line.startswith("ARCHIVE [") for line in run.actions) == 2
    assert sum(line.startswith("LINK") for line in run.actions) == 4
    for program, kernel in (("prog", "_Z6kernelPi"), ("second", "_Z5otherPi")):
        assert library.start(program)[1:-1] == [f"kernel {kernel}"]
    library.assert_up_to_date()


def test_device_archives_as_link_inputs(library: Project) -> None:
    """The nodes of OffloadDeviceArchive give a program the device code alone."""
    library.write(
        "k.hip",
        KERNEL.replace("host_b();\nint host_value", "host_value").replace(
            "return host_b()", "return 1"
        ),
    )
    library.sconstruct(
        RELOCATABLE + LIBRARY + "archives = env.OffloadDeviceArchive(library)\n"
        "env.OffloadProgram('prog', ['k.hip', 'runtime.c', archives])\n"
        "env.OffloadProgram('both', ['k.hip', 'runtime.c', library, archives])\n"
    ).build()
    assert library.start() == REGISTERED
    for name in ("gfx906", "gfx90a_xnack+"):
        code = [library.read(f"{stem}.{name}.co") for stem in ("prog", "both")]
        assert code[0] == code[1]
    library.assert_up_to_date()
