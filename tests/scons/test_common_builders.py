"""SCons's own builders with offload sources: they give what the builders of this tool give."""

from __future__ import annotations

import json

import pytest

from tests.scons.conftest import ALL, BUNDLE, KERNEL, RUNTIME, SCONSTRUCT, Project, passes

PROGRAMS = {
    "sources": "env.Program('p', ['k.hip', 'runtime.c'])\n",
    "nodes": "env.Program('p', [File('k.hip'), Glob('runtime.c')])\n",
    "named": "env.Program(target='p', source=['k.hip', 'runtime.c'])\n",
    "variable": "env.Program('p', ['$KERNEL', 'runtime.c'], KERNEL='k.hip')\n",
    "object": "env.Program('p', [env.Object('k.hip'), 'runtime.c'])\n",
    "objects": "env.Program('p', env.Object(['k.hip', 'runtime.c']))\n",
    "library": "env.Program('p', ['runtime.c'], LIBS=[env.StaticLibrary('l', 'k.hip')],\n"
    "    LINKFLAGS=['-Wl,-u,_Z10host_valuev'])\n",
    "relocatable": "env['OFFLOAD_RDC'] = True\nenv.Program('p', ['k.hip', 'runtime.c'])\n",
    "relocatable-object": "env['OFFLOAD_RDC'] = True\n"
    "env.Program('p', [env.Object('o', 'k.hip'), 'runtime.c'])\n",
    "target in LINKFLAGS": "env.Program('p', ['k.hip', 'runtime.c'],\n"
    "    LINKFLAGS=['--offload-arch=gfx906'])\n",
    "srcdir": "env.Program('p', ['k.hip', 'runtime.c'], srcdir='.')\n",
    "clone": "env.Clone().Program('p', ['k.hip', 'runtime.c'])\n",
}


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_program(project: Project, body: str) -> None:
    """``env.Program`` of an offload source, or of its object, registers its device code."""
    assert project.sconstruct(body).done().compiles == ALL
    assert project.start("p")[0].startswith(BUNDLE)
    project.assert_up_to_date()


LIBRARIES = {
    "shared": ("env.SharedLibrary('l', 'k.hip')\n", "libl.so"),
    "shared-of-objects": ("env.SharedLibrary('l', env.SharedObject('k.hip'))\n", "libl.so"),
    "module": ("env.LoadableModule('l', 'k.hip', LDMODULEPREFIX='')\n", "l.so"),
    "without-a-name": ("env.SharedLibrary('k.hip')\n", "libk.so"),
    "static": ("env.StaticLibrary('l', ['k.hip'])\n", "libl.a"),
    "library": ("env.Library('l', ['k.hip'])\n", "libl.a"),
    "library-without-a-name": ("env.Library(['k.hip'])\n", "libk.a"),
}


@pytest.mark.parametrize(("body", "name"), LIBRARIES.values(), ids=LIBRARIES.keys())
def test_library(project: Project, body: str, name: str) -> None:
    """Libraries and modules of offload sources hold their device code, and not the source."""
    assert project.sconstruct(body).build() == ALL
    data = project.read(name)
    assert b"__CLANG_OFFLOAD_BUNDLE__" in data
    assert b"kernel(int* p)" not in data
    project.assert_up_to_date()


def test_same_as_ours(project: Project) -> None:
    """``env.Object`` and ``env.OffloadObject`` of one source are one node."""
    project.sconstruct("assert env.Object('k.hip') == env.OffloadObject('k.hip')\n")
    assert project.build() == ALL


def test_other_calls(project: Project) -> None:
    """Without an offload source, SCons's builders do what they did, with SCons's compiler."""
    project.sconstruct("env['CC'] = 'echo'\nenv['LINK'] = 'echo'\nenv.Program('p', 'runtime.c')\n")
    run = project.run("-Q")
    assert "-o runtime.o -c -DVALUE=1 runtime.c" in run.output
    assert "offload: using" not in run.output


def test_environment_without_the_tool(project: Project) -> None:
    """An environment that the tool is added to a clone of is left as it is."""
    run = project.sconstruct(
        "plain = Environment()\n"
        "other = plain.Clone(tools=['offload'], toolpath=[PyPackageDir('offload_tool.scons')])\n"
        "assert plain['BUILDERS']['Program'] is not other['BUILDERS']['Program']\n"
        "try:\n    plain.Object('o', 'k.hip')\n"
        "except Exception as error:\n    print('plain:', error)\n"
    ).run("-n")
    assert run.status == 0
    assert "HIP" not in run.output


def test_users_own_action(project: Project) -> None:
    """Where the user gives SCons's builders an action for a suffix, that one is used."""
    project.sconstruct(
        "static, shared = __import__('SCons.Tool').Tool.createObjBuilders(env)\n"
        "static.add_action('.hip', Copy('$TARGET', '$SOURCE'))\n"
        "static.add_emitter('.hip', lambda target, source, env: (target, source))\n"
        "env.Object('k.hip')\n"
    )
    assert project.build() == []
    assert project.read("k.o") == project.read("k.hip")


@pytest.mark.parametrize(
    "call", ["Program('p', 'k.hip')", "StaticLibrary('l', 'k.hip')", "SharedObject('k.hip')"]
)
def test_tool_before_those_of_scons(project: Project, call: str) -> None:
    """Loaded before SCons's tools, offload sources are refused by name, and our builders work."""
    head = SCONSTRUCT.replace('"default", "offload"', '"offload", "default"')
    project.sconstruct(f"env.{call}\n", head)
    assert "'k.hip' is an offload source; use env.OffloadProgram" in project.fails().errors
    project.sconstruct("env.OffloadProgram('p', ['k.hip', 'runtime.c'])\n", head).build()


NINJA = "SetOption('experimental', 'ninja')\nDefaultEnvironment(tools=[])\n"
DEVICE = "env.OffloadDeviceObject('k.hip')\n"
ORDERS = {
    "before": NINJA + "env.Tool('ninja')\n" + DEVICE,
    "between": DEVICE + NINJA + "env.Tool('ninja')\nenv.OffloadDeviceObject('other', 'k.hip')\n",
    "elsewhere-before": NINJA + "Environment(tools=['default', 'ninja'])\n" + DEVICE,
    "elsewhere-after": DEVICE + NINJA + "Environment(tools=['default', 'ninja'])\n",
    "clone-after": "env.OffloadProgram(['k.hip', 'runtime.c'])\n"
    + NINJA
    + "env.Clone(tools=['ninja'])\n",
}


@pytest.mark.parametrize("body", ORDERS.values(), ids=ORDERS.keys())
def test_ninja_tool(project: Project, body: str) -> None:
    """In whatever order the tools are loaded, a message says why, where, and what to do instead."""
    run = project.sconstruct(body).fails()
    assert "cannot be built through SCons's experimental tool 'ninja'" in run.errors
    assert "offload-tool compile" in run.errors
    assert "project/SConstruct" in run.errors.splitlines()[-1]
    assert not (project.folder / "build.ninja").exists()


def test_compilation_database_of_scons(project: Project) -> None:
    """SCons's tool ``compilation_db`` has the commands that run, and no others."""
    body = (
        "env.OffloadProgram('p', 'runtime.c')\n"
        "env.OffloadProgram('q', 'runtime.c', CPPDEFINES=['OTHER'])\n"
        "env.CompilationDatabase('commands.json')\n"
    )
    head = SCONSTRUCT.replace('"default"', '"default", "compilation_db"')
    project.sconstruct(body, head).done("commands.json")
    entries = json.loads(project.read("commands.json"))
    assert [entry["output"] for entry in entries] == ["runtime.o", "runtime.q.o"]


def test_ninja_tool_that_is_not_in_use(project: Project) -> None:
    """Without ``--experimental=ninja`` SCons's tool does nothing, and ours builds."""
    project.sconstruct("env.Tool('ninja')\n" + DEVICE)
    assert project.build() == passes("k.hip", "gfx906", "gfx90a:xnack+")


def test_ninja_tool_without_nodes(project: Project) -> None:
    """Where there are no nodes of ours, SCons's tool may do what it does."""
    project.sconstruct(
        NINJA + "env.Tool('ninja')\nenv['NINJA_DISABLE_AUTO_RUN'] = 1\nenv.Object('runtime.c')\n"
    ).done()
    assert (project.folder / "build.ninja").exists()


CHECKS = """\
conf = Configure(env)
found = [
    conf.TryCompile(KERNEL, ".hip"),
    conf.TryBuild(env.OffloadObject, KERNEL, ".hip"),
    conf.TryLink(KERNEL + RUNTIME, ".hip"),
    conf.TryCompile("#ifndef __clang__\\n#error\\n#endif\\n", ".c"),
    conf.CheckCXXHeader("own.h"),
    conf.CheckFunc("printf"),
    conf.CheckCXX(),
    conf.TryRun("int main() { return 0; }", ".cpp")[0],
]
missing = [
    conf.TryCompile(KERNEL + "no C++", ".hip"),
    conf.CheckCXXHeader("missing.h"),
]
env = conf.Finish()
cuda = Configure(env.Clone(OFFLOAD_ARCH="sm_80"))
CUDA = "__attribute__((device)) int twice(int x) { return x * 2; }"
found.append(cuda.TryCompile(CUDA, ".cu"))
missing.append(cuda.TryCompile(CUDA.replace("x *", "y *"), ".cu"))
cuda.Finish()
print("found", *(int(bool(each)) for each in found + missing))
"""


def test_checks(project: Project) -> None:
    """Checks compile device code, and all else with the compiler of the environment."""
    project.write("own/own.h", "#ifndef __clang__\n#error\n#endif\n")
    launch = "int hipLaunchKernel("
    own = f"{launch}const void*, dim3, dim3, void**, unsigned long, struct stream*"
    runtime = RUNTIME.replace(launch, own)
    runtime = 'extern "C" {\n' + runtime + "}\n"
    head = f"KERNEL = {KERNEL.replace('VALUE', '1')!r}\nRUNTIME = {runtime!r}\n"
    flags = "env.Replace(CPPPATH='own', CCFLAGS='-O1 -Wno-unused-command-line-argument')\n"
    cuda = "env['OFFLOAD_FLAGS'] = '-nogpuinc -nogpulib -nocudainc -nocudalib'\n"
    project.sconstruct(head + flags + cuda + CHECKS + "env.OffloadBundle('k.hip')\n")
    for arguments in ([], [], ["-c"]):
        assert "found 1 1 1 1 1 1 1 1 1 0 0 0\n" in project.done(*arguments).output
