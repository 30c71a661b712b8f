"""The compilation database for clangd: one entry a source, and the headers, without an error."""

from __future__ import annotations

import json
import re

import pytest

from tests.conftest import NvidiaFile, Tool, try_tool
from tests.scons.conftest import Project

HEADER = """\
#pragma once
#ifdef __gfx942__
__attribute__((device)) inline int width() { return 4; }
#else
__attribute__((device)) inline int width(int x = 2) { return x; }
#endif
"""
SOURCE = """\
#include "wave.h"
__attribute__((global)) void wave(int *p) { *p = width(); }
"""
CUDA = """\
#include "shared.h"
__global__ void scale(float *p) { p[threadIdx.x] *= factor(); }
void start(float *p) { scale<<<1, 32>>>(p); }
"""
OPENMP = """\
#include "sum.h"
int sum(int n) {
    int s = 0;
#pragma omp target teams distribute parallel for reduction(+ : s)
    for (int i = 0; i < n; i++) s += term(i);
    return s;
}
"""


def entries(project: Project, *args: str) -> list[dict[str, str]]:
    project.build("compile_commands.json", *args)
    found: list[dict[str, str]] = json.loads((project.folder / "compile_commands.json").read_text())
    return found


def errors(clangd: str, project: Project, name: str) -> list[str]:
    """Return the errors that clangd shows in a file."""
    command = [clangd, f"--check={name}", f"--compile-commands-dir={project.folder}"]
    done = try_tool(*command, cwd=project.folder, timeout=120)
    assert "All checks completed" in done.stderr
    return re.findall(r"^E\[[^]]*\] \[.*", done.stderr, re.MULTILINE)


@pytest.fixture
def waves(project: Project) -> Project:
    (project.folder / "inc").mkdir()
    project.write("inc/wave.h", HEADER)
    project.write("wave.hip", SOURCE)
    project.sconstruct(
        "env.Replace(OFFLOAD_ARCH='gfx90a,gfx942', OFFLOAD_CLANGD_ARCH=ARGUMENTS.get('see', ''))\n"
        "env.Append(CPPPATH=['inc'])\n"
        "env.OffloadCompilationDatabase()\nenv.OffloadObject('wave.hip')\n"
    )
    return project


@pytest.mark.parametrize(("see", "arch"), [("gfx942", "gfx942"), ("gfx90a", "gfx90a")])
def test_entry_of_one_target(waves: Project, see: str, arch: str) -> None:
    """Each source has the entry of the wanted target; the header that of its source."""
    found = entries(waves, f"see={see}")
    assert [entry["file"] for entry in found] == ["wave.hip", "inc/wave.h"]
    for entry in found:
        assert f"--offload-arch={arch}" in entry["arguments"]
        assert entry["arguments"][-1] == entry["file"]
        assert "hip" in entry["arguments"]
    waves.assert_up_to_date("compile_commands.json", f"see={see}")


def test_what_there_is(waves: Project) -> None:
    """Without a wish there is each pass, the host's first; a wish that cannot be met is refused."""
    found = [entry["file"] for entry in entries(waves)]
    assert found == ["wave.hip", "wave.hip", "wave.hip", "inc/wave.h"]
    assert "--offload-host-only" in entries(waves, "see=host")[0]["arguments"]
    run = waves.fails("compile_commands.json", "see=gfx906")
    message = "OFFLOAD_CLANGD_ARCH='gfx906': no pass is for it; give one of gfx90a, gfx942, host"
    assert message in run.errors


def test_header_that_is_added(waves: Project) -> None:
    """A header that a source includes since gets its entry."""
    assert len(entries(waves, "see=host")) == 2
    waves.write("inc/new.h", "#pragma once\n")
    waves.write("wave.hip", '#include "new.h"\n' + SOURCE)
    found = {entry["file"] for entry in entries(waves, "see=host")}
    assert found == {"wave.hip", "inc/wave.h", "inc/new.h"}


def test_names_as_of_scons(waves: Project) -> None:
    """Copies have the names of their originals; SCons's variables of its own database apply."""
    waves.write("src/wave.hip", SOURCE)
    waves.write("src/wave.h", HEADER)
    waves.write("src/SConscript", "Import('env')\nenv.OffloadDeviceObject('wave.hip')\n")
    body = "env.OffloadCompilationDatabase()\n"
    body += "SConscript('src/SConscript', variant_dir='out', duplicate=1, exports='env')\n"
    waves.sconstruct(body)
    found = entries(waves)
    assert [entry["file"] for entry in found] == ["src/wave.hip", "src/wave.hip", "src/wave.h"]
    assert {entry["arguments"][-1] for entry in found} == {"src/wave.hip", "src/wave.h"}
    settings = "COMPILATIONDB_USE_ABSPATH=True, COMPILATIONDB_PATH_FILTER='*/out/*gfx906*'"
    waves.sconstruct(f"env.Replace({settings})\n{body}")
    names = [entry["file"] for entry in entries(waves)]
    assert names == [f"{waves.folder}/src/{name}" for name in ("wave.hip", "wave.h")]


@pytest.mark.llvm
@pytest.mark.parametrize("see", ["", "host", "gfx942"])
def test_clangd_with_hip(waves: Project, llvm: Tool, see: str) -> None:
    """Clangd shows no error in source and header; without the header's entry it would."""
    clangd = llvm("clangd")
    entries(waves, f"see={see}")
    for name in ("wave.hip", "inc/wave.h"):
        assert errors(clangd, waves, name) == []
    waves.write("wave.hip", SOURCE.replace("width()", "height()"))
    assert errors(clangd, waves, "wave.hip")  # that there are errors is seen


@pytest.mark.llvm
def test_clangd_with_openmp(project: Project, llvm: Tool) -> None:
    """The entry of an OpenMP source is that of its host IR: the object is made of that."""
    project.write("sum.h", "#pragma once\nstatic inline int term(int i) { return i; }\n")
    project.write("sum.c", OPENMP)
    project.sconstruct(
        "env.Replace(OFFLOAD_ARCH='gfx906', CCFLAGS=['-fopenmp'])\n"
        "env.OffloadCompilationDatabase()\nenv.OffloadObject('sum.c')\n"
    )
    assert [entry["file"] for entry in entries(project)] == ["sum.c", "sum.c", "sum.h"]
    for name in ("sum.c", "sum.h"):
        assert errors(llvm("clangd"), project, name) == []


@pytest.mark.llvm
def test_clangd_with_cuda(project: Project, llvm: Tool, nvidia: NvidiaFile) -> None:
    """With a toolkit, host and device code of CUDA are without an error."""
    root = nvidia("ptxas").parents[1]
    project.write("shared.h", "#pragma once\n__device__ inline float factor() { return 2; }\n")
    project.write("scale.cu", CUDA)
    for see in ("host", "sm_80"):
        project.sconstruct(
            f"env.Replace(OFFLOAD_ARCH='sm_80', OFFLOAD_CUDA_PATH={str(root)!r}, "
            f" OFFLOAD_FLAGS=[], OFFLOAD_HOST_FLAGS=[], OFFLOAD_CLANGD_ARCH={see!r})\n"
            "env.OffloadCompilationDatabase()\nenv.OffloadObject('scale.cu')\n"
        )
        assert [entry["file"] for entry in entries(project)] == ["scale.cu", "shared.h"]
        for name in ("scale.cu", "shared.h"):
            assert errors(llvm("clangd"), project, name) == []
