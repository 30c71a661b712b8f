"""Signatures say what matters to a result and nothing else, so that caches are shared fully."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import SCons.Environment

from offload_tool.formats import FORMAT_VERSION
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.passes.openmp import host_runtime
from offload_tool.scons import actions
from offload_tool.scons.graph.declare import NodeBuilder
from tests.conftest import missing
from tests.scons.conftest import (
    ALL,
    BOTH,
    KERNEL,
    NODES,
    Project,
    checkout,
    contents,
    device_library_folder,
    passes,
)
from tests.scons.judging import own_clang
from tests.scripts import counting_launcher, reporting_clang
from tests.toolchain.installed import write_bitcode

PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"


def cached(project: Project, body: str) -> None:
    project.sconstruct(f"env.CacheDir({str(project.folder.parent / 'cache')!r})\n" + body)


CUDA = (
    "env.Replace(OFFLOAD_ARCH=['sm_70', 'sm_80'], OFFLOAD_PTXAS='none')\n"
    "for name in ('OFFLOAD_FLAGS', 'OFFLOAD_HOST_FLAGS'):\n"
    "    env[name] = ['-nocudainc', '-nocudalib']\n"
    "env.OffloadObject('k.cu')\n"
)
SHARED = {
    "hip": (PROGRAM, ["k.hipfb", "prog"]),
    "hip-rdc": ("env['OFFLOAD_RDC'] = True\n" + PROGRAM, ["prog.hipfb", "prog"]),
    "cuda": (CUDA, ["k.sm_80.ptx", "k.o"]),
    "kpack": ("env['OFFLOAD_KPACK'] = 'demo'\n" + PROGRAM, [".kpack/demo_gfx906.kpack", "prog"]),
    "include-path": (
        "env['CPPPATH'] = ['#', '.']\nenv['CCFLAGS'] = ['-O2']\n" + NODES,
        ["k.host.o"],
    ),
}


@pytest.mark.parametrize(("body", "outputs"), SHARED.values(), ids=SHARED.keys())
def test_checkouts_share_a_cache(
    project: Project, tmp_path: Path, body: str, outputs: list[str]
) -> None:
    """A checkout elsewhere takes all from the CacheDir, the same bytes, and is up to date."""
    project.write(
        "k.cu", KERNEL.replace("hipLaunchKernel", "cudaLaunchKernel").replace("VALUE", "1")
    )
    cached(project, body)
    assert len(project.build()) == 3
    other = checkout(project, tmp_path / "some" / "where" / "else")
    assert other.build() == []
    assert contents(other.folder, outputs) == contents(project.folder, outputs)
    other.assert_up_to_date()


def test_openmp_checkouts_do_not_share_names(project: Project, tmp_path: Path) -> None:
    """OpenMP's names hold inodes: another checkout compiles for itself, a cleaned one does not."""
    if host_runtime(find_toolchain()) is None:
        missing("LLVM's offload runtime (liboffload-dev, libomp-dev)")
    project.write("k.c", "int main(void) {\n#pragma omp target\n  {}\n  return 0;\n}\n")
    cached(project, "env.OffloadDeviceObject('k.c', OFFLOAD_KIND='openmp')\n")
    expected = passes("k.c", "host-ir", *BOTH)
    assert project.build() == expected
    other = checkout(project, tmp_path / "other")
    assert other.build() == expected
    project.build("-c")
    assert project.build_once() == []


def test_order_jobs_and_launcher_are_in_no_key(project: Project, tmp_path: Path) -> None:
    """Another order of targets, number of jobs or launcher has the same key in the CacheDir."""
    cached(project, PROGRAM)
    assert project.build("-j1") == ALL
    other = checkout(project, tmp_path / "other")
    cached(
        other,
        "env['OFFLOAD_ARCH'] = 'gfx90a:xnack+ gfx906'\n"
        "env['OFFLOAD_LAUNCHER'] = 'env'\n"
        "env['OFFLOAD_SUMMARY'] = True\n" + PROGRAM,
    )
    assert other.build("-j8") == []
    other.assert_up_to_date("-j1")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("env['ENV']['CCC_OVERRIDE_OPTIONS'] = '#+-g'\n", True),
        ("env.Append(CCFLAGS=['-g', '-ffile-compilation-dir=.'])\n", False),
    ],
    ids=["edited options", "fixed"],
)
def test_folder_in_debug_information(
    setting: str, told: bool, project: Project, tmp_path: Path
) -> None:
    """What holds the name of a checkout's folder is not another's, nor that of a moved one."""
    cached(project, setting + NODES)
    assert project.build_once() == ALL
    other = checkout(project, tmp_path / "other")
    expected = ALL if told else []
    assert other.build_once() == expected
    moved = Project(other.folder.rename(tmp_path / "moved"), other.environment)
    counting_launcher(moved.folder)
    assert moved.build() == expected
    assert str(other.folder).encode() not in (moved.folder / "k.host.o").read_bytes()


def test_two_builds_at_once(project: Project, tmp_path: Path) -> None:
    """Two scons processes that fill one CacheDir at the same time do no harm."""
    for number in range(4):
        project.write(f"k{number}.hip", KERNEL)
    cached(project, "".join(f"env.OffloadBundle('k{number}.hip')\n" for number in range(4)))
    other = checkout(project, tmp_path / "other")
    with ThreadPoolExecutor(2) as pool:
        for run in pool.map(lambda each: each.done("-j2"), (project, other)):
            assert "warning" not in run.output + run.errors
    bundles = [f"k{number}.hipfb" for number in range(4)]
    assert contents(project.folder, bundles) == contents(other.folder, bundles)
    project.assert_up_to_date()
    other.assert_up_to_date()
    third = checkout(project, tmp_path / "third")
    assert third.build() == []
    assert contents(third.folder, bundles) == contents(project.folder, bundles)


def test_targets_of_one_source_run_in_parallel(project: Project) -> None:
    """With -j8, all eight compiles of one source run at the same time."""
    project.script(
        "gate",
        "#!/bin/sh\n"
        f'touch "$(mktemp {project.folder}/here.XXXXXX)"\n'
        f"for wait in $(seq 300); do\n"
        f'  [ "$(ls {project.folder}/here.* | wc -l)" -ge 8 ] && exec "$@"\n'
        "  sleep 0.1\n"
        "done\n"
        "exit 1\n",
    )
    targets = "gfx906 gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1101 gfx1200"
    project.sconstruct(
        f"env.Replace(OFFLOAD_ARCH='{targets}', OFFLOAD_LAUNCHER=File('#gate').abspath)\n"
        "env.OffloadDeviceObject('k.hip')\n"
    ).build("-j8")
    assert len(list(project.folder.glob("*.co"))) == 8


_FLAG = (
    "env['OFFLOAD_FLAGS'] = ['--rocm-path=rocm', '-nogpuinc']\n"
    "env['CPPFLAGS'] = ['-D', 'A', '-Xarch_device', '-DB']\n"
)
PLACES = {
    "flag": _FLAG + NODES,
    "flag set behind the call": NODES + _FLAG,
    "ROCM_PATH": "env['OFFLOAD_FLAGS'] = ['-nogpuinc']\n"
    "env['ENV']['ROCM_PATH'] = Dir('rocm').abspath\n" + NODES,
}


@pytest.mark.parametrize("body", PLACES.values(), ids=PLACES.keys())
def test_device_libraries(project: Project, body: str) -> None:
    """Another content of a device library compiles again the targets that it is linked into."""
    folder = device_library_folder(project)
    assert project.sconstruct(body).build_once() == ALL
    text = '__attribute__((visibility("hidden"))) int changed(void) { return 1; }\n'
    write_bitcode(find_toolchain().clang, folder / "oclc_isa_version_906.bc", text)
    run = project.run("--debug=explain")
    assert run.compiles == passes("k.hip", "gfx906")
    assert "oclc_isa_version_906.bc' changed" in run.output
    shutil.copy(folder / "oclc_isa_version_906.bc", folder / "ockl.bc")
    assert project.build_once() == passes("k.hip", *BOTH)


def test_variables_that_change_nothing(project: Project) -> None:
    """Other variables of the commands' environment compile nothing."""
    project.sconstruct(NODES).build()
    project.sconstruct(
        "env['ENV'].update(CCACHE_DIR='/nowhere', HOME='/', LANG='de_DE', OTHER='1')\n" + NODES
    ).assert_up_to_date()


def test_compiler_version_is_in_the_key(project: Project, tmp_path: Path) -> None:
    """A CacheDir that another version of the compiler filled is of no use to this one."""
    cached(project, NODES)
    assert project.build() == ALL
    fake = reporting_clang(tmp_path / "clang-next", str(own_clang()), "99.0.0")
    other = checkout(project, tmp_path / "other")
    other.environment["OFFLOAD_CLANG"] = fake
    assert other.build() == ALL


def test_openmp_device_runtime(project: Project) -> None:
    """Another content of OFFLOAD_DEVICE_RUNTIME links the images again, and compiles nothing."""
    if host_runtime(find_toolchain()) is None:
        missing("LLVM's offload runtime (liboffload-dev, libomp-dev)")
    project.write("k.c", "int main(void) {\n#pragma omp target\n  {}\n  return 0;\n}\n")
    runtime = project.folder / "runtime.bc"
    write_bitcode(find_toolchain().clang, runtime)
    project.sconstruct(
        "env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_ARCH='gfx906',\n"
        "            OFFLOAD_DEVICE_RUNTIME=['runtime.bc'],\n"
        "            OFFLOAD_FLAGS=['-nogpulib'], OFFLOAD_HOST_FLAGS=[],\n"
        "            OFFLOAD_LINK_FLAGS=['--unresolved-symbols=ignore-all'])\n"
        "env.OffloadProgram('prog', 'k.c')\n"
    ).build_once()
    write_bitcode(find_toolchain().clang, runtime, "int some(void) { return 1; }\n")
    run = project.done()
    assert run.compiles == []
    assert "LINK [gfx906] prog.gfx906.co" in run.actions


def test_operations_sign_what_decides_their_bytes(tmp_path: Path) -> None:
    """The signature of an operation is its verb, FORMAT_VERSION and its spec; no bytecode."""
    env = SCons.Environment.Environment(tools=[])
    verbs = set()
    for name, builder in vars(actions).items():
        if not isinstance(builder, NodeBuilder):
            continue
        node = env.File(str(tmp_path / name))
        spec = f'{{"of": "{name}"}}'
        if isinstance(builder, actions.Operation):
            builder(env, node, [], of=name)
        else:
            builder(env, node, [], _OFFLOAD_SPEC=spec)
        found = bytes(node.get_executor().get_contents()).decode()
        if found.endswith(spec):
            verbs.add(found.removesuffix(spec))
    assert f" offload bundle {FORMAT_VERSION} " in verbs
    assert len(verbs) == 21
    assert all(re.fullmatch(rf" offload [a-z ]+ {FORMAT_VERSION} ", verb) for verb in verbs)


def test_checks_sign_their_verb() -> None:
    """A compile's signature is its command, and its checks; FORMAT_VERSION is not in it."""
    env = SCons.Environment.Environment(tools=[], OFFLOADDEVICECOM="cc $SOURCE")
    signed = actions.DEVICE._builder.action.get_contents([], [], env)
    assert bytes(signed) == b" offload begin compile cc offload finish compile "
