"""Whatever a link is given is looked into: device code takes part, or the build stops by name.

Objects and libraries are of other builds; programs are run, with stand-ins for HIP's and CUDA's
runtimes, and LLVM's own for OpenMP.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from offload_tool.containers.relocatable import relocatable_kinds
from offload_tool.operations.archive import create_archive
from offload_tool.passes import openmp
from offload_tool.passes.choose_compiler import find_toolchain
from tests.conftest import missing, needs_driver_programs, program, run_tool
from tests.scons.conftest import RUNTIME as HIP_RUNTIME
from tests.scons.conftest import SCONSTRUCT, Project, empty_project
from tests.scons.nvidia import HEAD as CUDA_HEAD
from tests.scons.nvidia import RUNTIME as CUDA_RUNTIME
from tests.scons.nvidia import write_tools
from tests.scons.relocatable import RELOCATABLE, declarations, loaded, one, two
from tests.scons.test_offload_drivers import DRIVERS, FLAGS
from tests.scons.test_openmp import CPU
from tests.scripts import script

LINK = "env.{}('prog', [env.Object('main.c'), env.Object('runtime.c')], {})\n"
USE = "_Z18address_of_counterv"
MAIN = f"void *{USE}(void);\nint main(void) {{ return !{USE}(); }}\n"
REGION = """\
int region(void) {
    int answer = 0;
#pragma omp target map(from : answer)
    answer = 41;
    return answer;
}
"""
REGION_MAIN = """\
#include <stdio.h>
int region(void);
int main(void) { printf("%d\\n", region()); return 0; }
"""
OPENMP_HEAD = SCONSTRUCT.replace('["gfx906", "gfx90a:xnack+"]', repr([CPU])).replace(
    '["-nogpuinc", "-nogpulib"]', "[]"
)


@dataclass
class Language:
    """How the given object is made, and what a program that uses it prints."""

    head: str
    runtime: str
    main: str
    expected: str
    make: Callable[[Project], None]

    def write(self, project: Project) -> None:
        project.write("runtime.c", self.runtime)
        project.write("main.c", self.main)
        self.make(project)
        run_tool("ld", "-r", "given.o", "-o", "merged.o", cwd=project.folder)
        for name in ("given", "merged"):
            member = (f"{name}.o", project.folder / f"{name}.o")
            create_archive([member], project.folder / f"lib{name}.a")


def driver(project: Project, *args: str) -> None:
    """Let clang's own driver compile the given object."""
    found = find_toolchain()
    needs_driver_programs(found.clang[0])
    command = [*found.clang, "-O2", "-fPIC", "-c", *args, "-o", "given.o"]
    run_tool(*command, cwd=project.folder)


def hip(by: str) -> Callable[[Project], None]:
    def make(project: Project) -> None:
        project.write("two.hip", two("hip"))
        driver(project, "-x", "hip", *FLAGS, DRIVERS[by], "-fgpu-rdc", "two.hip")

    return make


def cuda(archive_format: str) -> Callable[[Project], None]:
    """Make the object in a build of ours: clang's driver needs NVIDIA's programs."""

    def make(project: Project) -> None:
        write_tools(project)
        made = empty_project(project.folder / "made")
        made.environment = dict(project.environment)
        made.write("two.cu", two("cuda"))
        body = f"env['OFFLOAD_ARCHIVE_FORMAT'] = {archive_format!r}\nenv.OffloadObject('two.cu')\n"
        made.sconstruct(RELOCATABLE + body, CUDA_HEAD).build()
        (made.folder / "two.o").rename(project.folder / "given.o")

    return make


def regions(project: Project) -> None:
    if openmp.host_runtime(find_toolchain()) is None:
        missing("LLVM's OpenMP offload runtime (liboffload-22-dev, libomp-22-dev)")
    project.write("given.c", REGION)
    driver(project, "-fopenmp", f"-fopenmp-targets={CPU}", "given.c")


LANGUAGES = {
    "HIP, old driver": Language(SCONSTRUCT, HIP_RUNTIME, MAIN, "kernel _Z6secondPi", hip("old")),
    "HIP, new driver": Language(SCONSTRUCT, HIP_RUNTIME, MAIN, "kernel _Z6secondPi", hip("new")),
    "CUDA, old form": Language(CUDA_HEAD, CUDA_RUNTIME, MAIN, "_Z6secondPi", cuda("fat-binary")),
    "CUDA, new form": Language(
        CUDA_HEAD, CUDA_RUNTIME, MAIN, "_Z6secondPi", cuda("offload-binary")
    ),
    "OpenMP": Language(OPENMP_HEAD, "", REGION_MAIN, "41", regions),
}
FILES = {
    "libscript.so": "/* a script */\nSEARCH_DIR(.) GROUP ( libgiven.a AS_NEEDED ( -lm ) )\n",
    "whole.ld": 'INPUT("given.o")\nSECTIONS { .more : { *(.more) } } INSERT AFTER .text;\n',
    "more.cfg": "-L. -Wl,--whole-archive -lgiven -Wl,--no-whole-archive\n",
    "driver.rsp": "-L. -Wl,--whole-archive -lgiven -Wl,--no-whole-archive\n",
    "linker.rsp": "--whole-archive libgiven.a --no-whole-archive\n",
}
"""What flags of these forms name."""
WHOLE = "['-Lhere', '-Wl,--whole-archive,%s', '-Wl,--no-whole-archive']"
FORMS = {
    "source": "'libgiven.a'",
    "object": "'given.o'",
    "merged_object": "'merged.o'",
    "library_of_merged": "'libmerged.a'",
    "variable": "OFFLOAD_LIBS=['libgiven.a']",
    "object_in_variable": "OFFLOAD_LIBS=['given.o']",
    "node": "LIBS=[File('libgiven.a')]",
    "object_node": "LIBS=[File('given.o')]",
    "name": "LIBS=['given'], LIBPATH=['.']",
    "file_name": "LIBS=[':libgiven.a'], LIBPATH=['.']",
    "flag": f"LINKFLAGS={WHOLE % '-lhere'}",
    "file_flag": f"LINKFLAGS={WHOLE % '-l:libhere.a'}",
    "path_flag": f"LINKFLAGS={WHOLE % 'here/libhere.a'}",
    "object_flag": "LINKFLAGS=['given.o']",
    "copied": "env.Command('copied.a', 'libgiven.a', Copy('$TARGET', '$SOURCE'))",
    "installed": "LIBS=['given'], LIBPATH=env.Install('there', 'libgiven.a')[0].dir",
    "script": "LIBS=['script'], LIBPATH=['.']",
    "script_flag": "LINKFLAGS=['-Wl,-T,whole.ld']",
    "response": "LINKFLAGS=['@driver.rsp']",
    "linker_response": "LINKFLAGS=['-Wl,@linker.rsp']",
    "linker_option": "LINKFLAGS=['--for-linker=given.o']",
    "linker_name": "LINKFLAGS=['-L.', '--for-linker=-l:given.o']",
    "configuration": "LINKFLAGS=[f'--config={File(\"more.cfg\").abspath}']",
    "words": "LIBS=['given'], LIBPATH='.', LINKFLAGS='-Wl,-O1 -Wl,-z,now'",
    "of_root": "LIBS=['given'], LINKFLAGS=['--sysroot=/', f'-L={Dir(\".\").abspath}']",
    "in_root": "LIBS=['given'], LINKFLAGS=['-L.', f'--sysroot={Dir(\"root\").abspath}']",
    "in_root_by_words": "LIBS=['inroot'], LINKFLAGS=['--sysroot', Dir('root').abspath]",
    "folder_flag": "LIBS=['given'], LINKFLAGS=['-L', '.']",
    "long_folder_flag": "LIBS=['given'], LINKFLAGS=['--library-directory=.']",
    "long_folder_words": "LIBS=['given'], LINKFLAGS=['--library-directory', '.']",
    "thin": "LIBS=['thin'], LIBPATH=['.']",
    "thin_elsewhere": "LIBS=['elsewhere'], LIBPATH=['here']",
    "archived": "LIBS=env.StaticLibrary('archived', 'given.o')",
    "archived_name": "LIBS=['archived'], LIBPATH=['.']",
}


def write_root(project: Project) -> None:
    """Make a sysroot of this machine's files, and a library of its own."""
    folder = project.folder / "root/usr/lib"
    folder.mkdir(parents=True)
    for path in [*Path("/usr/lib").iterdir(), project.folder / "libgiven.a"]:
        (folder / path.name.replace("given", "inroot")).symlink_to(path)
    for name in ("lib", "lib64"):
        (project.folder / "root" / name).symlink_to(Path("/", name).resolve())


@pytest.fixture(autouse=True)
def c_compiler() -> None:
    """Skip without the program that SCons compiles C sources with."""
    if shutil.which("gcc") is None:
        missing("gcc")


@pytest.mark.parametrize("language", LANGUAGES)
def test_device_code_takes_part(project: Project, language: str) -> None:
    """Device code of another build is linked and registered, however the link names its file."""
    given = LANGUAGES[language]
    given.write(project)
    (project.folder / "here").mkdir()
    create_archive([("given.o", project.folder / "given.o")], project.folder / "here/libhere.a")
    for name, text in FILES.items():
        project.write(name, text)
    write_root(project)
    for name in ("libthin.a", "here/libelsewhere.a"):
        run_tool("ar", "rcT", name, "given.o", cwd=project.folder)
    objects = "env.Object('main.c'), env.Object('runtime.c')"
    lines = []
    for name, form in FORMS.items():
        rest = f"[{objects}], {form}" if form[:3].isupper() else f"[{objects}, {form}]"
        lines.append(f"env.OffloadProgram('prog_{name}', {rest})\n")
    project.sconstruct("".join(lines), given.head).build_once()
    failed = [
        name
        for name in FORMS
        if given.expected not in project.start(f"prog_{name}", OMP_TARGET_OFFLOAD="MANDATORY")
    ]
    assert failed == []


@pytest.mark.parametrize("builder", ["OffloadSharedLibrary", "LoadableModule"])
def test_shared_library(project: Project, builder: str) -> None:
    """A shared library takes the code of libraries in LIBS, and of flags for it alone."""
    for name in ("two", "last"):
        text = two("hip") if name == "two" else declarations("hip") + LAST
        project.write(f"{name}.hip", text)
        driver(project, "-x", "hip", *FLAGS, DRIVERS["new"], "-fgpu-rdc", f"{name}.hip")
        create_archive([("given.o", project.folder / "given.o")], project.folder / f"lib{name}.a")
    project.write("k.hip", declarations("hip") + "__global__ void own(int* p) { *p = 1; }\n")
    project.write("use.c", f"void *{USE}(void);\nvoid *use(void) {{ return {USE}(); }}\n")
    project.sconstruct(
        f"env.{builder}('gpu', ['k.hip', 'use.c', 'runtime.c'], LIBS=['two'], LIBPATH=['.'],\n"
        "    SHLINKFLAGS=['$LINKFLAGS', '-shared', '-Wl,--whole-archive,liblast.a',"
        " '-Wl,--no-whole-archive'])\n"
    ).build_once()
    lines = loaded(project.folder / "libgpu.so")
    kernels = sorted(line for line in lines if line.startswith("kernel"))
    assert kernels == ["kernel _Z3ownPi", "kernel _Z4lastPi", "kernel _Z6secondPi"]


def test_code_for_one_processor(project: Project) -> None:
    """OpenMP code for one processor (``-march``) is code for that CPU, as in clang 22's link."""
    given = LANGUAGES["OpenMP"]
    given.write(project)
    driver(project, "-fopenmp", f"-fopenmp-targets={CPU}", "-march=native", "given.c")
    create_archive([("given.o", project.folder / "given.o")], project.folder / "libgiven.a")
    project.sconstruct("env.OffloadProgram('prog', ['main.c', 'libgiven.a'])\n", given.head).done()
    assert project.start(OMP_TARGET_OFFLOAD="MANDATORY") == [given.expected]


def test_bitcode(project: Project) -> None:
    """Device code in a host object of -flto takes part."""
    project.write("two.hip", two("hip"))
    driver(project, "-x", "hip", *FLAGS, DRIVERS["new"], "-fgpu-rdc", "-flto", "two.hip")
    project.write("main.c", MAIN)
    how = "LIBS=[File('given.o')], LINKFLAGS=['-flto', '-fuse-ld=lld']"
    project.sconstruct(LINK.format("OffloadProgram", how)).build_once()
    assert "kernel _Z6secondPi" in project.start()


def test_code_for_no_target(project: Project) -> None:
    """A library without code for a target stops the build, which says what it has."""
    project.write("two.hip", two("hip"))
    driver(project, "-x", "hip", *FLAGS[:3], DRIVERS["new"], "-fgpu-rdc", "two.hip")
    project.write("main.c", MAIN)
    project.sconstruct(LINK.format("OffloadProgram", "LIBS=[File('given.o')]"))
    errors = project.fails("-Q").errors
    assert "'given.o': no member has a code object for 'hip-amdgcn-amd-amdhsa--gfx90a" in errors
    assert ", but for hip-amdgcn-amd-amdhsa--gfx906; build it for this target, too" in errors


LATE = "env.Command('late.a', [], 'cp given.in $TARGET')\n"
LATE_FORMS = {
    "source": ("OffloadProgram", "LIBS=[File('late.a')]"),
    "flag": ("OffloadProgram", "LINKFLAGS=['late.a']"),
    "scons": ("Program", "LIBS=[File('late.a')]"),
    "shared": ("SharedLibrary", "LIBS=[':late.a'], LIBPATH=['.']"),
}


@pytest.mark.parametrize(
    ("language", "form"),
    [
        *(("HIP, new driver", form) for form in LATE_FORMS),
        ("CUDA, old form", "source"),
        ("OpenMP", "source"),
    ],
)
def test_library_that_nothing_describes(project: Project, language: str, form: str) -> None:
    """What a command makes of nothing known is read when it is linked, and stops that by name."""
    given = LANGUAGES[language]
    given.write(project)
    (project.folder / "libgiven.a").rename(project.folder / "given.in")
    builder, how = LATE_FORMS[form]
    body = LATE + LINK.format(builder, how)
    errors = project.sconstruct(body, given.head).fails("-Q").errors
    name = language.partition(",")[0]
    assert f"'late.a' has relocatable {name} code, which '" in errors
    assert "give it in OFFLOAD_LIBS" in errors
    assert not (project.folder / "prog").exists()
    body = LATE + LINK.format("OffloadProgram", "OFFLOAD_LIBS=['late.a']")
    project.sconstruct(body, given.head).build_once()
    assert given.expected in project.start(OMP_TARGET_OFFLOAD="MANDATORY")


DRIVER_LINKS = {
    "HIP, old driver": ["--hip-link", "-fgpu-rdc", "-no-hip-rt", *FLAGS[1:], DRIVERS["old"]],
    "HIP, new driver": ["--hip-link", "-no-hip-rt", *FLAGS[1:], DRIVERS["new"]],
    "OpenMP": ["-fopenmp", f"-fopenmp-targets={CPU}"],
}


@pytest.mark.llvm
@pytest.mark.parametrize("language", DRIVER_LINKS)
def test_device_link_of_the_driver(project: Project, language: str) -> None:
    """SCons's own link takes device code if clang's driver links it, and not without the flags."""
    given = LANGUAGES[language]
    given.write(project)
    linker, flags = find_toolchain().cxx, DRIVER_LINKS[language]
    how = f"LIBS=[File('given.o')], LINK={shlex.join(linker)!r}, LINKFLAGS={{}}"
    project.sconstruct(LINK.format("Program", how.format(flags)), given.head).build_once()
    assert given.expected in project.start(OMP_TARGET_OFFLOAD="MANDATORY")
    project.sconstruct(LINK.format("Program", how.format(flags[:1])), given.head)
    assert "'given.o' has relocatable" in project.fails("-Q").errors


UNFORESEEN = {
    "included": (["-fuse-ld=bfd", "outer.ld"], "given.o"),
    "script": (["-fuse-ld=lld", "-Wl,-script=inner.ld"], "given.o"),
    "stub": (
        [
            *("-fuse-ld=bfd", "-Lstub", "-L.", "-Wl,--whole-archive,--push-state,-Bstatic"),
            *("-Wl,--push-state,-Bdynamic,--pop-state", "-lgiven", "-Wl,--pop-state"),
            "-Wl,--no-whole-archive",
        ],
        "libgiven.a",
    ),
    "own_depfile": (["-fuse-ld=bfd", "outer.ld", "-Wl,--dependency-file=own.d"], "given.o"),
}
"""Flags by which linkers find device code, and what they find."""


def unforeseen(project: Project) -> None:
    """Write what these flags name."""
    LANGUAGES["HIP, new driver"].write(project)
    project.write("outer.ld", "INCLUDE inner.ld\n")
    project.write("inner.ld", "INPUT(given.o)\n")
    (project.folder / "stub").mkdir()
    run_tool("gcc", "-shared", "-x", "c", "/dev/null", "-o", "stub/libgiven.so", cwd=project.folder)


@pytest.mark.parametrize("form", UNFORESEEN)
@pytest.mark.parametrize("builder", ["OffloadProgram", "Program"])
def test_files_that_only_the_linker_finds(project: Project, builder: str, form: str) -> None:
    """Device code that the linker finds in a way of its own stops the build, and leaves nothing."""
    unforeseen(project)
    flags, found = UNFORESEEN[form]
    link = f"LINK={shlex.join(find_toolchain().cxx)!r}, LINKFLAGS={flags}"
    project.sconstruct(LINK.format(builder, link))
    assert f"'{found}' has relocatable HIP code, which 'prog' is" in project.fails("-Q").errors
    assert not (project.folder / "prog").exists()
    assert not (project.folder / ".prog.link.d").exists()
    assert (project.folder / "own.d").exists() == (form == "own_depfile")
    how = f"OFFLOAD_LIBS=['{found}'], LINKFLAGS={flags[:1]}"
    project.sconstruct(LINK.format("OffloadProgram", how)).build_once()
    assert "kernel _Z6secondPi" in project.start()


def test_failed_link(project: Project) -> None:
    """A link that fails leaves no list of what its linker has read."""
    project.write("main.c", "int missing(void);\nint main(void) { return missing(); }\n")
    project.sconstruct("env.Program('prog', 'main.c')\n")
    assert "missing" in project.fails("-Q").errors
    assert not (project.folder / ".prog.link.d").exists()


def test_long_name(project: Project) -> None:
    """A program whose name is nearly as long as names may be is linked, and its depfile removed."""
    project.write("main.c", "int main(void) { return 0; }\n")
    project.sconstruct(f"env.Program({'n' * 250!r}, 'main.c')\n").done()
    assert [*project.folder.glob("*.d")] == []


def test_linker_that_lists_nothing(project: Project) -> None:
    """A linker without depfiles links; device code that flags name is found all the same."""
    LANGUAGES["HIP, new driver"].write(project)
    old = 'case "$*" in *dependency-file*) exit 1;; *--help*) exit;; esac\n'
    script(project.folder / "old", f'{old}exec ld "$@"\n')
    flags = "LIBPATH=['.'], LINKFLAGS=[f'--ld-path={File(\"old\").abspath}']"
    body = LINK.format("OffloadProgram", f"LIBS=['given'], {flags}")
    project.sconstruct(body).build_once()
    assert "kernel _Z6secondPi" in project.start()


def test_members_of_thin_archive(project: Project) -> None:
    """Gold names the members of a thin archive; they take part as the archive does."""
    program("ld.gold")
    LANGUAGES["HIP, new driver"].write(project)
    run_tool("ar", "rcT", "libthin.a", "given.o", cwd=project.folder)
    how = "LIBS=['thin'], LIBPATH=['.'], LINKFLAGS=['-fuse-ld=gold']"
    project.sconstruct(LINK.format("OffloadProgram", how)).build_once()
    assert "kernel _Z6secondPi" in project.start()


NAMES = ["-Wl,-soname,libgpu.so", "-Wl,-Map,gpu.map", "-Xlinker -h -Xlinker libgpu.so"]


@pytest.mark.parametrize("flags", NAMES)
def test_names_that_are_no_inputs(project: Project, flags: str) -> None:
    """What a link's flags call its output, or write, is no input: the next build does nothing."""
    project.sconstruct(
        f"env.OffloadSharedLibrary('gpu', ['k.hip', 'runtime.c'],"
        f" SHLINKFLAGS='$LINKFLAGS -shared {flags}')\n"
        "env.Install('there', 'libgpu.so')\n"
    ).build_once()
    assert (project.folder / "libgpu.so").exists()


def test_member_of_another_archive(project: Project) -> None:
    """A thin archive of another archive's members cannot be looked into, and says so."""
    LANGUAGES["HIP, new driver"].write(project)
    run_tool("ar", "rcT", "libnested.a", "libgiven.a", cwd=project.folder)
    for builder in ("OffloadProgram", "Program"):
        project.sconstruct(LINK.format(builder, "LIBS=[File('libnested.a')]"))
        assert "put that archive's members in" in project.fails("-Q").errors


def test_library_declared_later(project: Project) -> None:
    """A link finds by its name a library that is declared after it, and waits for it."""
    project.write("main.c", "int value(void);\nint main(void) { return value(); }\n")
    project.write("value.c", "int value(void) { return 0; }\n")
    project.sconstruct(
        "env.OffloadProgram('prog', ['main.c', 'k.hip'], LIBS=['value', 'hip'], LIBPATH=['.'])\n"
        "env.StaticLibrary('hip', 'runtime.c')\n"
        "env.StaticLibrary('value', 'value.c')\n"
    ).build_once()
    project.write("value.c", "int value(void) { return 3; }\n")
    assert "prog" in "".join(project.done("-Q").actions)


UNUSED = "['-Wl,--gc-sections', '-fuse-ld={}']"


@pytest.mark.parametrize(
    ("language", "linker"),
    [
        *(("HIP, new driver", linker) for linker in ("lld", "bfd", "gold")),
        ("CUDA, new form", "lld"),
        ("OpenMP", "lld"),
    ],
)
def test_unused_sections(project: Project, language: str, linker: str) -> None:
    """A link that drops unused sections keeps the entries of device code."""
    given = LANGUAGES[language]
    given.write(project)
    if linker != "lld" and shutil.which(f"ld.{linker}") is None:
        missing(f"ld.{linker}")
    flags = UNUSED.format(linker)
    body = LINK.format("OffloadProgram", f"LIBS=[File('libgiven.a')], LINKFLAGS={flags}")
    project.sconstruct(body, given.head).build_once()
    assert given.expected in project.start(OMP_TARGET_OFFLOAD="MANDATORY")


LINKED = {
    "HIP, old driver": ("hip", SCONSTRUCT, HIP_RUNTIME, "object-bundle"),
    "HIP, new driver": ("hip", SCONSTRUCT, HIP_RUNTIME, "offload-binary"),
    "CUDA, old form": ("cuda", CUDA_HEAD, CUDA_RUNTIME, "fat-binary"),
    "CUDA, new form": ("cuda", CUDA_HEAD, CUDA_RUNTIME, "offload-binary"),
}
LAST = """\
__device__ int last_helper(int value) { return value; }
__global__ void last(int* p) { *p = last_helper(1); }
void* address_of_last() { return (void*)&last; }
"""
LINKED_MAIN = f"""\
void *{USE}(void), *_Z15address_of_lastv(void);
int main(void) {{ return !{USE}() + !_Z15address_of_lastv(); }}
"""
LIBRARIES = """\
env["OFFLOAD_ARCHIVE_FORMAT"] = "{form}"
given = env.OffloadObject("one.{kind}", OFFLOAD_RDC=True)
one = env.OffloadStaticLibrary("linked", ["two.{kind}", given, "plain.c"], OFFLOAD_DEVICE_LINK=True)
two = env.OffloadStaticLibrary("last", "last.{kind}", OFFLOAD_DEVICE_LINK=True)
"""
OTHER_LINK = """\
env.Command("{}", [*env.Object(["main.c", "runtime.c"]), one, two],
            "{} -Wl,--gc-sections -o $TARGET $SOURCES")
"""


@pytest.mark.parametrize("language", LINKED)
def test_library_with_its_own_device_link(project: Project, language: str) -> None:
    """A library with OFFLOAD_DEVICE_LINK registers its own kernels once, whatever links it."""
    program("g++")  # also links it
    kind, head, runtime, form = LINKED[language]
    suffix = {"hip": "hip", "cuda": "cu"}[kind]
    if kind == "cuda":
        write_tools(project)
    project.write(f"one.{suffix}", one(kind))
    project.write(f"two.{suffix}", two(kind))
    project.write(f"last.{suffix}", declarations(kind) + LAST)
    project.write("runtime.c", runtime)
    project.write("main.c", LINKED_MAIN)
    project.write("plain.c", "int plain;\n")
    body = LIBRARIES.format(form=form, kind=suffix) + OTHER_LINK.format("plain", "g++")
    names = ["plain", "prog"]
    if not (found := find_toolchain()).is_embedded:  # it links in an environment of its own
        names.append("lld")
        body += OTHER_LINK.format("lld", f"{shlex.join(found.cxx)} -fuse-ld=lld")
    body += "env.OffloadProgram('prog', ['main.c', 'runtime.c'], LIBS=[one, two])\n"
    project.sconstruct(body, head).build_once()
    for name in names:
        lines = project.start(name)
        kernels = [line for line in lines if "last" in line or "first" in line or "second" in line]
        assert sorted(line.split()[-1] for line in kernels) == [
            *("_Z4lastPi", "_Z5firstPi", "_Z6secondPi")
        ], name
        assert sum(line.startswith(("loaded", "registered")) for line in lines) == 2
    assert relocatable_kinds(project.folder / "liblinked.a") == set()
