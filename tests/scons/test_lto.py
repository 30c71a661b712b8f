"""Link-time optimisation: host objects are bitcode, and the linker compiles them."""

from __future__ import annotations

import pytest

from tests.scons.conftest import Project

FLAGS = "flto = dict(CCFLAGS=['{}'], LINKFLAGS=['-flto', '-fuse-ld=lld'])\n"
SOURCES = "['k.hip', 'runtime.c']"
PROGRAMS = {
    "full": ("-flto", f"env.OffloadProgram('p', {SOURCES}, **flto)\n"),
    "thin": ("-flto=thin", f"env.OffloadProgram('p', {SOURCES}, **flto)\n"),
    "fat": ("-flto', '-ffat-lto-objects", f"env.OffloadProgram('p', {SOURCES}, **flto)\n"),
    "relocatable": ("-flto", f"env.OffloadProgram('p', {SOURCES}, OFFLOAD_RDC=True, **flto)\n"),
    "object": (
        "-flto",
        "env.OffloadProgram('p', [env.OffloadObject('k.hip', **flto), 'runtime.c'], **flto)\n",
    ),
    "library": (
        "-flto",
        "flto['LINKFLAGS'] += ['-Wl,-u,_Z10host_valuev']\n"
        "library = env.OffloadStaticLibrary('l', 'k.hip', **flto)\n"
        "env.OffloadProgram('p', ['runtime.c', library], **flto)\n",
    ),
}


@pytest.mark.llvm
@pytest.mark.parametrize(("flag", "body"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_program(project: Project, flag: str, body: str) -> None:
    """A program of HIP sources that are compiled for link-time optimisation registers them."""
    project.sconstruct(FLAGS.format(flag) + body).build()
    assert project.start("p")[0].startswith("registered")
    project.assert_up_to_date()


def test_wrong_output_of_lto(project: Project) -> None:
    """Bitcode of another source is found out, as an object would be; no launcher is blamed."""
    project.script(
        "clang", '#!/bin/sh\nexec clang-22 $(echo "$@" | sed s/-cuid=[0-9a-f]*/-cuid=1/g)\n'
    )
    run = project.sconstruct(
        "env.Replace(OFFLOAD_CLANG=File('#clang').abspath, OFFLOAD_LAUNCHER='', CCFLAGS='-flto')\n"
        "env.OffloadHostObject('k.hip')\n"
    ).fails()
    assert "expected the undefined symbol __hip_fatbin_" in run.errors
    assert "launcher" not in run.errors


WRONG = {
    "relocatable-object": (
        "env.OffloadObject('k.hip', OFFLOAD_RDC=True, CCFLAGS='-flto')\n",
        "'k.host.o': device code cannot be put into an object of -flto; give the source to",
    ),
    "emit-llvm": (
        "env.OffloadDeviceObject('k.hip', OFFLOAD_FLAGS=env['OFFLOAD_FLAGS'] + ['-emit-llvm'])\n",
        "found LLVM bitcode; flags such as -flto and -emit-llvm do not belong here",
    ),
    "openmp-object": (
        "env.OffloadObject('r.c', OFFLOAD_KIND='openmp', OFFLOAD_ARCH='x86_64-pc-linux-gnu',\n"
        "    OFFLOAD_FLAGS=[], OFFLOAD_HOST_FLAGS='-flto')\n",
        "'r.host.o': device code cannot be put into an object of -flto",
    ),
    "openmp-device": (
        "env.OffloadDeviceObject('r.c', OFFLOAD_KIND='openmp', CCFLAGS='-flto',\n"
        "    OFFLOAD_ARCH='x86_64-pc-linux-gnu', OFFLOAD_FLAGS=[], OFFLOAD_HOST_FLAGS=[])\n",
        "found LLVM bitcode; flags such as -flto and -emit-llvm do not belong here",
    ),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_lto(project: Project, body: str, message: str) -> None:
    """Where an object is needed, bitcode is refused by name, and no launcher is blamed."""
    project.write("r.c", "int main(void) {\n#pragma omp target\n;\nreturn 0; }\n")
    run = project.sconstruct("env['OFFLOAD_LAUNCHER'] = ''\n" + body).fails()
    assert message in run.errors
    assert "launcher" not in run.errors
