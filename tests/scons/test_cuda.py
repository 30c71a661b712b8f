"""CUDA: PTX for each processor, cubins where ptxas is found, and registration of both.

No part of NVIDIA's toolkit is needed. Where there is none, a stand-in takes the place of
ptxas, which writes an ELF file of the right machine.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from offload_tool.operations.list_images import list_images
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.passes.cuda import ARCH_LIST_SINCE
from tests.conftest import found_toolchain
from tests.formats.cuda_images import images_of
from tests.scons import conftest
from tests.scons.conftest import Project, passes
from tests.scons.nvidia import BOTH, HEAD, PTXAS, RUNTIME, break_tool, write_tools

KERNEL = conftest.KERNEL.replace("hipLaunch", "cudaLaunch")
MAIN = "int main(void) { return 0; }\n"
PTX_ONLY = "env['OFFLOAD_PTXAS'] = 'none'\n"
PROGRAM = "env.OffloadProgram('prog', ['k.cu', 'runtime.c', 'main.c'])\n"
OBJECT = "env.OffloadObject('k.cu')\n"


@pytest.fixture
def kernels(project: Project) -> Project:
    """Return a project with a CUDA source, built without ptxas."""
    project.write("k.cu", KERNEL)
    project.write("runtime.c", RUNTIME)
    project.write("main.c", MAIN)
    project.sconstruct(PTX_ONLY + PROGRAM, HEAD)
    return project


@pytest.fixture
def assembled(kernels: Project) -> Project:
    """Return that project with a stand-in for ptxas on PATH, before any real one."""
    write_tools(kernels)
    kernels.sconstruct(PROGRAM, HEAD)
    return kernels


def entries(path: Path) -> list[tuple[str, str]]:
    """Return what a fat binary's entries are, and for which processors."""
    return [(image.image_kind, image.processor) for image in images_of(path.read_bytes())]


def test_program_of_ptx(kernels: Project) -> None:
    """Without ptxas: PTX for each processor in one fat binary, which the program registers."""
    run = kernels.done()
    assert run.compiles == passes("k.cu", "host", *BOTH)
    assert "PTXAS" not in run.output
    fatbin = kernels.folder / "k.fatbin"
    assert entries(fatbin) == [("ptx", "compute_80"), ("ptx", "compute_90a")]
    registered = ["registered compute_80 compute_90", "_Z6kernelPi", "end", "unregistered"]
    assert kernels.start() == registered
    listed = [image.target_id for image in list_images(kernels.folder / "prog")]
    assert listed == ["compute_80", "compute_90a"]
    for target in BOTH:
        text = (kernels.folder / f"k.{target}.ptx").read_text()
        assert f".target {target}\n" in text
        assert ".visible .entry _Z6kernelPi(" in text
    kernels.assert_up_to_date()


def test_program_with_cubins(assembled: Project) -> None:
    """With ptxas on PATH: a cubin of each PTX, before it in the fat binary."""
    assert assembled.done().compiles == passes("k.cu", "host", *BOTH)
    assert entries(assembled.folder / "k.fatbin") == [
        ("elf", "sm_80"),
        ("ptx", "compute_80"),
        ("elf", "sm_90a"),
        ("ptx", "compute_90a"),
    ]
    log = (assembled.folder / "ptxas.log").read_text().splitlines()
    assert sorted(log) == [
        f"-m64 --gpu-name={target} -O0 -o k.{target}.cubin k.{target}.ptx" for target in BOTH
    ]
    assert assembled.start()[1:-1] == ["_Z6kernelPi", "end"]
    assembled.assert_up_to_date()


def test_processor_that_ptxas_does_not_know(assembled: Project) -> None:
    """It is refused before anything is compiled, with what can be done."""
    run = assembled.sconstruct("env['OFFLOAD_ARCH'] = ['sm_80', 'sm_87']\n" + PROGRAM, HEAD).fails()
    assert run.compiles == []
    assert (
        "makes no code for it, but for sm_70, sm_80, sm_86, sm_90, sm_90a; name one of"
        in run.errors
    )
    assembled.sconstruct("env['OFFLOAD_ARCH'] = ['sm_80', 'sm_87']\n" + PTX_ONLY + PROGRAM, HEAD)
    assert assembled.build() == passes("k.cu", "host", "sm_80", "sm_87")


def test_processors_newer_than_the_compiler(assembled: Project) -> None:
    """`all` leaves out what ptxas knows and no clang can compile, and a warning says so, once."""
    assembled.script("bin/ptxas", PTXAS.replace("'sm_90a'", "'sm_90a','sm_997'"))
    assembled.sconstruct("env['OFFLOAD_ARCH'] = 'all'\n" + OBJECT, HEAD)
    run = assembled.done()
    assert run.compiles == passes("k.cu", "host", "sm_70", "sm_80", "sm_86", "sm_90")
    assert run.errors.count("OFFLOAD_ARCH: 'all' leaves out sm_997, for which clang") == 1
    assembled.sconstruct("env['OFFLOAD_ARCH'] = 'all-major'\n" + OBJECT, HEAD)
    assembled.done()


def test_ptx_of_processors_behind_a_toolkit(assembled: Project) -> None:
    """A processor whose PTX version clang does not use by itself gets it from the pass."""
    if found_toolchain().major < 22:
        pytest.skip("older clang does not know the processor")
    assembled.sconstruct(f"env['OFFLOAD_ARCH'] = 'sm_110'\n{PTX_ONLY}{OBJECT}", HEAD)
    assembled.build()
    assert ".version 9.0" in (assembled.folder / "k.sm_110.ptx").read_text()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sm_80 sm_90a+ptx", ["sm_80", "compute_80", "sm_90a", "compute_90a"]),
        ("80;90a", ["sm_80", "compute_80", "sm_90a", "compute_90a"]),
        ("80-real 90-virtual", ["sm_80", "compute_90"]),
        ("80-real,80-virtual,compute_90", ["sm_80", "compute_80", "compute_90"]),
        ("8.0;9.0+PTX", ["sm_80", "sm_90", "compute_90"]),
        ("all-major", [f"{form}_{n}" for form in ("sm", "compute") for n in (70, 80, 90)]),
        ("all", [f"{form}_{n}" for form in ("sm", "compute") for n in (70, 80, 86, 90)]),
    ],
)
@pytest.mark.parametrize("rdc", [False, True])
def test_images_of_targets(assembled: Project, given: str, expected: list[str], rdc: bool) -> None:
    """OFFLOAD_ARCH says which targets get a cubin, PTX, or both, in the forms of other tools."""
    settings = f"env['OFFLOAD_ARCH'] = {given!r}\nenv['OFFLOAD_RDC'] = {rdc}\n"
    assembled.sconstruct(settings + PROGRAM, HEAD).build()
    found = [image.target_id for image in list_images(assembled.folder / "prog")]
    assert sorted(found) == sorted(expected)
    assert assembled.start()[-2:] == ["end", "unregistered"]
    assembled.assert_up_to_date()


def test_cubin_alone_without_ptxas(kernels: Project) -> None:
    """A target without PTX needs a ptxas."""
    run = kernels.sconstruct(PTX_ONLY + "env['OFFLOAD_ARCH'] = '8.0'\n" + PROGRAM, HEAD).fails()
    assert "OFFLOAD_ARCH has sm_80 without PTX, and there is no ptxas" in run.errors


def test_compressed(assembled: Project) -> None:
    """OFFLOAD_COMPRESS compresses CUDA's images with zstd, at a level; zlib is refused by name."""
    assembled.build()
    plain = (assembled.folder / "k.fatbin").stat().st_size
    assembled.sconstruct("env['OFFLOAD_COMPRESS'] = 'zstd'\n" + PROGRAM, HEAD)
    assert assembled.build() == []
    images = images_of(assembled.read("k.fatbin"))
    assert [image.packed.method for image in images if image.packed] == ["zstd"] * 4
    assert len(assembled.read("k.fatbin")) < plain
    run = assembled.sconstruct("env['OFFLOAD_COMPRESS'] = 'zlib'\n" + PROGRAM, HEAD).fails()
    assert "'zlib' is for bundles; images of CUDA are compressed with 'zstd'" in run.errors


def test_reproducible(kernels: Project) -> None:
    """PTX has the same bytes each time, although clang orders variables by their addresses."""
    names = [f"v{number}" for number in range(8)]
    text = f"{KERNEL}#define __device__ __attribute__((device))\n"
    text += f"static __device__ int {', '.join(names)};\n"
    text += f"static __device__ int* const table[] = {{&{', &'.join(names)}}};\n"
    text += "__attribute__((global)) void other(int** p, int i) { *p = table[i]; }\n"
    kernels.write("k.cu", text)
    kernels.sconstruct(PTX_ONLY + OBJECT, HEAD)
    made = set()
    for _ in range(4):
        kernels.build("k.sm_80.ptx")
        made.add(kernels.read("k.sm_80.ptx"))
        (kernels.folder / "k.sm_80.ptx").unlink()
    assert len(made) == 1


def test_with_and_without_ptxas(assembled: Project) -> None:
    """A ptxas that appears, goes, or is another version assembles; nothing is compiled."""
    assembled.build()
    assert assembled.sconstruct(PTX_ONLY + PROGRAM, HEAD).done().compiles == []
    assert entries(assembled.folder / "k.fatbin") == [("ptx", "compute_80"), ("ptx", "compute_90a")]
    assembled.sconstruct(PROGRAM, HEAD)
    ptxas = assembled.folder / "bin/ptxas"
    ptxas.write_text(PTXAS.replace("version 1", "version 2"))
    run = assembled.run()
    assert run.compiles == []
    assert run.actions[:2] == [f"PTXAS [{target}] k.{target}.cubin" for target in BOTH]
    assembled.assert_up_to_date()


def test_named_ptxas(assembled: Project) -> None:
    """OFFLOAD_PTXAS names another one, whose place is in no signature; its flags are."""
    assembled.build()
    other = shutil.copy(assembled.folder / "bin/ptxas", assembled.folder / "other")
    head = HEAD + f"env['OFFLOAD_PTXAS'] = {shlex.quote(str(other))!r}\n"
    assembled.sconstruct(PROGRAM, head).assert_up_to_date()
    assembled.sconstruct("env['OFFLOAD_PTXAS_FLAGS'] = ['-O1']\n" + PROGRAM, head)
    assert assembled.done().compiles == []
    assert "-O1" in (assembled.folder / "ptxas.log").read_text().splitlines()[-1]
    assembled.assert_up_to_date()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("sys.exit('ptxas fatal: no')", "ptxas fatal: no"),
        ("pathlib.Path(sys.argv[sys.argv.index('-o') + 1]).touch()", "expected a cubin"),
        (
            "import shutil; shutil.copy('k.host.o', sys.argv[sys.argv.index('-o') + 1])",
            "expected a cubin (ELF machine 190), found ELF machine",
        ),
    ],
    ids=["fails", "empty", "host-object"],
)
def test_ptxas_that_fails(assembled: Project, broken: str, message: str) -> None:
    """A ptxas that fails, or writes no cubin, fails the build and leaves no output."""
    break_tool(assembled, "ptxas", broken)
    assembled.build("k.host.o")
    run = assembled.fails("-Q", "k.sm_80.cubin")
    assert "[k.sm_80.cubin]" in run.errors
    assert message in run.errors + run.output
    assert not (assembled.folder / "k.sm_80.cubin").exists()


def test_list_of_processors(kernels: Project) -> None:
    """Each pass is told all processors, as clang 22's driver tells them, without a toolkit, too."""
    if find_toolchain().major < ARCH_LIST_SINCE:
        pytest.skip("this clang defines no list")
    given = "constexpr int given[] = { __CUDA_ARCH_LIST__ };\n"
    check = "static_assert(sizeof given == 8 && given[0] == 800 && given[1] == 900);\n"
    kernels.write("k.cu", KERNEL + given + check)
    kernels.build()


@pytest.mark.parametrize(
    "program",
    [
        "env.OffloadProgram('prog', env.OffloadObject('k.cu') + ['runtime.c', 'main.c'])\n",
        "library = env.OffloadStaticLibrary('gpu', ['k.cu', 'runtime.c'])\n"
        "env.OffloadProgram('prog', ['calls.c'], LIBS=library)\n",
        "library = env.OffloadSharedLibrary('gpu', ['k.cu', 'runtime.c'])\n"
        "env.OffloadProgram('prog', ['main.c', 'k2.cu'], LIBS=library, RPATH=['.'])\n",
        "env.OffloadProgram('prog', ['k.cu', 'k2.cu', 'runtime.c', 'main.c'])\n",
    ],
    ids=["object", "static-library", "shared-library", "two-sources"],
)
def test_forms_of_programs(kernels: Project, program: str) -> None:
    """Kernels in objects, static and shared libraries register when the program starts."""
    kernels.write(
        "calls.c", "int _Z10host_valuev(void);\n" + MAIN.replace("0", "!_Z10host_valuev()")
    )
    kernels.write("k2.cu", KERNEL.replace("host_value", "other").replace("kernel(", "kernel2("))
    kernels.sconstruct(PTX_ONLY + program, HEAD).build()
    lines = kernels.start()
    assert any(line.startswith("_Z") and "kernel" in line for line in lines)
    assert lines.count("end") == sum(line.startswith("registered ") for line in lines) >= 1
    kernels.assert_up_to_date()


def test_cuda_in_other_suffixes(kernels: Project) -> None:
    """OFFLOAD_KIND='cuda' makes a .cpp file a CUDA source."""
    kernels.write("k.cpp", KERNEL)
    kernels.sconstruct(PTX_ONLY + "env.OffloadObject('k.cpp', OFFLOAD_KIND='cuda')\n", HEAD)
    assert kernels.build() == passes("k.cpp", "host", *BOTH)
    assert [i.kind for i in list_images(kernels.folder / "k.o")] == ["cuda", "cuda"]


def test_package_and_registration(kernels: Project) -> None:
    """OffloadPackage holds each PTX; OffloadWrapper registers a fat binary by itself."""
    assert kernels.sconstruct(
        PTX_ONLY + "env.OffloadPackage('k.cu')\n"
        "env.OffloadObject('k.cu')\n"
        "registration = env.OffloadWrapper('r.o', 'k.fatbin', OFFLOAD_KIND='cuda')\n"
        "env.OffloadProgram('prog', [registration, 'runtime.c', 'main.c'])\n",
        HEAD,
    ).build() == passes("k.cu", "host", *BOTH)
    packaged = list_images(kernels.folder / "k.offload")
    assert [(i.kind, i.target_id) for i in packaged] == [("cuda", target) for target in BOTH]
    assert kernels.start() == ["registered compute_80 compute_90", "end", "unregistered"]
    kernels.assert_up_to_date()
