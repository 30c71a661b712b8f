"""What goes wrong: one line that says what to do, no traceback, no output left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scons.conftest import KERNEL, Project, mistakes

BUNDLE = "env.OffloadBundle('k.hip')\n"


def hip(variables: str) -> str:
    return f"env.OffloadBundle('k.hip', {variables})\n"


def cuda(variables: str, arch: str = "sm_80") -> str:
    return f"env.OffloadObject('k.cu', OFFLOAD_ARCH={arch!r}, {variables})\n"


def kpack(variables: str) -> str:
    return f"env.OffloadObject('k.hip', OFFLOAD_KPACK='demo', {variables})\n"


WRONG = {
    # what is compiled, and for what
    "OFFLOAD_ARCH: invalid target ID 'gfx9999': unknown processor 'gfx9999', did you mean "
    "'gfx909'?; invalid target ID 'gfx1100:xnack+': processor 'gfx1100' supports no features, not "
    "'xnack'; invalid target ID 'gfx906:xnack': 'xnack' must be a name and one sign": hip(
        "OFFLOAD_ARCH=['gfx9999', 'gfx1100:xnack+', 'gfx906:xnack']"
    ),
    "conflicting target IDs 'gfx90a' and 'gfx90a:xnack+'": hip(
        "OFFLOAD_ARCH='gfx90a gfx90a:xnack+'"
    ),
    "OFFLOAD_ARCH is empty": hip("OFFLOAD_ARCH=[]"),
    "OFFLOAD_ARCH is empty; set it to target IDs": hip("OFFLOAD_ARCH=None"),
    "OFFLOAD_ARCH: 'all' is for CUDA with a ptxas": hip("OFFLOAD_ARCH='all'"),
    "k.hip': OFFLOAD_ARCH: sm_80 cannot be compiled from HIP": hip("OFFLOAD_ARCH='sm_80'"),
    "OFFLOAD_ARCH_FLAGS: invalid target ID 'gfx90b'": hip("OFFLOAD_ARCH_FLAGS={'gfx90b': '-O1'}"),
    "x86_64-pc-linux-gnu cannot be compiled from HIP": hip("OFFLOAD_ARCH='x86_64-pc-linux-gnu'"),
    "gfx906 cannot be compiled from CUDA sources; gfx90a:xnack+ cannot be": (
        "env.OffloadObject('k.cu')\n"
    ),
    "gfx906 cannot be compiled from CUDA sources": (
        "env.OffloadDeviceArchive('x.a', OFFLOAD_KIND='cuda')\n"
    ),
    "'runtime.c': expected an offload source (.hip, .cu); set OFFLOAD_KIND": (
        "env.OffloadDeviceObject('runtime.c')\n"
    ),
    "'k.h': expected an offload source (.hip, .cu); set OFFLOAD_KIND": "env.OffloadObject('k.h')\n",
    "'k.s' is assembly, which only the host's compiler takes": hip("").replace("k.hip", "k.s"),
    "'k.S' is assembly": "env.OffloadBundle('k.S', OFFLOAD_KIND='hip')\n",
    "unknown processor 'gfx9999'": "env.Program('p', ['k.hip'], OFFLOAD_ARCH='gfx9999')\n",
    "OFFLOAD_KIND: expected one of hip, openmp, cuda, found 'opencl'": hip("OFFLOAD_KIND='opencl'"),
    "'runtime.c' is C, of which no HIP code is made": (
        "env.OffloadObject('runtime.c', OFFLOAD_KIND='hip')\n"
    ),
    "'k.cu': bundles hold HIP and OpenMP code; use OffloadPackage": (
        "env.OffloadBundle('k.cu', OFFLOAD_ARCH='sm_80')\n"
    ),
    "one bundle holds the code objects of one source, but k.hip, other.hip were given": (
        "env.OffloadBundle('b', ['k.hip', 'other.hip'])\n"
    ),
    "'libparts.a' has sources of hip and openmp; make one archive of each": (
        "env.OffloadArchive('parts', ['k.hip', env.File('runtime.c')], OFFLOAD_KIND='',\n"
        "    CCFLAGS=['-fopenmp'], OFFLOAD_ARCH='gfx906')\n"
    ),
    "'k.o' and 'sub/k.o' would both be its member 'k.o'; give one of their sources another": (
        "env.OffloadArchive('a', ['k.hip', 'sub/k.hip'])\n"
    ),
    # sources; test_sources has those of every builder
    "OffloadBundle: '.' is a folder; give the files in it, such as Glob('./*')": (
        "env.OffloadBundle('.')\n"
    ),
    "OffloadProgram: expected names of files, or nodes, as sources, found None": (
        "env.OffloadProgram()\n"
    ),
    "OffloadProgram('p8'): no source was given; write OffloadProgram('p8', ['k.hip', ...])": (
        "env.OffloadProgram('p8')\n"
    ),
    # device code that is given
    "'k.gfx906.co' is a complete device image, which no program is linked of; give the program its "
    "source": "env.OffloadProgram('p', ['runtime.c', env.OffloadDeviceObject('k.hip')])\n",
    "'k.o' has device code for gfx906, not for gfx90a:xnack+": (
        "part = env.OffloadObject('k.hip', OFFLOAD_ARCH='gfx906', OFFLOAD_RDC=True)\n"
        "env.OffloadProgram('p', ['runtime.c', part], OFFLOAD_RDC=True)\n"
    ),
    "device code given (k.gfx906.bc), none is for gfx90a:xnack+": (
        "part = env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906', OFFLOAD_RDC=True)\n"
        "env.OffloadProgram('p', ['runtime.c', part], OFFLOAD_RDC=True)\n"
    ),
    "OFFLOAD_TARGETS gives 0 bundle entry IDs for the 2 files of 'p.offload' that carry none": (
        "env.OffloadPackage('p', ['k.co', 'l.co'])\n"
    ),
    "OFFLOAD_TARGETS gives 0 bundle entry IDs for the 1 files of 'b.hipfb' that carry none": (
        "env.OffloadBundle('b', ['l.co'])\n"
    ),
    "'runtime.c' is compiled for the host; if it has device code, set OFFLOAD_KIND to 'openmp'": (
        "env.OffloadBundle('b', ['runtime.c'])\n"
    ),
    "'k.cpp' is compiled for the host; if it has device code, set OFFLOAD_KIND to 'openmp', 'h": (
        "env.OffloadPackage('p', ['k.co', 'k.cpp'])\n"
    ),
    "OffloadProgram('there'): no source was given": (
        "open('there', 'w').close()\nenv.OffloadProgram('there')\n"
    ),
    "OffloadExtract takes one file, not 2": "env.OffloadExtract('p', ['a.offload', 'b.hipfb'])\n",
    "'p' was built without OFFLOAD_KPACK; set it there to have kpack archives": (
        "env.OffloadKpack(env.OffloadProgram('p', ['k.hip']))\n"
    ),
    "OFFLOAD_REPORT_BEFORE: expected what each source was before, in their order; found 1 for 2": (
        "env.OffloadReport('r.html', ['a.hipfb', 'b.hipfb'], OFFLOAD_REPORT_BEFORE='c.hipfb')\n"
    ),
    "takes part in no link without its host code; give its source": (
        "env.Replace(OFFLOAD_RDC=True, OFFLOAD_ARCH='sm_80', OFFLOAD_PTXAS='none')\n"
        "env.OffloadProgram('p', ['k.cu', env.OffloadDeviceObject('other.cu')])\n"
    ),
    # names of outputs
    "OffloadArchive needs a target name": "env.OffloadArchive('k.hip')\n",
    "OffloadWrapper needs a target name": "env.OffloadWrapper('k.hipfb')\n",
    "OffloadStaticLibrary needs a target name; write OffloadStaticLibrary('name', sources)": (
        "env.OffloadStaticLibrary('l')\n"
    ),
    "one target name ('o') cannot serve 2 sources": (
        "env.OffloadObject('o', ['k.hip', 'other.hip'])\n"
    ),
    "'o.gfx906.co' is made twice, of k.hip and of other.hip; give one of them another name": (
        "env.OffloadDeviceObject('o', 'k.hip')\nenv.OffloadDeviceObject('o', 'other.hip')\n"
    ),
    "'k.host.o' is made twice, of k.hip with different variables; give one of them another name": (
        "env.OffloadHostObject('k.hip')\nenv.OffloadHostObject('k.hip', CCFLAGS='-O1')\n"
    ),
    "'k.hipfb' is made twice, of k.gfx906.co, k.gfx90a_xnack+.co with different variables": (
        "env.OffloadBundle('k.hip')\n" + hip("OFFLOAD_COMPRESS='zstd'")
    ),
    "Multiple ways to build the same target were specified for: p": (
        "for name in ('k', 'other'):\n    env.OffloadProgram('p', [name + '.hip', 'runtime.c'])\n"
    ),
    # variables; test_variables has the types of all
    "unknown construction variable OFFLOAD_ARCHS; did you mean OFFLOAD_ARCH?": hip(
        "OFFLOAD_ARCHS='gfx906'"
    ),
    "unknown construction variable OFFLOAD_ARCHITECTURES; did you mean OFFLOAD_ARCH?": hip(
        "OFFLOAD_ARCHITECTURES='gfx906'"
    ),
    "unknown construction variable OFFLOAD_ARHC": (
        "env.OffloadDeviceObject('k.hip')\nenv['OFFLOAD_ARHC'] = 1\n"
        "env.OffloadDeviceObject('k.hip')  # in whichever call it comes\n"
    ),
    "offload_arch among the variables of a builder means nothing; write OFFLOAD_ARCH": hip(
        "offload_arch='gfx906'"
    ),
    "CMAKE_HIP_ARCHITECTURES among the variables of a builder means nothing; write OFFLOAD_ARCH": (
        hip("CMAKE_HIP_ARCHITECTURES='gfx906'")
    ),
    "NVCCFLAGS among the variables of a builder means nothing; write OFFLOAD_FLAGS": cuda(
        "NVCCFLAGS='-O3'"
    ),
    "OFFLOAD_RDC: expected True or False, found 'maybe'": hip("OFFLOAD_RDC='maybe'"),
    "OFFLOAD_PCH: expected True, or names of headers as they stand between < and >": hip(
        "OFFLOAD_PCH=['<h>']"
    ),
    "OFFLOAD_BUNDLE_TYPE: expected one of i, ii": hip("OFFLOAD_BUNDLE_TYPE='zip'"),
    "ast, o, a, found 'cc'": "env.OffloadUnbundle('x', 'k.hipfb', OFFLOAD_BUNDLE_TYPE='cc')\n",
    "archives are not bundled; use OffloadArchive": hip("OFFLOAD_BUNDLE_TYPE='a'"),
    "COMPRESSED_BUNDLE_FORMAT_VERSION: expected 2 or 3, found '3x'": (
        "env['ENV']['COMPRESSED_BUNDLE_FORMAT_VERSION'] = '3x'\n" + hip("OFFLOAD_COMPRESS='zstd'")
    ),
    "expected object-bundle or offload-binary for HIP sources, found 'ar'": (
        "env.OffloadArchive('x', 'k.hip', OFFLOAD_RDC=True, OFFLOAD_ARCHIVE_FORMAT='ar')\n"
    ),
    "expected offload-binary or fat-binary for CUDA sources, found 'object-bundle'": cuda(
        "OFFLOAD_RDC=True, OFFLOAD_ARCHIVE_FORMAT='object-bundle'"
    ),
    "OFFLOAD_ARCH_FLAGS: expected a dictionary {target ID: flags}": hip(
        "OFFLOAD_ARCH_FLAGS={'gfx906': {}}"
    ),
    "unknown processor 'gfx90z', did you mean 'gfx950'": hip(
        "OFFLOAD_ARCH_FLAGS={'gfx90z': '-O1'}"
    ),
    "OFFLOAD_ARCH_FLAGS has flags for gfx1100, but OFFLOAD_ARCH builds gfx906, gfx90a:xnack+": hip(
        "OFFLOAD_ARCH_FLAGS={'gfx1100': '-O1'}"
    ),
    # kpack archives
    "'k.cu': OFFLOAD_KPACK is for HIP; no runtime of CUDA": cuda("OFFLOAD_KPACK='demo'"),
    "'runtime.c': OFFLOAD_KPACK is for HIP; no runtime of OPENMP": (
        "env.OffloadProgram('p', 'runtime.c', OFFLOAD_KPACK='demo', OFFLOAD_KIND='openmp')\n"
    ),
    "OFFLOAD_KPACK: expected the name of a group, found 'a/b'": (
        "env.OffloadObject('k.hip', OFFLOAD_KPACK='a/b')\n"
    ),
    "to be the first, found '/x/@GFXARCH@.kpack'": kpack(
        "OFFLOAD_KPACK_PATHS='/x/@GFXARCH@.kpack'"
    ),
    "with @GFXARCH@ in it, to be the first, found 'x.kpack'": kpack(
        "OFFLOAD_KPACK_PATHS='x.kpack'"
    ),
    "OFFLOAD_KPACK_COMPRESS: expected 'none' or 'zstd-per-kernel', found 'lzma'": kpack(
        "OFFLOAD_KPACK_COMPRESS='lzma'"
    ),
    "is given two values for its scheme: 'none' and 'zstd-per-kernel'": (
        kpack("OFFLOAD_KPACK_COMPRESS='none'")
        + "env.OffloadObject('other.hip', OFFLOAD_KPACK='demo',\n"
        "    OFFLOAD_KPACK_COMPRESS='zstd-per-kernel')\n"
    ),
    "'k.hip': an object of -flto cannot have its device code apart": kpack("CCFLAGS='-flto'"),
    # flags; tests/run/test_validate_flags has all
    "'-fgpu-rdc' among the flags: relocatable device code is OFFLOAD_RDC=True": hip(
        "CCFLAGS='-fgpu-rdc'"
    ),
    "'--offload-arch=gfx942' among the flags: targets are those of OFFLOAD_ARCH": hip(
        "OFFLOAD_FLAGS='--offload-arch=gfx942'"
    ),
    "'-fgpu-rdc' in LINKFLAGS would link device code twice: OFFLOAD_RDC=True does so": (
        "env.OffloadProgram('k.hip', LINKFLAGS=['-fgpu-rdc', '--hip-link'])\n"
    ),
    "'-fopenmp-targets=x86_64' in LINKFLAGS would link device code twice": (
        "file = File('link.rsp').abspath\nopen(file, 'w').write('-fopenmp-targets=x86_64')\n"
        "env.OffloadProgram('k.hip', LINKFLAGS=[f'@{file}'])\n"
    ),
    "'-fopenmp-targets=x86_64' among the flags: targets are those of OFFLOAD_ARCH": (
        "env.OffloadProgram('k.c', OFFLOAD_ARCH=[], CCFLAGS='-fopenmp -fopenmp-targets=x86_64')\n"
    ),
    # programs
    "chdir does not apply; commands run in the top folder": hip("chdir=True"),
    "call Program before them, or name its object": (
        "env.OffloadProgram('p', ['k.hip', 'runtime.c'])\nenv.Program('tests', ['runtime.c'])\n"
    ),
    "OFFLOAD_PTXAS='/no/ptxas' cannot be run": cuda("OFFLOAD_PTXAS='/no/ptxas'"),
    "OFFLOAD_NVLINK='/no/such/nvlink' cannot be run": (
        "env.OffloadProgram('p', 'k.cu', OFFLOAD_RDC=True, OFFLOAD_ARCH='sm_80',\n"
        "    OFFLOAD_NVLINK='/no/such/nvlink', OFFLOAD_PTXAS='none')\n"
    ),
    "OFFLOAD_NVLINK='/no/such/libnvJitLink.so.12' cannot be run": (
        "env.OffloadProgram('p', 'k.cu', OFFLOAD_RDC=True, OFFLOAD_ARCH='sm_80',\n"
        "    OFFLOAD_NVLINK='/no/such/libnvJitLink.so.12')\n"
    ),
    "OFFLOAD_CUDA_PATH='/no/cuda' is not a folder of a CUDA toolkit": cuda(
        "OFFLOAD_CUDA_PATH='/no/cuda'"
    ),
    "'/no/clang', which is not an executable file": hip("OFFLOAD_CLANG='/no/clang'"),
    "true --version does not name a clang version; set OFFLOAD_CLANG to a clang": hip(
        "OFFLOAD_CLANG='true'"
    ),
    "OFFLOAD_LAUNCHER='ccache \"x' is not a command: No closing quotation; quote it as": hip(
        "OFFLOAD_LAUNCHER='ccache \"x'"
    ),
    "cannot not open file '": hip("CCFLAGS='@.'"),
    "OFFLOAD_DIST brings its own launcher; unset OFFLOAD_LAUNCHER": hip(
        "OFFLOAD_LAUNCHER='ccache', OFFLOAD_DIST='/tmp'"
    ),
    "OffloadProgram needs SCons's linker tool; write Environment(tools=['default', 'off": (
        "bare = Environment(tools=['offload'], toolpath=[PyPackageDir('offload_tool.scons')])\n"
        "bare.OffloadProgram('p', ['k.hip'])\n"
    ),
}
WRONG["'gfx90b', did you mean 'gfx950'"] = "env.OffloadDeviceRuntime('gfx90b')\n"

if not Path("/dev/kfd").exists():  # which a machine with a GPU of AMD's has
    WRONG["'native' stands for the GPUs of this machine, and none was found"] = hip(
        "OFFLOAD_ARCH='native'"
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what each mistake is told as."""
    folder = tmp_path_factory.mktemp("mistakes") / "project"
    return mistakes(folder, {f"{at}": body for at, body in enumerate(WRONG.values())})


@pytest.mark.parametrize("message", WRONG)
def test_wrong_sconscript(told: dict[str, str], message: str) -> None:
    """A mistake is an error when the SConscript is read, in one line."""
    found = told[str([*WRONG].index(message))]
    assert message in found
    assert "\n" not in found


def test_place_of_a_mistake(project: Project) -> None:
    """SCons shows the mistake with the SConscript's line and no traceback, and builds nothing."""
    run = project.sconstruct(hip("OFFLOAD_ARCH='gfx90b gfx906'")).fails("-Q")
    assert run.compiles == []
    _, place = run.errors[run.errors.index("scons: *** ") :].splitlines()[:2]
    assert re.fullmatch(r'File ".*/SConstruct", line \d+, in <module>', place)


def test_variable_that_is_referred_to(project: Project) -> None:
    """A variable of another tool's name that a value refers to means something."""
    project.sconstruct(
        "env.OffloadDeviceObject('k.hip', HIPFLAGS=['-DMORE=1'], OFFLOAD_ARCH='gfx906',\n"
        "    OFFLOAD_FLAGS='$HIPFLAGS -nogpulib -nogpuinc')\n"
    ).build()


@pytest.mark.parametrize(
    "also", ["", "env.Append(CCFLAGS=['$NVCCFLAGS'])\n", "env['NVCC'] = 'n'\n"]
)
def test_flags_of_an_environment(project: Project, also: str) -> None:
    """A warning names another tool's flags that reach no compile."""
    run = project.sconstruct("env['NVCCFLAGS'] = ['-DMORE=1']\n" + also + BUNDLE).run()
    told = "offload: warning: NVCCFLAGS means nothing to this tool; write OFFLOAD_FLAGS"
    assert run.status == 0
    assert run.errors.count(told) == (not also)


def test_compile_error(project: Project) -> None:
    """An error in the source is shown once, in the compiler's words."""
    project.write("k.hip", "this is not C++\n")
    project.sconstruct("env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n")
    assert project.fails("-Q").errors.count("error: expected unqualified-id") == 1
    assert not list(project.folder.glob("*.co"))
    project.build("-c")
    assert not list(project.folder.glob("*.co*"))


FAILING = {
    "an OpenMP source for a CPU": (
        "env.OffloadProgram('p', ['bad.c'], OFFLOAD_ARCH=['x86_64-pc-linux-gnu'],\n"
        "    OFFLOAD_KIND='openmp')\n"
    ),
    "nodes of SCons alone": (
        "env.Command('a', [], 'false')\nenv.Command('b', ['a', 'c'], Touch('b'))\n"
        "env.Command('c', 'd', Touch('c'))\nenv.Command('d', 'e', Touch('d'))\n"
        "env.Command('e', 'a', Touch('e'))\n"
    ),
}


@pytest.mark.parametrize("body", FAILING.values(), ids=FAILING.keys())
def test_no_cycle_where_something_failed(project: Project, body: str) -> None:
    """With -k, a failure is not told as a dependency cycle."""
    project.write("bad.c", "int main(void) {\n#pragma omp target\n  nonsense();\n}\n")
    run = project.sconstruct(body).fails("-k")
    assert "cycle" not in run.errors
    assert len(re.findall(r"^scons: \*\*\*", run.errors, re.MULTILINE)) == 1


def test_cycle_beside_a_failure(project: Project) -> None:
    """With -k, a dependency cycle is told although something else failed."""
    project.sconstruct(
        "env.Command('a', [], 'false')\n"
        "env.Command('b', 'c', Touch('b'))\nenv.Command('c', 'b', Touch('c'))\n"
    )
    assert "Found dependency cycle(s):\n  b -> c -> b" in project.run("-k").errors


def test_symbols_of_the_device_libraries(project: Project) -> None:
    """Where a flag leaves out the libraries that code calls, that flag is named."""
    declared = 'extern "C" __attribute__((device)) unsigned long __ockl_get_local_id(unsigned);\n'
    project.write("k.hip", declared + KERNEL.replace("*p = VALUE", "*p = __ockl_get_local_id(0)"))
    project.sconstruct("env.Replace(OFFLOAD_LAUNCHER='', OFFLOAD_ARCH='gfx906')\n" + BUNDLE)
    run = project.fails("-Q")
    _, _, advice = run.errors.partition("offload: k.hip: device code calls")
    assert advice.startswith(" ROCm's device libraries, which -nogpulib leaves out; remove")


@pytest.mark.parametrize("direct", [True, False])
def test_symbols_of_another_source(project: Project, direct: bool) -> None:
    """A device link that lacks symbols is followed by one line that says what to set."""
    project.write(
        "k.hip",
        "__attribute__((device)) int other(int);\n"
        + KERNEL.replace("*p = VALUE", "*p = other(VALUE)"),
    )
    variables = f"env.Replace(OFFLOAD_LAUNCHER='', OFFLOAD_DIRECT={direct})\n"
    run = project.sconstruct(variables + BUNDLE).fails("-Q")
    assert "undefined" in run.errors
    error, _, advice = run.errors.partition("offload: k.hip: device code calls")
    assert "other(int)" in error
    assert "set OFFLOAD_RDC=True" in advice.splitlines()[0]
    assert not list(project.folder.glob("*.d")), "depfiles of failed passes"
    project.sconstruct("env.Replace(OFFLOAD_LAUNCHER='', OFFLOAD_RDC=True, CCFLAGS='-fgpu-rdc')\n"
                       "env.OffloadDeviceObject('k.hip')\n")  # fmt: skip
    assert project.run("-Q").status == 0
