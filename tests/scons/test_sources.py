"""What a builder is given as its source: nothing, something that is not a file, or a file twice."""

from __future__ import annotations

import pytest

from tests.scons.conftest import Project, contents, passes
from tests.scons.judging import own_clang

BUILDERS = (
    *("DeviceObject", "HostObject", "Bundle", "Unbundle", "Archive", "DeviceArchive", "Package"),
    *("Extract", "Wrapper", "Object", "StaticLibrary", "SharedLibrary", "Program"),
)
NOTHING = "no source was given; does a pattern of Glob() match nothing?"
NO_FILE = "expected names of files, or nodes, as sources, found "
FOLDER = "'sub' is a folder; give the files in it, such as Glob('sub/*')"
WRONG = {
    "empty list": ("[]", NOTHING),
    "Glob": ("Glob('typo/*.hip')", NOTHING),
    "nested": ("[[], [[]]]", NOTHING),
    "None": ("None", NO_FILE + "None"),
    "None in a list": ("['k.hip', None]", NO_FILE + "None"),
    "number": ("3", NO_FILE + "3"),
    "bytes": ("b'k.hip'", NO_FILE + "b'k.hip'"),
    "generator": ("(name for name in ['k.hip'])", NO_FILE + "<generator"),
    "empty text": ("''", "expected the name of a file as source, found an empty text"),
    "unset variable": ("'$UNSET'", "found an empty text ('$UNSET')"),
    "folder": ("'sub'", FOLDER),
    "folder node": ("Dir('sub')", FOLDER),
    "alias": ("env.Alias('all', 'k.hip')", "expected files as sources, found 'all'"),
    "value": ("env.Value(1)", "expected files as sources, found '1'"),
}


def test_wrong_sources(project: Project) -> None:
    """Every builder says of such a source what it is, and which builder and target it is for."""
    (project.folder / "sub").mkdir()
    project.sconstruct(
        "import SCons.Errors\n"
        f"for builder in {BUILDERS!r}:\n"
        "    for target, of in ((['out'], \" of 'out'\"), ([], '')):\n"
        "        for call, message in (\n"
        + "".join(
            f"            (lambda b, *t: b(*t, {source}), {message!r}),\n"
            for source, message in WRONG.values()
        )
        + "        ):\n"
        "            try:\n"
        "                call(getattr(env, 'Offload' + builder), *target)\n"
        "            except SCons.Errors.UserError as error:\n"
        "                assert str(error).startswith(f'Offload{builder}{of}: '), error\n"
        "                assert message in str(error), error\n"
        "            else:\n"
        "                raise AssertionError(builder, message)\n"
    ).build("-n", "k.hip")


@pytest.mark.parametrize(
    "source",
    [
        "['k.hip', 'k.hip', 'runtime.c', 'runtime.c']",
        "['k.hip', Glob('*.hip'), File('runtime.c'), '#runtime.c']",
        "[[['k.hip']], [], ('runtime.c',)]",
        "[__import__('pathlib').Path('k.hip'), 'runtime.c']",
    ],
)
def test_sources_given_twice(project: Project, source: str) -> None:
    """A source given twice counts once; lists may be nested, and paths be those of pathlib."""
    project.sconstruct(f"env.OffloadProgram('p', {source})\n")
    assert project.build_once() == passes("k.hip", "gfx906", "gfx90a:xnack+", "host")


def test_file_given_for_two_targets(project: Project) -> None:
    """One file may be the image of two targets in a bundle."""
    project.write("a.co", "code")
    project.sconstruct(
        "env.OffloadBundle('b.hipfb', ['a.co', 'a.co'], OFFLOAD_TARGETS=[\n"
        "    'hip-amdgcn-amd-amdhsa--gfx906', 'hip-amdgcn-amd-amdhsa--gfx908'])\n"
    ).build()
    assert project.read("b.hipfb").count(b"code") == 2


ONLY_C = "static int *new(void) { int *class = __builtin_malloc(4); return class; }\n"
OPENMP = f"""{ONLY_C}\
int sum(void) {{
  int *p = new();
#pragma omp target map(tofrom : p[0])
  {{ int template = sizeof('a') == sizeof(int); *p = template; }}
  return *p;
}}
"""
BUILD = """\
env.Replace(OFFLOAD_RDC=True, OFFLOAD_CLANG={clang!r})
env.OffloadProgram('prog', ['k.hip', 'runtime.c', 'only.c'])
openmp = env.Clone(OFFLOAD_KIND='openmp')
openmp.OffloadObject('o.c')
"""
MADE = ["prog", "only.o", "o.o"]


@pytest.mark.parametrize("name", ["clang++", "hipcc"])
def test_names_of_the_compiler(project: Project, name: str) -> None:
    """C sources are C under all names, ours as well as users', and outputs are the same bytes."""
    found = []
    project.write("only.c", f"int *other(void);\n{ONLY_C}int *other(void) {{ return new(); }}\n")
    project.write("o.c", OPENMP)
    link = project.folder.parent / name
    link.symlink_to(own_clang().resolve())
    for clang in (own_clang(), link):
        project.sconstruct(BUILD.format(clang=str(clang))).build()
        found.append(contents(project.folder, MADE))
        project.build("-c")
    assert found[0] == found[1]


def test_kind_in_flags(project: Project) -> None:
    """The user's flags see OFFLOAD_KIND as it was given; any case of it names the kind."""
    project.write("s.cpp", "#ifndef K_HIP\n#error of another kind\n#endif\nvoid f() {}\n")
    project.sconstruct(
        "env.Append(CPPDEFINES=['K_$OFFLOAD_KIND'])\n"
        "env.OffloadDeviceObject('s', 's.cpp', OFFLOAD_KIND='HIP')\n"
    )
    assert project.build() == passes("s.cpp", "gfx906", "gfx90a:xnack+")


def test_command_that_needs_a_shell(project: Project) -> None:
    """A command that is refused leaves no output of an earlier one, as one that fails."""
    project.sconstruct(
        "env['OFFLOADDEVICECOM'] += ARGUMENTS.get('more', '')\n"
        "env.OffloadDeviceObject('k', 'k.hip')\n"
    )
    project.build()
    project.fails("-k", "more= 2>&1")
    assert not list(project.folder.glob("k.gfx*"))
