"""The examples build, link and run, with every compiler that a user may have."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.cli import main
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.conftest import ROOT, Tool, missing, run_tool
from tests.scons.conftest import Project, flagged_clang

TARGETS = ["", "gfx1100", "gfx906", "gfx90a:xnack+", "gfx942"]
OPENMP_RUNTIME = Path("/usr/lib/llvm-22/lib/libomptarget.so")
COMPILERS = ["embedded", "clang-22", "clang-22 --offload-new-driver", "clang-19", "clang-23"]


def named_compiler(name: str, folder: Path) -> str:
    if name == "embedded":
        pytest.importorskip("ziglang")
        return name
    clang, _, new_driver = name.partition(" ")
    found = shutil.which(clang)
    if found is None or shutil.which(clang.replace("clang", "lld")) is None:
        if clang == "clang-23":  # few distributions have it yet
            pytest.skip("clang-23 with its lld is not installed")
        missing(f"{clang} with its lld")
    return str(flagged_clang(folder, clang=str(found)) if new_driver else found)


def example(name: str, folder: Path, compiler: str) -> Project:
    """Return a copy of an example, as a user would begin with it, or this repository for none."""
    if name:
        shutil.copytree(ROOT / "examples" / name, folder / name)
    for part in () if name else ("SConstruct", "site_scons", "examples", "offload_tool"):
        (folder / part).symlink_to(ROOT / part)
    variables = {"OFFLOAD_CLANG": named_compiler(compiler, folder), "PYTHONPATH": str(ROOT)}
    variables |= dict.fromkeys(("CUDA_PATH", "ROCM_PATH"), str(folder / "none"))
    return Project(folder / name, os.environ | variables)


def targets_in(path: Path) -> list[str]:
    return [image.target_id for image in list_images(path)]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_saxpy(tmp_path: Path, compiler: str) -> None:
    """examples/saxpy builds for its targets, registers its images, and builds once only."""
    project = example("", tmp_path, compiler)
    first = project.done()
    assert first.output.count("offload: using clang") == 1
    passes = [line for line in first.actions if line.startswith("HIP [") and "/saxpy/" in line]
    # Jobs in parallel print in any order.
    assert sorted(passes) == sorted(
        f"HIP [{target or 'host'}] examples/saxpy/saxpy.hip" for target in TARGETS
    )
    assert "`.' is up to date" in project.done().output
    assert targets_in(tmp_path / "build/saxpy/saxpy") == TARGETS
    ran = "\n".join(project.start("build/saxpy/saxpy"))
    assert ran.count("stand-in HIP runtime: fat binary registered") == 1
    assert "kernel registered: _Z5saxpyifPKfPf" in ran


@pytest.mark.parametrize("compiler", COMPILERS)
def test_rdc_library(tmp_path: Path, compiler: str) -> None:
    """examples/rdc_library links device code once per target."""
    project = example("rdc_library", tmp_path, compiler)
    first = project.done("-Q").actions
    for source in ("app/app.hip", "geometry/length.hip", "geometry/scale.hip"):
        assert sorted(line for line in first if line.endswith(source)) == sorted(
            f"HIP [{target or 'host'}] {source}" for target in TARGETS
        )
    images = {target: f"app/app.{target.replace(':', '_')}.co" for target in TARGETS[1:]}
    links = sorted(line for line in first if line.startswith("LINK"))
    assert links == [f"LINK [{target}] {name}" for target, name in images.items()]
    project.assert_up_to_date()

    assert targets_in(project.folder / "app/app") == TARGETS
    ran = "\n".join(project.start("app/app"))
    assert ran.count("fat binary registered") == 1
    assert "kernel registered: _Z7measurePKfPf" in ran
    # The host asks for the library's static variable by the name that it has in every image.
    found = re.search(r"variable registered: (_ZL13scaled_values\S+)", ran)
    assert found is not None, ran
    for name in images.values():
        tables = read_elf_tables(memoryview(project.read(name)), path=name)
        assert found[1] in {symbol.name for symbol in tables.named_symbols() if symbol.defined}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_cuda_add(tmp_path: Path, compiler: str) -> None:
    """examples/cuda_add builds with no part of CUDA's toolkit, once, and registers its code."""
    project = example("cuda_add", tmp_path, compiler)
    passes = {f"CUDA [{target}] add.cu" for target in ("host", "sm_75", "sm_80")}
    assert passes <= {*project.done("-Q").actions}
    project.assert_up_to_date()
    processors = targets_in(project.folder / "add")
    virtual = [name for name in processors if name.startswith("compute")]
    assert virtual == ["compute_75", "compute_80"]
    ran = "\n".join(project.start("add"))
    assert ran.count("stand-in CUDA runtime: fat binary registered") == 1
    assert ran.count("  PTX for sm_") == 2
    assert ran.count("  cubin for sm_") == len(processors) - 2  # where ptxas is found
    assert "kernel registered: _Z3addiPKfS0_Pf" in ran
    assert "add: no CUDA device" in ran


def test_all_examples_without_runtimes(tmp_path: Path) -> None:
    """With the embedded compiler alone, scons builds every example as far as it can be built."""
    project = example("", tmp_path, "embedded")
    output = project.done("-Q").output
    for program in ("saxpy/saxpy", "rdc_library/app/app", "cuda_add/add"):
        project.start(f"build/{program}")
    lacking = "openmp_dot: the compiler comes without OpenMP's offload runtime"
    assert output.count(lacking) == 1
    built = tmp_path / "build"
    assert targets_in(built / "openmp_dot/dot.o")[:2] == ["gfx906", "gfx90a"]
    assert not (built / "openmp_dot/dot").exists()
    for args in (["list"], ["check"], ["thin", "--keep", "gfx906", "-o", str(tmp_path / "thin")]):
        assert main([*args, str(built)]) == 0


def test_openmp_dot_runs_on_a_device(tmp_path: Path) -> None:
    """The example builds for two GPUs and the CPU, once, and runs its regions on a device."""
    if not OPENMP_RUNTIME.exists():
        missing("LLVM 22's offload runtime (liboffload-22-dev, libomp-22-dev)")
    project = example("openmp_dot", tmp_path, "clang-22")
    passes = [f"OPENMP [{n}] dot.c" for n in ("host", "gfx906", "gfx90a", "x86_64-pc-linux-gnu")]
    assert {*passes} <= {*project.done("-Q").actions}
    project.assert_up_to_date()
    assert targets_in(project.folder / "dot.gfx90a.co.offload") == ["gfx90a"]
    ran = project.start("dot", OMP_TARGET_OFFLOAD="MANDATORY")
    assert "computed on a device" in "\n".join(ran)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_kpack_library(tmp_path: Path, compiler: str) -> None:
    """examples/kpack_library runs from its tree, and a change of kernels links nothing."""
    project = example("kpack_library", tmp_path, compiler)
    folder = project.folder
    project.build_once()
    tree = tmp_path / "moved"
    (folder / "tree").rename(tree)
    gpus = TARGETS[1:]
    assert [path.name for path in sorted((tree / ".kpack").iterdir())] == [
        f"measure_{target}.kpack" for target in gpus
    ]
    for name in ("bin/measure", "lib/libmeasure.so"):
        assert sorted({*targets_in(tree / name)}) == gpus
    ran = run_tool(tree / "bin/measure")
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--find-links"]
    pip += [folder / "wheels", "--target", installed, "measure[device-gfx942]"]
    run_tool(*pip)
    assert {*targets_in(installed / "measure/lib/libmeasure.so")} == {"gfx942"}
    for source in ("scale", "sum", "app"):
        assert f"marker registered: {source}\n" in ran
    source = folder / "scale.hip"
    source.write_text(source.read_text().replace("*= by", "*= by * 2"))
    ran_again = project.done("-Q").output.splitlines()
    again = [line for line in ran_again if line.startswith(("KPACK", "MARK", "EMBED", "/"))]
    assert [line.split()[0] for line in again] == ["KPACK"] * len(gpus)
    assert not [line for line in ran_again if line.startswith("write_host(")]


@pytest.mark.llvm
def test_two_checkouts(tmp_path: Path, llvm: Tool) -> None:
    """Two checkouts' bundles, archives and offload binaries merge to one machine's, bit by bit."""
    environment = os.environ | {
        "OFFLOAD_CLANG": llvm("clang"),
        "OFFLOAD_TOOL": f"{sys.executable} -m offload_tool",
        "SCONS": f"{sys.executable} -m SCons",
    }
    script = ROOT / "examples" / "apart" / "build_apart.sh"
    run_tool("/bin/sh", script, tmp_path, env=environment)
    for name in ("scale.hipfb", "libkernels.a", "shift.offload"):
        merged, one = tmp_path / "merged" / name, tmp_path / "one" / "apart" / name
        assert merged.read_bytes() == one.read_bytes()
        assert merged.stat().st_size > (tmp_path / "here" / "apart" / name).stat().st_size


def test_examples_can_be_copied_out() -> None:
    """No example has a link or names another's files; what several of them have is the same."""
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir()]
    files = [
        path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts
    ]
    assert [path for path in files if path.is_symlink()] == []
    for path in filter(Path.is_file, files):
        assert not [folder for folder in folders if f"../{folder.name}/" in path.read_text()], path
    for name in ("standin_hip_runtime.cpp", "hip_declarations.h"):
        assert len({path.read_text() for path in files if path.name == name}) == 1, name
