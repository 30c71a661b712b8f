"""What the builders make: names, contents, aliases, links."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.containers.walk import open_file_or_members
from offload_tool.formats.bundle.binary import read_bundle
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.list_images import list_images
from tests.conftest import Tool, run_tool
from tests.scons.conftest import BUNDLE, KERNEL, Project, passes

ENTRIES = [
    "host-x86_64-unknown-linux-gnu-",
    "hipv4-amdgcn-amd-amdhsa--gfx906",
    "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+",
]


def entries(path: Path) -> dict[str, bytes]:
    data = memoryview(path.read_bytes())
    bundle = read_bundle(data, path=path)
    return {entry.id: bytes(bundle.image(data, entry)) for entry in bundle.entries}


def test_device_objects(project: Project) -> None:
    """OffloadDeviceObject gives one code object per target ID, with no colon in its name."""
    project.sconstruct("env.OffloadDeviceObject('k.hip')\nenv.OffloadDeviceObject('n', 'k.hip')\n")
    project.build()
    names = {path.name for path in project.folder.glob("*.co")}
    assert names == {f"{stem}.{t}.co" for stem in "kn" for t in ("gfx906", "gfx90a_xnack+")}
    assert project.read("k.gfx906.co") == (project.folder / "n.gfx906.co").read_bytes()


def test_programs_keep_their_layout(project: Project) -> None:
    """OFFLOAD_BUNDLE_TYPE in an environment does not change the fat binaries of programs."""
    project.sconstruct("env.OffloadObject('k.hip')\n").build()
    before = project.read("k.hipfb")
    other = "env['OFFLOAD_BUNDLE_TYPE'] = 'ii'\nenv.OffloadObject('k.hip')\n"
    project.sconstruct(other).build_once()
    assert project.read("k.hipfb") == before


@pytest.mark.parametrize("method", ["zstd", "zlib"])
def test_compressed_bundle(project: Project, method: str) -> None:
    """OFFLOAD_COMPRESS compresses the bundle; what is in it stays the same."""
    body = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"
    project.sconstruct(body).build()
    plain = list_images(project.folder / "k.hipfb")
    assert project.sconstruct(f"env['OFFLOAD_COMPRESS'] = {method!r}\n" + body).build() == []
    assert project.read("k.hipfb").startswith(b"CCOB")
    for name in ("k.hipfb", "prog"):
        images = list_images(project.folder / name)
        assert [(i.id, i.size) for i in images] == [(i.id, i.size) for i in plain]
        assert {(i.container, i.offset) for i in images} == {("compressed-bundle", None)}
    project.assert_up_to_date()


def test_host_object_has_no_device_code(project: Project) -> None:
    """OffloadHostObject compiles the host pass alone and needs no target ID."""
    project.sconstruct("env['OFFLOAD_ARCH'] = []\nenv.OffloadHostObject('h.o', 'k.hip')\n")
    assert project.build() == passes("k.hip", "host")
    assert b".hip_fatbin" not in project.read("h.o")


def test_program_finds_its_bundle(project: Project) -> None:
    """A linked program starts, and registers the embedded bundle of each of its sources."""
    project.write("sub/k.hip", KERNEL.replace("kernel", "other").replace("host_value", "o"))
    project.sconstruct("env.OffloadProgram('prog', ['k.hip', 'sub/k.hip', 'runtime.c'])\n").build()
    kernels = ["kernel _Z6kernelPi", "kernel _Z5otherPi"]
    assert project.start()[:4] == [f"{BUNDLE} 1", kernels[0], f"{BUNDLE} 2", kernels[1]]
    images = list_images(project.folder / "prog")
    assert [image.id for image in images] == ENTRIES * 2
    assert {image.index for image in images} == {0, 1}


def test_one_cuid_for_all_passes(project: Project) -> None:
    """All passes of a source have the same CUID, also when its nodes are named apart."""
    project.sconstruct(
        "env.OffloadHostObject('x.o', 'k.hip')\n"
        "env.OffloadDeviceObject('y', 'k.hip')\n"
        "env.OffloadBundle('z', 'k.hip')\n"
    ).build("-j2")
    log = (project.folder / "compiles.log").read_text().splitlines()
    cuids = {word for line in log for word in line.split() if word.startswith("-cuid=")}
    assert len(log) == 5
    assert len(cuids) == 1


def test_flags_reach_the_right_passes(project: Project) -> None:
    """Host flags reach the host, device flags the devices, C++ flags and paths all."""
    project.write("inc/inc.h", "")
    project.write("k.hip", "#include <inc.h>\n" + KERNEL)
    project.sconstruct(
        "env.Append(OFFLOAD_FLAGS=['-DDEV'], OFFLOAD_HOST_FLAGS=['-DHOST'], CPPPATH=['#inc'],\n"
        "           CXXFLAGS=['-std=c++20'], OFFLOAD_ARCH_FLAGS={'gfx90a': '-DONE -DTWO'})\n"
        "env.OffloadObject('k.hip')\n"
    ).build()
    log = (project.folder / "compiles.log").read_text().splitlines()
    by_pass = {
        ("host" if "host-only" in line else line.split("--offload-arch=")[1].split()[0]): line
        for line in log
    }
    assert all("-Iinc" in line and "-std=c++20" in line for line in log)
    assert "-DHOST" in by_pass["host"]
    assert "-DDEV" not in by_pass["host"]
    assert "-DDEV -DONE -DTWO" in by_pass["gfx90a:xnack+"]
    assert "-DDEV" in by_pass["gfx906"]
    assert "-DONE" not in by_pass["gfx906"]


def test_other_languages_are_not_loaded(project: Project) -> None:
    """A build of HIP code loads neither CUDA's links, nor what reads files in files."""
    loaded = "import sys\nprint('loaded:', *sys.modules)\n"
    project.sconstruct(f"env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n{loaded}")
    run = project.run("-n")
    (line,) = (line for line in run.output.splitlines() if line.startswith("loaded:"))
    modules = {name for name in line.split() if name.startswith("offload_tool.")}
    assert "offload_tool.scons.builders" in modules
    links = {f"offload_tool.nvidia.{name}" for name in ("nvlink", "linked_fatbin")}
    files = {"offload_tool.containers.walk", "offload_tool.operations.list_images"}
    assert modules & (links | files) == set()


@pytest.mark.llvm
def test_objdump_lists_the_program(project: Project, llvm: Tool) -> None:
    """llvm-objdump --offloading lists the program's images with our IDs, and reads ours."""
    project.sconstruct("env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n").build()
    command = [llvm("llvm-objdump"), "--offloading", "prog"]
    listed = run_tool(*command, cwd=project.folder)
    for entry in ENTRIES:
        assert f"prog.0.{entry}\n" in listed
    extracted = project.read(f"prog.0.{ENTRIES[1]}")
    assert extracted == project.read("k.gfx906.co")


WRAPPER = "bundle = env.OffloadBundle('k.hip')\n"


def test_wrapped_bundle_registers(project: Project) -> None:
    """A program with OffloadWrapper's object registers the bundle when it starts."""
    project.sconstruct(
        WRAPPER + "env.OffloadProgram('prog', [env.OffloadWrapper('w', bundle), 'runtime.c'])\n"
    ).build()
    assert project.start() == [f"{BUNDLE} 1", "unloaded 1"]
    assert [image.id for image in list_images(project.folder / "prog")] == ENTRIES
    project.assert_up_to_date()


def test_without_llvmlite(project: Project) -> None:
    """The build's clang makes objects and bitcode; llvmlite is not needed."""
    project.write("hidden/llvmlite/__init__.py", "raise ModuleNotFoundError('hidden')\n")
    root = project.environment["PYTHONPATH"]
    project.environment["PYTHONPATH"] = f"{project.folder / 'hidden'}:{root}"
    wrappers = "env.OffloadWrapper('w.o', bundle)\nenv.OffloadWrapper('w.bc', bundle)\n"
    project.sconstruct(WRAPPER + wrappers).build()
    assert [image.id for image in list_images(project.folder / "w.o")] == ENTRIES
    assert project.read("w.bc").startswith(b"BC")
    project.assert_up_to_date()


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
