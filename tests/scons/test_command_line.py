"""The options of ``scons``, on one built project with nodes of every kind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import found_toolchain
from tests.scons.conftest import KERNEL, RUNTIME, Project, empty_project

BODY = """\
env["OFFLOAD_SUMMARY"] = True
env.CacheDir("cache")
env.OffloadProgram("hip", ["k.hip", "runtime.c"])
env.OffloadSharedLibrary("apart", "p.hip", OFFLOAD_KPACK="demo")
env.OffloadPackage("k.hip")
rdc = env.Clone(OFFLOAD_RDC=True)
rdc.OffloadProgram("rdc", ["calls.hip", "runtime.c", rdc.OffloadArchive("twice", "twice.hip")])
other = env.Clone(OFFLOAD_FLAGS=[], OFFLOAD_HOST_FLAGS=[])
other.OffloadObject("region.c", OFFLOAD_KIND="openmp", OFFLOAD_ARCH="x86_64-pc-linux-gnu")
other.Append(CCFLAGS=["-nocudainc", "-nocudalib"])
other.OffloadObject("c.cu", OFFLOAD_ARCH="sm_80", OFFLOAD_PTXAS="none")
env.OffloadCompilationDatabase()
"""
TWICE = "__attribute__((device)) int twice(int"
DEBUG = (
    "count,duplicate,explain,findlibs,includes,memory,objects,prepare,presub,stacktrace,time,"
    "action-timestamps,sconscript,json"
)
OPTIONS = {
    "tree": "--tree=all",
    "tree-of-derived": "--tree=derived,prune",
    "tree-with-status": "--tree=status",
    "tree-of-derived-with-status": "--tree=all,derived,status",
    "tree-in-lines": "--tree=all,prune,status,linedraw",
    "tree-parallel": "-j4 -k --random --tree=all,status",
    "tree-of-dry-run": "-n --tree=status --debug=explain,presub",
    "tree-of-question": "-q --tree=all,status",
    "tree-of-cleaning": "-c -n --tree=status",
    "debug": f"--debug={DEBUG}",
    "trace": "--taskmastertrace=- --profile=profile.out",
    "cache": "--cache-show --cache-debug=- --cache-readonly --tree=status",
    "cache-forced": "--cache-force --tree=status",
    "cache-disabled": "--cache-disable --tree=status",
    "implicit-cache": "--implicit-cache --debug=explain",
    "implicit-changed": "--implicit-deps-changed --tree=status",
    "implicit-unchanged": "--implicit-deps-unchanged --tree=status",
    "drift": "--max-drift=0 --hash-chunksize=1 --tree=status",
    "scheduling": "-i -j2 --stack-size=512 --experimental=all --config=force --tree=status",
    "places": "-D -I sub -Y sub --no-site-dir --duplicate=copy --diskcheck=none --warn=all",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project that is built, with a HIP, CUDA, OpenMP, kpack and relocatable part."""
    found_toolchain()
    made = empty_project(tmp_path_factory.mktemp("all") / "project")
    for name, text in {
        "k.hip": KERNEL,
        "p.hip": KERNEL,
        "calls.hip": f"{TWICE});\n{KERNEL.replace('= VALUE', '= twice(VALUE)')}",
        "twice.hip": f"{TWICE} x) {{ return 2 * x; }}\n",
        "region.c": "void f(int *p) {\n#pragma omp target map(from : p[0])\n*p = 1;\n}\n",
        "c.cu": "__attribute__((device)) int twice(int x) { return 2 * x; }\n",
        "runtime.c": RUNTIME,
        "sub/empty": "",
    }.items():
        made.write(name, text)
    made.sconstruct(BODY)
    assert not_current(made.done("--tree=all,prune,status").output) == []
    return made


def not_current(output: str) -> list[str]:
    """Return the files in a tree with status that are built and not current."""
    rows = re.findall(r"^\[..[bB]...(.)..\][ |]*\+-(\S+)", output, re.MULTILINE)
    return [name for current, name in rows if current != "C" and "." in name.strip(".")]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_option(built: Project, options: str) -> None:
    """An option ends as it does for C sources: well, nothing compiled, and all current."""
    run = built.run(*options.split())
    assert (run.status, run.compiles) == (0, []), run.output + run.errors
    told = run.output + run.errors
    assert not re.search(r"Traceback|Error|scons: \*\*\*", told), told
    assert not_current(run.output) == []


def test_tree_of_a_dry_run(built: Project) -> None:
    """``scons -n --tree=status`` shows as not current what a build would compile."""
    source = Path(built.folder / "k.hip")
    source.write_text(KERNEL.replace("return 1", "return 2"))
    run = built.run("-n", "--tree=all,prune,status")
    source.write_text(KERNEL)
    assert {*not_current(run.output)} >= {"k.host.o", "k.gfx906.co", "k.gfx90a_xnack+.co"}
    assert "calls.host.o" not in not_current(run.output)
