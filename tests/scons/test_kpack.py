"""Device code apart from the host: every kernel gets its own target's bytes, and few nodes run.

What a program loads is seen when it runs with a stand-in for HIP's runtime (``kpack_runtime.c``),
and compared with the code objects that were built.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from offload_tool.formats.kpack.archive import read_kpack
from offload_tool.formats.kpack.marker import read_marker
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.io import InputFile
from offload_tool.operations.check import Rule, check_libraries
from offload_tool.operations.list_images import list_images
from offload_tool.operations.match import Device
from tests.conftest import missing, run_tool, try_tool
from tests.scons.conftest import Project, flagged_clang

SOURCE = """\
struct dim3 {{ unsigned x, y, z; }};
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void {name}(int* p) {{ *p = __LINE__ + VALUE; }}
int use_{name}() {{ return 1; }}
"""
TARGETS = ("gfx906", "gfx90a:xnack+")
DEVICES = {
    "gfx906": "gfx906:sramecc-:xnack-,gfx906:sramecc-,gfx906:xnack-,gfx906,gfx9-generic",
    "gfx90a:xnack+": "gfx90a:sramecc+:xnack+,gfx90a:sramecc+,gfx90a:xnack+,gfx90a",
}
"""The target IDs that the loader asks for, for a device of each target."""
HEAD = "env.Replace(OFFLOAD_KPACK='demo', OFFLOAD_KPACK_COMPRESS='none')\n"
MAIN = "int use_one(); int use_two(); int main() { return use_one() + use_two() != 2; }\n"
PARTS = "['one.hip', 'two.hip', 'main.cpp', 'runtime.c']"


@pytest.fixture
def kpacked(project: Project) -> Project:
    """Return a project of two kernels in two sources, and the stand-in for the runtime."""
    for name in ("one", "two"):
        project.write(f"{name}.hip", SOURCE.format(name=name))
    project.write("main.cpp", MAIN)
    shutil.copy(Path(__file__).with_name("kpack_runtime.c"), project.folder / "runtime.c")
    return project


def digest(data: bytes) -> str:
    """Return the digest that the stand-in prints."""
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % (1 << 64)
    return f"{value:016x}"


def loaded(project: Project, program: str, device: str) -> dict[str, tuple[str, str]]:
    """Run a program; give for each kernel the key and the name of the code object that it gets."""
    environment = {**os.environ, "DEVICE": DEVICES[device], "LD_LIBRARY_PATH": ""}
    path = project.folder / program
    done = try_tool(path, env=environment)
    assert "failed" not in done.stdout, done.stdout
    names = {digest(p.read_bytes()): p.name for p in sorted(project.folder.rglob("*.co"))}
    found, key, code = {}, "", ""
    for word, value in (line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line):
        if word == "module":
            key, code = value, "nothing"
        elif word == "loaded":
            code = names[value]
        else:
            found[value] = key, code
    return found


def assert_own_code(
    project: Project, program: str = "prog", stems: tuple[str, str] = ("one", "two")
) -> None:
    """Check that both kernels get the code objects of their own source and target."""
    for target in TARGETS:
        found = loaded(project, program, target)
        name = target.replace(":", "_")
        assert sorted(found) == ["_Z3onePi", "_Z3twoPi"]
        assert [found[kernel][1] for kernel in sorted(found)] == [f"{s}.{name}.co" for s in stems]


BODIES = {
    "program": f"env.OffloadProgram('prog', {PARTS})\n",
    "shared library": (
        "env.OffloadSharedLibrary('lib/one', ['one.hip', 'runtime.c'])\n"
        "env.OffloadProgram('prog', ['two.hip', 'main.cpp'], LIBS=['one'], LIBPATH='lib',"
        " LINKFLAGS=['-Wl,-rpath,' + Dir('lib').abspath, '-rdynamic'])\n"
    ),
    "objects": (
        "objects = env.OffloadObject('one.hip') + env.OffloadObject('two.hip')\n"
        "env.OffloadProgram('prog', [objects, 'main.cpp', 'runtime.c'])\n"
    ),
    "static library": (
        "library = env.OffloadStaticLibrary('parts', ['one.hip', 'two.hip'])\n"
        "env.OffloadProgram('prog', ['main.cpp', 'runtime.c', library])\n"
    ),
    "static library elsewhere": (
        "library = env.OffloadStaticLibrary('lib/parts', ['one.hip', 'two.hip'])\n"
        "env.OffloadProgram('prog', ['main.cpp', 'runtime.c', library], OFFLOAD_KPACK=False)\n"
    ),
    "static library in LIBS": (
        "library = env.OffloadStaticLibrary('lib/parts', ['one.hip', 'two.hip'])\n"
        "env.Program('bin/prog', ['main.cpp', 'runtime.c'], LIBS=[library])\n"
        "env.OffloadProgram('prog', ['main.cpp', 'runtime.c'], LIBS=[library])\n"
    ),
    "paths": (
        "env.Replace(OFFLOAD_KPACK_PATHS=['../share/@GFXARCH@/x.kpack', '/nowhere'])\n"
        f"env.OffloadProgram('bin/prog', {PARTS})\n"
        "Command('prog', 'bin/prog', 'ln -s bin/prog $TARGET')\n"
    ),
    "several in one group": (
        "env.OffloadProgram('other', ['two.hip', 'runtime.c', 'other.cpp'])\n"
        f"env.OffloadProgram('prog', {PARTS})\n"
    ),
    "two groups": (
        "env.OffloadProgram('other', ['two.hip', 'runtime.c', 'other.cpp'], OFFLOAD_KPACK=True)\n"
        f"env.OffloadProgram('prog', {PARTS})\n"
    ),
    "SCons's builders": f"env.Program('prog', {PARTS})\n",
    "garbage collection": (
        f"env.OffloadProgram('prog', {PARTS},"
        " LINKFLAGS=['-Wl,--gc-sections', '-s', '-Wl,-z,now'])\n"
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_kernel_gets_its_own_code(kpacked: Project, name: str) -> None:
    """However a program is put together, each kernel gets its own source's and target's code.

    A program has one map, and no more, in the section in which AMD's tools look for it.
    """
    kpacked.write("other.cpp", "int main() {}\n")
    kpacked.sconstruct(HEAD + BODIES[name]).build()
    assert_own_code(kpacked)
    kpacked.assert_up_to_date()
    is_elsewhere = name == "paths"
    own = ("../share/@GFXARCH@/x.kpack", "/nowhere")
    with InputFile(kpacked.folder / "prog") as source:
        tables = read_elf_tables(source.data)
        [number] = [at for at, each in enumerate(tables.names) if each == b".rocm_kpack_ref"]
        content = bytes(tables.content(number))
    marker, size = read_marker(memoryview(content))
    assert size == len(content)
    assert marker.kernel_name == ("bin/prog" if is_elsewhere else "prog")
    assert marker.search_paths == (own if is_elsewhere else (".kpack/demo_@GFXARCH@.kpack",))


@pytest.mark.llvm
@pytest.mark.parametrize(("flag", "rdc"), [("-flto", True), ("-flto=thin", False)])
def test_lto(kpacked: Project, flag: str, rdc: bool) -> None:
    """With link-time optimisation, where no wrapper can be changed, kernels get their own code."""
    kpacked.sconstruct(
        f"{HEAD}env.OffloadProgram('prog', {PARTS}, CCFLAGS='{flag}', OFFLOAD_RDC={rdc},"
        " LINKFLAGS='-fuse-ld=lld')\n"
    ).build()
    assert_own_code(kpacked, stems=("prog", "prog") if rdc else ("one", "two"))
    assert {i.container for i in list_images(kpacked.folder / "prog")} == {"kpack-marker"}


@pytest.mark.parametrize(
    ("name", "driver", "rdc"),
    [
        *(
            (name, "--offload-new-driver", True)
            for name in ("program", "static library", "objects")
        ),
        ("static library", "--no-offload-new-driver", True),
        ("program", "--offload-new-driver", False),
    ],
)
def test_drivers(kpacked: Project, tmp_path: Path, name: str, driver: str, rdc: bool) -> None:
    """Code of both offload drivers is found apart; relocatable code is linked per target."""
    clang = flagged_clang(tmp_path, driver)
    head = f"{HEAD}env.Replace(OFFLOAD_RDC={rdc}, OFFLOAD_CLANG='{clang}')\n"
    kpacked.sconstruct(head + BODIES[name]).build_once()
    assert_own_code(kpacked, stems=("prog", "prog") if rdc else ("one", "two"))


def test_sources_with_different_targets(kpacked: Project) -> None:
    """A source that lacks a target gets nothing there, and never another source's code."""
    kpacked.sconstruct(
        HEAD + "one = env.OffloadObject('one.hip', OFFLOAD_ARCH='gfx906')\n"
        "env.OffloadProgram('prog', [one, 'two.hip', 'main.cpp', 'runtime.c'])\n"
    ).build()
    found = loaded(kpacked, "prog", "gfx90a:xnack+")
    assert found["_Z3onePi"][1] == "nothing"
    assert found["_Z3twoPi"][1] == "two.gfx90a_xnack+.co"
    there = loaded(kpacked, "prog", "gfx906")
    assert {kernel: code for kernel, (_, code) in there.items()} == {
        "_Z3onePi": "one.gfx906.co",
        "_Z3twoPi": "two.gfx906.co",
    }
    rule = Rule(targets=(Device.parse("gfx90a:xnack+"),))
    [fault] = check_libraries([kpacked.folder / "prog"], [rule])
    assert "no image for gfx90a:xnack+ in 1 of 2 containers" in fault.message


def test_installed_tree(kpacked: Project, tmp_path: Path) -> None:
    """What is installed beside its archives, in the folder that they are looked for in, runs."""
    kpacked.sconstruct(
        HEAD + "env.Replace(OFFLOAD_KPACK_PATHS='../lib/demo/@GFXARCH@.kpack')\n"
        f"prog = env.OffloadProgram('build/bin/prog', {PARTS})\n"
        "Install('out/bin', prog)\nInstall('out/lib/demo', env.OffloadKpack(prog))\n"
    ).build()
    (kpacked.folder / "out").rename(tmp_path / "moved")
    names = sorted(p.name for p in (tmp_path / "moved/lib/demo").iterdir())
    assert names == ["gfx906.kpack", "gfx90a:xnack+.kpack"]
    assert_own_code(kpacked, str(tmp_path / "moved/bin/prog"))


def test_archives_of_removed_targets(kpacked: Project) -> None:
    """A build tells of the archive of a target that it makes no more, and of nothing else."""
    body = f"env.OffloadProgram('prog', {PARTS})\n"
    kpacked.sconstruct(HEAD + body)
    assert "offload:" not in kpacked.run("-Q").errors
    for group in ("demo_x", "demo_gfx906"):
        kpacked.write(f".kpack/{group}_gfx90a.kpack", "of another group")
    fewer = "env.Replace(OFFLOAD_ARCH='gfx906')\n"
    kpacked.sconstruct(HEAD + fewer + body)
    told = "offload: '.kpack/demo_gfx90a:xnack+.kpack' is of no target that this build makes"
    for _ in range(2):
        run = kpacked.done("-Q")
        assert run.compiles == []
        assert [line for line in run.errors.splitlines() if "offload:" in line] == [
            f"{told}, and would be found by what looks for such archives; remove it"
        ]
    kpacked.sconstruct(HEAD + fewer + body + "raise ValueError\n")
    assert told not in kpacked.run("-Q").errors
    (kpacked.folder / ".kpack/demo_gfx90a:xnack+.kpack").unlink()
    assert kpacked.sconstruct(HEAD + fewer + body).run("-Q").errors == ""


def test_archives_do_not_depend_on_order(kpacked: Project) -> None:
    """Archives and their bytes are the same whatever the order of sources and targets is."""
    made = []
    turned = PARTS.replace("'one.hip', 'two.hip'", "'two.hip', 'one.hip'")
    for parts, arch in ((PARTS, "gfx906,gfx942"), (turned, "gfx942,gfx906")):
        kpacked.sconstruct(f"{HEAD}env.OffloadProgram('prog', {parts}, OFFLOAD_ARCH='{arch}')\n")
        kpacked.build("prog")
        made.append(kpacked.read(".kpack/demo_gfx942.kpack"))
        kpacked.build("-c")
    assert made[0] == made[1]
    found = read_kpack(memoryview(made[0]))
    assert [image.key for image in found.images] == ["one#0", "two#0"]
    assert (found.group, found.target_ids) == ("demo", ("gfx942",))


def test_interface(kpacked: Project) -> None:
    """With a digest of the interface in the keys, archives of another interface are not loaded."""
    kpacked.sconstruct(f"{HEAD}env.OffloadProgram('prog', {PARTS}, OFFLOAD_KPACK_INTERFACE=True)\n")
    kpacked.build()
    prog, archives = kpacked.folder / "prog", kpacked.folder / ".kpack"
    before = prog.read_bytes()
    kpacked.edit("one.hip", "VALUE", "3 * VALUE")
    kpacked.build()
    assert prog.read_bytes() == before
    assert_own_code(kpacked)
    shutil.copytree(archives, kpacked.folder / "stale")
    kpacked.edit("one.hip", "int* p", "int* p, int")
    kpacked.edit("one.hip", "*p =", "*p = 1 +")
    kpacked.build()
    assert prog.read_bytes() != before
    shutil.rmtree(archives)
    (kpacked.folder / "stale").rename(archives)
    found = loaded(kpacked, "prog", "gfx906")
    assert [code for _, code in sorted(found.values())] == ["nothing", "two.gfx906.co"]
    [fault] = check_libraries([prog], [Rule()])
    assert "has code for 'one@" in fault.message
    assert "is it of another build?" in fault.message


def test_kernels_of_other_arguments(kpacked: Project) -> None:
    """An interface that differs between targets is refused, and the kernel is named."""
    kpacked.edit("one.hip", "int* p", "\n#ifdef __gfx906__\nlong q,\n#endif\nint* p")
    kpacked.sconstruct(f"{HEAD}env.OffloadProgram('prog', {PARTS}, OFFLOAD_KPACK_INTERFACE=True)\n")
    assert "the kernel '_Z3one" in kpacked.fails().errors


def test_amds_reader_of_markers(kpacked: Project) -> None:
    """The section of markers has read-only maps, one behind the other, and no bundle is there."""
    readelf = shutil.which("llvm-readelf-22") or missing("llvm-readelf-22")
    kpacked.sconstruct(f"{HEAD}env.OffloadProgram('prog', {PARTS})\n").build()
    sections = run_tool(readelf, "-SW", kpacked.folder / "prog")
    assert ".hip_fatbin " not in sections
    [row] = [line for line in sections.splitlines() if ".kpack_markers" in line]
    assert re.search(r" A +0 +0 +1$", row)


WAYS = {
    "name": "LIBS=['{0}']",
    "text": "LIBS='{0}'",
    "node": "LIBS=[{0}[0]]",
    "nodes": "LIBS={0}",
    "list in list": "LIBS=[[{0}]]",
    "twice": "LIBS=[{0}, '{0}', {0}]",
    "file": "LIBS=File(str({0}[0]))",
    "entry": "LIBS=[Entry(str({0}[0]))]",
    "file name": "LIBS=[{0}[0].name]",
    "variable": "LIBS=['$NAME'], NAME='{0}'",
}


def test_ways_to_name_a_library(kpacked: Project) -> None:
    """A library gives a program the same archives by its name and as a node, however it is given.

    Of a shared library these are none: it looks beside itself.
    """
    calls = []
    for kind, library in (("Shared", "shared"), ("Static", "static")):
        calls.append(f"{library} = env.Offload{kind}Library('lib/{library}', 'one.hip')\n")
        for at, (way, libs) in enumerate(WAYS.items()):
            given = libs.format(library)
            name = f"{library}{at}/prog"
            calls.append(
                f"prog = env.OffloadProgram('{name}', ['two.hip', 'main.cpp'], LIBPATH='lib',"
                f" {given}, OFFLOAD_KPACK='app')\n"
                f"print('{library} by {way}:', *(a.name for a in env.OffloadKpack(prog)))\n"
            )
    kpacked.sconstruct(HEAD + "env['OFFLOAD_ARCH'] = 'gfx906'\n" + "".join(calls))
    run = kpacked.done("-Q", "-n", "SConstruct")
    archives = {"shared": "app_gfx906.kpack", "static": "app_gfx906.kpack demo_gfx906.kpack"}
    expected = [f"{lib} by {way}: {archives[lib]}" for lib in archives for way in WAYS]
    assert [line for line in run.output.splitlines() if " by " in line] == expected
