"""Names of nodes in between: one source in several programs and libraries, built in other ways."""

from __future__ import annotations

import re

import pytest

from offload_tool.operations.list_images import list_images
from tests.scons.conftest import ALL, BUNDLE, KERNEL, Project, contents, passes
from tests.scons.judging import compiler_script

SOURCES = "sources = ['k.hip', 'runtime.c']\n"
PLAIN = SOURCES + "env.OffloadProgram('p', sources)\n"


BUNDLED = ["gfx906", "gfx90a:xnack+"]
SECOND = {  # variables of a second program, what is compiled for it, and the targets of its bundle
    "compression": ("OFFLOAD_COMPRESS='zstd'", [], BUNDLED),
    "compression-level": ("OFFLOAD_COMPRESS='zstd', OFFLOAD_COMPRESS_LEVEL=1", [], BUNDLED),
    "alignment": ("OFFLOAD_BUNDLE_ALIGN=8192", [], BUNDLED),
    "fewer-targets": ("OFFLOAD_ARCH='gfx906'", [], ["gfx906"]),
    "more-targets": (
        "OFFLOAD_ARCH=env['OFFLOAD_ARCH'] + ['gfx1100']",
        passes("k.hip", "gfx1100"),
        ["gfx1100", *BUNDLED],
    ),
    "flags-of-one-target": (
        "OFFLOAD_ARCH_FLAGS={'gfx906': '-UVALUE -DVALUE=3'}",
        passes("k.hip", "gfx906"),
        BUNDLED,
    ),
    "defines": ("CPPDEFINES={'VALUE': 2}", ALL, BUNDLED),
    "flags": ("CCFLAGS='-O1'", ALL, BUNDLED),
    "host-flags": ("OFFLOAD_HOST_FLAGS=env['OFFLOAD_HOST_FLAGS'] + ['-O1']", ALL, BUNDLED),
    "relocatable": ("OFFLOAD_RDC=True", ALL, BUNDLED),
}


@pytest.mark.parametrize(("settings", "more", "bundled"), SECOND.values(), ids=SECOND.keys())
def test_programs_that_differ(
    project: Project, settings: str, more: list[str], bundled: list[str]
) -> None:
    """Two programs of one source share all that is compiled alike; host objects have CUIDs."""
    project.sconstruct(PLAIN + f"env.OffloadProgram('q', sources, {settings})\n")
    assert project.build_once() == sorted(ALL + more)
    assert f"{BUNDLE} 1" in project.start("p")
    project.start("q")
    name = "q.hipfb" if "RDC" in settings else "k.q.hipfb"
    first, second = (project.folder / each for each in ("k.hipfb", name))
    assert first.read_bytes() != second.read_bytes()
    listed = [[image.target_id for image in list_images(each)][1:] for each in (first, second)]
    assert listed == [BUNDLED, bundled]
    assert (project.folder / "k.q.host.o").exists() == (more == ALL)
    if more == ALL:
        objects = [project.read(f"k.{part}host.o") for part in ("", "q.")]
        cuids = [set(re.findall(rb"__hip_cuid_\w+", data)) for data in objects]
        assert len(cuids[0]) == len(cuids[1]) == 1
        assert cuids[0] != cuids[1]


OTHER = "env.OffloadProgram('{}', sources, CPPDEFINES={{'VALUE': {}}}, {})\n"
SHARING = {  # what is built, how often the source is compiled, and two files that are equal or not
    "a third program": (
        PLAIN + "".join(OTHER.format(n, 2, "OFFLOAD_COMPRESS='zstd'") for n in "qr"),
        *(2, ("q", "r"), True),
    ),
    "relocatable": (
        "env['OFFLOAD_RDC'] = True\n" + PLAIN + OTHER.format("q", 2, ""),
        *(2, ("p.gfx906.co", "q.gfx906.co"), False),
    ),
    "two folders": (
        PLAIN + OTHER.format("d2/q", 2, "") + OTHER.format("d3/q", 3, ""),
        *(3, ("d2/q", "d3/q"), False),
    ),
    "a library of the same name": (
        "env['OFFLOAD_RDC'] = True\n" + PLAIN + "env.OffloadSharedLibrary('p', 'other.hip')\n",
        *(1, ("p.gfx906.co", "p.shared.gfx906.co"), False),
    ),
}


@pytest.mark.parametrize(
    ("body", "times", "files", "are_equal"), SHARING.values(), ids=SHARING.keys()
)
def test_nodes_that_are_shared(
    project: Project, body: str, times: int, files: tuple[str, str], are_equal: bool
) -> None:
    """Programs that are alike share the nodes in between, whatever their names; others do not."""
    project.write("other.hip", KERNEL.replace("kernel", "other"))
    compiled = [name for name in project.sconstruct(body).build_once() if name.startswith("k.hip")]
    assert compiled == sorted(ALL * times)
    one, two = contents(project.folder, files).values()
    assert (one == two) == are_equal


def test_two_libraries_in_one_program(project: Project) -> None:
    """Two libraries of one source with other flags can be linked together, and both register."""
    kernel = KERNEL.replace("kernel(int", "NAME(int").replace("host_value", "HOST")
    project.write("k.hip", f'extern "C" int HOST();\n{kernel}')
    calls = "int h1(void), h2(void);\nint main(void) { return h1() - h2(); }\n"
    project.write("main.c", calls)
    assert project.sconstruct(
        "libraries = [\n"
        "    env.OffloadStaticLibrary(\n"
        "        f'l{n}', 'k.hip', CPPDEFINES={'VALUE': n, 'NAME': f'k{n}', 'HOST': f'h{n}'}\n"
        "    )\n"
        "    for n in (1, 2)\n"
        "]\n"
        "env.OffloadProgram('p', ['main.c', 'runtime.c', *libraries])\n"
    ).build() == sorted(ALL * 2)
    printed = project.start("p")
    assert {f"{BUNDLE} 2", "kernel _Z2k1Pi", "kernel _Z2k2Pi"} <= set(printed)


def test_openmp_programs(project: Project) -> None:
    """OpenMP programs of one source with other flags have a host IR each."""
    project.write(
        "r.c",
        "#include <stdio.h>\nint main(void) { int v = 0;\n"
        '#pragma omp target map(from: v)\nv = VALUE;\nprintf("%d\\n", v); return v != VALUE; }\n',
    )
    project.sconstruct(
        "env = env.Clone(OFFLOAD_KIND='openmp', OFFLOAD_ARCH=['x86_64-pc-linux-gnu'],\n"
        "    OFFLOAD_FLAGS=[], OFFLOAD_HOST_FLAGS=[])\n"
        "env.OffloadProgram('p', 'r.c')\n"
        "env.OffloadProgram('q', 'r.c', CPPDEFINES={'VALUE': 2})\n"
    ).build_once()
    assert [project.start(name) for name in "pq"] == [["1"], ["2"]]


def test_plain_sources(project: Project) -> None:
    """C and C++ sources of programs with other defines are compiled for each."""
    project.write("main.c", '#include <stdio.h>\nint main(void) { printf("%d\\n", VALUE); }\n')
    project.sconstruct(
        "sources = ['k.hip', 'runtime.c', 'main.c']\n"
        "env.OffloadProgram('p', sources)\n"
        "env.OffloadProgram('q', sources, CPPDEFINES={'VALUE': 2})\n"
    ).build()
    assert [project.start(name)[-2] for name in "pq"] == ["1", "2"]
    assert (project.folder / "main.q.o").exists()


def test_order_of_declarations_without_meaning_for_others(project: Project) -> None:
    """Only where two need one plain name does the first declared get it: others keep theirs."""
    first = "env.OffloadProgram('p', sources)\n"
    others = [
        "env.OffloadProgram('q', sources, OFFLOAD_COMPRESS='zstd')\n",
        "env.OffloadProgram('r', sources, OFFLOAD_BUNDLE_ALIGN=8192)\n",
    ]
    project.sconstruct(SOURCES + first + "".join(others)).build()
    project.sconstruct(SOURCES + first + "".join(reversed(others))).assert_up_to_date()


BODY = "#include <value.h>\n" + KERNEL.replace("VALUE", "HERE")
TWICE = """\
for name in ("i", "j"):
    local = env.Clone()
    {setting}
    env.OffloadBundle(name + ".hipfb", local.OffloadDeviceObject("k.hip"))
"""


@pytest.fixture
def headers(project: Project) -> Project:
    """Return a project whose source includes a header of one of two folders."""
    project.write("k.hip", BODY)
    project.write("i/value.h", "#define HERE 1\n")
    project.write("j/value.h", "#define HERE 2\n")
    return project


SETTINGS = {
    "CPPPATH": 'local["CPPPATH"] = [name]',
    "CCFLAGS": 'local.Append(CCFLAGS=["-I" + name])',
    "CPATH": 'local["ENV"]["CPATH"] = name',
    "compiler": 'local.Replace(CPPPATH=["i"], OFFLOAD_CLANG=os.environ["CLANG_" + name])',
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_two_environments(headers: Project, setting: str) -> None:
    """What differs between two declarations of one node is refused, or both are made."""
    more = {"i": "", "j": '[ $status = 0 ] && printf x >>"$out"'}
    if "CLANG" in setting:
        headers.environment |= {
            f"CLANG_{name}": compiler_script(headers, name, after=after)
            for name, after in more.items()
        }
    run = headers.sconstruct("import os\n" + TWICE.format(setting=setting)).run()
    if run.status == 0:
        bundles = contents(headers.folder, ["i.hipfb", "j.hipfb"])
        assert bundles["i.hipfb"] != bundles["j.hipfb"]
    else:
        assert "k.gfx906.co" in run.errors
        assert "Traceback" not in run.errors


def test_equal_declarations(headers: Project) -> None:
    """One node that two equal environments declare is one node, compiled once."""
    assert len(headers.sconstruct(TWICE.format(setting='local["CPPPATH"] = ["i"]')).build()) == 2
    bundles = contents(headers.folder, ["i.hipfb", "j.hipfb"])
    assert bundles["i.hipfb"] == bundles["j.hipfb"]
    headers.assert_up_to_date()


def test_long_commands(project: Project) -> None:
    """With SCons's TEMPFILE, reading writes no file, and programs share a C source's object."""
    temporary = project.folder / "temporary"
    temporary.mkdir()
    project.sconstruct(
        f"env.Replace(TEMPFILEDIR={str(temporary)!r}, MAXLINELENGTH=20,\n"
        "    CCCOM='${TEMPFILE(\"' + env['CCCOM'] + '\")}')\n"
        "for name in ('one', 'two'):\n"
        "    env.OffloadProgram(name, ['k.hip', 'runtime.c'])\n"
    )
    run = project.done("-n")
    assert [*temporary.iterdir()] == []
    assert run.errors == ""
    project.build_once()
