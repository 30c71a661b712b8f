"""Compilers with the real headers of HIP, as a machine has them installed.

``OFFLOAD_TEST_TOOLCHAINS`` (``"found=21 clang-23"``) says what must be there: CI's chroot has
it, and there a missing part is a failure. Without it, the tests run with what is found, and are
skipped where the compiler that the tool chooses has no headers of HIP.

found=NN
    everything that is installed is on PATH; the tool must choose clang NN. Plain ``found``: any.
clang-NN
    of all clangs, clang NN alone is on PATH.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_tool, try_tool

WANTED = os.environ.get("OFFLOAD_TEST_TOOLCHAINS", "").split()
_COMPILERS = re.compile(
    r"(clang|lld|ld\.lld|ld64\.lld|llvm|llc|opt|hipcc|amdgpu-arch|offload-arch)"
    r"([-+].*)?"
)
_HIP = "#include <hip/hip_runtime.h>\n"
_HEADER = Path(__file__).with_name("hip64_for_newer_clang.h")


@dataclass(frozen=True)
class Installed:
    """A compiler as a user has it, and the means to look at what it makes."""

    name: str
    environment: dict[str, str]
    """Of the build; nothing of it names a compiler or a folder of HIP."""
    version: str
    """What the tool must choose: the beginning of clang's version."""
    clang: tuple[str, ...]
    """The command of the compiler's own builds."""
    folder: Path


def lacking(what: str) -> None:
    """Fail where the toolchains must be there; skip with a reason elsewhere."""
    if WANTED:
        pytest.fail(f"{what}, and OFFLOAD_TEST_TOOLCHAINS says that it must be here")
    pytest.skip(f"{what}; see OFFLOAD_TEST_TOOLCHAINS in tests/toolchains/conftest.py")


def complaint(clang: tuple[str, ...], *flags: str) -> str:
    """Return why this compiler cannot compile HIP's header for a device; nothing if it can."""
    args = [*clang, "-x", "hip", "--cuda-device-only", "--offload-arch=gfx906", "-fsyntax-only"]
    done = try_tool(*args, *flags, "-", input=_HIP)
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    return "" if done.returncode == 0 else next(iter(lines), done.stderr)


def device_libraries() -> list[str]:
    """Return flags that name the device libraries, wherever a package of Debian puts them."""
    found = sorted(Path("/usr/lib").glob("llvm-*/lib/clang/*/amdgcn/bitcode"))
    return [f"--rocm-device-lib-path={folder}" for folder in found[-1:]]


def folder_of_programs(folder: Path, keep: str) -> Path:
    """Make a folder with all programs of PATH, but of LLVM's only those that end in `keep`."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for file in sorted(Path(place).glob("*")):
            made = folder / file.name
            other = _COMPILERS.fullmatch(file.name) and not file.name.endswith(keep)
            if not other and not made.is_symlink():
                made.symlink_to(file)
    return folder


def make_usable(folder: Path, major: str) -> tuple[str, ...]:
    """Return the clang in `folder`, made fit for the headers that are installed.

    Headers of HIP 6.4 are older than clang 23, which needs declarations of clang 21 for them:
    a script in place of the compiler includes these, as an administrator would do it.
    """
    clang = folder / f"clang++-{major}"
    if not clang.exists():
        lacking(f"there is no clang {major}")
    if not complaint((str(clang),), *device_libraries()):
        return (str(clang),)
    older = shutil.which("clang-21")
    if older is None:
        lacking(f"clang {major} does not compile hip/hip_runtime.h")
    resources = run_tool(older, "-print-resource-dir").strip()
    declarations = f'"{resources}/include/__clang_hip_libdevice_declares.h"'
    flags = ["-include", str(_HEADER), f"-DCLANG_21_DECLARATIONS={declarations}"]
    for name in (f"clang-{major}", f"clang++-{major}"):
        real = os.path.realpath(folder / name).replace("clang++", "clang")
        mode = ["--driver-mode=g++"] if "++" in name else []
        (folder / name).unlink()
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join([real, *mode, *flags])} "$@"\n')
        (folder / name).chmod(0o755)
    # Clang links programs of HIP sources with <ROCm>/lib/libamdhip64.so, which Debian has not.
    return (str(clang), "-no-hip-rt")


def own_compiler(major: str) -> str:
    """Return a clang++ that compiles HIP's headers: of ROCm, or the newest of PATH."""
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm"), "llvm/bin/clang++")
    names = [f"clang++-{major}"] if major else [f"clang++-{number}" for number in range(40, 18, -1)]
    names = names if major else [str(rocm), *names, "clang++"]
    found = [path for name in names if (path := shutil.which(name))]
    able = (path for path in found if not complaint((path,), *device_libraries()))
    best = next(able, None)
    if best is None:
        lacking(f"none of {found} compiles hip/hip_runtime.h")
        raise AssertionError  # lacking() does not return
    return best


@pytest.fixture(scope="session", params=WANTED or ["found"])
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Return each compiler that is to be tried."""
    name, _, major = str(request.param).partition("=")
    folder = tmp_path_factory.mktemp(name)
    environment = {
        key: value
        for key, value in os.environ.items()
        if not re.match(r"OFFLOAD_|ROCM_|HIP_|CUDA_|CPATH$|LD_PRELOAD$", key)
    } | {"PYTHONPATH": str(ROOT)}
    if name == "found":
        clang = (own_compiler(major),)
    else:
        major = name.removeprefix("clang-")
        programs = folder_of_programs(folder / "bin", f"-{major}")
        environment["PATH"] = str(programs)
        clang = make_usable(programs, major)
    return Installed(str(request.param), environment, f"{major}." if major else "", clang, folder)


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory, installed: Installed) -> Path:
    """Return the library that counts registrations, to be preloaded."""
    built = tmp_path_factory.mktemp("counter") / "count_registrations.so"
    source = Path(__file__).with_name("count_registrations.c")
    args = ["-x", "c", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(source)]
    clang = [installed.clang[0], "--driver-mode=gcc"]
    run_tool(*clang, *args, "-o", str(built), "-ldl")
    return built


@pytest.fixture(scope="session")
def run(counter: Path) -> Callable[[Path], tuple[str, list[list[str]]]]:
    """Return a function that runs a program: what it printed, what it registered."""
    return functools.partial(start_counted, counter)


def start_counted(counter: Path, program: Path) -> tuple[str, list[list[str]]]:
    """Run a program with the library that counts: what it printed, what it registered."""
    log = program.with_suffix(".registered")
    log.unlink(missing_ok=True)
    done = try_tool(
        program,
        cwd=program.parent,
        env=os.environ | {"LD_PRELOAD": str(counter), "COUNT_REGISTRATIONS": str(log)},
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = log.read_text().splitlines() if log.exists() else []
    return done.stdout, [line.split() for line in lines]
