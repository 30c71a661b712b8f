"""Relocatable CUDA code and a toolkit's headers, with NVIDIA's own programs and runtime.

The toolkit is put together from NVIDIA's wheels (see `tests.conftest.nvidia`). An interposer over
the real libcudart tells what a program registers.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from offload_tool.operations.extract import extract_device_images
from offload_tool.operations.match import Device, match_images
from offload_tool.operations.thin import thin_file
from offload_tool.operations.unarchive_cuda import linked_entries
from tests.conftest import ROOT, NvidiaFile, missing, program, run_tool
from tests.gpu.loader_sets import PROCESSORS, write_fatbin, write_images
from tests.scons.conftest import Project, contents, empty_project, environment
from tests.scons.relocatable import one, two

TARGETS = ("sm_80", "sm_90")
HEADER = "#include <cuda_runtime.h>\n"
MAIN = "int main() { return 0; }\n"
FLAGS = ["-Wno-unknown-cuda-version"]
HEAD = environment(OFFLOAD_ARCH=TARGETS, OFFLOAD_FLAGS=FLAGS, OFFLOAD_HOST_FLAGS=FLAGS)
LINKING = """\
env.Replace(OFFLOAD_RDC=True, LIBS=["cudart"])
libraries = env.OffloadCudaToolkit() + "/lib64"
env.Append(LIBPATH=[libraries], RPATH=[libraries])
"""
BOTH = "env.OffloadProgram('prog', ['one.cu', 'two.cu', 'main.cpp'])\n"


@pytest.fixture(scope="session")
def toolkit(nvidia: NvidiaFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as that of an installed toolkit, with the wheels' files in it."""
    wheels = nvidia("nvlink").parent.parent
    folder = tmp_path_factory.mktemp("cuda")
    for name in ("bin", "include", "nvvm"):
        (folder / name).symlink_to(wheels / name)
    (folder / "lib64").mkdir()
    for path in (wheels / "lib").iterdir():
        (folder / "lib64" / path.name).symlink_to(path)
    (folder / "lib64/libcudart.so").symlink_to(nvidia("libcudart.so.13"))
    for needed in ("include/curand_mtgp32_kernel.h", "include/cccl/cub", "nvvm/libdevice"):
        if not (folder / needed).exists():
            missing(f"NVIDIA's {needed}")
    return folder


@pytest.fixture(scope="session")
def clang() -> str:
    return program("clang-22")


@pytest.fixture(scope="session")
def interposer(clang: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("interposer") / "count.so"
    source = ROOT / "tests/toolchains/count_cuda_registrations.c"
    run_tool(clang, "-shared", "-fPIC", source, "-o", made)
    return made


@dataclass
class Sources(Project):
    """A project that is built with the toolkit, twice: the second build does nothing."""

    def run_in(self, *command: str) -> None:
        """Run a program that must succeed, with the toolkit's own on PATH."""
        toolkit = self.environment["CUDA_PATH"]
        path = {"PATH": f"{toolkit}/bin:{os.environ['PATH']}"}
        run_tool(*command, cwd=self.folder, env=self.environment | path)

    def nvcc(self, *args: str) -> None:
        """Compile or link with nvcc, for the same targets."""
        toolkit, clang = self.environment["CUDA_PATH"], self.environment["OFFLOAD_CLANG"]
        flags = ["-rdc=true", "-cudart", "shared", "-ccbin", clang, "-allow-unsupported-compiler"]
        flags += [f"-gencode=arch=compute_{t[3:]},code=[{t},compute_{t[3:]}]" for t in TARGETS]
        nvcc = str(Path(toolkit, "bin/nvcc").resolve())
        self.run_in(nvcc, *flags, f"-L{toolkit}/lib64", "-lstdc++", *args)

    def make(self, script: str) -> None:
        """Build what is linked of relocatable code."""
        self.sconstruct(LINKING + script, HEAD).build_once()

    def registered(self, name: str) -> list[list[str]]:
        """Start a program; return what is registered, as words."""
        log = self.folder / "registered"
        log.unlink(missing_ok=True)
        counting = {"LD_PRELOAD": self.environment["INTERPOSER"], "COUNT_REGISTRATIONS": str(log)}
        self.start(name, **counting, LD_LIBRARY_PATH=f"{self.environment['CUDA_PATH']}/lib64")
        return [line.split() for line in log.read_text().splitlines()]

    def checked(self, name: str) -> list[list[str]]:
        """Start a program; each linked image has all that it registers, under the very names."""
        registered = self.registered(name)
        names = {row[2] for row in registered if row[0] in ("function", "variable")}
        assert names
        folder = self.folder / f"images of {name.replace('/', ' ')}"
        shutil.rmtree(folder, ignore_errors=True)
        paths = [image.path for image in extract_device_images(self.folder / name, folder)]
        heads = {path: path.read_bytes()[:17] for path in paths}
        images = [path for path, head in heads.items() if (head[:4], head[16:]) == LOADED]
        assert len(images) == len(TARGETS)
        assert all(names <= symbols(path) for path in images)
        return registered


LOADED = (b"\x7fELF", b"\2")


@pytest.fixture
def sources(project: Project, toolkit: Path, clang: str, interposer: Path) -> Sources:
    """Return a project of two sources that use each other's device code."""
    made = Sources(project.folder, project.environment)
    made.environment |= {"CUDA_PATH": str(toolkit), "OFFLOAD_CLANG": clang}
    made.environment["INTERPOSER"] = str(interposer)
    for name, text in (("one", one("cuda")), ("two", two("cuda"))):
        made.write(f"{name}.cu", HEADER + text[text.index("#ifndef FACTOR") :])
    made.write("main.cpp", MAIN)
    return made


def symbols(path: Path) -> set[str]:
    with path.open("rb") as content:
        table = ELFFile(content).get_section_by_name(".symtab")
        return {
            str(symbol.name) for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"
        }


def plain(registered: list[list[str]]) -> list[tuple[str, ...]]:
    """Return kernels and variables without numbers of fat binaries and IDs of static ones."""
    return sorted(
        (row[0], re.sub(r"(_ZL7|__nv_static_\w+_)counter\w*", "counter", row[2]), *row[3:])
        for row in registered
        if row[0] in ("function", "variable")
    )


@pytest.mark.parametrize(
    ("name", "made", "wanted"),
    [
        ("cuda_thrust", "sorted", {"_Z8multiplyiPi", "factor"}),
        ("cuda_rdc", "app/app", {"field", "evaluations"}),
    ],
)
def test_examples(sources: Sources, name: str, made: str, wanted: set[str]) -> None:
    """The examples with a toolkit's headers build, and register what each image has, once."""
    example = Sources(sources.folder / name, sources.environment)
    shutil.copytree(ROOT / "examples" / name, example.folder)
    assert "skipped" not in example.done("-Q").output
    example.assert_up_to_date()
    registered = example.checked(made)
    (binary,) = (row for row in registered if row[0] == "binary")
    assert [word for word in binary[2:] if word.startswith("sm_")] == list(TARGETS)
    assert registered[-1] == ["end", "0"]
    assert wanted <= {row[2] for row in registered if row[0] != "end"}


def test_skipped_without_a_toolkit(tmp_path: Path) -> None:
    """Without a usable toolkit the examples say so in one line, and build nothing."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda.h").touch()  # and no other header
    variables = {"PYTHONPATH": str(ROOT), "OFFLOAD_CUDA_PATH": str(tmp_path)}
    for name in ("cuda_thrust", "cuda_rdc"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
        example = Project(tmp_path / name, {"PATH": os.environ["PATH"], **variables})
        skipped = f"examples/{name}: skipped, there is no CUDA toolkit"
        assert skipped in example.done("-Q").output


@pytest.mark.parametrize("archive_format", ["offload-binary", "fat-binary"])
def test_registration_is_that_of_clang_and_nvcc(sources: Sources, archive_format: str) -> None:
    """The program registers what that of the driver's own compiler does, with each source's PTX."""
    sources.make(f"env['OFFLOAD_ARCHIVE_FORMAT'] = '{archive_format}'\n{BOTH}")
    registered = sources.checked("prog")
    code = "| compute_80 compute_90 " * 2
    assert " ".join(registered[0]) == f"binary 0 sm_80 sm_90 {code}".strip()
    toolkit, clang = sources.environment["CUDA_PATH"], sources.environment["OFFLOAD_CLANG"]
    if archive_format == "offload-binary":
        flags = ["-x", "cuda", "-fgpu-rdc", f"--offload-arch={','.join(TARGETS)}", "-c"]
        flags += [f"--cuda-path={toolkit}", "-Wno-unknown-cuda-version"]
        for name in ("one", "two"):
            sources.run_in(clang, *flags, f"{name}.cu", "-o", f"{name}.o")
        sources.run_in(clang, "-c", "main.cpp", "-o", "main.o")
        link = ["--driver-mode=g++", "--offload-link", f"--cuda-path={toolkit}", "-o", "own"]
        link += ["one.o", "two.o", "main.o", f"-L{toolkit}/lib64", "-lcudart"]
        sources.run_in(clang, *link)
    else:
        sources.nvcc("one.cu", "two.cu", "main.cpp", "-o", "own")
    assert plain(registered) == plain(sources.registered("own"))
    assert [row[0] for row in registered].count("end") == 1


def test_libraries_go_both_ways(sources: Sources) -> None:
    """Nvcc's library is linked by ours, and ours by nvcc: with all that both have."""
    sources.nvcc("-c", "two.cu", "-o", "nvtwo.o")
    sources.nvcc("-c", "one.cu", "-o", "nvone.o")
    sources.make(
        "env.OffloadProgram('ours', ['one.cu', 'main.cpp', 'nvtwo.o'])\n"
        "env.OffloadStaticLibrary('two', 'two.cu', OFFLOAD_ARCHIVE_FORMAT='fat-binary')\n"
    )
    ours = sources.checked("ours")
    assert sorted(" ".join(ours[0][2:]).split(" | ")) == [
        "compute_80 compute_90",
        "sm_80 compute_80 sm_90 compute_90",
        "sm_80 sm_90",
    ]
    sources.nvcc("nvone.o", "main.cpp", "libtwo.a", "-o", "theirs")
    assert plain(sources.registered("theirs")) == plain(ours)


def test_commands(sources: Sources) -> None:
    """What the commands make one after the other registers what the program of one build does."""

    def command(*args: str) -> None:
        sources.run_in(sys.executable, "-m", "offload_tool", *args)

    flags = ["--rdc", "--", "-Wno-unknown-cuda-version"]
    for name in ("one", "two"):
        command("compile", f"{name}.cu", "--host", "-o", f"{name}.host.o", *flags)
        for target in TARGETS:
            ptx = f"{name}.{target}.ptx"
            command("compile", f"{name}.cu", "--target-id", target, "-o", ptx, *flags)
    for target in TARGETS:
        inputs = [f"{name}.{target}.ptx" for name in ("one", "two")]
        command("compile", "--link", *inputs, "--target-id", target, "-o", f"all.{target}.cubin")
    images = [f"all.{target}.cubin" for target in TARGETS]
    hosts = ["--host-object", "one.host.o", "--host-object", "two.host.o"]
    names = [word for target in TARGETS for word in ("--target-id", target)]
    command("embed", *images, *names, "-o", "all.o", *hosts)
    objects = "['one.host.o', 'two.host.o', 'all.o', 'main.cpp']"
    sources.make(f"env.Program('made', {objects})\n{BOTH}")
    made = sources.checked("made")
    assert " ".join(made[0]) == "binary 0 sm_80 sm_90"
    assert plain(made) == plain(sources.registered("prog"))


STARTS_KERNELS = """\
__global__ void child(int* p) { *p = 1; }
__global__ void parent(int* p) { child<<<1, 1>>>(p); }
"""


def test_kernels_that_start_kernels(sources: Sources) -> None:
    """The device runtime belongs to every link that needs it, and is registered as by nvcc.

    The objects are nvcc's or clang's, linked by either linker or by NVIDIA's driver.
    """
    for folder in ("", "later/"):
        sources.write(f"{folder}parent.cu", STARTS_KERNELS)
    sources.write("later/main.cpp", MAIN)
    sources.nvcc("-c", "parent.cu")
    sources.nvcc("parent.o", "main.cpp", "-o", "theirs")
    libraries = Path(sources.environment["CUDA_PATH"], "lib64")
    runtime, library = libraries / "libcudadevrt.a", libraries / "libnvJitLink.so.13"
    script = "env.OffloadProgram('%s', ['parent.%s', 'main.cpp'%s]%s)\n"
    text = script % ("named", "o", f", {str(runtime)!r}", "")
    text += script % ("object", "o", "", "")
    text += script % ("library", "o", "", f", OFFLOAD_NVLINK={str(library)!r}")
    text += script % ("source", "cu", "", "")
    text += "env['OFFLOAD_PTXAS'] = 'none'\n"
    sources.make(f"{text}env.OffloadProgram('later/prog', ['later/parent.cu', 'later/main.cpp'])\n")
    theirs = plain(sources.registered("theirs"))
    later = sources.registered("later/prog")
    assert plain(later) == theirs
    assert {"compute_90", "sm_90"} <= {*later[0]}  # the source's code, and the runtime's
    for name in ("named", "object", "library", "source"):
        assert plain(sources.checked(name)) == theirs


def test_libraries_with_device_links(sources: Sources) -> None:
    """Two of them are in one program, though each link could take NVIDIA's device runtime."""
    libraries = ("left", "right")
    for name in libraries:
        text = f"__global__ void {name}() {{}}\nvoid* use_{name}() {{ return (void*)&{name}; }}\n"
        sources.write(f"{name}.cu", text)
    uses = "void *use_left(), *use_right();\nint main() { return !use_left() + !use_right(); }\n"
    sources.write("uses.cpp", uses)
    sources.make(
        f"for name in {libraries}:\n"
        "    env.OffloadStaticLibrary(name, name + '.cu', OFFLOAD_DEVICE_LINK=True)\n"
        f"env.Program('uses', 'uses.cpp', LIBS=[*{libraries}, *env['LIBS']], LINK='g++',\n"
        "            LIBPATH=['.', *env['LIBPATH']])\n"
    )
    found = plain(sources.registered("uses"))
    assert [row[:2] for row in found] == [("function", "_Z4leftv"), ("function", "_Z5rightv")]


def test_linked_image_of_nvcc(sources: Sources) -> None:
    """A device loads the linked image of nvcc's program, also thinned, and no source's code."""
    sources.nvcc("one.cu", "two.cu", "main.cpp", "-o", "theirs")
    theirs, thin = sources.folder / "theirs", sources.folder / "thin"
    for device, loads in (("sm_90", ["sm_90"]), ("sm_120", ["compute_90"] * 2)):
        found = match_images(theirs, Device.parse(device))
        assert [load.id.rpartition("-")[2] for match in found for load in match.loads] == loads
    assert thin_file(theirs, thin, keep=[Device.parse("sm_90")], keep_ptx=False).kept == 1
    assert plain(sources.registered("thin")) == plain(sources.registered("theirs"))


IDIOMS = {
    "one.cu": """\
#include <cuda_runtime.h>
static __device__ int counter;
static __device__ int *const table[] = {&counter, &counter + 1};
__global__ void here(int *p) { *p = counter + *table[*p]; }
__global__ void there(int *);
void set(int *p) { cudaMemcpyToSymbol(counter, p, 4); here<<<1, 1>>>(p); there<<<1, 1>>>(p); }
""",
    "two.cu": "__global__ void there(int *p) { *p = 1; }\n",
    "main.cpp": "void set(int *);\nint main(int count, char **) { if (count > 1) set(0); }\n",
}


@pytest.mark.parametrize("archive_format", ["offload-binary", "fat-binary"])
def test_idioms_of_nvcc(sources: Sources, archive_format: str) -> None:
    """A kernel of another source, and a static variable that host code uses last, are linked."""
    for name, text in IDIOMS.items():
        sources.write(name, text)
    sources.make(f"env['OFFLOAD_ARCHIVE_FORMAT'] = '{archive_format}'\n{BOTH}")
    names = sorted(row[2].partition("__static__")[0] for row in sources.checked("prog")[1:-1])
    assert names == ["_Z4herePi", "_Z5therePi", "_ZL7counter"]


def test_linker_as_a_library(sources: Sources, nvidia: NvidiaFile) -> None:
    """The library libnvJitLink gives what nvlink gives: functions and variables, or an error."""
    script = "env.OffloadProgram('prog', ['one.cu', %s'main.cpp'], OFFLOAD_NVLINK=%r)\n"
    library, found = str(nvidia("libnvJitLink.so.13")), []
    for linker in (str(nvidia("nvlink")), library):
        sources.sconstruct(LINKING + script % ("'two.cu', ", linker), HEAD)
        assert "LINK [sm_90] prog.sm_90.cubin" in sources.done("-Q").actions
        kept = symbols(sources.folder / "prog.sm_90.cubin")
        found.append({name for name in kept if re.match(r"_Z|shared_by_all", name)})
        sources.checked("prog")
    assert found[0] == found[1] != set()
    errors = sources.sconstruct(LINKING + script % ("", library), HEAD).fails().errors
    assert "libnvJitLink cannot link 'prog.sm_80.cubin'" in errors
    assert "Undefined reference to '_Z6helperi' in 'one.sm_80.rdc.cubin'" in errors


def test_cubins_are_the_drivers(sources: Sources) -> None:
    """Cubins have the bytes of those that the driver makes with the same flags."""
    sources.write(
        "k.cu",
        'extern "C" __attribute__((global)) void k(float *p, int n) {\n'
        "  for (int i = 0; i < n; i++) p[i] = p[i] * 2 + i;\n}\n",
    )
    sources.environment["OFFLOAD_CUDA_PATH"] = sources.environment["CUDA_PATH"]
    given = {"1": [], "2": ["-O2"], "3": ["-O3", "-gline-tables-only"]}
    flags = ["-nocudainc", "-nocudalib", "-w"]
    sources.sconstruct(
        f"env.Replace(OFFLOAD_ARCH='sm_80', CCFLAGS={flags}, OFFLOAD_HOST_FLAGS=[])\n"
        f"for name, flags in {given!r}.items():\n"
        "    env.OffloadObject(f'{name}.o', 'k.cu', OFFLOAD_CUID=name, OFFLOAD_FLAGS=flags)\n",
        HEAD,
    ).build("sm_80")
    common = ["-x", "cuda", "--cuda-device-only", "--offload-arch=sm_80", *flags]
    common += [f"--cuda-path={sources.environment['CUDA_PATH']}", "-c", "k.cu"]
    for name, more in given.items():
        clang = sources.environment["OFFLOAD_CLANG"]
        sources.run_in(clang, *common, *more, f"-cuid={name}", "-o", "driver")
        (made,) = sources.folder.glob(f"{name}*.cubin")
        assert made.read_bytes() == sources.read("driver"), more


def test_entries_that_a_link_takes(nvidia: NvidiaFile, tmp_path: Path) -> None:
    """Of random fat binaries, the entry that is kept for a processor is the one nvlink takes."""
    images = write_images(nvidia, tmp_path, "-c")
    rng = random.Random(20261122)
    for _ in range(60):
        names, wanted = rng.sample(sorted(images), rng.randint(1, 5)), rng.choice(PROCESSORS)
        taken = linked_entries(names, f"sm_{wanted}")
        write_fatbin(nvidia, tmp_path / "all.fatbin", images, names)
        found = taken_by_nvlink(nvidia, tmp_path, wanted)
        assert [images[name][1] for name in taken] == found, (names, wanted)


def taken_by_nvlink(nvidia: NvidiaFile, folder: Path, wanted: str) -> list[int]:
    linked = folder / "linked.cubin"
    run_tool(nvidia("nvlink"), f"-arch=sm_{wanted}", "-w", folder / "all.fatbin", "-o", linked)
    with linked.open("rb") as content:
        elf = ELFFile(content)
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            if symbol.name == "number":
                data = elf.get_section(symbol["st_shndx"]).data()
                return [int.from_bytes(data[symbol["st_value"] :][:4], "little")]
    return []


PCH_SOURCE = """\
// {0}
#include <cuda_runtime.h>
#include <cooperative_groups.h>
__global__ void {0}(float* p) {{
    cooperative_groups::this_grid();
    p[threadIdx.x] = __expf(p[threadIdx.x]) * NUMBER;
}}
void run_{0}(float* p) {{ {0}<<<1, 32>>>(p); }}
"""
PCH_BUILD = """\
env.Replace(OFFLOAD_ARCH="sm_80", OFFLOAD_PCH={}, OFFLOAD_SUMMARY=True, CCFLAGS="-O2")
env.OffloadObject(["a.cu", "b.cu", "c.cu"])
"""


def test_precompiled_headers(sources: Sources, tmp_path: Path) -> None:
    """With precompiled headers of a toolkit's, outputs are the same."""
    made: dict[bool, list[object]] = {True: [], False: []}
    told = []
    for pch, found in made.items():
        project = empty_project(tmp_path / str(pch) / "project")
        project.environment |= sources.environment
        project.sconstruct(PCH_BUILD.format(pch), HEAD)
        for number, names in ((1, "abc"), (2, "a")):
            for name in names:
                text = PCH_SOURCE.format(name).replace("NUMBER", f"{number}.0f")
                project.write(f"{name}.cu", text)
            lines = project.done("-Q").output.splitlines()
            told += [line.split("headers: ")[1] for line in lines if "precompiled h" in line]
            outputs = [file.name for file in project.folder.glob("[abc].*[!d]")]
            found.append(contents(project.folder, sorted(outputs)))
            assert len(outputs) > 6
    assert made[True] == made[False]
    assert told == ["6 compiles with, 0 without", "2 compiles with, 0 without"]
