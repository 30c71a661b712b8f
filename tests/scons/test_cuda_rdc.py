"""Relocatable CUDA code: one device link per target ID, all sources registered together.

No part of NVIDIA's toolkit is needed: stand-ins take the place of its programs.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from offload_tool.operations.check import Rule, check_libraries
from offload_tool.operations.list_images import list_images
from offload_tool.operations.match import Device, match_images
from offload_tool.operations.thin import thin_file
from tests.conftest import program
from tests.formats.cuda_images import images_of
from tests.scons.conftest import Project, passes
from tests.scons.nvidia import BOTH, HEAD, RUNTIME, break_tool, write_tools
from tests.scons.relocatable import RELOCATABLE, declarations, loaded, one, two

SOURCES = "['one.cu', 'two.cu', 'runtime.c', 'main.c']"
PROGRAM = f"env.OffloadProgram('prog', {SOURCES})\n"
FORMATS = ("offload-binary", "fat-binary")
SOURCE_CODE = "| compute_80 compute_90"


@pytest.fixture
def sources(project: Project) -> Project:
    """Return a project with two sources that use each other's device code."""
    project.write("one.cu", one("cuda"))
    project.write("two.cu", two("cuda"))
    project.write("runtime.c", RUNTIME)
    project.write("main.c", "int main(void) { return 0; }\n")
    write_tools(project)
    project.sconstruct(RELOCATABLE + PROGRAM, HEAD)
    return project


def entries(path: Path) -> list[str]:
    return [image.processor for image in images_of(path.read_bytes())]


def check_registration(lines: list[str], sources: int) -> None:
    """One fat binary with all sources' code, all kernels and variables once, then the end."""
    assert lines[0] == " ".join(["registered sm_80 sm_90", *[SOURCE_CODE] * sources])
    names = [re.sub(r"counter__static__\w+", "counter", name) for name in lines[1:-2]]
    assert sorted(names) == ["_Z5firstPi", "_Z6secondPi", "_ZL7counter", "shared_by_all"]
    assert lines[-2:] == ["end", "unregistered"]


def test_one_image_of_all_sources(sources: Project) -> None:
    """Each target's image is linked of all sources; the program registers one fat binary, once."""
    assert sources.done().compiles == [
        *passes("one.cu", "host", *BOTH),
        *passes("two.cu", "host", *BOTH),
    ]
    sources.assert_up_to_date()
    check_registration(sources.start(), sources=2)
    listed = [image.target_id for image in list_images(sources.folder / "prog")]
    assert sorted(listed) == sorted([*BOTH, *["compute_80", "compute_90a"] * 2])
    assert entries(sources.folder / "prog.fatbin") == list(BOTH)
    assert entries(sources.folder / "one.rdc.fatbin") == ["compute_80", "compute_90a"]
    log = (sources.folder / "nvlink.log").read_text().splitlines()
    assert sorted(re.sub(r"/tmp/\S*/", "", line) for line in log) == [
        f"-arch={target} -m64 one.{target}.rdc.cubin two.{target}.rdc.cubin -o linked.cubin"
        for target in BOTH
    ]
    assert all(
        "--compile-only" in line for line in (sources.folder / "ptxas.log").read_text().splitlines()
    )


def test_thinned(sources: Project) -> None:
    """A program that lost whole pages of its sources' code starts, and registers what stays.

    A device that has a linked image needs none of the sources' PTX; another one needs all.
    """
    table = ",".join(map(str, range(3000)))
    for name, text in (("one.cu", one("cuda")), ("two.cu", two("cuda"))):
        sources.write(name, f"{text}__device__ int of_{name[:3]}[] = {{{table}}};\n")
    sources.build()
    program, thinned = sources.folder / "prog", sources.folder / "thinned"
    device = Device.parse("sm_80")
    assert [load.id[-5:] for match in match_images(program, device) for load in match.loads] == [
        "sm_80"
    ]
    report = thin_file(program, thinned, keep=[device], keep_ptx=False)
    assert (report.kept, report.removed) == (1, 5)
    assert report.size_before - report.size_after > 2 * 4096
    assert sources.start("thinned")[0] == "registered sm_80 | |"
    assert not list(check_libraries([thinned], [Rule(targets=(device,))]))
    thin_file(program, thinned, keep=[Device.parse("sm_86"), Device.parse("sm_100")])
    assert sources.start("thinned")[0] == f"registered sm_80 {SOURCE_CODE} {SOURCE_CODE}"


@pytest.mark.parametrize(
    ("clang", "archive_format"),
    [("clang-19", ""), ("clang-22", "fat-binary"), ("clang-19", "offload-binary")],
)
def test_every_compiler_and_driver(sources: Project, clang: str, archive_format: str) -> None:
    """Host code of either driver registers the same, a static variable as device code calls it."""
    given = f"env['OFFLOAD_CLANG'] = '{program(clang)}'\n"
    given += f"env['OFFLOAD_ARCHIVE_FORMAT'] = '{archive_format}'\n"
    sources.sconstruct(RELOCATABLE + given + PROGRAM, HEAD).build()
    lines = sources.start()
    check_registration(lines, sources=2)
    (name,) = (line for line in lines if "counter" in line)
    for target in BOTH:
        assert f"{name};" in (sources.folder / f"two.{target}.rdc.ptx").read_text()


def test_old_driver_of_every_compiler(sources: Project) -> None:
    """It registers the same; where (clang 23) it tells no source from another, it is refused."""
    run = sources.sconstruct(
        RELOCATABLE + "env['OFFLOAD_ARCHIVE_FORMAT'] = 'fat-binary'\n" + PROGRAM, HEAD
    ).run("-Q")
    if run.status:
        assert "old offload driver (clang 23) cannot distinguish" in run.errors
        assert "Traceback" not in run.errors
        assert not (sources.folder / "prog").exists()
    else:
        check_registration(sources.start(), sources=2)


def test_ptx_alone(sources: Project) -> None:
    """Without ptxas nothing is linked: the driver gets the PTX of each source to link."""
    sources.sconstruct("env['OFFLOAD_PTXAS'] = 'none'\n" + RELOCATABLE + PROGRAM, HEAD)
    assert not [line for line in sources.done().actions if line.startswith(("PTXAS", "LINK"))]
    assert entries(sources.folder / "prog.fatbin") == []
    assert sources.start()[0] == f"registered {SOURCE_CODE} {SOURCE_CODE}"
    sources.assert_up_to_date()


def test_no_device_runtime(sources: Project) -> None:
    """A kernel that starts kernels fails the build without NVIDIA's device runtime, by name."""
    call = "__cudaCDP2LaunchDevice"
    use = f"__global__ void parent(int* p) {{ *p = {call}(); }}\n"
    sources.write("one.cu", one("cuda") + f'extern "C" __device__ int {call}();\n{use}')
    run = sources.sconstruct(
        "env['OFFLOAD_PTXAS'] = 'none'\n" + RELOCATABLE + PROGRAM, HEAD
    ).fails()
    assert "kernels that start kernels need libcudadevrt.a, which is not there; name" in run.errors


def test_ptx_is_to_be_linked(sources: Project) -> None:
    """The driver is told to compile the PTX of a source for its own link."""
    sources.build()
    assert b"--compile-only  \0" in sources.read("one.rdc.fatbin")
    sources.sconstruct("env.OffloadProgram('prog', ['k.cu', 'runtime.c', 'main.c'])\n", HEAD)
    sources.write("k.cu", declarations("cuda") + "__global__ void kernel(int* p) { *p = 1; }\n")
    sources.build("k.fatbin")
    assert b"--compile-only" not in sources.read("k.fatbin")


def test_flags_of_the_link(sources: Project) -> None:
    """OFFLOAD_LINK_FLAGS reach the device links; nothing is compiled for them."""
    sources.build()
    sources.sconstruct(RELOCATABLE + "env['OFFLOAD_LINK_FLAGS'] = ['-extrawarn']\n" + PROGRAM, HEAD)
    run = sources.run()
    assert run.compiles == []
    assert run.actions[:2] == [f"LINK [{target}] prog.{target}.cubin" for target in BOTH]
    assert "-extrawarn" in (sources.folder / "nvlink.log").read_text()
    sources.assert_up_to_date()


def test_another_device_linker(sources: Project) -> None:
    """Another version of the linker links again; its place means nothing."""
    sources.build()
    tool = sources.folder / "bin/nvlink"
    other = shutil.copy(tool, sources.folder / "elsewhere")
    sources.sconstruct(f"env['OFFLOAD_NVLINK'] = {str(other)!r}\n" + RELOCATABLE + PROGRAM, HEAD)
    sources.assert_up_to_date()
    tool.write_text(tool.read_text().replace("version 1", "version 2"))
    run = sources.sconstruct(RELOCATABLE + PROGRAM, HEAD).run()
    assert run.compiles == []
    assert [line for line in run.actions if line.startswith("LINK")] == [
        f"LINK [{target}] prog.{target}.cubin" for target in BOTH
    ]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            "sys.exit('nvlink error   : Undefined reference')",
            "nvlink error   : Undefined reference",
        ),
        ("", "nvlink cannot link 'prog.sm_80.cubin'"),
        ("pathlib.Path(sys.argv[-1]).touch()", "expected a cubin"),
        (
            "pathlib.Path(sys.argv[-1]).write_bytes(elf(1, 'sm_80'))",
            "expected a cubin that is one to be loaded, found one to be linked",
        ),
    ],
    ids=["fails", "writes-nothing", "empty", "not-linked"],
)
def test_device_linker_that_fails(sources: Project, broken: str, message: str) -> None:
    """A linker that fails, or writes no image, fails the build and leaves no output."""
    sources.build()
    (sources.folder / "prog.sm_80.cubin").unlink()
    break_tool(sources, "nvlink", broken)
    run = sources.fails("-Q", "prog.sm_80.cubin")
    assert "[prog.sm_80.cubin]" in run.errors
    assert message in run.errors
    assert not (sources.folder / "prog.sm_80.cubin").exists()


@pytest.mark.parametrize("archive_format", FORMATS)
def test_libraries_of_the_build(sources: Project, archive_format: str) -> None:
    """Libraries and objects take part in both links, with all that a source has."""
    # The host linker takes a member that something asks for.
    use = "_Z18address_of_counterv()"
    sources.write("main.c", f"void *{use};\nint main() {{ return !{use}; }}\n")
    program = "env.OffloadProgram('%s', ['one.cu', 'runtime.c', 'main.c', %s])\n"
    sources.sconstruct(
        RELOCATABLE
        + f"env['OFFLOAD_ARCHIVE_FORMAT'] = '{archive_format}'\n"
        + program % ("library", "env.OffloadStaticLibrary('code', ['two.cu'])")
        + program % ("archive", "env.OffloadArchive('more', ['two.cu'])")
        + program % ("object", "env.OffloadObject('two.cu')"),
        HEAD,
    ).build_once()
    for name in ("library", "archive", "object"):
        lines = sources.start(name)
        if archive_format == "offload-binary":
            check_registration(lines, sources=2)
            continue
        linked, *code = lines[0].split(" | ")
        assert linked == "registered sm_80 sm_90"
        whole = "sm_80 compute_80 sm_90 compute_90"  # what it brings for the links of others
        assert sorted(code) == ["compute_80 compute_90", whole]
        assert "_Z6secondPi" in lines


@pytest.mark.parametrize("archive_format", FORMATS)
def test_change_of_one_target_in_a_library(sources: Project, archive_format: str) -> None:
    """One target's flag in a library from elsewhere links that target alone."""
    made = sources.folder / "made"
    made.mkdir()
    other = Project(made, dict(sources.environment))
    for name in ("two.cu", "count"):
        shutil.copy(sources.folder / name, made / name)
    body = f"env['OFFLOAD_ARCHIVE_FORMAT'] = '{archive_format}'\n"
    flags = (
        "env.OffloadStaticLibrary('code', 'two.cu', OFFLOAD_ARCH_FLAGS={'sm_80': '-DFACTOR=%d'})\n"
    )
    other.sconstruct(RELOCATABLE + body + flags % 1, HEAD).build()
    sources.sconstruct(
        RELOCATABLE
        + "env.OffloadProgram('prog', ['one.cu', 'runtime.c', 'main.c', 'made/libcode.a'])\n",
        HEAD,
    ).build_once()
    other.sconstruct(RELOCATABLE + body + flags % 2, HEAD).build()
    run = sources.done()
    assert run.compiles == []
    links = [line for line in run.actions if line.startswith("LINK")]
    assert links == ["LINK [sm_80] prog.sm_80.cubin"]


def test_shared_library(sources: Project) -> None:
    """A shared library registers its own code when it is loaded."""
    sources.write("runtime_only.c", (sources.folder / "runtime.c").read_text())
    sources.sconstruct(
        RELOCATABLE + "env.OffloadSharedLibrary('gpu', ['one.cu', 'two.cu', 'runtime_only.c'])\n",
        HEAD,
    ).build()
    check_registration(loaded(sources.folder / "libgpu.so"), sources=2)
    sources.assert_up_to_date()
