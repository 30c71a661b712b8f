"""OpenMP target regions: host IR first, then host object and devices of that IR."""

from __future__ import annotations

import platform
import re
import shlex
from pathlib import Path

import pytest

from offload_tool.formats.bitcode.module import bitcode_symbols
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.formats.targets.compile_target import parse_target
from offload_tool.operations.list_images import list_images
from offload_tool.passes import openmp
from offload_tool.passes.choose_compiler import find_toolchain
from tests.conftest import Tool, found_toolchain, missing, run_tool
from tests.scons.conftest import SCONSTRUCT, Project, passes
from tests.scons.test_launchers import ccache

CPU = "x86_64-pc-linux-gnu"
TARGETS = ("gfx906", CPU)
HEAD = SCONSTRUCT.replace('["gfx906", "gfx90a:xnack+"]', f"{list(TARGETS)}").replace(
    '["-nogpuinc", "-nogpulib"]', "[]"
) + (
    "env.Replace(OFFLOAD_KIND='openmp')\n"
    # Neither ROCm nor LLVM's device runtime for AMD GPUs comes with every clang.
    "env.Append(CCFLAGS=['-nogpulib'])\n"
    "env.Append(OFFLOAD_LINK_FLAGS=['--unresolved-symbols=ignore-all'])\n"
)


OBJECT = "env.OffloadObject('work.c')\n"
REGION = """\
#if __has_include(<omp.h>)
#include <omp.h>
#else
int omp_is_initial_device(void);
#endif
int region(void) {
    int answer = 0;
#pragma omp target map(from : answer)
    answer = omp_is_initial_device() ? 0 : VALUE;
    return answer;
}
"""
MAIN = """\
#include <stdio.h>
int region(void);
int main(void) {
    printf("answer %d\\n", region());
    return 0;
}
"""
PROGRAM = "env.OffloadProgram('prog', ['work.c', 'main.c'])\n"
# What is compiled of work.c in a build from nothing: `Run.compiles`.
ALL = sorted([*passes("work.c", "host-ir", *TARGETS), *passes("work.host.bc", "host")])


@pytest.fixture
def regions(project: Project) -> Project:
    """Return a project with an OpenMP source, whose devices are a GPU and the CPU."""
    if platform.machine() != "x86_64":
        pytest.skip("a device of these tests is an x86_64 CPU")
    project.write("work.c", REGION)
    project.write("main.c", MAIN)
    project.sconstruct(OBJECT, HEAD)
    return project


@pytest.fixture
def runnable(regions: Project) -> Project:
    """Return that project where programs can be linked and run on the CPU as a device."""
    if openmp.host_runtime(find_toolchain()) is None:
        missing("LLVM's OpenMP offload runtime (liboffload-22-dev, libomp-22-dev)")
    regions.sconstruct(PROGRAM, HEAD)
    return regions


def kernels(path: Path) -> set[str]:
    """Return the kernels that a device module or image of any kind defines."""
    data = memoryview(path.read_bytes())
    if bytes(data[:4]) == b"\x7fELF":
        symbols = read_elf_tables(data, path=path).named_symbols()
        names = {symbol.name for symbol in symbols if symbol.defined}
    else:
        names = set(bitcode_symbols(data).decode().split("\0"))
    return {name for name in names if re.fullmatch(r"__omp_offloading_.*_l\d+", name)}


def modules(project: Project) -> list[Path]:
    return [project.folder / name for name in ("work.gfx906.bc", f"work.{CPU}.o")]


def answer(project: Project, program: str = "prog") -> str:
    """Run a program, which must run its target regions on a device."""
    return "\n".join(project.start(program, OMP_TARGET_OFFLOAD="MANDATORY"))


def test_nodes_of_a_source(regions: Project) -> None:
    """The host IR is compiled once; host object and each device are made of it, once."""
    run = regions.done("-j1")
    assert run.compiles == ALL
    lines = [line for line in run.output.splitlines() if re.match("[A-Z]{5}", line)]
    assert lines[0] == "OPENMP [host] work.c"
    assert lines[-2:] == ["PACKAGE work.offload", "EMBED work.o"]
    others = ["OPENMP [host code] work.host.bc", *(f"OPENMP [{t}] work.c" for t in TARGETS)]
    assert sorted(lines[1:-2]) == sorted(others)
    found = [(image.kind, image.target_id) for image in list_images(regions.folder / "work.o")]
    cpu = openmp.packaged_arch(parse_target(CPU), find_toolchain())
    assert found == [("openmp", "gfx906"), ("openmp", cpu)]
    regions.write("work.c", REGION)  # written in place, with equal content
    regions.assert_up_to_date()


def test_shared_library_and_program_of_a_source(regions: Project) -> None:
    """Device code is compiled once for both; host IR and host object differ."""
    regions.sconstruct("env.OffloadSharedLibrary('work', ['work.c'])\n" + PROGRAM, HEAD)
    compiled = [line for line in regions.build() if line.startswith("work")]
    of_host = [*passes("work.c", "host-ir", "host-ir"), *passes("work.host.bc", "host")]
    of_host += passes("work.host.pic.bc", "host")
    assert compiled == sorted([*of_host, *passes("work.c", *TARGETS)])
    regions.assert_up_to_date()


@pytest.mark.parametrize("saved", ["work.c", "region.h", "include/region.h"])
def test_atomic_save(regions: Project, saved: str) -> None:
    """A file of equal content and another inode compiles host IR, host and devices together.

    The inode of the file with a target region is in the kernel's name.
    """
    regions.write(saved, REGION)
    if saved != "work.c":
        regions.write("work.c", '#include "region.h"\n')
    regions.sconstruct("env.Append(CPPPATH=['include'])\n" + OBJECT, HEAD)
    assert regions.build_once() == ALL
    before = kernels(modules(regions)[0])
    regions.save_anew(saved)
    assert regions.build_once() == ALL
    (name,), (same,) = (kernels(path) for path in modules(regions))
    assert {name} == {same} != before
    assert f"_{(regions.folder / saved).stat().st_ino:x}_region_" in name


def test_compiler_cache(regions: Project, tmp_path: Path) -> None:
    """A compiler cache gives no module with the names of another inode: its key has the inode."""
    cache = next(ccache(tmp_path / "ccache"))
    regions.sconstruct(cache.settings() + OBJECT, HEAD).build()
    regions.save_anew("work.c")
    regions.build()
    assert cache.hits() == 0
    regions.build("-c")
    regions.build()
    assert cache.hits() == len(TARGETS)


def test_language_of_the_user(regions: Project) -> None:
    """The user's ``-x`` chooses the language of the source, and not that of the host IR."""
    regions.write("work.c", f"{REGION}static_assert(sizeof('a') == 1, \"C++\");\n")
    flags = "env.Append(CFLAGS=['-x', 'c++', '-std=c++17'])\n"
    regions.sconstruct(flags + OBJECT, HEAD).build_once()


def test_flag_of_devices(regions: Project) -> None:
    """A flag that only a CPU as device uses is used, as in the driver's one command."""
    head = HEAD.replace(repr(list(TARGETS)), repr([CPU]))
    flags = "env.Append(CCFLAGS=['-Xarch_device', '-DUSED', '-Werror'])\n"
    run = regions.sconstruct(flags + OBJECT, head).done()
    assert "USED" not in run.errors


def test_reports_of_both_host_passes(regions: Project) -> None:
    """Files of the same name beside host IR and host object are no reason to compile again."""
    flags = "env.Append(CCFLAGS=['-O1', '-ftime-trace', '-fsave-optimization-record'])\n"
    regions.sconstruct(flags + OBJECT, HEAD).build_once()
    regions.edit("work.c", "", "// a comment\n")
    regions.build_once()
    (regions.folder / "work.host.json").unlink()
    assert regions.build_once() == ["work.c host-ir", "work.host.bc host"]


def test_generated_source(regions: Project) -> None:
    """A source that the build makes compiles at once; made anew, everything goes together."""
    (regions.folder / "work.c").rename(regions.folder / "work.in")
    regions.sconstruct(
        "env.Command('work.c', 'work.in', Copy('$TARGET', '$SOURCE'))\n" + OBJECT, HEAD
    )
    assert regions.build_once() == ALL
    regions.write("work.in", REGION.replace("VALUE", "VALUE + 1"))
    assert regions.build_once() == ALL


def test_alias_of_a_target(regions: Project) -> None:
    """A target on the command line builds that device's module, and the host IR that it needs."""
    assert regions.build("gfx906") == passes("work.c", "host-ir", "gfx906")
    assert regions.build(CPU) == passes("work.c", CPU)
    assert regions.build() == passes("work.host.bc", "host")


def test_runtime_of_another_llvm(regions: Project) -> None:
    """A program gets a warning that names the compiler's version and that of the runtime."""
    found = found_toolchain()
    if found.is_embedded:
        pytest.skip("the embedded compiler searches no other folders")
    library = regions.write("runtime/libomptarget.so.7.1", "")
    (library.parent / "libomptarget.so").symlink_to(library)
    regions.write("runtime/libomp.so", "")
    clang = shlex.join([*found.clang, f"-B{library.parent}"])
    regions.sconstruct(f"env.Replace(OFFLOAD_CLANG={clang!r})\n" + PROGRAM, HEAD)
    errors = regions.done("-n").errors
    warning = f"OpenMP programs of clang {found.version} get the runtime of LLVM 7 ('{library}')"
    assert errors.count(warning) == 1


SWITCHED_ON = [
    "CCFLAGS=['-fopenmp']",
    "CCFLAGS=['-fopenmp=libomp']",
    "CXXFLAGS=['@openmp.rsp']",
    "CXXFLAGS=['-fno-openmp'], CPPFLAGS=['-fopenmp']",
]
SWITCHED_OFF = [
    "CCFLAGS=['-fopenmp=libomp', '-fno-openmp']",
    "CCFLAGS=['@openmp.rsp'], CPPFLAGS=['-fno-openmp']",
    "CFLAGS=['-fopenmp'], CCFLAGS=['-fopenacc', '-fopenmp-simd']",
]


def switch(project: Project, flags: str) -> Project:
    project.write("work.cpp", REGION.replace("int omp", 'extern "C" int omp'))
    project.write("openmp.rsp", "-fopenmp")
    head = HEAD.replace("env.Replace(OFFLOAD_KIND='openmp')\n", "")
    return project.sconstruct(f"env.Append({flags})\nenv.OffloadObject('work.cpp')\n", head)


@pytest.mark.parametrize("flags", SWITCHED_ON)
def test_by_flags(regions: Project, flags: str) -> None:
    """C++ with OpenMP on by the last of its command's flags, and targets, is an offload source."""
    assert switch(regions, flags).build() == sorted(
        [*passes("work.cpp", "host-ir", *TARGETS), *passes("work.host.bc", "host")]
    )
    assert len(kernels(modules(regions)[0])) == 1


@pytest.mark.parametrize("flags", SWITCHED_OFF)
def test_switched_off_by_flags(regions: Project, flags: str) -> None:
    """C++ whose flags switch OpenMP off again, or on for C alone, is no offload source."""
    assert "'work.cpp': expected an offload source" in switch(regions, flags).fails().errors


IDS = ("openmp-amdgcn-amd-amdhsa--gfx906", f"openmp-{CPU}-")
LIBRARY = "library = env.OffloadArchive('parts', ['work.c', 'other.c'])\n"
OTHER = """\
int other(void) {
    int value = 0;
#pragma omp target map(from : value)
    value = 40;
    return value;
}
"""
WAYS = {
    "source": LIBRARY + "env.OffloadProgram('prog', ['main.c', library])\n",
    "OFFLOAD_LIBS": LIBRARY + "env.OffloadProgram('prog', ['main.c'], OFFLOAD_LIBS=library)\n",
    "archives": (
        LIBRARY + "archives = env.OffloadDeviceArchive(library)\n"
        "host = [env.OffloadHostObject(name) for name in ('work.c', 'other.c')]\n"
        "env.OffloadProgram('prog', ['main.c', host, archives])\n"
    ),
    "bundles": (
        "one = {'OFFLOAD_BUNDLE_TYPE': 'o', 'OFFLOAD_BUNDLE_HOST': True}\n"
        "bundles = [env.OffloadBundle(name, **one) for name in ('work.c', 'other.c')]\n"
        "library = env.OffloadArchive('parts', bundles)\n"
        "env.OffloadProgram('prog', ['main.c', library])\n"
    ),
    "objects": (
        "objects = [env.OffloadObject(name) for name in ('work.c', 'other.c')]\n"
        "env.OffloadProgram('prog', ['main.c', objects])\n"
    ),
    "static library": (
        "library = env.OffloadStaticLibrary('parts', ['work.c', 'other.c'])\n"
        "env.OffloadProgram('prog', 'main.c', LIBS=library)\n"
    ),
}
MAIN_OF_BOTH = """\
#include <stdio.h>
int region(void), other(void);
int main(void) {
    printf("answer %d\\n", region() + other());
    return 0;
}
"""


@pytest.mark.parametrize("way", WAYS)
def test_program_of_an_archive(runnable: Project, way: str) -> None:
    """A program runs the regions of an archive, or of objects, however they are given to it."""
    runnable.write("other.c", OTHER)
    runnable.write("main.c", MAIN_OF_BOTH)
    runnable.sconstruct(WAYS[way], HEAD).done()
    assert answer(runnable) == "answer 41"
    image = kernels(runnable.folder / "prog.gfx906.co")
    assert len(image) == 2
    assert image == kernels(runnable.folder / f"prog.{CPU}.so")
    runnable.assert_up_to_date()


@pytest.mark.llvm
def test_foreign_archive(runnable: Project, llvm: Tool) -> None:
    """An archive that LLVM's tools made of OpenMP bundles is linked through OFFLOAD_LIBS."""
    if not find_toolchain().version.startswith("22."):
        pytest.skip("the library's bitcode is of clang 22")
    runnable.sconstruct(
        "env.OffloadDeviceObject('work.c')\nenv.OffloadHostObject('work.c')\n", HEAD
    ).done()
    inputs = ["work.gfx906.bc", f"work.{CPU}.o", "work.host.o"]
    targets = ",".join([*IDS, "host-x86_64-unknown-linux-gnu-"])
    command = [llvm("clang-offload-bundler"), "-type=o", f"-targets={targets}", "-output=theirs.o"]
    run_tool(*command, *(f"-input={name}" for name in inputs), cwd=runnable.folder)
    command = [llvm("llvm-ar"), "rcsD", "libforeign.a", "theirs.o"]
    run_tool(*command, cwd=runnable.folder)
    runnable.sconstruct(
        "env.OffloadProgram('prog', ['main.c'], OFFLOAD_LIBS=['libforeign.a'])\n", HEAD
    ).done()
    assert answer(runnable) == "answer 1"
