"""Names: of sources and outputs that folders have too, and relative ones in SConscripts."""

from __future__ import annotations

import pytest

from offload_tool.passes.choose_compiler import find_toolchain
from tests.conftest import run_tool
from tests.scons.conftest import KERNEL, RUNTIME, Project, passes

CUDA = "OFFLOAD_ARCH='sm_80', OFFLOAD_FLAGS=NO, OFFLOAD_HOST_FLAGS=NO, OFFLOAD_PTXAS='none'"
HEAD = "Import('env')\nNO = ['-nocudainc', '-nocudalib']\n"
OPENMP = (
    "OFFLOAD_KIND='openmp', OFFLOAD_ARCH='x86_64-pc-linux-gnu', OFFLOAD_FLAGS=[],"
    " OFFLOAD_HOST_FLAGS=[]"
)
BUILDERS = {
    "device-object": "env.OffloadDeviceObject('k.hip')",
    "host-object": "env.OffloadHostObject('k.hip')",
    "object": "env.OffloadObject('k.hip')",
    "plain-object": "env.Object('k.hip')",
    "shared-object": "env.SharedObject('k.hip')",
    "object-of-a-folder": "env.OffloadObject(Dir('.').File('k.o'), 'k.hip')",
    "rdc-object": "env.OffloadObject('k.hip', OFFLOAD_RDC=True)",
    "kpack-object": "env.OffloadObject('k.hip', OFFLOAD_KPACK=True)",
    "openmp-object": f"env.OffloadObject('k.c', {OPENMP})",
    "cuda-object": f"env.OffloadObject('k.cu', {CUDA})",
    "bundle": "env.OffloadBundle('k.hip')",
    "bundle-with-host": "env.OffloadBundle('k.hip', OFFLOAD_BUNDLE_HOST=True)",
    "unbundle": "env.OffloadUnbundle('again', env.OffloadBundle('k.hip'))",
    "package": "env.OffloadPackage('k.hip')",
    "extract": "env.OffloadExtract('again', env.OffloadPackage('k.hip'))",
    "wrapper": "env.OffloadWrapper('k.o', env.OffloadBundle('k.hip'))",
    "archive": "env.OffloadArchive('k', 'k.hip')",
    "device-archive": "env.OffloadDeviceArchive('k', env.OffloadArchive('k', 'k.hip'))",
    "static-library": "env.OffloadStaticLibrary('k', 'k.hip')",
    "shared-library": "env.OffloadSharedLibrary('k', 'k.hip')",
    "kpack-library": "env.OffloadSharedLibrary('k', 'k.hip', OFFLOAD_KPACK=True)",
    "rdc-library": "env.OffloadSharedLibrary('k', 'k.hip', OFFLOAD_RDC=True)",
    "program": "env.OffloadProgram('prog', ['k.hip', 'runtime.c', 'k.c'])",
    "plain-program": "env.Program('prog', ['k.hip', 'runtime.c'])",
    "rdc-program": "env.OffloadProgram('prog', ['k.hip', 'runtime.c'], OFFLOAD_RDC=True)",
    "program-in-the-folder": "env.OffloadProgram('k/k', ['k.hip', 'runtime.c'])",
}
FOLDER = {
    "declared-before": ("env.SConscript('k/SConscript', exports='env')\n{}\n"),
    "declared-behind": ("{}\nenv.SConscript('k/SConscript', exports='env')\n"),
    "looked-up-behind": ("{}\nenv.Dir('k')\n"),
}


@pytest.mark.parametrize("around", FOLDER.values(), ids=FOLDER.keys())
def test_source_beside_a_folder(project: Project, around: str) -> None:
    """A source and a folder may have one stem: all builders declare nodes, in either order."""
    for name, call in BUILDERS.items():
        folder = f"of-{name}"
        for file, text in (("k.hip", KERNEL), ("k.c", ""), ("k.cu", ""), ("runtime.c", RUNTIME)):
            project.write(f"{folder}/{file}", text)
        project.write(f"{folder}/SConscript", HEAD + around.format(call))
        project.write(f"{folder}/k/SConscript", "Import('env')\nenv.Command('made', [], '')\n")
    project.sconstruct("env.SConscript(Glob('*/SConscript'), exports='env')\n")
    project.done("-n", "-Q", "SConstruct")


TAKEN = {
    "code-object": ("k.gfx906.co", "env.OffloadDeviceObject('k.hip')"),
    "host-object": ("k.host.o", "env.OffloadHostObject('k.hip')"),
    "bundle": ("k.hipfb", "env.OffloadBundle('k.hip')"),
    "embedded": ("k.fatbin.o", "env.OffloadObject('k.hip')"),
    "package": ("k.offload", "env.OffloadPackage('k.hip')"),
    "program": ("prog", "env.OffloadProgram('prog', 'k.hip')"),
    "plain-program": ("k", "env.Program('k', 'k.hip')"),
    "program-of-its-source": ("k", "env.OffloadProgram('k.hip')"),
    "library": ("libk.a", "env.OffloadStaticLibrary('k', 'k.hip')"),
    "shared-library": ("libk.so", "env.OffloadSharedLibrary('k', 'k.hip')"),
    "archive": ("libk.a", "env.OffloadArchive('k', 'k.hip')"),
    "kpack": (".kpack/k_gfx906.kpack", "env.OffloadProgram('k', 'k.hip', OFFLOAD_KPACK=True)"),
    "database": ("compile_commands.json", "env.OffloadCompilationDatabase()"),
    "report": ("r.html", "env.OffloadReport('r.html', 'k.hip')"),
    "wrapper": ("w.o", "env.OffloadWrapper('w.o', env.OffloadBundle('k.hip'))"),
    "unbundled": ("a.gfx906.co", "env.OffloadUnbundle('a', env.OffloadBundle('k.hip'))"),
    "extracted": ("a.gfx906.co", "env.OffloadExtract('a', env.OffloadPackage('k.hip'))"),
    "device-archive": ("a.gfx906.a", "env.OffloadDeviceArchive('a', 'libx.a')"),
}


def test_output_that_is_a_folder(project: Project) -> None:
    """An output whose name a folder has is refused by name, whichever builder declares it."""
    lines = []
    for name, (folder, call) in TAKEN.items():
        for declared in ("there", "looked-up"):
            place = f"{name}-{declared}"
            look_up = f"env.Dir('{folder}')" if declared == "looked-up" else ""
            if declared == "there":
                project.write(f"{place}/{folder}/file", "")
            for file in ("k.hip", "k.c", "libx.a"):
                project.write(f"{place}/{file}", "")
            body = f"{look_up}\ntry: {call}\nexcept Exception as e: print('FOUND', repr(e))\n"
            project.write(f"{place}/SConscript", HEAD + body)
            lines.append(place)
    project.sconstruct("".join(f"env.SConscript('{p}/SConscript', exports='env')\n" for p in lines))
    run = project.run("-n", "-Q", ".")
    found = [line for line in run.output.splitlines() if line.startswith("FOUND")]
    wrong = [line for line in found if "is a folder, where a file is needed" not in line]
    assert (len(found), wrong) == (len(lines), []), run.output + run.errors


def test_header_that_becomes_a_folder(project: Project) -> None:
    """A folder in the place of a header that was read is none: the next header is found."""
    project.write("one/v", "#define HEADER 1\n")
    project.write("two/v", "#define HEADER 2\n")
    project.write("k.hip", '#include "v"\n__attribute__((device)) int value = HEADER;\n')
    project.sconstruct(
        "env.Replace(CPPPATH=['one', 'two'], OFFLOAD_LINK_FLAGS=['-Lone'])\n"
        "env.Replace(OFFLOAD_ARCH='gfx906', OFFLOAD_RDC=True)\n"
        "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"
    ).build()
    (project.folder / "one/v").unlink()
    (project.folder / "one/v").mkdir()
    assert project.build() == passes("k.hip", "gfx906", "host")


@pytest.mark.parametrize("duplicate", [0, 1])
def test_variants_are_told_apart(project: Project, duplicate: int) -> None:
    """Messages name a source by its variant folder, so that two variants have different lines."""
    project.write("lib/SConscript", "Import('env')\nenv.OffloadDeviceObject('k.hip')\n")
    (project.folder / "k.hip").rename(project.folder / "lib/k.hip")
    run = project.sconstruct(
        "for name in ('debug', 'release'):\n"
        "    SConscript('lib/SConscript', variant_dir=f'build/{name}/lib',\n"
        "        exports={'env': env.Clone(OFFLOAD_ARCH=['gfx906', 'gfx90a'][: len(name) - 4])},\n"
        f"        duplicate={duplicate})\n"
    ).done("-Q")
    lines = [line for line in run.output.splitlines() if line.startswith("HIP ")]
    passes = [("gfx906", "debug"), ("gfx906", "release"), ("gfx90a", "release")]
    assert lines == [f"HIP [{target}] build/{name}/lib/k.hip" for target, name in passes]


READ = "SConscript('sub/SConscript', exports='env')\n"
STAY = f"SConscriptChdir(0)\n{READ}"


def in_folder(project: Project, body: str, head: str = READ) -> Project:
    """Let a SConscript in the folder ``sub`` build what is there."""
    project.sconstruct(head)
    project.write("sub/k.hip", (project.folder / "k.hip").read_text())
    project.write("sub/SConscript", f"Import('env')\n{body}")
    return project


def test_node_among_flags(project: Project) -> None:
    """A file that flags name by a node is looked at where it is, and a change compiles again."""
    project.write("sub/own.cfg", "-DVALUE=1\n")
    flags = "env.Append(OFFLOAD_FLAGS=['--config', File('own.cfg')], CPPDEFINES='OWN')\n"
    in_folder(project, flags + "env.OffloadDeviceObject('k.hip', CPPDEFINES={})\n")
    both = passes("sub/k.hip", "gfx906", "gfx90a:xnack+")
    assert project.build_once() == both
    project.write("sub/own.cfg", "-DVALUE=2\n")
    assert project.build_once() == both


def test_given_object(project: Project) -> None:
    """An object that is there is found also where SConscripts are read without going there."""
    in_folder(project, "env.OffloadSharedLibrary('s', ['k.hip', 'plain.o'])\n", STAY)
    plain = project.write("plain.c", "int plain(void) { return 1; }\n")
    found = find_toolchain()
    args = [*found.cc, *found.local_flags, "-fPIC", "-c", plain, "-o", "sub/plain.o"]
    run_tool(*args, cwd=project.folder)
    project.done("-Q", "-n")


def test_launcher_node(project: Project) -> None:
    """A launcher that is a node is the one that commands begin with, in each SConscript."""
    body = "env['OFFLOAD_LAUNCHER'] = File('#tools/count')\nenv.OffloadDeviceObject('k.hip')\n"
    in_folder(project, body)
    failing = '#!/bin/sh\necho "$*" >>compiles.log\nexit 99\n'
    project.script("tools/count", failing)
    run = project.run("-Q")
    assert run.status == 0, run.errors  # each ran again without a launcher that failed by itself
    assert run.compiles == passes("sub/k.hip", "gfx906", "gfx90a:xnack+")


def test_pages_before(project: Project) -> None:
    """What a page compares with is the file beside the SConscript."""
    project.write("sub/before.co", "")
    page = "env.OffloadReport('page.html', code, OFFLOAD_REPORT_BEFORE=['before.co', '#k.hip'])\n"
    shown = "env['OFFLOADREPORTCOMSTR'] = ''\ncode = env.OffloadDeviceObject('k.hip')\n"
    in_folder(project, shown + page)
    assert "--compare sub/before.co --compare k.hip" in project.done("-Q", "-n").output
