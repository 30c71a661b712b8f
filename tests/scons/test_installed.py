"""Builds with what is installed: ROCm, device libraries, CUDA; and what is said without it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import program, run_tool
from tests.scons.conftest import Project, Run, environment, passes
from tests.toolchain.installed import write_device_libraries, write_rocm

HEAD = environment(OFFLOAD_ARCH=["gfx906", "gfx90a:xnack+"])
HEAD += "env['OFFLOAD_LAUNCHER'] = File('#count').abspath\n"
BUNDLE = "env.OffloadBundle('k.hipfb', 'k.hip')\n"
KERNEL = "#include <hip/hip_runtime.h>\n__global__ void kernel(int* p) { *p = 1; }\n"


@pytest.fixture
def real(project: Project) -> Project:
    """Return a project that includes HIP's header, in an environment that says where ROCm is."""
    clang = program("clang-22")
    project.write("k.hip", KERNEL)
    project.environment["OFFLOAD_CLANG"] = clang
    project.environment["ROCM_PATH"] = str(write_rocm(project.folder / "a"))
    write_device_libraries(project.folder / "a/amdgcn/bitcode", clang)
    return project


@pytest.mark.parametrize("variable", ["CCFLAGS", "CPPDEFINES", "OFFLOAD_FLAGS"])
def test_flags_that_mend(real: Project, variable: str) -> None:
    """Headers that compile with the user's flags alone are no reason to stop."""
    header = Path(real.environment["ROCM_PATH"], "include/hip/hip_runtime.h")
    header.write_text(f"#ifndef MENDED\n#error lacking\n#endif\n{header.read_text()}")
    given = "'MENDED'" if variable == "CPPDEFINES" else "'-DMENDED'"
    run = real.sconstruct(f"env.Append({variable}=[{given}])\n{BUNDLE}", HEAD).done()
    assert run.compiles == passes("k.hip", "gfx906", "gfx90a:xnack+")
    assert "warning" not in run.output + run.errors
    real.assert_up_to_date()


def test_named_compiler_is_used_all_the_same(real: Project) -> None:
    """Where the trial of a compiler that was named fails, a warning says so, and it compiles."""
    header = Path(real.environment["ROCM_PATH"], "include/hip/hip_runtime.h")
    header.write_text(f"#ifndef MENDED\n#error lacking\n#endif\n{header.read_text()}")
    real.write("k.hip", f"#define MENDED\n{KERNEL}")
    run = real.sconstruct(BUNDLE, HEAD).done()
    assert "offload: warning: clang 22" in run.output
    assert "lacking" in run.output


def test_toolkit_that_lacks_something(real: Project) -> None:
    """A CUDA toolkit with which a named compiler fails its trial is none to build examples with."""
    real.write("cuda/include/cuda.h", "#define CUDA_VERSION 12080\n")
    real.write("cuda/nvvm/libdevice/libdevice.10.bc", "")
    (real.folder / "cuda/bin").mkdir()
    asks = "env.Replace(OFFLOAD_FLAGS=[], OFFLOAD_ARCH='sm_80', OFFLOAD_CUDA_PATH='cuda')\n"
    run = real.sconstruct(f"{asks}print('toolkit', env.OffloadCudaToolkit())\n", HEAD).done("-Q")
    assert "toolkit None\n" in run.output
    assert "used all the same" not in run.output


def test_moved_installation(real: Project) -> None:
    """Headers of an installation are read at their place; all else counts by its content."""
    real.sconstruct(BUNDLE, HEAD).build()
    shutil.copytree(real.folder / "a", real.folder / "b")
    real.environment["ROCM_PATH"] = str(real.folder / "b")
    assert real.build_once() == passes("k.hip", "gfx906", "gfx90a:xnack+")
    real.edit("b/share/hip/version", "PATCH=1", "PATCH=2")
    assert real.build() == passes("k.hip", "gfx906", "gfx90a:xnack+")
    library = real.folder / "b/amdgcn/bitcode/oclc_isa_version_90a.bc"
    library.write_bytes(real.read("b/amdgcn/bitcode/ocml.bc") + bytes(4))
    assert real.build() == passes("k.hip", "gfx90a:xnack+")
    real.edit("b/include/hip/hip_runtime.h", "", "#define MORE 1\n")
    assert real.build() == passes("k.hip", "gfx906", "gfx90a:xnack+")


def test_construction_variables(real: Project) -> None:
    """OFFLOAD_ROCM_PATH and OFFLOAD_DEVICE_LIB_PATH go before the shell's variables."""
    shutil.copytree(real.folder / "a", real.folder / "b")
    named = "OFFLOAD_ROCM_PATH='b', OFFLOAD_DEVICE_LIB_PATH='b/amdgcn/bitcode'"
    run = real.sconstruct(f"env.Replace({named})\n{BUNDLE}", HEAD).done("-Q")
    assert f"HIP 6.4.1 (OFFLOAD_ROCM_PATH: {real.folder}/b)" in run.output
    assert f"device libraries in {real.folder}/b/amdgcn/bitcode" in run.output


IN_EACH = """\
for name in ("x", "y"):
    SConscript(f"{{name}}/SConscript", exports="env", {options})
"""
OWN = "Import('env')\nenv = env.Clone()\nenv['OFFLOAD_ROCM_PATH'] = {value}\n"
NAMED = "env.Replace(OFFLOAD_ROCM_PATH='rocm', OFFLOAD_FLAGS='-nogpulib')\n"
SPELLINGS = {
    "relative": ("", "", ""),
    "stays": ("SConscriptChdir(0)\n", "", ""),
    "top": ("", "'#{name}/rocm'", ""),
    "substituted": ("env.Replace(OFFLOAD_ROCM_PATH='$WHERE', WHERE='rocm')\n", "", ""),
    "node": ("", "Dir('rocm')", ""),
    "clone": ("", "'rocm'", ""),
    "variant": ("", "", "variant_dir=f'build/{name}', duplicate=0"),
    "copies": ("", "", "variant_dir=f'build/{name}', duplicate=1"),
}


def two_folders(project: Project) -> Project:
    """Make two folders of a source and another HIP's headers; other paths are relative to them."""
    clang = project.environment["OFFLOAD_CLANG"]
    for name, version in (("x", "6.4.1"), ("y", "7.0.0")):
        write_rocm(project.folder / name / "rocm", version=version)
        write_device_libraries(project.folder / name / "rocm/amdgcn/bitcode", clang)
        project.write(f"{name}/k.hip", KERNEL)
    return project


def said_to_be_used(run: Run) -> list[str]:
    """Return the installations of HIP that a run says it uses."""
    assert run.status == 0, run.output + run.errors
    return re.findall(r"HIP (\d\S+ \(\S+ \S+?\))", run.output)


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_relative_places(real: Project, spelled: tuple[str, str, str]) -> None:
    """One relative spelling in two SConscripts is a folder beside each, however each is read."""
    begin, own, options = spelled
    two_folders(real)
    for name in ("x", "y"):
        head = OWN.format(value=own.format(name=name)) if own else "Import('env')\n"
        real.write(f"{name}/SConscript", head + BUNDLE)
    run = real.sconstruct(NAMED + begin + IN_EACH.format(options=options), HEAD).run("-Q", "-n")
    found = [(v, real.folder / n / "rocm") for n, v in (("x", "6.4.1"), ("y", "7.0.0"))]
    assert said_to_be_used(run) == [f"{v} (OFFLOAD_ROCM_PATH: {place})" for v, place in found]


def test_relative_place_in_a_repository(real: Project, tmp_path: Path) -> None:
    """A folder that only the Repository has is that one, as sources are."""
    two_folders(real)
    for name in ("x", "y"):
        real.write(f"{name}/SConscript", "Import('env')\n" + BUNDLE)
    body = "Repository('../project')\n" + NAMED
    other = Project(tmp_path / "other", real.environment)
    other.script("count", (real.folder / "count").read_text())
    other.sconstruct(body + IN_EACH.format(options=""), HEAD)
    found = said_to_be_used(other.run("-Q", "-n"))
    assert [text.split(": ")[1] for text in found] == [
        f"{real.folder}/{name}/rocm)" for name in ("x", "y")
    ]


def test_compiler_is_asked_where_it_is_run(real: Project) -> None:
    """Relative names in flags, in PATH's place and in the shell mean what they do in commands."""
    two_folders(real)
    clang = real.environment.pop("OFFLOAD_CLANG")
    real.script("tools/clang", f'#!/bin/sh\nexec {clang} "$@"\n')
    real.environment["ROCM_PATH"] = "y/rocm"
    real.write("x/SConscript", "Import('env')\n" + BUNDLE)
    flags = "env.Append(OFFLOAD_FLAGS=['--rocm-device-lib-path=x/rocm/amdgcn/bitcode'])\n"
    named = "env.Replace(OFFLOAD_CLANG='tools/clang')\n"
    real.sconstruct(flags + named + "SConscript('x/SConscript', exports='env')\n", HEAD)
    run = real.run("-Q")
    assert said_to_be_used(run) == ["7.0.0 ($ROCM_PATH: y/rocm)"]
    assert run.compiles == passes("x/k.hip", "gfx906", "gfx90a:xnack+")
    library = real.folder / "x/rocm/amdgcn/bitcode/oclc_isa_version_90a.bc"
    library.write_bytes((library.parent / "ocml.bc").read_bytes() + bytes(4))
    assert real.build_once() == passes("x/k.hip", "gfx90a:xnack+")


def test_two_paths_of_one_run(real: Project) -> None:
    """A SConstruct that changes PATH gets the compiler of each, for what comes after."""
    clang = real.environment.pop("OFFLOAD_CLANG")
    for name in ("one", "two"):
        real.script(f"{name}/clang", f'#!/bin/sh\nexec {clang} "$@"\n')
    given = "import os\nbefore = os.environ['PATH']\n"
    for name in ("one", "two"):
        given += f"os.environ['PATH'] = Dir('{name}').abspath + ':/usr/bin:/bin'\n"
        given += f"env.OffloadDeviceObject('{name}-k', 'k.hip', OFFLOAD_ARCH='gfx906')\n"
    real.sconstruct("env.Replace(OFFLOAD_FLAGS='-nogpuinc -nogpulib')\n" + given, HEAD)
    assert re.findall(r"clang 22\S+ \((\S+?)\)", real.done("-Q", "-n").output) == [
        f"{real.folder}/{name}/clang" for name in ("one", "two")
    ]


def test_c_stays_c(project: Project) -> None:
    """OFFLOAD_KIND='hip' makes HIP of C++ sources, and leaves C sources C, as hipcc does."""
    bare = "env.Append(OFFLOAD_FLAGS=['-nogpuinc', '-nogpulib'], OFFLOAD_HOST_FLAGS='-nogpuinc')\n"
    project.write("k.cpp", (project.folder / "k.hip").read_text().replace("VALUE", "1"))
    project.write("c.c", "int class(void) { return 0; }\n")
    program = "env.OffloadProgram('prog', ['k.cpp', 'c.c', 'runtime.c'], OFFLOAD_KIND='hip')\n"
    project.sconstruct(bare + program, HEAD)
    assert project.build() == passes("k.cpp", "gfx906", "gfx90a:xnack+", "host")


def test_host_flags_reach_the_link(project: Project) -> None:
    """Flags such as -fopenmp, of host compiles, are those of the link too, once."""
    bare = "env.Append(OFFLOAD_FLAGS=['-nogpuinc', '-nogpulib'], CPPDEFINES='VALUE=1')\n"
    flags = "env.Append(OFFLOAD_HOST_FLAGS=['-nogpuinc', '-fopenmp'], CCFLAGS='-pthread -O1')\n"
    program = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'], LINKFLAGS='-pthread')\n"
    run = project.sconstruct(bare + flags + program, HEAD).done("-Q", "-n")
    (link,) = (line.split() for line in run.output.splitlines() if " -o prog " in line)
    assert (link.count("-fopenmp"), link.count("-pthread"), link.count("-O1")) == (1, 1, 0)


def test_openmp_without_device_runtime(project: Project) -> None:
    """OpenMP for a GPU whose compiler has no device runtime stops with what is missing."""
    clang = program("clang-19")
    if list(Path("/usr/lib/llvm-19/lib").glob("*/libompdevice.a")) or list(
        Path("/usr/lib/llvm-19/lib").glob("libomptarget-amdgpu*")
    ):
        pytest.skip("clang 19 has a device runtime here")
    project.environment["OFFLOAD_CLANG"] = clang
    project.write("o.c", "int main(void) {\n#pragma omp target\n{}\nreturn 0; }\n")
    project.sconstruct("env.OffloadProgram('prog', ['o.c'], OFFLOAD_KIND='openmp')\n", HEAD)
    run = project.fails("-Q")
    assert run.compiles == []
    assert "clang 19.1.7 comes without OpenMP's device runtime" in run.errors
    assert "OFFLOAD_DEVICE_RUNTIME" in run.errors


LAUNCHING = """\
struct dim3 { unsigned x = 1, y = 1, z = 1; };
extern "C" int cudaLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
extern "C" int __cudaPushCallConfiguration(dim3, dim3, unsigned long = 0, struct stream* = 0);
__attribute__((global)) void kernel(int* p) { *p = 1; }
void f(int* p) { kernel<<<dim3(), dim3()>>>(p); }
"""


def test_ptx_of_the_toolkit(project: Project) -> None:
    """With a CUDA toolkit PTX is of its version; without, the oldest that has the processor.

    Its SDK version reaches launches of code that uses none of its libraries.
    """
    for name in ("bin", "nvvm/libdevice"):
        (project.folder / "cuda" / name).mkdir(parents=True)
    project.write("cuda/nvvm/libdevice/libdevice.10.bc", "")
    project.write("cuda/include/cuda.h", "#define CUDA_VERSION 12080\n")
    project.write("k.cu", LAUNCHING)
    bare = "env.Replace(OFFLOAD_FLAGS=['-nocudainc', '-nocudalib'], OFFLOAD_ARCH='sm_80')\n"
    project.sconstruct(bare + "env.OffloadDeviceObject('k.cu')\n", HEAD).build()
    assert b".version 7.0" in project.read("k.sm_80.ptx")
    host = "OFFLOAD_HOST_FLAGS='-nocudainc', OFFLOAD_PTXAS='none'"
    project.sconstruct(f"{bare}env.OffloadObject('k.cu', {host})\n", HEAD)
    project.environment["OFFLOAD_CUDA_PATH"] = "cuda"
    found = f"CUDA 12.8 (OFFLOAD_CUDA_PATH: {project.folder}/cuda)"
    assert found in project.done("-Q").output
    assert b".version 8.7" in project.read("k.sm_80.ptx")


MAIN = """\
#include <hip/hip_runtime.h>
int main() { return hipLaunchKernel(0, {}, {}, 0, 0, 0) != 100; }
"""
CHECK = "#if !__HIP__ && !__HIP_PLATFORM_AMD__\n#error Must define __HIP_PLATFORM_AMD__\n#endif\n"
LAUNCH = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
"""
PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'main.cpp'])\n"
FLAGS = "env.MergeFlags(env.OffloadRocmFlags())\n"


@pytest.fixture
def with_runtime(real: Project) -> Project:
    """Return the project with a C++ source that calls HIP, and a library that stands for HIP's."""
    root = Path(real.environment["ROCM_PATH"])
    header = root / "include/hip/hip_runtime.h"
    header.write_text(CHECK + LAUNCH + header.read_text())
    (root / "lib").mkdir()
    args = ["-shared", "-fPIC", "-w", "-Dmain=other", "-o", root / "lib/libamdhip64.so"]
    clang = real.environment["OFFLOAD_CLANG"]
    run_tool(clang, *args, real.folder / "runtime.c")
    real.write("main.cpp", MAIN)
    return real


def test_flags_of_rocm(with_runtime: Project) -> None:
    """With `OffloadRocmFlags`, a C++ source finds headers and macro, and the program its library.

    So does a program of SCons's own compiler; without a ROCm, `scons -c` and `-h` work.
    """
    plain = "env.Program('plain', env.Object('own', 'main.cpp'))\n"
    header = Path(with_runtime.environment["ROCM_PATH"], "include/hip/hip_runtime.h")
    header.write_text(f"#ifndef A\n#error lacking\n#endif\n{header.read_text()}")
    body = f"{FLAGS}env.Append(CPPDEFINES={{'A': 1}})\n{PROGRAM}{plain}"
    with_runtime.sconstruct(body, HEAD).build_once()
    with_runtime.start("prog")
    with_runtime.start("plain")
    with_runtime.done("-c")
    with_runtime.environment["ROCM_PATH"] = "/nowhere"
    with_runtime.done("-c")
    with_runtime.done("-h")


def test_advice_of_a_compile(with_runtime: Project) -> None:
    """What HIP's header says of a macro is followed by the flags that define it."""
    place = f"env.Append(CPPPATH=['{with_runtime.environment['ROCM_PATH']}/include'])\n"
    for body in ("", place):
        run = with_runtime.sconstruct(body + PROGRAM, HEAD).fails("-Q")
        expected = "\noffload: main.cpp: the command lacks the flags of HIP; env.MergeFlags("
        assert f"{expected}env.OffloadRocmFlags()) adds what is needed\n" in run.errors


def test_advice_of_a_link(with_runtime: Project) -> None:
    """A link that lacks HIP's runtime is followed by its name, other links by nothing."""
    with_runtime.write("main.cpp", LAUNCH + MAIN.partition("\n")[2])
    run = with_runtime.sconstruct(PROGRAM, HEAD).fails("-Q")
    assert (
        "offload: prog: the command lacks HIP's runtime library, amdhip64; env.Merge" in run.errors
    )
    with_runtime.write("main.cpp", "int missing(); int main() { return missing(); }\n")
    run = with_runtime.sconstruct(FLAGS + PROGRAM, HEAD).fails("-Q")
    assert "missing" in run.errors
    assert "offload: prog" not in run.errors
