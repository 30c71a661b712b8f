"""Sources without device code: a bundle is only where host code asks for it, as from clang."""

from __future__ import annotations

from pathlib import Path

from offload_tool.containers.walk import open_file_or_members
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.scons.conftest import Project

HEAD = "#define __device__ __attribute__((device))\n"
SOURCES = {
    "none": "",
    "function": "__device__ int function(int x) { return x; }\n"
    "inline __device__ int unused(int x) { return x; }\n",
    "variable": "__device__ int variable = 3;\n",
}
BODY = """\
env["OFFLOAD_ARCH"] = ["gfx906"]
env["LIBS"] = env.StaticLibrary("runtime", "runtime.c")
for rdc in (False, True):
    env = env.Clone(OFFLOAD_RDC=rdc)
    for name in {names}:
        here = ("rdc/" if rdc else "plain/") + name
        beside = here.replace(name, "beside")
        env.OffloadProgram(here + ".one", here + ".hip")
        env.OffloadProgram(here + ".two", [beside + ".hip", here + ".hip"])
        whole = env.OffloadObject(here + ".whole.o", here + ".hip")
        env.OffloadProgram(here + ".of_object", whole)
        env.OffloadSharedLibrary(here + ".so", here + ".hip")
        env.OffloadStaticLibrary(here + ".a", here + ".hip")
"""
RESULTS = ("{}.one", "{}.two", "{}.whole.o", "{}.of_object", "lib{}.so", "lib{}.a")


def has_bundle(path: Path) -> bool:
    """Return whether a file, or a member of it, has the section of bundles."""
    return any(
        b".hip_fatbin" in read_elf_tables(place.source.data).names
        for place in open_file_or_members(path)
    )


def test_bundle_is_where_it_is_asked_for(project: Project) -> None:
    """Of sources without kernels and variables, no object, program or library has a bundle."""
    for kind in ("plain", "rdc"):
        for name, text in SOURCES.items():
            host = f"int host_{name}() {{ return 1; }}\n"
            project.write(f"{kind}/{name}.hip", HEAD + text + host)
        project.write(f"{kind}/beside.hip", "int beside() { return 1; }\n")
    project.sconstruct(BODY.format(names=list(SOURCES))).build("-j2")
    found = {
        f"{kind}/{result.format(name)}"
        for kind in ("plain", "rdc")
        for name in SOURCES
        for result in RESULTS
        if has_bundle(project.folder / kind / result.format(name))
    }
    asking = {
        f"{kind}/{result.format('variable')}" for kind in ("plain", "rdc") for result in RESULTS
    }
    assert found == asking - {"rdc/variable.whole.o", "rdc/libvariable.a"}  # to be linked
    project.assert_up_to_date()
