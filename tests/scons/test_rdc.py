"""Relocatable device code: one device link per target ID over all sources of a program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.passes.hip import level_arguments
from tests.conftest import Tool, run_tool
from tests.scons.conftest import Project
from tests.scons.relocatable import RELOCATABLE, one, two

PROGRAM = "env.OffloadProgram('prog', ['one.hip', 'two.hip', 'runtime.c'])\n"
TWO = two("hip")


@pytest.fixture
def sources(project: Project) -> Project:
    """Return a project with two sources that use each other's device code."""
    project.write("one.hip", one("hip"))
    project.write("two.hip", TWO)
    return project


def symbols(project: Project, name: str) -> set[str]:
    path = project.folder / name
    tables = read_elf_tables(memoryview(path.read_bytes()), path=path)
    return {symbol.name for symbol in tables.named_symbols() if symbol.defined}


def test_what_is_registered_is_in_each_image(sources: Project) -> None:
    """Kernels of all sources, and a static device variable, are registered as images call them."""
    sources.sconstruct(RELOCATABLE + PROGRAM).build()
    (variable,) = (line.split()[1] for line in sources.start() if "counter" in line)
    assert variable != "counter"  # made unique with the source's CUID
    for name in ("prog.gfx906.co", "prog.gfx90a_xnack+.co"):
        assert {"_Z5firstPi", "_Z6secondPi", "_Z5firstPi.kd", variable} <= symbols(sources, name)


def test_static_variable_that_device_code_uses_first(sources: Project) -> None:
    """Where the compiler gives such a variable two names, no program comes out of it."""
    use = "void* address_of_counter() { return &counter; }\n"
    sources.write("two.hip", TWO.replace(use, "") + use)
    run = sources.sconstruct(RELOCATABLE + PROGRAM).run("-Q")
    if run.status:  # clang up to 22: it must know by then that host code asks for the variable
        assert re.search(r"undefined (hidden )?symbol: (counter|_ZL7counter)", run.errors)
        assert "[prog.gfx906.co]" in run.errors
        assert not (sources.folder / "prog").exists()
    else:
        (variable,) = (line.split()[1] for line in sources.start() if "counter" in line)
        assert variable in symbols(sources, "prog.gfx906.co")


@pytest.mark.parametrize("given", ["OFFLOAD_LINK_FLAGS=['--build-id=0x12']", "LINKFLAGS=['-O3']"])
def test_flags_of_the_link(sources: Project, given: str) -> None:
    """OFFLOAD_LINK_FLAGS, and an -O of the program's link, reach the device links alone."""
    sources.sconstruct(RELOCATABLE + PROGRAM).build()
    run = sources.sconstruct(RELOCATABLE + f"env.Replace({given})\n" + PROGRAM).run()
    assert run.compiles == []
    assert run.actions[:2] == [
        "LINK [gfx906] prog.gfx906.co",
        "LINK [gfx90a:xnack+] prog.gfx90a_xnack+.co",
    ]
    sources.assert_up_to_date()


def test_missing_device_function(sources: Project) -> None:
    """A device function that no source defines fails the link by name, with no image left."""
    sources.write("two.hip", TWO.replace("int helper(", "int other(").replace("helper(2)", "1"))
    run = sources.sconstruct(RELOCATABLE + PROGRAM).fails("-Q", "gfx906")
    assert re.search(r"undefined (hidden )?symbol: helper\(int\)", run.errors)
    assert "[prog.gfx906.co]" in run.errors
    assert not (sources.folder / "prog.gfx906.co").exists()


@pytest.mark.llvm
@pytest.mark.parametrize("flag", ["-O", "-O0", "-O3", "-Ofast", "-Og", "-Os", "-Wall"])
def test_level_is_the_drivers(llvm: Tool, flag: str, tmp_path: Path) -> None:
    """Device links get the -O of the program's link in the form in which the driver gives it."""
    command = [llvm("clang"), "--hip-link", "-fgpu-rdc", "--offload-arch=gfx906", "-nogpulib"]
    (tmp_path / "empty.o").touch()
    given = [*command, "--no-offload-new-driver", flag, "empty.o", "-###"]
    jobs = subprocess.run(given, capture_output=True, text=True, check=True, cwd=tmp_path).stderr
    found = re.findall(r'"(-plugin-opt=O\w|--lto-CGO\w)"', jobs)
    assert level_arguments(["-O1", flag][flag == "-Wall" :]) == found
    assert len(found) in {0, 2}


@pytest.mark.llvm
def test_image_is_what_clang_links(sources: Project, llvm: Tool) -> None:
    """Clang's own -fgpu-rdc link of the same bitcode gives the same image."""
    sources.sconstruct(RELOCATABLE + PROGRAM).build("gfx906")
    command = [
        *(llvm("clang"), "--target=amdgcn-amd-amdhsa", "-mcpu=gfx906", "-nogpulib", "-nostdlib"),
        *("-fuse-ld=lld", "one.gfx906.bc", "two.gfx906.bc", "-o", "theirs.co"),
        "-Wl,-plugin-opt=-amdgpu-internalize-symbols",
    ]
    run_tool(*command, cwd=sources.folder)
    ours = symbols(sources, "prog.gfx906.co")
    assert ours == symbols(sources, "theirs.co")


@pytest.mark.parametrize("libs", ["['geo']", "[geo]", "'geo'", "[[geo], 'geo']"])
def test_ways_to_name_a_device_archive(project: Project, libs: str) -> None:
    """A device archive of the build takes part in device links by its name, and as a node."""
    project.write("lib.hip", "__attribute__((device)) int lib(int x) { return x; }\n")
    run = project.sconstruct(
        "env.Replace(OFFLOAD_RDC=True, OFFLOAD_ARCH='gfx906', LIBPATH='.')\n"
        "geo = env.OffloadArchive('geo', 'lib.hip')\n"
        f"env.OffloadProgram('prog', ['k.hip', 'runtime.c'], LIBS={libs})\n"
    ).run("-n")
    assert "ARCHIVE [gfx906] libgeo.gfx906.a" in run.actions, run.output + run.errors


def test_flags_of_two_words(project: Project) -> None:
    """The registration code of a program gets the values of flags, too."""
    project.write("host.cfg", "-DHERE=1\n")
    project.sconstruct(
        "env.Append(CCFLAGS=['--config', './host.cfg', '-mllvm', '-inline-threshold=5'])\n"
        "env.OffloadProgram('prog', ['k.hip', 'runtime.c'], OFFLOAD_RDC=True)\n"
    ).build_once()
