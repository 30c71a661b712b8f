"""Both offload drivers of clang: whatever made host code, libraries and archives, kernels register.

What a program registers is seen when it runs, with a stand-in for the HIP runtime, and compared
with a program that clang's own driver has linked.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offload_tool.formats.host_symbols import hip_host_code
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.archive import create_archive
from offload_tool.operations.list_images import list_images
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.toolchain.probe import Toolchain
from tests.conftest import needs_clang, needs_driver_programs, run_tool
from tests.scons.conftest import BUNDLE, Project, flagged_clang
from tests.scons.relocatable import RELOCATABLE, declarations

HEAD = declarations("hip") + "#define __managed__ __attribute__((managed))\n"
ONE = """\
extern __device__ int shared_by_all;
__device__ int helper(int);
__device__ int only(int);
__global__ void first(int* p) { *p = helper(only(shared_by_all)); }
void* library();
int main() { return library() == nullptr; }
"""
TWO = """\
static __device__ int counter;
__managed__ int managed = 7;
void* library() { return &counter; }
__device__ int shared_by_all = 5;
__device__ int helper(int value) { return value + managed + ++counter; }
__global__ void second(int* p) { *p = helper(2); }
"""
ONLY = "__device__ int only(int value) { return value; }\n"
FLAGS = ("-nogpuinc", "-nogpulib", "--offload-arch=gfx906", "--offload-arch=gfx90a:xnack+")
DRIVERS = {"old": "--no-offload-new-driver", "new": "--offload-new-driver"}
OF_THE_PROGRAM = [f"{BUNDLE} 1", "unloaded 1"]


@pytest.fixture
def sources(project: Project) -> Project:
    """Return a project of two sources that use each other's device code, one without kernels."""
    for name, text in (("one", ONE), ("two", TWO), ("only", ONLY)):
        project.write(f"{name}.hip", HEAD + text)
    return project


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest, sources: Project, compiler: Toolchain) -> str:
    """Build with a clang whose driver is the old one, or the new one."""
    needs_clang(compiler, "a script around it does not link")
    script = flagged_clang(sources.folder, DRIVERS[request.param])
    sources.environment["OFFLOAD_CLANG"] = str(script)
    return str(request.param)


def clang(project: Project, *args: str) -> None:
    """Let clang's own driver do something, and all that belongs to it."""
    found = find_toolchain()
    needs_driver_programs(found.clang[0])
    run_tool(*found.cxx, *args, cwd=project.folder)


def given_library(project: Project, made_by: str) -> None:
    """Let clang's own driver compile what a library has; put it into ``given.a``."""
    (project.folder / "elsewhere").mkdir()
    for name in ("two", "only"):
        args = [*FLAGS, DRIVERS[made_by], "-x", "hip", "-fgpu-rdc", "-c", f"{name}.hip"]
        clang(project, *args, "-o", f"elsewhere/{name}.o")
    folder = project.folder / "elsewhere"
    create_archive([(n, folder / n) for n in ("two.o", "only.o")], folder / "given.a")


def registered(lines: list[str]) -> set[str]:
    """Return what was registered; the part of a name that is made of a CUID says nothing."""
    lines = [line for line in lines if not line.startswith(("loaded", "unloaded"))]
    assert len(lines) == len(set(lines)), "registered twice"
    return {re.sub(r"\.static\.[0-9a-f]+", "", line) for line in lines}


def theirs(project: Project, linked_by: str = "old") -> set[str]:
    """Let clang's own driver compile and link the program; give what that one registers."""
    for name in ("one", "two", "only"):
        args = [*FLAGS, DRIVERS[linked_by], "-x", "hip", "-fgpu-rdc", "-c", f"{name}.hip"]
        clang(project, *args, "-o", f"{name}.theirs.o")
    clang(project, "-x", "c", "-c", "runtime.c", "-o", "runtime.theirs.o")
    objects = [f"{name}.theirs.o" for name in ("one", "two", "only", "runtime")]
    own_link(project, linked_by, *objects, "-o", "theirs")
    return registered(project.start("theirs"))


def own_link(project: Project, linked_by: str, *args: str) -> None:
    """Link as clang's own driver does."""
    link = ["--hip-link", "-fgpu-rdc", "-no-hip-rt", *FLAGS[2:], DRIVERS[linked_by]]
    clang(project, *link, *args)


def test_program_registers_what_clangs_own_does(sources: Project, driver: str) -> None:
    """A relocatable program registers one bundle, and all that clang's own program does."""
    sources.sconstruct(
        RELOCATABLE
        + "env.OffloadProgram('prog', ['one.hip', 'two.hip', 'only.hip', 'runtime.c'])\n"
    ).build()
    lines = sources.start()
    assert [lines[0], lines[-1]] == OF_THE_PROGRAM
    assert registered(lines) == theirs(sources, driver)
    assert [image.target_id for image in list_images(sources.folder / "prog")] == [
        "",
        "gfx906",
        "gfx90a:xnack+",
    ]
    host = sources.folder / "one.host.o"
    assert hip_host_code(read_elf_tables(memoryview(host.read_bytes()))).has_entries == (
        driver == "new"
    )
    sources.assert_up_to_date()


def test_shared_library(sources: Project, driver: str) -> None:
    """A shared library registers its kernels when it is loaded, and not when it is linked with."""
    sources.sconstruct(
        RELOCATABLE + "library = env.OffloadSharedLibrary('gpu', ['two.hip', 'only.hip'])\n"
        "env.OffloadProgram('prog', ['main.c', 'runtime.c', library], RPATH=[Dir('.').abspath])\n"
    )
    sources.write("main.c", "void *_Z7libraryv(void); int main(void) { return !_Z7libraryv(); }\n")
    sources.build_once()
    lines = sources.start()
    assert [lines[0], lines[-1]] == OF_THE_PROGRAM
    assert "kernel _Z6secondPi" in lines


@pytest.mark.parametrize("made_by", DRIVERS)
def test_library_of_clangs_own_driver(sources: Project, driver: str, made_by: str) -> None:
    """A library of either driver takes part in both links of a program of either driver."""
    given_library(sources, made_by)
    sources.sconstruct(
        RELOCATABLE + "env.OffloadProgram('prog', ['one.hip', 'runtime.c', 'elsewhere/given.a'])"
    ).build()
    lines = sources.start()
    assert [lines[0], lines[-1]] == OF_THE_PROGRAM  # one bundle, loaded once, for both
    assert {"kernel _Z5firstPi", "kernel _Z6secondPi"} <= registered(lines)
    assert any(line.startswith("managed managed 7 4 4") for line in lines)
    sources.assert_up_to_date()


MAKES = {
    "archive": "env.OffloadArchive('given', ['two.hip', 'only.hip'])\n",
    "library": "env.OffloadStaticLibrary('given', ['two.hip', 'only.hip'])\n",
    "object": "env.OffloadObject('two.hip')\nenv.OffloadObject('only.hip')\n",
}


@pytest.mark.parametrize(
    ("makes", "chosen"),
    [*((makes, False) for makes in MAKES), pytest.param("archive", True, id="chosen format")],
)
def test_clang_links_what_we_archive(
    sources: Project, driver: str, makes: str, chosen: bool
) -> None:
    """Clang's own links take our archives: in its driver's format, or in the one asked for."""
    linked_by = driver
    text = RELOCATABLE + MAKES[makes]
    if chosen:  # the other driver's
        linked_by = "old" if driver == "new" else "new"
        wanted = {"old": "object-bundle", "new": "offload-binary"}[linked_by]
        text = f"env['OFFLOAD_ARCHIVE_FORMAT'] = '{wanted}'\n{text}"
    sources.sconstruct(text).build()
    expected = theirs(sources, linked_by)
    files = ["two.o", "only.o"] if makes == "object" else ["libgiven.a"]
    args = ["one.theirs.o", "runtime.theirs.o", *files, "-o", "linked"]
    own_link(sources, linked_by, *args)
    lines = sources.start("linked")
    assert [lines[0], lines[-1]] == OF_THE_PROGRAM
    assert registered(lines) == expected
    sources.assert_up_to_date()


def test_flag_of_the_user_chooses_the_driver(sources: Project) -> None:
    """--offload-new-driver among a user's flags makes what that driver's links take."""
    sources.sconstruct(
        RELOCATABLE + "env.Append(CCFLAGS=['--offload-new-driver'])\n" + MAKES["archive"]
    ).build()
    found = read_elf_tables(memoryview(sources.read("two.o")))
    assert {b".llvm.offloading", b"llvm_offload_entries"} <= set(found.names)


@pytest.mark.parametrize("place", ["before", "behind"])
def test_source_of_its_own_with_the_new_driver(sources: Project, place: str) -> None:
    """Without relocatable code, programs are the same with the new driver, however it is chosen."""
    script = flagged_clang(sources.folder, DRIVERS["new"], behind=place == "behind")
    sources.environment["OFFLOAD_CLANG"] = str(script)
    sources.sconstruct("env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n")
    sources.build()
    lines = sources.start()
    assert lines == [OF_THE_PROGRAM[0], "kernel _Z6kernelPi", OF_THE_PROGRAM[1]]
    code = sources.read("k.gfx906.co")
    assert code.startswith(b"\x7fELF")
    sources.assert_up_to_date()


def test_library_outside_of_the_project(sources: Project, tmp_path: Path) -> None:
    """What is taken out of a library from elsewhere goes beside the program."""
    sources.sconstruct(RELOCATABLE + MAKES["archive"]).build()
    library = tmp_path / "outside" / "libgiven.a"
    library.parent.mkdir()
    (sources.folder / "libgiven.a").rename(library)
    sources.sconstruct(
        RELOCATABLE + f"env.OffloadProgram('prog', ['one.hip', 'runtime.c', '{library}'])\n"
    ).build()
    assert [path.name for path in library.parent.iterdir()] == ["libgiven.a"]
    assert "kernel _Z6secondPi" in sources.start()
    sources.assert_up_to_date()
