"""OpenMP builds beside clang's driver: the same bytes, and programs that run on a CPU as device.

`CLANGS` are clang 22, and clang 19 where OFFLOAD_TEST_OPENMP names its libraries (unpacked, with
its programs beside them); OFFLOAD_TEST_OPENMP_CLANG names another instead.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool.clang.driver import job_args
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.list_images import list_images
from tests.conftest import missing, run_tool, try_tool
from tests.scons.conftest import Project, environment

CPU = "x86_64-pc-linux-gnu"
TRIPLES = {CPU: CPU, "gfx90a": "amdgcn-amd-amdhsa", "sm_80": "nvptx64-nvidia-cuda"}
BOTH = "env.OffloadProgram('p', ['work.{0}'])\nenv.OffloadSharedLibrary('l', ['work.{0}'])\n"
C = """\
#include <ar.h>
#include <math.h>
#include <stdio.h>
#pragma omp begin declare target
int counter = 3;
#pragma omp end declare target
static int plain;
int main(int argc, char **argv) {
  double r = argc;
  struct ar_hdr o = {7};
#pragma omp target map(tofrom : r, o)
  { r = sin(r) + pow(r, 2.0) + fmin(r, 0.5) + counter; o.first += plain; }
  printf("%g %d\\n", r, (int)o.first);
  return ++plain - 1;
}
"""
MORE = """\
#include <stdio.h>
int linked = 6;
#pragma omp declare target link(linked)
#pragma omp begin declare target
int moved = 1;
static int hidden = 7;
static int next(void) { return ++hidden; }
__attribute__((visibility("default"))) int shown = 42;
#ifdef __cplusplus
#include <vector>
struct Init { int n; Init() : n(42) {} };
Init made;
#endif
#pragma omp end declare target
int more(void) {
  int seen[5] = {0};
  moved = 8, shown = 420;
#pragma omp target update to(moved)
#pragma omp target map(to : linked) map(from : seen)
  {
    seen[0] = moved, seen[1] = linked, seen[2] = next(), seen[3] = shown;
    moved = 30;
    if (seen[0] > 100) fprintf(stderr, "%d", seen[0]);
#ifdef __cplusplus
    seen[4] = made.n;
#endif
  }
  int wrong = moved != 8 || seen[0] != 8 || seen[1] != 6 || seen[2] != 8 || seen[3] != 42;
#pragma omp target update from(moved)
#ifdef __cplusplus
  std::vector<double> v(10, -1.5);
  double *p = v.data(), s = 0;
#pragma omp target teams distribute parallel for map(to : p[0 : 10]) reduction(+ : s)
  for (int i = 0; i < 10; i++) s += std::fabs(p[i]);
  wrong = wrong || s != 15 || seen[4] != 42;
#endif
  return wrong || moved != 30 || hidden != 7;
}
"""
"""What a CPU also has: variables and entries of the device that a build could lose."""
OWN = "#define ar_hdr of_the_system\n#include_next <ar.h>\n#undef ar_hdr\n"
OWN += "struct ar_hdr { long first; };\n"


def _clangs() -> dict[str, Path]:
    if given := os.environ.get("OFFLOAD_TEST_OPENMP_CLANG"):
        return {"given": Path(given)}
    found = {"22": Path(shutil.which("clang-22") or "clang-22").resolve()}
    if libraries := os.environ.get("OFFLOAD_TEST_OPENMP"):
        found["19"] = Path(libraries).parent / "bin/clang"
    return found


CLANGS = _clangs()


@pytest.fixture(params=CLANGS)
def clang(request: pytest.FixtureRequest) -> Path:
    """Return a clang with its linker wrapper and OpenMP runtime."""
    found = CLANGS[request.param]
    if platform.machine() != "x86_64":
        pytest.skip("the device of these tests is an x86_64 CPU")
    needed = (found, found.parent / "clang-linker-wrapper", _libraries(found) / "libomptarget.so")
    for file in needed:
        if not file.exists():
            missing(f"{file}, of LLVM's OpenMP")
    return found


def _libraries(clang: Path) -> Path:
    return clang.parent.parent / "lib"


def run_on_device(clang: Path, program: Path) -> tuple[int, str]:
    """Run a program whose regions must run on a device; return its status and what it prints."""
    env = {"OMP_TARGET_OFFLOAD": "MANDATORY", "LD_LIBRARY_PATH": f"{_libraries(clang)}:."}
    done = try_tool(program, cwd=program.parent, env={**os.environ, **env})
    return done.returncode, done.stdout + done.stderr


def build(project: Project, clang: Path, body: str, targets: list[str], *flags: str) -> None:
    """Build with flags; ``-O`` and ``-g`` are the links', too."""
    level = [flag for flag in flags if flag.startswith(("-O", "-g"))]
    project.sconstruct(body, setup(clang, targets, flags, level)).build()


def setup(
    clang: Path, targets: list[str], flags: Sequence[str] = (), level: Sequence[str] = ()
) -> str:
    """Return the head of a SConstruct, with flags for compiles and links."""
    found = {"OFFLOAD_CLANG": str(clang), "OFFLOAD_ARCH": targets, "OFFLOAD_KIND": "openmp"}
    return environment(**found, CCFLAGS=[*flags], LINKFLAGS=[*level], LIBS=["m"])


def target_flags(targets: list[str]) -> list[str]:
    """Return the driver's flags for targets."""
    if len(targets) == 1 and targets[0] != CPU:
        return [f"--offload-arch={targets[0]}"]
    flags = [f"-fopenmp-targets={','.join(TRIPLES[name] for name in targets)}"]
    for name in targets:
        flags += [] if name == CPU else [f"-Xopenmp-target={TRIPLES[name]}", f"-march={name}"]
    return flags


def target_of(target: str) -> str:
    """Return the suffix of a target's image."""
    return "so" if target == CPU else "co"


def runtimes_of(program: Path) -> list[str]:
    """Return OpenMP's libraries that a program loads, in their order: both have some functions."""
    dynamic = run_tool("readelf", "-d", program)
    return re.findall(r"\(NEEDED\).*\[(libomp\S*)\]", dynamic)


def compare(
    project: Project,
    clang: Path,
    targets: list[str],
    suffix: str,
    flags: list[str],
    driver: Sequence[str] = (),
) -> None:
    """Build a source here and with the driver, for a program and a shared library.

    `driver` are flags for what builds find by themselves.
    """
    text = C.replace("<math.h>", "<cmath>") if suffix == "cpp" else C
    if targets == [CPU]:
        text = f"{text.partition('int main')[0]}{MORE}int main{text.partition('int main')[2]}"
        text = text.replace("return ++plain", "return more() + ++plain")
    source, folder = project.write(f"work.{suffix}", text), project.folder
    project.write("own/ar.h", OWN)
    given = [*flags, "-isystem", "own"]
    build(project, clang, BOTH.format(suffix), targets, *given)
    common = ["-fopenmp", *target_flags(targets), *driver]
    level = [flag for flag in given if flag.startswith(("-O", "-g"))]
    strip = [shutil.which("llvm-objcopy-22") or "objcopy", "-R", ".llvm.offloading"]
    for pic, host, name in (([], ".host.o", "p"), (["-fPIC"], ".host.pic.o", "l")):
        made = [*common, *given, *pic, "-c", source.name, "-o", "driver.o"]
        run_tool(f"{clang}{'++' * (suffix == 'cpp')}", *made, cwd=folder)
        linked = [*common, *level, *(["-shared"] if pic else []), "driver.o", "-o", "driver", "-lm"]
        run_tool(f"{clang}++", *linked, cwd=folder)
        for file, copy in (("driver.o", "theirs"), (f"work{host}", "ours")):
            run_tool(*strip, file, copy, cwd=folder)
        assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()
        linked_file = name if name == "p" else f"lib{name}.so"
        assert runtimes_of(folder / linked_file) == runtimes_of(folder / "driver")
        for target in targets:
            device = folder / f"work.{target}.{'bc' if target == 'gfx90a' else 'o'}"
            image = (folder / f"{name}.{target}.{target_of(target)}").read_bytes()
            if target == "sm_80" and "-19" in str(clang):
                continue  # clang 19 writes variables of PTX in an order by chance
            assert device.read_bytes() in (folder / "driver.o").read_bytes(), target
            assert image in (folder / "driver").read_bytes(), target


@pytest.mark.llvm
@pytest.mark.parametrize("flags", ["-O0 -g", "-O1", "-O2 -mavx2", "-O3"])
@pytest.mark.parametrize("suffix", ["c", "cpp"])
def test_bytes_are_the_drivers(project: Project, clang: Path, suffix: str, flags: str) -> None:
    """Host objects, device objects and images of programs and shared libraries are the driver's."""
    compare(project, clang, [CPU], suffix, flags.split())
    assert run_on_device(clang, project.folder / "p") == (0, "5.34147 7\n")


@pytest.fixture
def gpu_clang(project: Project) -> Path:
    """Return a clang that links images for GPUs: with device runtimes, ocml and NVIDIA's toolkit.

    The toolkit's programs are not on PATH.
    """
    clang = CLANGS.get("given") or CLANGS.get("19")
    if clang is None:
        missing("clang 19 with its OpenMP, which OFFLOAD_TEST_OPENMP names")
        pytest.skip("no compiler")
    toolkits = sorted(Path(os.environ.get("OFFLOAD_TEST_CUDA", "/none")).glob("cu*/bin/nvlink"))
    for file in (*toolkits[:1], _device_libraries(clang) / "ocml.bc"):
        if not file.exists():
            missing(f"{file}, for GPUs")
    if not toolkits:
        missing("NVIDIA's toolkit, which OFFLOAD_TEST_CUDA names")
    toolkit = str(toolkits[-1].parent.parent)
    project.environment.update(OFFLOAD_CUDA_PATH=toolkit, PATH="/usr/bin:/bin")
    return clang


def rocm_flag(clang: Path) -> str:
    """Return the flag that names ROCm's device libraries."""
    return f"--rocm-device-lib-path={_device_libraries(clang)}"


def _device_libraries(clang: Path) -> Path:
    """Return ROCm's, as Debian's packages rocm-device-libs and rocm-device-libs-NN have them."""
    version = _libraries(clang).parent.name.removeprefix("llvm-")
    beside = _libraries(clang).parent.parent / "x86_64-linux-gnu/amdgcn/bitcode"
    own = Path(f"/usr/lib/llvm-{version}/lib/clang/{version}/amdgcn/bitcode")
    return beside if beside.exists() else own


MATH = """\
#include <math.h>
int main(int argc, char **argv) {
  double r = argc, low = 100, high = -100;
#pragma omp target teams distribute parallel for map(tofrom : r) reduction(min : low) \\
    reduction(max : high)
  for (int i = 0; i < 100; i++) {
    low = fmin(low, sin(r + i));
    high = fmax(high, pow(r, i));
  }
  return low > high;
}
"""


@pytest.mark.llvm
@pytest.mark.parametrize("target", ["gfx90a", "sm_80"])
def test_functions_of_a_gpu(project: Project, gpu_clang: Path, target: str) -> None:
    """An image has ocml's or libdevice's functions, and no undefined symbol."""
    project.write("work.c", MATH)
    flags = ["-O2", rocm_flag(gpu_clang)]
    build(project, gpu_clang, "env.OffloadProgram('p', ['work.c'])\n", [target], *flags)
    image = read_elf_tables(memoryview(project.read(f"p.{target}.co")), path="image")
    symbols = image.named_symbols()
    assert any("__omp_offloading_" in symbol.name for symbol in symbols)
    assert [symbol.name for symbol in symbols if not symbol.defined] == []


@pytest.mark.llvm
def test_bytes_for_three_targets(project: Project, gpu_clang: Path) -> None:
    """Files of a CPU and two GPUs, built together, are the driver's."""
    toolkit = project.environment["OFFLOAD_CUDA_PATH"]
    driver = [f"--cuda-path={toolkit}", "-Wno-unknown-cuda-version"]
    runtime = _libraries(gpu_clang) / "libomptarget-nvptx-sm_80.bc"
    if runtime.exists():  # before clang 21; the driver does not find it by itself
        driver.append(f"--libomptarget-nvptx-bc-path={runtime}")
    compare(
        project, gpu_clang, [CPU, "gfx90a", "sm_80"], "c", ["-O2", rocm_flag(gpu_clang)], driver
    )


def compare_image(
    project: Project, clang: Path, target: str, flags: list[str], driver: Sequence[str] = ()
) -> None:
    """Build a program here and with the driver, with flags for compiles and links."""
    project.write("work.c", MATH)
    head = setup(clang, [target], flags, flags)
    project.sconstruct("env.OffloadProgram('p', ['work.c'])\n", head).build()
    common = ["-fopenmp", *target_flags([target]), *flags, *driver]
    run_tool(clang, *common, "-c", "work.c", cwd=project.folder)
    run_tool(f"{clang}++", *common, "work.o", "-o", "driver", "-lm", cwd=project.folder)
    assert project.read(f"p.{target}.{target_of(target)}") in project.read("driver")


@pytest.mark.llvm
@pytest.mark.parametrize("flags", [[], ["-O1", "-march=haswell"]])
def test_objects_of_a_library(project: Project, clang: Path, flags: list[str]) -> None:
    """Objects name the processor that the driver's do, by which its link takes their code."""
    project.write("work.c", MORE)
    build(project, clang, "env.OffloadStaticLibrary('work', 'work.c')\n", [CPU], *flags)
    command = [clang, "-fopenmp", *target_flags([CPU]), *flags, "-c", "work.c", "-o", "theirs.o"]
    run_tool(*command, cwd=project.folder)
    ours, theirs = (
        [(image.id, image.size) for image in list_images(project.folder / name)]
        for name in ("libwork.a", "theirs.o")
    )
    assert ours == theirs
    extract = "env.OffloadExtract('own', 'libwork.a')\nenv.OffloadExtract('their', 'theirs.o')\n"
    build(project, clang, extract, [CPU])
    assert project.read(f"own.{CPU}.co") == project.read(f"their.{CPU}.co")


@pytest.mark.llvm
def test_bitcode_of_a_cpu(project: Project, clang: Path) -> None:
    """An image of modules that are bitcode is the driver's."""
    compare_image(project, clang, CPU, ["-O2", "-foffload-lto"])


@pytest.mark.llvm
@pytest.mark.parametrize("flag", ["-foffload-lto", "-fopenmp-target-jit"])
@pytest.mark.parametrize("target", ["gfx90a", "sm_80"])
def test_bitcode_of_a_gpu(project: Project, gpu_clang: Path, target: str, flag: str) -> None:
    """An image of modules that are bitcode, and an image that is bitcode, is the driver's."""
    runtime = f"--libomptarget-nvptx-bc-path={_libraries(gpu_clang)}/libomptarget-nvptx-sm_80.bc"
    toolkit = f"--cuda-path={project.environment['OFFLOAD_CUDA_PATH']}"
    driver = [toolkit, "-Wno-unknown-cuda-version", runtime]
    compare_image(project, gpu_clang, target, ["-O2", rocm_flag(gpu_clang), flag], driver)


RECORDER = '#!/bin/sh\necho "$@" >>{0}\nexec {1}/bin/ptxas "$@"\n'


@pytest.mark.llvm
@pytest.mark.parametrize("flags", ["-O0 -g", "-O1 -g", "-O3"])
def test_level_of_ptxas(project: Project, gpu_clang: Path, flags: str) -> None:
    """It is the driver's; OFFLOAD_PTXAS names the only ptxas, and the toolkit has none."""
    toolkit, own = Path(project.environment["OFFLOAD_CUDA_PATH"]), project.folder / "toolkit"
    log = project.folder / "log"
    ptxas = project.script("ptxas", RECORDER.format(log, toolkit))
    (own / "bin").mkdir(parents=True)  # clang wants it
    for item in toolkit.iterdir():
        if item.name != "bin":
            (own / item.name).symlink_to(item)
    project.environment["OFFLOAD_CUDA_PATH"] = str(own)
    project.write("work.c", MATH)
    body = f"env.OffloadDeviceObject('work.c', OFFLOAD_PTXAS={str(ptxas)!r})\n"
    build(
        project,
        gpu_clang,
        f"env.Replace(OFFLOAD_PTXAS={str(ptxas)!r})\n{body}",
        ["sm_80"],
        *flags.split(),
    )
    command = [
        gpu_clang,
        "-fopenmp",
        "--offload-arch=sm_80",
        f"--cuda-path={toolkit}",
        *flags.split(),
    ]
    plan = try_tool(*command, "-c", "work.c", "-###", cwd=project.folder).stderr
    (driver,) = [
        job for job in map(job_args, plan.splitlines()) if job[:1] and job[0].endswith("ptxas")
    ]
    made = log.read_text().splitlines()[-1].split()
    assert _without_files(made) == _without_files(driver[1:])


def _without_files(args: list[str]) -> list[str]:
    return [arg for arg in args if not arg.endswith((".o", ".s", ".cubin"))]


@pytest.mark.llvm
def test_flags_of_the_host_stay_there(project: Project, clang: Path) -> None:
    """``-mavx2`` or a ``-target`` in CCFLAGS changes no byte of a GPU's module."""
    project.write("work.c", "int f(int x) {\n#pragma omp target\n  x++;\n  return x;\n}\n")
    device, made = "env.OffloadDeviceObject('work.c')\n", []
    for more in ([], ["-mavx2", "-march=x86-64-v3"], ["-target", CPU]):
        build(project, clang, device, ["gfx90a"], "-O2", "-nogpulib", *more)
        made.append(project.read("work.gfx90a.bc"))
    assert made[0] == made[1] == made[2]


@pytest.mark.llvm
@pytest.mark.parametrize("flag", ["-save-temps", "--save-temps=obj", "@link.rsp"])
def test_temporaries_of_a_link(project: Project, clang: Path, flag: str) -> None:
    """``-save-temps`` among a program's flags leaves an image as it is."""
    project.write("work.c", MATH)
    project.write("link.rsp", "-save-temps")
    images = []
    for flags in ([], [flag]):
        project.sconstruct(BOTH.format("c"), setup(clang, [CPU], level=flags)).build()
        images.append(project.read(f"p.{CPU}.so"))
    assert images[0] == images[1]


LIBRARY = "env.SharedLibrary('helper', 'helper.c', CC={0!r}, CCFLAGS=[], SHLINK={0!r})\n"
CALLS = """\
#pragma omp begin declare target
int helper(int);
#pragma omp end declare target
int main(void) {
  int x = 0;
#pragma omp target map(from : x)
  x = helper(41);
  return x != 42;
}
"""


@pytest.mark.llvm
def test_libraries_of_the_program(project: Project, clang: Path) -> None:
    """A CPU's image finds functions in the program's libraries; without these it does not link."""
    project.write("helper.c", "int helper(int x) { return x + 1; }\n")
    project.write("work.c", CALLS)
    body = "env.OffloadProgram('p', 'work.c'{})\n"
    found = LIBRARY.format(str(clang)) + body.format(", LIBS=['helper'], LIBPATH=['.']")
    build(project, clang, found, [CPU], "-O1")
    assert run_on_device(clang, project.folder / "p") == (0, "")
    run = project.sconstruct(body.format(""), setup(clang, [CPU])).fails()
    assert "undefined reference to `helper'" in run.errors
    ignored = body.format(", OFFLOAD_LINK_FLAGS=['--unresolved-symbols=ignore-all']")
    project.sconstruct(ignored, setup(clang, [CPU])).build(f"p.{CPU}.so")
