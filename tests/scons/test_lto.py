"""Link-time optimisation: host objects are bitcode, and the linker compiles them."""

from __future__ import annotations

import pytest

from tests.scons.conftest import BUNDLE, Project

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
    assert project.start("p")[0].startswith(BUNDLE)
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


def test_what_cannot_be_lto(project: Project) -> None:
    """Where an object is needed, bitcode is refused by name, and no launcher is blamed."""
    project.write("r.c", "int main(void) {\n#pragma omp target\n;\nreturn 0; }\n")
    project.sconstruct(
        "env['OFFLOAD_LAUNCHER'] = ''\n"
        "env.OffloadObject('k.hip', OFFLOAD_RDC=True, CCFLAGS='-flto')\n"
        "env.OffloadDeviceObject('k.hip', OFFLOAD_FLAGS=env['OFFLOAD_FLAGS'] + ['-emit-llvm'])\n"
        "omp = env.Clone(OFFLOAD_KIND='openmp', OFFLOAD_ARCH='x86_64-pc-linux-gnu')\n"
        "omp.Replace(OFFLOAD_FLAGS=[], OFFLOAD_HOST_FLAGS=[])\n"
        "omp.OffloadObject('r.c', OFFLOAD_HOST_FLAGS='-flto')\n"
    )
    errors = project.fails("-k").errors
    refused = "device code cannot be put into an object of -flto"
    assert f"'k.host.o': {refused}; give the source to" in errors
    assert f"'r.host.o': {refused}" in errors
    bitcode = "found LLVM bitcode; flags such as -flto and -emit-llvm do not belong here"
    assert errors.count(bitcode) == 2
    assert "launcher" not in errors
