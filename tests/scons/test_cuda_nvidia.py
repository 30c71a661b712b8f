"""Relocatable CUDA code and a toolkit's headers, with NVIDIA's own programs and runtime.

The toolkit is put together from NVIDIA's wheels (see `tests.conftest.nvidia`). An interposer over
the real libcudart tells what a program registers.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from offload_tool.operations.extract import extract_device_images
from offload_tool.operations.match import Device, match_images
from offload_tool.operations.thin import thin_file
from offload_tool.operations.unarchive_cuda import linked_entries
from tests.conftest import ROOT, missing, program
from tests.scons.relocatable import one, two
from tests.zygote import run_scons

Tool = Callable[[str], Path]
Runner = Callable[[Path], list[list[str]]]
TARGETS = ("sm_80", "sm_90")
HEADER = "#include <cuda_runtime.h>\n"
WITH_HEADERS = {
    name: HEADER + text[text.index("#ifndef FACTOR") :]
    for name, text in (("one", one("cuda")), ("two", two("cuda")))
}
MAIN = "int main() { return 0; }\n"
SCONSTRUCT = f"""\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={TARGETS!r},
    OFFLOAD_RDC=True,
    OFFLOAD_FLAGS=["-Wno-unknown-cuda-version"],
    OFFLOAD_HOST_FLAGS=["-Wno-unknown-cuda-version"],
    LIBS=["cudart"],
)
libraries = env.OffloadCudaToolkit() + "/lib64"
env.Append(LIBPATH=[libraries], RPATH=[libraries])
"""


@pytest.fixture(scope="session")
def toolkit(nvidia: Tool, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    subprocess.run([clang, "-shared", "-fPIC", source, "-o", made], check=True)
    return made


@pytest.fixture
def run(interposer: Path, toolkit: Path, tmp_path: Path) -> Runner:
    """Return a function that starts a program; it gives what is registered, as words."""

    def start(program: Path) -> list[list[str]]:
        log = tmp_path / "registered"
        log.unlink(missing_ok=True)
        environment = os.environ | {
            "LD_PRELOAD": str(interposer),
            "COUNT_REGISTRATIONS": str(log),
            "LD_LIBRARY_PATH": str(toolkit / "lib64"),
        }
        subprocess.run([program], env=environment, check=True, capture_output=True)
        return [line.split() for line in log.read_text().splitlines()]

    return start


@pytest.fixture
def build(toolkit: Path, clang: str) -> Callable[..., str]:
    """Return a function that builds the project in a folder, twice: the second does nothing."""

    def scons(folder: Path, script: str = "") -> str:
        if script:
            (folder / "SConstruct").write_text(SCONSTRUCT + script)
        variables = {"PYTHONPATH": str(ROOT), "CUDA_PATH": str(toolkit), "OFFLOAD_CLANG": clang}
        environment = os.environ | variables
        runs = [run_scons(["-Q"], cwd=folder, env=environment) for _ in range(2)]
        assert runs[0].returncode == 0, runs[0].stdout + runs[0].stderr
        assert "is up to date" in runs[1].stdout, runs[1].stdout
        return runs[0].stdout

    return scons


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in WITH_HEADERS.items():
        (folder / f"{name}.cu").write_text(text)
    (folder / "main.cpp").write_text(MAIN)
    return folder


def symbols(path: Path) -> set[str]:
    with path.open("rb") as content:
        table = ELFFile(content).get_section_by_name(".symtab")
        return {
            str(symbol.name) for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"
        }


def check_images(program: Path, registered: list[list[str]], folder: Path) -> None:
    """Each linked image has all that is registered, under the very names."""
    names = {row[2] for row in registered if row[0] in ("function", "variable")}
    assert names
    images = [
        image.path
        for image in extract_device_images(program, folder)
        if image.path.read_bytes()[:4] == b"\x7fELF" and image.path.read_bytes()[16] == 2
    ]
    assert len(images) == len(TARGETS)
    for path in images:
        assert names <= symbols(path)


def plain(registered: list[list[str]]) -> list[tuple[str, ...]]:
    """Return kernels and variables without numbers of fat binaries and IDs of static ones."""
    return sorted(
        (row[0], re.sub(r"(_ZL7|__nv_static_\w+_)counter\w*", "counter", row[2]), *row[3:])
        for row in registered
        if row[0] in ("function", "variable")
    )


@pytest.mark.parametrize("name", ["cuda_thrust", "cuda_rdc"])
def test_examples(
    name: str, tmp_path: Path, build: Callable[..., str], run: Runner, toolkit: Path
) -> None:
    """The examples with a toolkit's headers build, and register what each image has, once."""
    folder = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, folder)
    built = build(folder)
    assert "skipped" not in built
    program = folder / {"cuda_thrust": "sorted", "cuda_rdc": "app/app"}[name]
    registered = run(program)
    (binary,) = (row for row in registered if row[0] == "binary")
    assert [word for word in binary[2:] if word.startswith("sm_")] == list(TARGETS)
    check_images(program, registered, tmp_path / "images")
    assert registered[-1] == ["end", "0"]
    own = {row[2] for row in registered if row[0] != "end"}
    wanted = {"cuda_thrust": {"_Z8multiplyiPi", "factor"}, "cuda_rdc": {"field", "evaluations"}}
    assert wanted[name] <= own


def test_skipped_without_a_toolkit(tmp_path: Path) -> None:
    """Without a usable toolkit the examples say so in one line, and build nothing."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda.h").touch()  # and no other header
    for name in ("cuda_thrust", "cuda_rdc"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OFFLOAD_CUDA_PATH": str(tmp_path),
        }
        done = run_scons(["-Q"], cwd=tmp_path / name, env=environment, check=True)
        assert f"examples/{name}: skipped, there is no CUDA toolkit" in done.stdout


@pytest.mark.parametrize("archive_format", ["offload-binary", "fat-binary"])
def test_registration_is_that_of_clang_and_nvcc(
    archive_format: str,
    sources: Path,
    build: Callable[..., str],
    run: Runner,
    toolkit: Path,
    clang: str,
) -> None:
    """The program registers what that of the driver's own compiler does, with each source's PTX."""
    script = f"env['OFFLOAD_ARCHIVE_FORMAT'] = '{archive_format}'\n"
    script += "env.OffloadProgram('prog', ['one.cu', 'two.cu', 'main.cpp'])\n"
    build(sources, script)
    registered = run(sources / "prog")
    code = "| compute_80 compute_90 " * 2
    assert " ".join(registered[0]) == f"binary 0 sm_80 sm_90 {code}".strip()
    check_images(sources / "prog", registered, sources / "images")
    if archive_format == "offload-binary":
        own = [f"{clang}++", "--offload-link", f"--cuda-path={toolkit}", "one.o", "two.o", "main.o"]
        own = [clang, "--driver-mode=g++", *own[1:], f"-L{toolkit}/lib64", "-lcudart", "-o", "own"]
        compile_flags = ["-x", "cuda", "-fgpu-rdc", f"--offload-arch={','.join(TARGETS)}"]
        compile_flags += [f"--cuda-path={toolkit}", "-Wno-unknown-cuda-version", "-c"]
        commands = [
            [clang, *compile_flags, f"{name}.cu", "-o", f"{name}.o"] for name in ("one", "two")
        ]
        commands += [[clang, "-c", "main.cpp", "-o", "main.o"], own]
    else:
        commands = [[*nvcc(toolkit, clang), "one.cu", "two.cu", "main.cpp", "-o", "own"]]
    for command in commands:
        invoke(command, sources, toolkit)
    theirs = run(sources / "own")
    assert plain(registered) == plain(theirs)
    assert [row[0] for row in registered].count("end") == 1


def nvcc(toolkit: Path, clang: str) -> list[str]:
    flags = ["-rdc=true", "-cudart", "shared", "-ccbin", clang, "-allow-unsupported-compiler"]
    flags += [f"-gencode=arch=compute_{t[3:]},code=[{t},compute_{t[3:]}]" for t in TARGETS]
    return [str((toolkit / "bin/nvcc").resolve()), *flags, f"-L{toolkit}/lib64", "-lstdc++"]


def invoke(command: list[str], folder: Path, toolkit: Path) -> None:
    environment = os.environ | {"PATH": f"{toolkit}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_libraries_go_both_ways(
    sources: Path, build: Callable[..., str], run: Runner, toolkit: Path, clang: str
) -> None:
    """Nvcc's library is linked by ours, and ours by nvcc: with all that both have."""
    command = nvcc(toolkit, clang)
    invoke([*command, "-c", "two.cu", "-o", "nvtwo.o"], sources, toolkit)
    invoke([*command, "-c", "one.cu", "-o", "nvone.o"], sources, toolkit)
    script = "env.OffloadProgram('ours', ['one.cu', 'main.cpp', 'nvtwo.o'])\n"
    script += "env.OffloadStaticLibrary('two', 'two.cu', OFFLOAD_ARCHIVE_FORMAT='fat-binary')\n"
    build(sources, script)
    ours = run(sources / "ours")
    assert sorted(" ".join(ours[0][2:]).split(" | ")) == [
        "compute_80 compute_90",
        "sm_80 compute_80 sm_90 compute_90",
        "sm_80 sm_90",
    ]
    check_images(sources / "ours", ours, sources / "images")
    invoke([*command, "nvone.o", "main.cpp", "libtwo.a", "-o", "theirs"], sources, toolkit)
    assert plain(run(sources / "theirs")) == plain(ours)


def test_commands(sources: Path, build: Callable[..., str], run: Runner, toolkit: Path) -> None:
    """What the commands make one after the other registers what the program of one build does."""
    environment = os.environ | {"CUDA_PATH": str(toolkit), "PYTHONPATH": str(ROOT)}

    def command(*args: str) -> None:
        tool = [sys.executable, "-m", "offload_tool", *args]
        subprocess.run(tool, cwd=sources, env=environment, check=True)

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
    script = "env.Program('made', ['one.host.o', 'two.host.o', 'all.o', 'main.cpp'])\n"
    script += "env.OffloadProgram('prog', ['one.cu', 'two.cu', 'main.cpp'])\n"
    build(sources, script)
    made, whole = run(sources / "made"), run(sources / "prog")
    assert " ".join(made[0]) == "binary 0 sm_80 sm_90"
    assert plain(made) == plain(whole)
    check_images(sources / "made", made, sources / "images")


STARTS_KERNELS = """\
__global__ void child(int* p) { *p = 1; }
__global__ void parent(int* p) { child<<<1, 1>>>(p); }
"""


def test_kernels_that_start_kernels(
    sources: Path, build: Callable[..., str], run: Runner, toolkit: Path, clang: str
) -> None:
    """The device runtime belongs to every link that needs it, and is registered as by nvcc.

    The objects are nvcc's or clang's, linked by either linker or by NVIDIA's driver.
    """
    (sources / "parent.cu").write_text(STARTS_KERNELS)
    invoke([*nvcc(toolkit, clang), "-c", "parent.cu"], sources, toolkit)
    invoke([*nvcc(toolkit, clang), "parent.o", "main.cpp", "-o", "theirs"], sources, toolkit)
    runtime, library = toolkit / "lib64/libcudadevrt.a", toolkit / "lib64/libnvJitLink.so.13"
    script = "env.OffloadProgram('%s', ['parent.%s', 'main.cpp'%s]%s)\n"
    text = script % ("named", "o", f", {str(runtime)!r}", "")
    text += script % ("object", "o", "", "")
    text += script % ("library", "o", "", f", OFFLOAD_NVLINK={str(library)!r}")
    text += script % ("source", "cu", "", "")
    text += "env['OFFLOAD_PTXAS'] = 'none'\n"
    text += "env.OffloadProgram('later/prog', ['later/parent.cu', 'later/main.cpp'])\n"
    (sources / "later").mkdir()
    for name in ("parent.cu", "main.cpp"):
        shutil.copy(sources / name, sources / "later")
    build(sources, text)
    theirs = plain(run(sources / "theirs"))
    later = run(sources / "later/prog")
    assert plain(later) == theirs
    assert {"compute_90", "sm_90"} <= {*later[0]}  # the source's code, and the runtime's
    for name in ("named", "object", "library", "source"):
        registered = run(sources / name)
        assert plain(registered) == theirs
        check_images(sources / name, registered, sources / "images")


def test_libraries_with_device_links(sources: Path, build: Callable[..., str], run: Runner) -> None:
    """Two of them are in one program, though each link could take NVIDIA's device runtime."""
    for name in ("left", "right"):
        text = f"__global__ void {name}() {{}}\nvoid* use_{name}() {{ return (void*)&{name}; }}\n"
        (sources / f"{name}.cu").write_text(text)
    uses = "void *use_left(), *use_right();\nint main() { return !use_left() + !use_right(); }\n"
    (sources / "uses.cpp").write_text(uses)
    libraries = ("left", "right")
    script = f"for name in {libraries}:\n"
    script += "    env.OffloadStaticLibrary(name, name + '.cu', OFFLOAD_DEVICE_LINK=True)\n"
    script += f"env.Program('uses', 'uses.cpp', LIBS=[*{libraries}, *env['LIBS']], LINK='g++',\n"
    build(sources, script + "            LIBPATH=['.', *env['LIBPATH']])\n")
    found = plain(run(sources / "uses"))
    assert [row[:2] for row in found] == [("function", "_Z4leftv"), ("function", "_Z5rightv")]


def test_linked_image_of_nvcc(sources: Path, run: Runner, toolkit: Path, clang: str) -> None:
    """A device loads the linked image of nvcc's program, also thinned, and no source's code."""
    files = ["one.cu", "two.cu", "main.cpp"]
    invoke([*nvcc(toolkit, clang), *files, "-o", "theirs"], sources, toolkit)
    for device, loads in (("sm_90", ["sm_90"]), ("sm_120", ["compute_90"] * 2)):
        found = match_images(sources / "theirs", Device.parse(device))
        assert [load.id.rpartition("-")[2] for match in found for load in match.loads] == loads
    keep = [Device.parse("sm_90")]
    assert thin_file(sources / "theirs", sources / "thin", keep=keep, keep_ptx=False).kept == 1
    assert plain(run(sources / "thin")) == plain(run(sources / "theirs"))


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


def test_idioms_of_nvcc(sources: Path, build: Callable[..., str], run: Runner) -> None:
    """A kernel of another source, and a static variable that host code uses last, are linked."""
    for name, text in IDIOMS.items():
        (sources / name).write_text(text)
    script = "env.OffloadProgram('prog', ['one.cu', 'two.cu', 'main.cpp'], %s)\n"
    for form in ("offload-binary", "fat-binary"):
        build(sources, script % f"OFFLOAD_ARCHIVE_FORMAT='{form}'")
        registered = run(sources / "prog")
        names = sorted(row[2].partition("__static__")[0] for row in registered[1:-1])
        assert names == ["_Z4herePi", "_Z5therePi", "_ZL7counter"]
        check_images(sources / "prog", registered, sources / f"images {form}")


def test_linker_as_a_library(
    sources: Path, build: Callable[..., str], run: Runner, nvidia: Tool
) -> None:
    """The library libnvJitLink gives what nvlink gives: functions and variables, or an error."""
    script = "env.OffloadProgram('prog', ['one.cu', %s'main.cpp'], OFFLOAD_NVLINK=%r)\n"
    linkers = {"nvlink": nvidia("nvlink"), "library": nvidia("libnvJitLink.so.13")}
    found = {}
    for name, path in linkers.items():
        built = build(sources, script % ("'two.cu', ", str(path)))
        assert "LINK [sm_90] prog.sm_90.cubin" in built
        kept = {name for name in symbols(sources / "prog.sm_90.cubin") if not name.startswith(".")}
        found[name] = {name for name in kept if re.match(r"_Z|shared_by_all", name)}
        check_images(sources / "prog", run(sources / "prog"), sources / name)
    assert found["nvlink"] == found["library"] != set()
    (sources / "SConstruct").write_text(SCONSTRUCT + script % ("", str(linkers["library"])))
    with pytest.raises(AssertionError) as raised:
        build(sources)
    assert "libnvJitLink cannot link 'prog.sm_80.cubin'" in str(raised.value)
    assert "Undefined reference to '_Z6helperi' in 'one.sm_80.rdc.cubin'" in str(raised.value)


def made_of(folder: Path, variables: dict[str, object], *body: str) -> None:
    """Build what an SConstruct declares for sm_80."""
    head = "env = Environment(tools=['default', 'offload'], "
    head += f"toolpath=[PyPackageDir('offload_tool.scons')], **{variables!r})\n"
    (folder / "SConstruct").write_text(head + "".join(body))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run_scons(["-Q", "-k", "sm_80"], cwd=folder, env=environment, check=True)


def test_cubins_are_the_drivers(
    toolkit: Path, nvidia: Tool, llvm: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cubins have the bytes of those that the driver makes with the same flags."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.cu").write_text(
        'extern "C" __attribute__((global)) void k(float *p, int n) {\n'
        "  for (int i = 0; i < n; i++) p[i] = p[i] * 2 + i;\n}\n"
    )
    given = {"1": [], "2": ["-O2"], "3": ["-O3", "-gline-tables-only"]}
    variables = {
        "OFFLOAD_ARCH": ["sm_80"],
        "OFFLOAD_CLANG": llvm("clang"),
        "OFFLOAD_CUDA_PATH": str(toolkit),
        "OFFLOAD_PTXAS": str(nvidia("ptxas")),
        "CCFLAGS": ["-nocudainc", "-nocudalib", "-w"],
    }
    made_of(
        *(tmp_path, variables, f"for name, flags in {given!r}.items():\n"),
        "    env.OffloadObject(f'{name}.o', 'k.cu', OFFLOAD_CUID=name, OFFLOAD_FLAGS=flags)\n",
    )
    for name, flags in given.items():
        args = [llvm("clang"), "-x", "cuda", "--cuda-device-only", "--offload-arch=sm_80"]
        args += [f"--cuda-path={toolkit}", *variables["CCFLAGS"], *flags, f"-cuid={name}"]
        subprocess.run([*args, "-c", "k.cu", "-o", "driver.cubin"], check=True)
        made = next(tmp_path.glob(f"{name}*.cubin"))
        assert made.read_bytes() == Path("driver.cubin").read_bytes(), flags


PROCESSORS = ("80", "86", "87", "89", "90", "90a", "100", "100a", "100f", "103", "120")
WANTED = (*PROCESSORS, "88", "103a", "103f", "110", "120a", "121", "121f")
PTX = """\
.version 8.8
.target sm_{name}
.address_size 64
.visible .global .align 4 .u32 number = {number};
"""


def test_entries_that_a_link_takes(nvidia: Tool, tmp_path: Path) -> None:
    """Of random fat binaries, the entry that is kept for a processor is the one nvlink takes."""
    numbers = {}
    for index, name in enumerate(PROCESSORS):
        for prefix, number in (("sm", index + 1), ("compute", index + 101)):
            ptx = tmp_path / f"{prefix}_{name}.ptx"
            ptx.write_text(PTX.format(name=name, number=number))
            numbers[f"{prefix}_{name}"] = number
        cubin = tmp_path / f"sm_{name}.cubin"
        assemble = [nvidia("ptxas"), "-c", f"-arch=sm_{name}", tmp_path / f"sm_{name}.ptx"]
        subprocess.run([*assemble, "-o", cubin], check=True)
    rng = random.Random(20261122)
    for _ in range(30):
        names = rng.sample(sorted(numbers), rng.randint(1, 5))
        wanted = rng.choice(WANTED)
        taken = linked_entries(names, f"sm_{wanted}")
        assert [numbers[name] for name in taken] == taken_by_nvlink(
            nvidia, tmp_path, names, wanted
        ), (names, wanted)


def taken_by_nvlink(nvidia: Tool, folder: Path, names: list[str], wanted: str) -> list[int]:
    images = [
        f"--image3=kind={'elf' if name.startswith('sm') else 'ptx'},sm={name.partition('_')[2]},"
        f"file={folder / name}.{'cubin' if name.startswith('sm') else 'ptx'}"
        for name in names
    ]
    fatbin, linked = folder / "all.fatbin", folder / "linked.cubin"
    subprocess.run([nvidia("fatbinary"), "-64", f"--create={fatbin}", *images], check=True)
    link = [nvidia("nvlink"), f"-arch=sm_{wanted}", "-w", fatbin, "-o", linked]
    subprocess.run(link, check=True)
    with linked.open("rb") as content:
        elf = ELFFile(content)
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            if symbol.name == "number":
                data = elf.get_section(symbol["st_shndx"]).data()
                return [int.from_bytes(data[symbol["st_value"] :][:4], "little")]
    return []


PCH_SOURCE = """\
// {name}
#include <cuda_runtime.h>
#include <cooperative_groups.h>
__global__ void {name}(float* p) {{
    cooperative_groups::this_grid();
    p[threadIdx.x] = __expf(p[threadIdx.x]) * NUMBER;
}}
void run_{name}(float* p) {{ {name}<<<1, 32>>>(p); }}
"""
PCH_BUILD = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH=["sm_80"],
    OFFLOAD_FLAGS=["-Wno-unknown-cuda-version"],
    OFFLOAD_HOST_FLAGS=["-Wno-unknown-cuda-version"],
    OFFLOAD_PCH=int(ARGUMENTS["pch"]),
    OFFLOAD_SUMMARY=True,
    CCFLAGS=["-O2"],
)
env.OffloadObject(["a.cu", "b.cu", "c.cu"])
"""


def test_precompiled_headers(tmp_path: Path, toolkit: Path, clang: str) -> None:
    """With precompiled headers of a toolkit's, outputs are the same."""
    made, output = [], []
    for pch in ("0", "1"):
        folder = tmp_path / pch / "project"
        folder.mkdir(parents=True)
        (folder / "SConstruct").write_text(PCH_BUILD)
        for name in ("a", "b", "c"):
            (folder / f"{name}.cu").write_text(PCH_SOURCE.format(name=name))
        for number in (1, 2):
            for name in ("a", "b", "c") if number == 1 else ("a",):
                source = folder / f"{name}.cu"
                source.write_text(PCH_SOURCE.format(name=name).replace("NUMBER", f"{number}.0f"))
            variables = {"PYTHONPATH": str(ROOT), "CUDA_PATH": str(toolkit), "OFFLOAD_CLANG": clang}
            done = run_scons([f"pch={pch}"], cwd=folder, env=os.environ | variables, check=True)
            lines = [line for line in done.stdout.splitlines() if "precompiled headers:" in line]
            output += [line.partition("headers: ")[2] for line in lines]
            files = sorted(
                file for file in folder.iterdir() if file.suffix in (".ptx", ".cubin", ".o")
            )
            made.append({file.name: file.read_bytes() for file in files})
    assert made[:2] == made[2:]
    assert len(made[0]) > 6
    assert output == ["6 compiles with, 0 without", "2 compiles with, 0 without"]
