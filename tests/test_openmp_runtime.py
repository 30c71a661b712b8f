"""An OpenMP program that really offloads: registered by us, run by LLVM's own runtime.

The device is the CPU: LLVM's runtime loads an x86_64 "device" image like a GPU's.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from offload_tool import WrapOptions, wrap_images
from offload_tool.cli.llvm.wrapper import run_wrapper
from offload_tool.formats.offload_binary import (
    OffloadImage,
    plan_offload_binary,
    plan_shared_offload_binary,
)
from offload_tool.passes.registration import HostCompiler
from tests.conftest import Tool, missing, run_tool, try_tool
from tests.formats.compressed import compressed_offload_binary

TRIPLE = "x86_64-pc-linux-gnu"
SOURCE = """
#include <omp.h>
#include <stdio.h>
int main(void) {
  int on_device = 0;
  long sum = 0;
#pragma omp target map(from : on_device)
  on_device = !omp_is_initial_device();
#pragma omp target teams distribute parallel for reduction(+ : sum)
  for (long i = 0; i < 1000; ++i)
    sum += i;
  printf("%s %ld\\n", on_device ? "on device" : "on host", sum);
  return 0;
}
"""


def shared(contents: list[bytes], *, compressed: bool) -> bytes:
    strings = {"triple": TRIPLE, "arch": "generic"}
    rows = [OffloadImage(1, 1, 0, strings, 0, len(content)) for content in contents]
    data = b"".join(plan_shared_offload_binary(rows, contents).chunks())
    return compressed_offload_binary(data) if compressed else data


@dataclass(frozen=True)
class Program:
    """A folder with host.o and device.so, to be linked and run."""

    folder: Path
    clang: str
    libraries: Path

    def compile(self, *arguments: str) -> None:
        run_tool(self.clang, *arguments, cwd=self.folder)

    def run(self, *objects: str) -> subprocess.CompletedProcess[str]:
        """Link the objects with LLVM's runtime; run the program, which must offload."""
        runtime = [f"-L{self.libraries}", f"-Wl,-rpath,{self.libraries}", "-lomptarget"]
        self.compile(*objects, "-fopenmp=libomp", *runtime, "-o", "program")
        environment = {**os.environ, "OMP_TARGET_OFFLOAD": "MANDATORY"}
        return try_tool(self.folder / "program", env=environment)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, llvm: Tool) -> Program:
    clang = llvm("clang")
    libraries = Path(clang).resolve().parent.parent / "lib"
    if platform.machine() != "x86_64":
        pytest.skip("the device of this test is an x86_64 CPU")
    if not all((libraries / name).exists() for name in ("libomptarget.so", "libomp.so")):
        missing("LLVM 22's OpenMP offload runtime (liboffload-22-dev, libomp-22-dev)")
    made = Program(tmp_path_factory.mktemp("openmp"), clang, libraries)
    (made.folder / "dot.c").write_text(SOURCE)
    openmp = ["-fopenmp=libomp", f"-fopenmp-targets={TRIPLE}", "-O2", "-fPIC", "-c", "dot.c"]
    made.compile(*openmp, "--offload-host-only", "-o", "host.o")
    made.compile(*openmp, "--offload-device-only", "-o", "device.o")
    # The device's OpenMP calls are found in the host process.
    made.compile("-shared", "device.o", "-Wl,--unresolved-symbols=ignore-all", "-o", "device.so")
    return made


@pytest.mark.llvm
@pytest.mark.parametrize(
    "form", ["object", "bitcode", "offload binary", "shared", "compressed", "two images"]
)
def test_runs_on_the_device(program: Program, form: str) -> None:
    """With OMP_TARGET_OFFLOAD=MANDATORY the program runs its regions on the device."""
    images = [program.folder / "device.so"]
    output = program.folder / ("registration.bc" if form == "bitcode" else "registration.o")
    if form == "offload binary":
        data = images[0].read_bytes()
        strings = {"triple": TRIPLE, "arch": "generic"}
        plan = plan_offload_binary(data, image_kind=1, offload_kind=1, strings=strings)
        images = [program.folder / "packaged"]
        plan.write(images[0])
    elif form in ("shared", "compressed"):  # version 2 of two images; version 3 of them
        data = images[0].read_bytes()
        contents = [b"\x7fELF" + bytes(201), data]
        images = [program.folder / form]
        images[0].write_bytes(shared(contents, compressed=form == "compressed"))
    elif form == "two images":  # the runtime passes over what is for other devices
        images.insert(0, program.folder / "other")
        images[0].write_bytes(b"\x7fELF" + bytes(200))
    wrap_images(images, output, kind="openmp", triple=TRIPLE)
    done = program.run("host.o", output.name)
    assert (done.returncode, done.stdout) == (0, "on device 499500\n"), done.stderr


@pytest.mark.llvm
@pytest.mark.parametrize("options", [[], ["--offload-arch=x86_64"]], ids=["plain", "target ID"])
@pytest.mark.parametrize("name", ["registration.o", "registration.bc"])
def test_the_classic_command_line_runs_on_the_device(
    program: Program, name: str, options: list[str]
) -> None:
    """What ``clang-offload-wrapper -target`` makes registers a current clang's entries."""
    arguments = ["-target", TRIPLE, "-o", str(program.folder / name), *options]
    image = str(program.folder / "device.so")
    assert run_wrapper("wrapper", [*arguments, image], {}) == 0
    done = program.run("host.o", name)
    assert (done.returncode, done.stdout) == (0, "on device 499500\n"), done.stderr


@pytest.mark.llvm
def test_the_older_layout_does_not_know_these_entries(program: Program) -> None:
    """With ``--llvm=15`` the same command's module finds no entry of this program."""
    arguments = ["--llvm=15", "-target", TRIPLE, "-o", str(program.folder / "older.o")]
    assert run_wrapper("wrapper", [*arguments, str(program.folder / "device.so")], {}) == 0
    done = program.run("host.o", "older.o")
    assert done.returncode != 0
    assert "on device" not in done.stdout


@pytest.mark.llvm
def test_without_registration_nothing_runs(program: Program) -> None:
    """The same program without our object fails: the test above cannot pass on the host."""
    done = program.run("host.o")
    assert done.returncode != 0
    assert "on device" not in done.stdout


STAND_IN = """
#include <stdio.h>
struct table { int images; void *first; const char *begin, *end; };
void __tgt_register_lib(struct table *it) { printf("%d bytes\\n", (int)(it->end - it->begin)); }
void __tgt_unregister_lib(struct table *it) { __tgt_register_lib(it); }
#ifdef SECTION
__attribute__((section(SECTION), used)) static char entries[32] = {1};
#endif
int main(void) { return 0; }
"""


@pytest.mark.llvm
@pytest.mark.parametrize("flags", [["-pie"], ["-pie", "-fuse-ld=lld"], ["-no-pie"]], ids=" ".join)
@pytest.mark.parametrize(
    ("section", "size"), [("omp_offloading_entries", 32), ("llvm_offload_entries", 32), ("", 0)]
)
def test_entries_of_each_clang(
    tmp_path: Path, llvm: Tool, section: str, size: int, flags: list[str]
) -> None:
    """One module registers the entries of clang 19 and 20, and those of clang 21 and later."""
    clang, image = llvm("clang"), tmp_path / "image"
    image.write_bytes(b"\x7fELF")
    module = tmp_path / "registration.o"
    options, compiler = WrapOptions(finds_entries=True), HostCompiler([clang], os.environ)
    wrap_images([image], module, kind="openmp", options=options, compiler=compiler)
    (tmp_path / "main.c").write_text(STAND_IN)
    define = [f'-DSECTION="{section}"'] if section else []
    run_tool(clang, *define, *flags, "main.c", module.name, "-o", "program", cwd=tmp_path)
    assert run_tool(tmp_path / "program", cwd=tmp_path) == f"{size} bytes\n" * 2
