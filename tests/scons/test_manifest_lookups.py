"""What an include finds is what the preprocessor finds: however it is spelled."""

from __future__ import annotations

import pytest

from tests.scons.conftest import KERNEL, Project, passes

NODES = (
    "env['OFFLOAD_ARCH'] = ['gfx906']\n"
    "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
)
ALL = passes("k.hip", "host", "gfx906")
BODY = KERNEL.replace("VALUE", "HERE")
ONE, TWO = "#define HERE 1\n", "#define HERE 2\n"
FOLDERS = "env['CPPPATH'] = ['first', 'second']\n"


def flags(*words: str) -> str:
    return f"env.Append(CCFLAGS={list(words)!r})\n"


def asks(name: str, found: str, condition: str = "__has_include") -> str:
    return f"#if {condition}({name})\n{found}\n#else\n{ONE}#endif\n"


def test_source_outside_of_the_top_folder(project: Project) -> None:
    """Beside a source that is outside of the top folder, a header that appears is seen."""
    (project.folder / "k.hip").unlink()
    project.write("../outside/k.hip", '#include "value.h"\n' + BODY)
    project.write("second/value.h", ONE)
    project.sconstruct("env['CPPPATH'] = ['second']\n" + NODES.replace("k.hip", "../outside/k.hip"))
    assert len(project.build_once("../outside")) == 2
    project.write("../outside/value.h", TWO)
    assert len(project.build_once("../outside")) == 2


def test_asked_for_by_one_target(project: Project) -> None:
    """A file for which ``__has_include`` asks for one target alone compiles that target alone."""
    asked = "#if defined(__gfx90a__)\n" + asks("<optional.h>", TWO) + "#else\n" + ONE + "#endif\n"
    project.write("k.hip", asked + BODY)
    project.sconstruct(NODES.replace("['gfx906']", "['gfx906', 'gfx90a']"))
    project.build_once()
    project.sconstruct(FOLDERS + NODES.replace("['gfx906']", "['gfx906', 'gfx90a']"))
    project.write("first/other.h", "")
    project.build_once()
    project.write("second/optional.h", "")
    assert project.build_once() == passes("k.hip", "gfx90a")


NOT_ASKED = """\
// __has_include("optional.h")
#if 0
#if __has_include("optional.h")
#endif
#endif
const char* text = "__has_include(\\"optional.h\\")";
"""


def test_not_asked(project: Project) -> None:
    """Where the preprocessor does not ask for it, a file that appears means nothing."""
    project.write("k.hip", NOT_ASKED + KERNEL)
    project.sconstruct(NODES)
    assert project.build() == ALL
    project.write("optional.h", "")
    project.assert_up_to_date()


def gcc(project: Project, version: int, value: str) -> None:
    """Install what clang takes for a GCC, with one header of its C++ library."""
    project.write(f"../gcc/lib/gcc/x86_64-linux-gnu/{version}/crtbegin.o", "")
    project.write(f"../gcc/include/c++/{version}/value.h", value)


NEWER_GCC = {
    "that is read": ("#include <value.h>\n", ALL),
    "that is not read": (ONE, []),
    "that is not read, beside one of the same text": ("// <value.h>\n" + ONE, []),
}


@pytest.mark.parametrize("case", NEWER_GCC.values(), ids=NEWER_GCC.keys())
def test_newer_gcc(project: Project, case: tuple[str, list[str]]) -> None:
    """The headers of a newer GCC, which clang takes by itself, are compiled where they are read."""
    head, expected = case
    gcc(project, 11, ONE)
    project.write("k.hip", head + BODY)
    toolchain = str(project.folder.parent / "gcc")
    project.sconstruct(flags("--gcc-toolchain=" + toolchain) + NODES)
    assert project.build() == ALL
    before = (project.folder / "k.gfx906.co").read_bytes()
    project.assert_up_to_date()
    gcc(project, 12, TWO)
    assert project.build() == expected
    assert ((project.folder / "k.gfx906.co").read_bytes() != before) == bool(expected)
    project.assert_up_to_date()
    project.write("../gcc/include/c++/12/other.h", "")
    project.assert_up_to_date()
