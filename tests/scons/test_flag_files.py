"""Files that flags name: the build makes them first, and each is an input of what reads it."""

from __future__ import annotations

import pytest

from tests.scons.conftest import ALL, Project, passes
from tests.scons.judging import own_clang

NODES = "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
MADE = "env.Command('made/{name}', 'given', Copy('$TARGET', '$SOURCE'))\n"
FORMS = {
    "profile": ("k.txt", "env.Append(CCFLAGS=['-fprofile-sample-use=made/k.txt'])\n"),
    "response file": ("k.rsp", "env.Append(CCFLAGS='@made/k.rsp')\n"),
    "attached node": ("k.cfg", "env.Append(CFG=File('made/k.cfg'), CCFLAGS='--config=$CFG')\n"),
    "of passes": (
        "k.cfg",
        "env.Append(OFFLOAD_FLAGS='--config=made/k.cfg', OFFLOAD_HOST_FLAGS='$OFFLOAD_FLAGS')\n",
    ),
}
TEXTS = {"k.txt": "f:{0}:{0}\n 1: {0}\n", "k.rsp": "-DNUMBER={}"}


@pytest.mark.parametrize(("name", "flags"), FORMS.values(), ids=FORMS.keys())
def test_made_by_the_build(project: Project, name: str, flags: str) -> None:
    """A flag's file that the build makes is made before each compile that reads it."""
    project.write("given", TEXTS.get(name, "#{}\n").format(1))
    project.sconstruct(flags + NODES + MADE.format(name=name))
    assert project.build_once() == ALL
    project.write("given", TEXTS.get(name, "#{}\n").format(2))
    assert project.build_once() == ALL


def test_of_one_target(project: Project) -> None:
    """A file in the flags of one target is an input of its pass alone."""
    project.write("given", "#one\n")
    flags = "env['OFFLOAD_ARCH_FLAGS'] = {'gfx906': '--config=made/k.cfg'}\n"
    project.sconstruct(flags + NODES + MADE.format(name="k.cfg"))
    assert project.build_once() == ALL
    project.write("given", "#two\n")
    assert project.build_once() == passes("k.hip", "gfx906")


def test_of_a_device_link(project: Project) -> None:
    """A linker script that the build makes is an input of the device link."""
    project.write("given", "{ local: a*; };")
    link = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'], OFFLOAD_RDC=True,\n"
    link += "    OFFLOAD_LINK_FLAGS=['--version-script=made/v.map'])\n"
    project.sconstruct(link + MADE.format(name="v.map"))
    assert project.build_once() == ALL
    project.write("given", "{ local: b*; };")
    again = project.done()
    assert (again.compiles, "LINK [gfx906] prog.gfx906.co" in again.output) == ([], True)
    project.assert_up_to_date()


def test_prebuilt_modules(project: Project) -> None:
    """A module in a folder of prebuilt ones is an input, and made first if the build makes it."""
    project.write("m.cppm", "export module m;\nexport constexpr int v = 1;\n")
    project.write("k.cpp", "import m;\nint value() { return v; }\n")
    compile_module = [
        str(own_clang()),
        "-std=c++20",
        "-fopenmp",
        "-nogpulib",
        "--precompile",
        "-o",
        "$TARGET",
    ]
    module = f"env.Command('made/m.pcm', 'm.cppm', {' '.join([*compile_module, '$SOURCE'])!r})\n"
    flags = "env.Append(CXXFLAGS='-std=c++20 -fprebuilt-module-path=made', OFFLOAD_KIND='openmp')\n"
    project.sconstruct(flags + "env.OffloadHostObject('k.cpp')\n" + module)
    assert project.build_once() == ["k.cpp host-ir", "k.host.bc host"]
    before = project.read("k.host.o")
    project.write("m.cppm", "export module m;\nexport constexpr int v = 2;\n")
    assert project.build_once() == ["k.cpp host-ir", "k.host.bc host"]
    assert project.read("k.host.o") != before
