"""The reference of builders: its variables are those that the builders read."""

from __future__ import annotations

import json

from offload_tool.scons.variables import VARIABLES
from tests.scons.conftest import Project
from tests.site.conftest import load

RECORD = """
import collections, json, re, sys
import SCons.Environment

READERS = ("scons/variables.py", "SCons/Environment.py", "SCons/Subst.py", "call_cache.py")
seen, now = collections.defaultdict(set), []

def record(cls, attribute):
    old = getattr(cls, attribute)
    def new(self, key, *arguments, **keywords):
        if now and not sys._getframe(1).f_code.co_filename.endswith(READERS):
            seen[now[-1]].update(re.findall(r"OFFLOAD_([A-Z_]+)", str(key)))
        return old(self, key, *arguments, **keywords)
    setattr(cls, attribute, new)

for cls in (SCons.Environment.Base, SCons.Environment.OverrideEnvironment):
    for attribute in ("__getitem__", "get", "subst", "subst_list"):
        if attribute in vars(cls):
            record(cls, attribute)

def call(env, name, *arguments):
    now.append(name)
    try:
        return getattr(env, name)(*arguments)
    finally:
        now.pop()
"""
CALLS = """
env.Append(CCFLAGS=["-nogpuinc", "-nogpulib"])
rdc = env.Clone(OFFLOAD_RDC=True)
apart = env.Clone(OFFLOAD_KPACK="group", OFFLOAD_COMPRESS="zstd")
omp = env.Clone(OFFLOAD_KIND="openmp", OFFLOAD_ARCH="x86_64-pc-linux-gnu", CCFLAGS=[])
cuda = env.Clone(OFFLOAD_ARCH=["sm_80"], CCFLAGS=["-nocudainc", "-nocudalib"])
for number, (here, source) in enumerate(
    [(env, "k.hip"), (rdc, "k.hip"), (apart, "k.hip"), (omp, "k.c"), (cuda, "k.cu")]
):
    for name in ("Object", "Program", "SharedLibrary", "StaticLibrary", "DeviceObject"):
        call(here, f"Offload{name}", f"{name}{number}", [source])
    call(here, "OffloadHostObject", f"host{number}", [source])
    call(here, "OffloadPackage", f"package{number}", source)
bundle = call(env, "OffloadBundle", "bundle", "k.hip")
call(env, "OffloadUnbundle", "entries", bundle)
call(env, "OffloadRepack", "again", bundle)
call(env, "OffloadWrapper", "module.o", bundle)
call(env, "OffloadExtract", "images", env.OffloadPackage("p", "k.hip"))
call(env, "OffloadDeviceArchive", "taken", call(rdc, "OffloadArchive", "archive", "k.hip"))
call(env, "OffloadKpack", apart.OffloadProgram("other", ["k.hip"]))
call(env, "OffloadReport", "report.html", bundle)
call(env, "OffloadCompilationDatabase", "commands.json")
for name in ("OffloadHostRuntime", "OffloadCudaToolkit"):
    call(env, name)
call(omp, "OffloadDeviceRuntime", "gfx90a")
with open("read.json", "w") as out:
    json.dump({name: sorted(names) for name, names in seen.items()}, out)
Exit(0)
"""
REFUSED = {"TARGETS", "KIND"}
"""Each builder reads these: to see what its sources are, and that no variable means nothing."""


def test_variables(project: Project) -> None:
    """What a builder reads is in its entry, and each variable that only some have is read."""
    reference = load("reference")
    reads = {
        builder: {one for name in names for one in reference.GROUPS.get(name, (name,))}
        for builder, names in reference.READS.items()
    }
    for name in ("k.c", "k.cu"):
        (project.folder / name).touch()
    project.sconstruct(RECORD + CALLS).done("-Q")
    known = {name.removeprefix("OFFLOAD_") for name in VARIABLES}
    read = json.loads((project.folder / "read.json").read_text())
    seen = {name: {*names} & known for name, names in read.items()}
    assert len(seen) > 15
    missing = {name: names - reads.get(name, set()) - REFUSED for name, names in seen.items()}
    assert {name: names for name, names in missing.items() if names} == {}
    assert {f"OFFLOAD_{one}" for names in reads.values() for one in names} == {*VARIABLES}


def test_every_builder() -> None:
    """Each method of the environment has its entry, with its signature and docstring."""
    reference = load("reference")
    page = reference.builders_page()
    methods = reference.signatures()
    assert {*reference.READS} <= {*methods}
    assert methods["OffloadBundle"][0] == "env.OffloadBundle(target=None, source, **overrides)"
    assert methods["OffloadDeviceRuntime"][0] == "env.OffloadDeviceRuntime(target_id)"
    for name, (signature, text) in methods.items():
        assert f"\n## {name}\n\n```python\n{signature}\n```\n\n{text[:6]}" in page
