"""Compiler launchers: caches give what they should, and what others do wrong is caught."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from offload_tool.passes.choose_compiler import find_toolchain
from tests.conftest import program, run_tool
from tests.scons.conftest import (
    BOTH,
    KERNEL,
    NODES,
    Project,
    checkout,
    contents,
    device_library_folder,
)
from tests.scons.judging import own_clang
from tests.toolchain.clang_in_parts import clang_in_parts, write_library
from tests.toolchain.installed import write_bitcode

HEADER = '#include "value.h"\n'
DEVICES = ["k.gfx906.co", "k.gfx90a_xnack+.co"]
REGION = """\
int main(void) {
  int value = 0;
#pragma omp target map(from : value)
  value = VALUE;
  return value;
}
"""
HIDDEN = '__attribute__((visibility("hidden")))'


class Cache:
    """A compiler cache of its own for one test."""

    def __init__(self, launcher: str, variables: dict[str, str], hits: Callable[[], int]) -> None:
        self.launcher = launcher
        self.variables = variables
        self.hits = hits

    def settings(self) -> str:
        return (
            f"env['OFFLOAD_LAUNCHER'] = {self.launcher!r}\nenv['ENV'].update({self.variables!r})\n"
        )


def ccache(folder: Path) -> Iterator[Cache]:
    command = program("ccache")
    variables = {"CCACHE_DIR": str(folder), "HOME": str(folder)}

    def hits() -> int:
        statistics = run(command, "--print-stats", **variables)
        found = re.findall(r"^(?:direct|preprocessed)_cache_hit\t(\d+)$", statistics, re.MULTILINE)
        return sum(map(int, found))

    yield Cache(command, variables, hits)


def sccache(folder: Path) -> Iterator[Cache]:
    if find_toolchain().is_embedded:
        pytest.skip("sccache does not know the embedded compiler")
    command = program("sccache")
    folder.mkdir()
    variables = {
        "SCCACHE_DIR": str(folder / "cache"),
        "SCCACHE_SERVER_UDS": str(folder / "socket"),
        "SCCACHE_CONF": str(folder / "none"),
        "SCCACHE_IDLE_TIMEOUT": "120",
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
    }

    def hits() -> int:
        found = re.findall(r"^Cache hits +(\d+)$", run(command, "-s", **variables), re.MULTILINE)
        return sum(map(int, found))

    run(command, "--start-server", **variables)
    yield Cache(command, variables, hits)
    run(command, "--stop-server", **variables)


def run(*command: str, **variables: str) -> str:
    return run_tool(*command, env=variables)


@pytest.fixture(params=[ccache, sccache], ids=["ccache", "sccache"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cache]:
    yield from request.param(tmp_path / "compiler-cache")


def test_second_checkout_hits(project: Project, tmp_path: Path, cache: Cache) -> None:
    """Another checkout takes its device objects from the compiler cache, with dependencies."""
    project.write("k.hip", HEADER + KERNEL.replace("VALUE", "HERE"))
    project.write("value.h", "#define HERE 1\n")
    project.sconstruct(cache.settings() + NODES).build_once()
    assert cache.hits() == 0
    other = checkout(project, tmp_path / "elsewhere")
    other.build()
    assert cache.hits() >= len(DEVICES)
    assert contents(other.folder, DEVICES) == contents(project.folder, DEVICES)
    assert not list(other.folder.glob("*.d"))
    other.assert_up_to_date()
    before = cache.hits()
    other.write("value.h", "#define HERE 2\n")
    assert {f"HIP [{name}] k.hip" for name in ("host", *BOTH)} == set(other.done().actions)
    assert cache.hits() == before
    assert contents(other.folder, DEVICES) != contents(project.folder, DEVICES)
    other.assert_up_to_date()


ASKING = '#if __has_include("extra.h")\n#include "extra.h"\n#endif\n'


def test_second_checkout_hits_directly(project: Project, tmp_path: Path) -> None:
    """The first build of another checkout takes all from ccache without preprocessing by that."""
    command = program("ccache")
    variables = {"CCACHE_DIR": str(tmp_path / "c"), "HOME": str(tmp_path), "CCACHE_NOHASHDIR": "1"}
    (project.folder / "a").mkdir()
    project.write("b/value.h", "#define HERE 1\n")
    project.write("k.hip", f"#include <value.h>\n{ASKING}{KERNEL.replace('VALUE', 'HERE')}")
    settings = Cache(command, variables, lambda: 0).settings()
    project.sconstruct(f"{settings}env.Append(CCFLAGS=['-Ia', '-Ib'])\n{NODES}")
    past = 1_600_000_000  # ccache trusts no file that is as new as the compile
    for file in project.folder.rglob("*.h*"):
        os.utime(file, (past, past))
    project.build()
    other = checkout(project, project.folder.parent / "other")
    other.build()
    output = run(command, "--print-stats", **variables)
    found = dict(re.findall(r"^(\w+_cache_(?:hit|miss))\t(\d+)$", output, re.MULTILINE))
    assert found["direct_cache_hit"] == "3"
    assert found["preprocessed_cache_hit"] == "0"
    assert contents(other.folder, DEVICES) == contents(project.folder, DEVICES)


def test_other_device_libraries(project: Project, tmp_path: Path) -> None:
    """The compiler cache is shown the device libraries, which are in no source."""
    cache = next(ccache(tmp_path / "compiler-cache"))
    folder = device_library_folder(project)
    library, text = folder / "ocml.bc", f"{HIDDEN} int of_library(void) {{ return VALUE; }}\n"
    write_bitcode(find_toolchain().clang, library, text.replace("VALUE", "1"))
    declared = 'extern "C" __attribute__((device)) int of_library(void);\n'
    project.write("k.hip", declared + KERNEL.replace("VALUE", "of_library()"))
    project.sconstruct(
        cache.settings() + "env['OFFLOAD_FLAGS'] = ['-nogpuinc', '--rocm-path=rocm']\n"
        "env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
    ).build()
    first = contents(project.folder, ["k.gfx906.co"])
    write_bitcode(find_toolchain().clang, library, text.replace("VALUE", "2"))
    project.build()
    assert cache.hits() == 0
    assert contents(project.folder, ["k.gfx906.co"]) != first


def test_library_of_the_compiler(project: Project, tmp_path: Path) -> None:
    """A compiler whose library is another one compiles: no launcher sees that by itself."""
    cache = next(ccache(tmp_path / "compiler-cache"))
    real, folder = str(own_clang().resolve()), tmp_path / "llvm"
    clang = str(clang_in_parts(folder, real, 1))
    project.write("k.hip", KERNEL.replace("VALUE", "HERE"))
    project.sconstruct(f"{cache.settings()}env['OFFLOAD_CLANG'] = {clang!r}\n{HIP}")
    command = ["compile", "k.hip", "-o", "k.co", "--target-id=gfx906"]
    command += ["--", "-nogpuinc", "-nogpulib"]
    given = {**cache.variables, "OFFLOAD_CLANG": clang, "OFFLOAD_LAUNCHER": cache.launcher}
    made = []
    for number in (1, 2):
        write_library(folder / "lib", real, number)
        project.build()
        assert project.tool(*command, **given).returncode == 0
        made.append(contents(project.folder, ["k.co", "k.gfx906.co"]))
    assert not made[0].items() & made[1].items()


class Misled(NamedTuple):
    """A compile, and what a launcher does instead of some commands of it."""

    call: str
    commands: str
    """A pattern of the shell."""
    script: str
    output: str
    message: str


HIP = "env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
RDC = "env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906', OFFLOAD_RDC=True)\n"
CPU = (
    "env.OffloadObject('k.c', OFFLOAD_KIND='openmp', OFFLOAD_ARCH='x86_64-pc-linux-gnu',\n"
    "    OFFLOAD_FLAGS=['-nogpulib'], OFFLOAD_HOST_FLAGS=[])\n"
)
CUDA = (
    "NO = ['-nocudainc', '-nocudalib', '-Wno-unknown-cuda-version']\n"
    "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', OFFLOAD_PTXAS='none', OFFLOAD_FLAGS=NO,\n"
    "    OFFLOAD_HOST_FLAGS=NO)\n"
)
OF_DEVICE, OF_CPU = "*--offload-arch=gfx906*", "*--offload-device-only*"
OF_CUDA, OF_HOST = "*--offload-arch=sm_80*", "*--offload-host-only*"
EMPTY = ': >"$out"'
# Seen with distcc 3.4, which sends preprocessed text to other machines, and ends with status 0. To
# a host compiler it is given as any text: a host object comes back.
DISTCC = 'exec CLANG -x c -c /dev/null -o "$out"'
LOST = "exec CLANG -c -xc lost.c -o $out"
HOST_PASS = 'exec $(echo "$@" | sed "s/ --offload-device-only/ --offload-host-only/")'


def edited(expression: str) -> str:
    return f'exec $(echo "$@" | sed "{expression}")'


MISLED = {  # tests/passes has what each check refuses
    "distcc": Misled(HIP, OF_DEVICE, DISTCC, "k.gfx906.co", "found ELF machine 62"),
    "nothing": Misled(HIP, OF_DEVICE, "", "k.gfx906.co", "No such file"),
    "empty host object": Misled(
        "env.OffloadHostObject('k.hip')\n",
        *(OF_HOST, EMPTY, "k.host.o", "the compiler launcher may have run another job"),
    ),
    "relocatable, other source": Misled(
        RDC, OF_DEVICE, edited("s/-cuid=[0-9a-f]*/-cuid=13/"), "k.gfx906.bc", "symbol __hip_cuid_"
    ),
    "kernels that nobody registers": Misled(
        "env.OffloadHostObject('k.hip', OFFLOAD_RDC=True)\n",
        *(OF_HOST, LOST, "k.host.o", "registers the kernel _Z21__device_stub__kernelPi"),
    ),
    "OpenMP, host object": Misled(
        CPU, OF_CPU, HOST_PASS, "k.x86_64-pc-linux-gnu.o", "found a host object"
    ),
    "CUDA, other target": Misled(
        *(CUDA, OF_CUDA, edited("s/sm_80/sm_75/"), "k.sm_80.ptx"),
        "expected PTX with the line '.target sm_80', found",
    ),
}


@pytest.mark.parametrize("case", MISLED.values(), ids=MISLED.keys())
def test_wrong_outputs_are_caught(project: Project, case: Misled) -> None:
    """A launcher that gives something else, as if well, fails the build, which keeps nothing."""
    clang = str(own_clang())
    project.write("k.c", REGION.replace("VALUE", "1"))
    project.write("k.cu", KERNEL.replace("hipLaunch", "cudaLaunch"))
    project.write("lost.c", "void _Z21__device_stub__kernelPi(int *p) {}\n")
    project.script(
        "fake",
        '#!/bin/sh\nfor word; do [ "$prev" = -o ] && out=$word; prev=$word; done\n'
        f'case "$*" in *-###*) ;; {case.commands}) '
        f'{case.script.replace("CLANG", clang)}\nexit;; esac\nexec "$@"\n',
    )
    project.sconstruct(f"env['OFFLOAD_LAUNCHER'] = File('#fake').abspath\n{case.call}")
    run = project.fails("-Q")
    (error,) = (line for line in run.errors.splitlines() if line.startswith("scons: ***"))
    assert f"[{case.output}]" in error
    assert case.message in error
    assert not (project.folder / case.output).exists()


def test_users_own_order(project: Project) -> None:
    """A launcher runs a user's own command line, which has a flag behind the output."""
    project.write("k.hip", KERNEL)
    own = (
        "env['OFFLOADDEVICECOM'] = env['OFFLOADDEVICECOM'].replace("
        "'-o $TARGET $SOURCE', '-o $TARGET -DOWN $SOURCE')\n"
    )
    node = "env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
    project.sconstruct(own + node).build()
    plain = (project.folder / "k.gfx906.co").read_bytes()
    (project.folder / "k.gfx906.co").unlink()
    project.script("launcher", '#!/bin/sh\necho launched >>log\nexec "$@"\n')
    launched = f"env['OFFLOAD_LAUNCHER'] = File('#launcher').abspath\n{own}{node}"
    project.sconstruct(launched).build()
    project.assert_up_to_date()
    assert (project.folder / "log").read_text() == "launched\n"
    assert (project.folder / "k.gfx906.co").read_bytes() == plain
