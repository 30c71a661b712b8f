"""What goes wrong: one line that says what to do, no traceback, no output left."""

from __future__ import annotations

import re

import pytest

from tests.scons.conftest import KERNEL, Project, mistakes

BUNDLE = "env.OffloadBundle('k.hip')\n"

WRONG = {
    "unknown-target": (
        "env['OFFLOAD_ARCH'] = 'gfx90b gfx906'\n" + BUNDLE,
        ["gfx90b", "gfx90a"],
    ),
    "every-problem-at-once": (
        "env['OFFLOAD_ARCH'] = ['gfx9999', 'gfx1100:xnack+', 'gfx906:xnack']\n" + BUNDLE,
        ["gfx9999", "gfx1100", "xnack", "gfx906:xnack"],
    ),
    "conflict": (
        "env['OFFLOAD_ARCH'] = 'gfx90a gfx90a:xnack+'\n" + BUNDLE,
        ["gfx90a", "gfx90a:xnack+"],
    ),
    "no-targets": ("env['OFFLOAD_ARCH'] = []\n" + BUNDLE, ["OFFLOAD_ARCH is empty"]),
    "nvidia-target": (
        "env['OFFLOAD_ARCH'] = 'sm_80'\n" + BUNDLE,
        ["sm_80 cannot be compiled from HIP"],
    ),
    "flags-of-unknown-target": (
        "env['OFFLOAD_ARCH_FLAGS'] = {'gfx90z': '-O1'}\n" + BUNDLE,
        ["gfx90z"],
    ),
    "alignment": (
        "env['OFFLOAD_BUNDLE_ALIGN'] = 0\n" + BUNDLE,
        ["OFFLOAD_BUNDLE_ALIGN: expected a positive integer, found 0"],
    ),
    "no-offload-source": (
        "env.OffloadDeviceObject('runtime.c')\n",
        ["'runtime.c': expected an offload source (.hip, .cu)", "set OFFLOAD_KIND"],
    ),
    "unknown-kind": (
        "env.OffloadDeviceObject('runtime.c', OFFLOAD_KIND='opencl')\n",
        ["OFFLOAD_KIND: expected one of hip, openmp, cuda, found 'opencl'"],
    ),
    "bundle-of-cuda": (
        "env.OffloadBundle('k.cu', OFFLOAD_ARCH='sm_80')\n",
        ["'k.cu': bundles hold HIP and OpenMP code; use OffloadPackage"],
    ),
    "amd-target-of-cuda": (
        "env.OffloadObject('k.cu')\n",
        ["gfx906 cannot be compiled from CUDA", "gfx90a:xnack+ cannot be"],
    ),
    "cpu-target-of-hip": (
        "env['OFFLOAD_ARCH'] = 'x86_64-pc-linux-gnu'\n" + BUNDLE,
        ["x86_64-pc-linux-gnu cannot be compiled from HIP"],
    ),
    "archive-without-name": (
        "env.OffloadArchive('k.hip')\n",
        ["OffloadArchive needs a target name"],
    ),
    "image-given-to-a-program": (
        "env.OffloadProgram('p', ['runtime.c', env.OffloadDeviceObject('k.hip')])\n",
        ["'k.gfx906.co' is a complete device image", "give the program its source"],
    ),
    "object-without-a-target": (
        "env['OFFLOAD_RDC'] = True\n"
        "part = env.OffloadObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
        "env.OffloadProgram('p', ['runtime.c', part])\n",
        ["'k.o' has device code for gfx906, not for gfx90a:xnack+"],
    ),
    "bitcode-without-a-target": (
        "env['OFFLOAD_RDC'] = True\n"
        "part = env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
        "env.OffloadProgram('p', ['runtime.c', part])\n",
        ["device code given (k.gfx906.bc), none is for gfx90a:xnack+"],
    ),
    "package-without-ids": (
        "env.OffloadPackage('p', ['runtime.c'])\n",
        ["OFFLOAD_TARGETS gives 0 bundle entry IDs for 1 files", "runtime.c"],
    ),
    "runtime-of-unknown-target": ("env.OffloadDeviceRuntime('gfx90b')\n", ["gfx90b", "gfx90a"]),
    "missing-ptxas": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', OFFLOAD_PTXAS='/no/ptxas')\n",
        ["OFFLOAD_PTXAS='/no/ptxas' cannot be run"],
    ),
    "two-sources": (
        "env.OffloadBundle('b', ['k.hip', 'other.hip'])\n",
        ["one bundle holds the code objects of one source", "k.hip, other.hip"],
    ),
    "files-without-ids": (
        "env.OffloadBundle('b', ['runtime.c'])\n",
        ["OFFLOAD_TARGETS gives 0 bundle entry IDs for the 1 files", "runtime.c"],
    ),
    "missing-compiler": (
        "env['OFFLOAD_CLANG'] = '/no/clang'\n" + BUNDLE,
        ["'/no/clang', which is not an executable file"],
    ),
    "unknown-variable": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCHS='gfx906')\n",
        ["unknown construction variable OFFLOAD_ARCHS", "OFFLOAD_ARCH?"],
    ),
    "flags-of-a-target-that-is-not-built": (
        "env['OFFLOAD_ARCH_FLAGS'] = {'gfx1100': '-O1'}\n" + BUNDLE,
        ["OFFLOAD_ARCH_FLAGS has flags for gfx1100", "builds gfx906, gfx90a:xnack+ only"],
    ),
    "two-sources-of-one-object": (
        "env.OffloadDeviceObject('o', 'k.hip')\nenv.OffloadDeviceObject('o', 'other.hip')\n",
        ["'o.gfx906.co' is made twice, of k.hip and of other.hip", "another name"],
    ),
    "two-sets-of-flags-of-one-object": (
        "env.OffloadHostObject('k.hip')\nenv.OffloadHostObject('k.hip', CCFLAGS='-O1')\n",
        ["'k.host.o' is made twice, of k.hip with different variables", "another name"],
    ),
    "two-bundles-of-one-name": (
        BUNDLE + "env.OffloadBundle('k.hip', OFFLOAD_COMPRESS='zstd')\n",
        ["'k.hipfb' is made twice", "with different variables"],
    ),
    "two-programs-of-one-name": (
        "for name in ('k', 'other'):\n    env.OffloadProgram('p', [name + '.hip', 'runtime.c'])\n",
        ["Multiple ways to build the same target were specified for: p"],
    ),
    "relocatable-code-by-a-flag": (
        "env.Append(CCFLAGS='-fgpu-rdc')\n" + BUNDLE,
        ["'-fgpu-rdc' among the flags: relocatable device code is OFFLOAD_RDC=True"],
    ),
    "target-by-a-flag": (
        "env.Append(OFFLOAD_FLAGS='--offload-arch=gfx942')\n" + BUNDLE,
        ["'--offload-arch=gfx942' among the flags: targets are those of OFFLOAD_ARCH"],
    ),
    "name-of-a-product": (
        "env['OFFLOAD_ARCH'] = 'MI300X'\n" + BUNDLE,
        ["unknown processor 'MI300X', did you mean 'gfx942'?"],
    ),
    "cmakes-numbers": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='80-real;90')\n",
        ["unknown processor '80-real', did you mean 'sm_80'?", "'90', did you mean 'sm_90'?"],
    ),
    "all-of-hip": (
        "env['OFFLOAD_ARCH'] = 'all'\n" + BUNDLE,
        ["OFFLOAD_ARCH: 'all' is for CUDA with a ptxas"],
    ),
    "program-without-sources": (
        "env.OffloadProgram('p8')\n",
        ["OffloadProgram('p8'): no source was given; write OffloadProgram('p8', ['k.hip', ...])"],
    ),
    "members-of-one-name": (
        "env.OffloadArchive('a', ['k.hip', 'sub/k.hip'])\n",
        ["'k.o' and 'sub/k.o' would both be its member 'k.o'; give one of their sources another"],
    ),
    "one-name-for-two": (
        "env.OffloadObject('o', ['k.hip', 'other.hip'])\n",
        ["one target name ('o') cannot serve 2 sources"],
    ),
    "longer-name-of-a-variable": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCHITECTURES='gfx906')\n",
        ["unknown construction variable OFFLOAD_ARCHITECTURES; did you mean OFFLOAD_ARCH?"],
    ),
    "lower-case-variable": (
        "env.OffloadBundle('k.hip', offload_arch='gfx906')\n",
        ["offload_arch among the variables of a builder means nothing; write OFFLOAD_ARCH"],
    ),
    "cmakes-variable": (
        "env.OffloadBundle('k.hip', CMAKE_HIP_ARCHITECTURES='gfx906')\n",
        ["CMAKE_HIP_ARCHITECTURES among the variables", "write OFFLOAD_ARCH"],
    ),
    "flags-of-another-tool": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', NVCCFLAGS='-O3')\n",
        ["NVCCFLAGS among the variables of a builder means nothing; write OFFLOAD_FLAGS"],
    ),
    "no-target-at-all": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCH=None)\n",
        ["OFFLOAD_ARCH is empty"],
    ),
    "target-without-underscore": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm80')\n",
        ["unknown processor 'sm80', did you mean 'sm_80'?"],
    ),
    "nvccs-virtual-target": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='compute_80')\n",
        ["unknown processor 'compute_80', did you mean 'sm_80'?"],
    ),
    "compute-capability": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='8.6')\n",
        ["unknown processor '8.6', did you mean 'sm_86'?"],
    ),
    "feature-without-colon": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCH='gfx90a-xnack+')\n",
        ["unknown processor 'gfx90a-xnack+', did you mean 'gfx90a:xnack+'?"],
    ),
    "bundle-entry-id-for-a-target": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCH='hip-amdgcn-amd-amdhsa--gfx906')\n",
        ["did you mean 'gfx906'?"],
    ),
    "header-as-a-source": (
        "env.OffloadObject('k.h')\n",
        ["'k.h': expected an offload source (.hip, .cu)", "set OFFLOAD_KIND"],
    ),
    "tool-without-a-linker": (
        "bare = Environment(tools=['offload'], toolpath=[PyPackageDir('offload_tool.scons')])\n"
        "bare.OffloadProgram('p', ['k.hip'])\n",
        ["OffloadProgram needs SCons's linker tool; write Environment(tools=['default', 'off"],
    ),
    "quote-in-a-launcher": (
        "env.OffloadBundle('k.hip', OFFLOAD_LAUNCHER='ccache \"x')\n",
        ["OFFLOAD_LAUNCHER=", "is not a command: No closing quotation; quote it as a shell does"],
    ),
    "launcher-beside-a-cluster": (
        "env.OffloadBundle('k.hip', OFFLOAD_LAUNCHER='ccache', OFFLOAD_DIST='/tmp')\n",
        ["OFFLOAD_DIST brings its own launcher; unset OFFLOAD_LAUNCHER"],
    ),
    "missing-toolkit": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', OFFLOAD_CUDA_PATH='/no/cuda')\n",
        ["OFFLOAD_CUDA_PATH='/no/cuda' is not a folder of a CUDA toolkit"],
    ),
    "library-without-a-name": (
        "env.OffloadStaticLibrary('l')\n",
        ["OffloadStaticLibrary needs a target name; write OffloadStaticLibrary('name', sources)"],
    ),
    "other-compiler": (
        "env.OffloadObject('k.hip', OFFLOAD_CLANG='gcc')\n",
        ["gcc --version does not name a clang version; set OFFLOAD_CLANG to a clang"],
    ),
    "kpack-of-a-program-without": (
        "env.OffloadKpack(env.OffloadProgram('p', ['k.hip']))\n",
        ["'p' was built without OFFLOAD_KPACK; set it there to have kpack archives"],
    ),
    "flags-no-dictionary": (
        "env['OFFLOAD_ARCH_FLAGS'] = ['-O1']\n" + BUNDLE,
        ["OFFLOAD_ARCH_FLAGS: expected a dictionary"],
    ),
    "flag-without-its-value": (
        "env['OFFLOAD_FLAGS'] = ['-nogpuinc', '-nogpulib', '-Xclang']\n" + BUNDLE,
        ["'-Xclang' at the end of the flags wants a value"],
    ),
    "compression": (
        "env['OFFLOAD_COMPRESS'] = 'gzip'\n" + BUNDLE,
        ["OFFLOAD_COMPRESS: expected None, 'zstd' or 'zlib', found 'gzip'"],
    ),
    "compression-level": (
        "env['OFFLOAD_COMPRESS_LEVEL'] = 'best'\n" + BUNDLE,
        ["OFFLOAD_COMPRESS_LEVEL: expected an integer, found 'best'"],
    ),
    "target-by-nvccs-flag": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', OFFLOAD_FLAGS='-arch=sm_80')\n",
        ["'-arch=sm_80' among the flags: targets are those of OFFLOAD_ARCH"],
    ),
    "pass-by-a-flag": (
        "env.Append(CCFLAGS='--offload-device-only')\n" + BUNDLE,
        ["'--offload-device-only' among the flags: which pass is run is the builder's choice"],
    ),
    "device-link-by-a-flag": (
        "env.OffloadProgram('k.hip', LINKFLAGS=['-fgpu-rdc', '--hip-link'])\n",
        ["'-fgpu-rdc' in LINKFLAGS would link device code twice: OFFLOAD_RDC=True does so"],
    ),
    "host-flags-of-nvcc": (
        "env.Append(CCFLAGS=['-Xcompiler', '-fPIC'])\n" + BUNDLE,
        [
            "'-Xcompiler' among the flags: is nvcc's: flags of the host compile are OFFLOAD_HOST",
        ],
    ),
    "removed-variable": (
        "env.OffloadBundle('k.hip', OFFLOAD_RESIDENT=True)\n",
        ["OFFLOAD_RESIDENT is gone; leave it out"],
    ),
    "number-for-a-target": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCH=906)\n",
        ["OFFLOAD_ARCH: expected a text, a node, or a list of them, found 906"],
    ),
    "dictionary-of-targets": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCH={'gfx906': '-O3'})\n",
        ["OFFLOAD_ARCH: expected a text, a node, or a list of them, found {'gfx906': '-O3'}"],
    ),
    "upper-case-target": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCH='GFX906')\n",
        ["unknown processor 'GFX906', did you mean 'gfx906'"],
    ),
    "gencode": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', CCFLAGS='-gencode arch=compute_80')\n",
        ["'-gencode' among the flags: targets are those of OFFLOAD_ARCH"],
    ),
    "relocatable-code-of-nvcc": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', CCFLAGS='-rdc=true')\n",
        ["'-rdc=true' among the flags: is nvcc's: relocatable device code is OFFLOAD_RDC=True"],
    ),
    "lambdas-of-nvcc": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', CCFLAGS='--extended-lambda')\n",
        ["'--extended-lambda' among the flags: is nvcc's: clang needs no flag"],
    ),
    "fast-math-of-nvcc": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', CCFLAGS='--use_fast_math')\n",
        ["'--use_fast_math' among the flags: is nvcc's: write -ffast-math"],
    ),
    "registers-of-nvcc": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', OFFLOAD_FLAGS='-maxrregcount=64')\n",
        ["'-maxrregcount=64' among the flags: is nvcc's: flags of ptxas are OFFLOAD_PTXAS_FLAGS"],
    ),
    "host-compiler-of-nvcc": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', OFFLOAD_FLAGS='-ccbin g++')\n",
        ["'-ccbin' among the flags: is nvcc's: clang compiles host code itself"],
    ),
    "lines-of-nvcc": (
        "env.OffloadObject('k.cu', OFFLOAD_ARCH='sm_80', OFFLOAD_FLAGS='-lineinfo')\n",
        ["'-lineinfo' among the flags: is nvcc's: write -gline-tables-only"],
    ),
    "preprocessor-alone": (
        "env.OffloadBundle('k.hip', CCFLAGS='-E')\n",
        ["'-E' among the flags: the compiler would make no object"],
    ),
    "assembly-alone": (
        "env.OffloadBundle('k.hip', OFFLOAD_FLAGS='-S')\n",
        ["'-S' among the flags: the compiler would make no object"],
    ),
    "version-of-the-compiler": (
        "env.OffloadBundle('k.hip', OFFLOAD_FLAGS='--version')\n",
        ["'--version' among the flags: the compiler would make no object"],
    ),
    "output-by-a-flag": (
        "env.OffloadBundle('k.hip', OFFLOAD_FLAGS='-o k.co')\n",
        ["'-o' among the flags: the output has its name already"],
    ),
    "folder-as-a-source": (
        "env.OffloadBundle('.')\n",
        ["'.' is a folder; give the files in it, such as Glob('./*')"],
    ),
    "none-as-a-source": (
        "env.OffloadBundle('b', None)\n",
        ["OffloadBundle of 'b': expected names of files, or nodes, as sources, found None"],
    ),
    "number-as-a-source": (
        "env.OffloadProgram('p', 3)\n",
        ["OffloadProgram of 'p': expected names of files, or nodes, as sources, found 3"],
    ),
    "empty-glob": (
        "env.OffloadProgram('p', Glob('*.hipp'))\n",
        ["OffloadProgram of 'p': no source was given; does a pattern of Glob() match nothing?"],
    ),
    "wrong-boolean": (
        "env.OffloadObject('k.hip', OFFLOAD_RDC='maybe')\n",
        ["OFFLOAD_RDC: expected True or False, found 'maybe'"],
    ),
    "wrong-list-of-headers": (
        "env.OffloadObject('k.hip', OFFLOAD_PCH=5)\n",
        ["OFFLOAD_PCH: expected True, False or a list of headers, found 5"],
    ),
    "number-for-flags-of-a-target": (
        "env.OffloadBundle('k.hip', OFFLOAD_ARCH_FLAGS={'gfx906': {}})\n",
        ["OFFLOAD_ARCH_FLAGS: expected a dictionary {target ID: flags}"],
    ),
    "call-without-arguments": (
        "env.OffloadProgram()\n",
        ["OffloadProgram: expected names of files, or nodes, as sources, found None"],
    ),
    "name-of-the-summary": (
        "env.OffloadBundle('k.hip', OFFLOAD_SUMMARY='x.txt')\n",
        ["OFFLOAD_SUMMARY: expected True, False or the name of a .json file", "'x.txt'"],
    ),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what each mistake is told as."""
    folder = tmp_path_factory.mktemp("mistakes") / "project"
    return mistakes(folder, {name: body for name, (body, _) in WRONG.items()})


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sconscript(told: dict[str, str], name: str) -> None:
    """A mistake is an error when the SConscript is read, in one line."""
    assert "\n" not in told[name]
    assert [part for part in WRONG[name][1] if part not in told[name]] == []


def test_place_of_a_mistake(project: Project) -> None:
    """SCons shows the mistake with the SConscript's line and no traceback, and builds nothing."""
    project.sconstruct(WRONG["unknown-target"][0])
    run = project.fails("-Q")
    assert run.compiles == []
    _, place = run.errors[run.errors.index("scons: *** ") :].splitlines()[:2]
    assert re.fullmatch(r'File ".*/SConstruct", line \d+, in <module>', place)


def test_variable_that_is_referred_to(project: Project) -> None:
    """A variable of another tool's name that a value refers to means something."""
    project.sconstruct(
        "env.OffloadDeviceObject('k.hip', HIPFLAGS=['-DMORE=1'], OFFLOAD_ARCH='gfx906',\n"
        "    OFFLOAD_FLAGS='$HIPFLAGS -nogpulib -nogpuinc')\n"
    )
    project.build()


@pytest.mark.parametrize(
    "also", ["", "env.Append(CCFLAGS=['$NVCCFLAGS'])\n", "env['NVCC'] = 'n'\n"]
)
def test_flags_of_an_environment(project: Project, also: str) -> None:
    """A warning names another tool's flags that reach no compile."""
    project.sconstruct("env['NVCCFLAGS'] = ['-DMORE=1']\n" + also + BUNDLE)
    run = project.run()
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
    project.sconstruct(body)
    run = project.fails("-k")
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


def test_symbols_of_another_source(project: Project) -> None:
    """A device link that lacks symbols is followed by one line that says what to set."""
    project.write(
        "k.hip",
        "__attribute__((device)) int other(int);\n"
        + KERNEL.replace("*p = VALUE", "*p = other(VALUE)"),
    )
    project.sconstruct("env.Replace(OFFLOAD_LAUNCHER='')\n" + BUNDLE)
    run = project.fails("-Q")
    assert "undefined" in run.errors
    error, _, advice = run.errors.partition("offload: k.hip: device code calls")
    assert "other(int)" in error
    assert "set OFFLOAD_RDC=True" in advice.splitlines()[0]
    assert not list(project.folder.glob("*.d")), "depfiles of failed passes"
    project.sconstruct("env.Replace(OFFLOAD_LAUNCHER='', OFFLOAD_RDC=True, CCFLAGS='-fgpu-rdc')\n"
                       "env.OffloadDeviceObject('k.hip')\n")  # fmt: skip
    assert project.run("-Q").status == 0
