"""The name of a source says its language, whatever the name of the compiler makes of it."""

from __future__ import annotations

import pytest

from tests.scons.conftest import Project, contents
from tests.scons.judging import own_clang

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
