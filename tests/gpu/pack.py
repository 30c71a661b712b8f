"""Build the programs of all cases, here, and pack what another machine needs to run them."""

# ruff: noqa: T201 - it prints what it packs.

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offload_tool import Device, OffloadError, extract_device_images, match_images, thin_file
from offload_tool.operations.merge import merge_files
from tests.gpu import cases as table
from tests.gpu.cases import Case
from tests.gpu.loader_sets import write_sets
from tests.gpu.openmp_runtime import pack_openmp_runtime, write_empty_library
from tests.gpu.plant import plant

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEVICES = {"cuda": table.NVIDIA_DEVICES, "openmp": table.NVIDIA_DEVICES, "hip": table.HIP_TARGETS}


@dataclass(frozen=True)
class Machine:
    """What this machine has to build with."""

    cuda: Path
    """The folder ``nvidia/cu13`` of NVIDIA's wheels."""
    cuda12: Path | None
    """The folder ``nvidia`` of those of CUDA 12, whose cubins LLVM's OpenMP runtimes load."""
    openmp: Path | None
    """The folder ``lib`` of LLVM's OpenMP, in a folder that its version names: ``llvm-19``."""
    hip: Path | None
    """The folder with ``include/hip``."""

    @classmethod
    def of_environment(cls) -> Machine:
        """Return what the environment variables of the tests name (see CONTRIBUTING.md)."""

        def folder(variable: str, inside: str = "") -> Path | None:
            found = Path(os.environ.get(variable, ""), inside)
            return found if os.environ.get(variable) and found.is_dir() else None

        cuda = folder("OFFLOAD_TEST_CUDA", "cu13")
        if cuda is None:
            lacking = "OFFLOAD_TEST_CUDA names no folder with NVIDIA's wheels of CUDA 13"
            raise SystemExit(f"{lacking}; see CONTRIBUTING.md")
        others = ("OFFLOAD_TEST_CUDA12", "OFFLOAD_TEST_OPENMP", "OFFLOAD_ROCM_PATH")
        return cls(cuda, *map(folder, others))

    def program(self, name: str) -> Path:
        return self.cuda / "bin" / name


def _link(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(source)


def _toolkit(wheels: dict[str, Path], folder: Path) -> Path:
    """Put a toolkit's folder together from the folders of wheels."""
    for name in ("bin", "include", "nvvm"):
        _link(wheels[name] / name, folder / name)
    for path in (wheels["lib"] / "lib").iterdir():
        _link(path, folder / "lib64" / path.name)
    return folder


class Build:
    """A folder in which everything is built; a second build of it does what changed."""

    def __init__(
        self,
        folder: Path,
        machine: Machine,
        only: Sequence[str] = (),
        runtime: tuple[str, str] | None = None,
    ) -> None:
        """Prepare a folder; `runtime` is CUDA's, its folder and the names of its libraries."""
        self.folder, self.sources = folder, folder / "sources"
        self.machine = machine
        self.only = only
        self.broken: dict[str, str] = {}
        """Why files are not there: the end of the output of what should have made them."""
        folder.mkdir(parents=True, exist_ok=True)
        wheels = dict.fromkeys(("bin", "include", "nvvm", "lib"), machine.cuda)
        self.toolkit = _toolkit(wheels, folder / "toolkit")
        place, names = runtime or (f"{self.toolkit}/lib64", "cudart_static dl pthread rt")
        self.runtime = [f"RUNTIME={place}", f"LIBS={names}"]

    def run(self, *, log: str, command: Sequence[str | Path], **environment: str) -> None:
        """Run a command in the folder; keep what it prints."""
        done = subprocess.run(
            command,
            cwd=self.sources,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        (self.folder / f"{log}.log").write_text(done.stdout)
        if done.returncode:
            failures = re.findall(r"(.*)\nscons: \*\*\* \[(\S+)\] (.*)", done.stdout)
            for before, target, reason in failures:
                self.broken[str(Path(target).parent)] = f"{before}: {reason}"[:2000]
            if not failures:
                for folder in ("build/", "examples/"):
                    place = log.replace("scons-", folder).replace("reference-", "reference/")
                    self.broken[place] = done.stdout[-2000:]

    def scons(self, *arguments: str, log: str, folder: str = "", **environment: str) -> None:
        """Run SCons, which goes on after failures."""
        command = [sys.executable, "-m", "SCons", "-k", f"-j{os.cpu_count()}"]
        command += [f"VERSION={table.VERSION}", *(["-C", folder] if folder else []), *arguments]
        self.run(log=f"scons-{log}", command=command, **environment)

    def wants(self, api: str) -> bool:
        """Return whether cases of `api` are to be built."""
        return not self.only or any(name.startswith(api) for name in self.only)

    def build(self) -> None:
        shutil.copytree(HERE / "sources", self.sources, dirs_exist_ok=True)
        # It is edited between two builds: its first version is an older one.
        self._write_edited(f"#undef VERSION\n#define VERSION {table.VERSION - 1}")
        cuda = {"CUDA_PATH": str(self.toolkit), "OFFLOAD_CLANG": "clang-22"}
        only = [f"ONLY={' '.join(self.only)}"] if self.only else []
        if self.wants("openmp"):
            self._build_openmp(only)
        targets = [f"CUDA={' '.join(table.CUDA_TARGETS)}", f"FEW={' '.join(table.FEW)}"]
        if self.wants("cuda"):
            self.scons(*targets, *self.runtime, *only, log="cuda", **cuda)
        if self.machine.hip is not None:
            self._build_hip(self.machine.hip, only)
        if self.only:
            return
        self._write_edited("// The end.")
        self.scons(*targets, *self.runtime, "ONLY=cuda/edited", log="edited", **cuda)
        for name in ("cuda_rdc", "cuda_thrust"):
            folder = f"examples/{name}"
            shutil.copytree(ROOT / folder, self.sources / folder, dirs_exist_ok=True)
            self.scons(log=name, folder=folder, **cuda)

    def _write_edited(self, line: str) -> None:
        source = (HERE / "sources/images.cu").read_text().replace("images", "edited")
        (self.sources / "edited.cu").write_text(f"{line}\n{source}")

    def _build_openmp(self, only: list[str]) -> None:
        given, wheels = self.machine.openmp, self.machine.cuda12
        if given is None or wheels is None:
            return
        clang = given.parent / "bin/clang"
        command = str(clang)
        if not clang.exists():  # the libraries are not installed: put them beside the compiler's
            installed = Path("/usr/lib") / given.parent.name
            libraries, version = self.openmp_libraries, given.parent.name.rpartition("-")[2]
            shutil.rmtree(libraries, ignore_errors=True)
            resources = f"clang/{version}"
            headers = installed / "lib" / resources / "include"
            for source, place in ((given, libraries), (headers, libraries / resources / "include")):
                for path in (path for path in source.rglob("*") if not path.is_dir()):
                    _link(path, place / path.relative_to(source))
            command = f"{installed}/bin/clang -resource-dir={libraries}/{resources}"
        nvcc, runtime = wheels / "cuda_nvcc", wheels / "cuda_runtime"
        parts = {"bin": nvcc, "nvvm": nvcc, "include": runtime, "lib": runtime}
        toolkit = _toolkit(parts, self.folder / "toolkit-12")
        self.scons(
            f"OPENMP={' '.join(table.OPENMP_TARGETS)}",
            f"CLANG={command}",
            *only,
            log="openmp",
            CUDA_PATH=str(toolkit),
            OFFLOAD_CUDA_PATH=str(toolkit),
            PATH=f"{toolkit}/bin:{os.environ['PATH']}",
            LIBRARY_PATH=str(self.openmp_libraries),  # the link of an image finds -lomptarget there
        )

    @property
    def openmp_libraries(self) -> Path:
        """The folder with the libraries of OpenMP."""
        given = self.machine.openmp
        assert given is not None
        return given if (given.parent / "bin/clang").exists() else self.folder / "llvm/lib"

    def _build_hip(self, hip: Path, only: Sequence[str]) -> None:
        """Build for AMD GPUs, with a library of empty functions in the place of HIP's runtime."""
        header = (hip / "include/hip/hip_runtime_api.h").read_text()
        names = {*re.findall(r"\b(hip[A-Z]\w+)\s*\(", header), "__hipUnregisterFatBinary"}
        names |= {f"__hip{name}CallConfiguration" for name in ("Push", "Pop")}
        names |= {f"__hipRegister{n}" for n in ("FatBinary", "Function", "Var", "ManagedVar")}
        write_empty_library(self.folder / "libamdhip64.so", names)
        given = [f"HIP={' '.join(table.HIP_TARGETS)}", f"RUNTIME={self.folder}", "LIBS=amdhip64"]
        given.append(f"HIP_FLAGS={os.environ.get('OFFLOAD_TEST_HIP_FLAGS', '')}")
        self.scons(*given, *only, log="hip", OFFLOAD_ROCM_PATH=str(hip))

    def derive(self) -> None:
        """Make files of what was built, as users do: thin, merge, extract, launch."""
        out = self.sources / "derived"
        shutil.rmtree(out, ignore_errors=True)
        built = self.sources / "build/cuda"

        def attempt(what: str, action: Callable[..., Any], *args: Any, **named: Any) -> None:
            try:
                action(*args, **named)
            except (OffloadError, OSError, ValueError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or b""
                self.broken[f"derived/{what}"] = f"{error} {said.decode(errors='replace')}"

        for case in self.cases("cuda"):
            files = [case.file, *case.files] if case.thinned else []
            for device, file in itertools.product(case.devices, files):
                path = self.sources / file.format(device=device)
                path.parent.mkdir(parents=True, exist_ok=True)
                source, what = self.sources / case.thinned / path.name, str(path.relative_to(out))
                if case.files and file == case.file:  # the libraries have the device code
                    attempt(what, shutil.copy2, source, path)
                else:
                    keep = [Device.parse(device)]
                    attempt(what, thin_file, source, path, keep=keep, keep_ptx=case.keeps_ptx)
        for device in table.THINNED_FOR:
            attempt(f"extracted/{device}", self._extract, device)
        two = [built / f"module/{target}/module.fatbin" for target in table.CUDA_TARGETS[:2]]
        attempt("merged.fatbin", merge_files, two, out / "merged.fatbin")
        devices = (table.NVIDIA_DEVICES, table.THINNED_FOR)
        attempt("loader", write_sets, self.machine.program, out / "loader", *devices)
        for device in table.FEW:
            attempt(f"thin/{device}/static", self._link_thinned, device)
        attempt("launch", self._launch)

    def cases(self, api: str = "") -> list[Case]:
        lacking = {"hip"} if self.machine.hip is None else set()
        if self.machine.openmp is None or self.machine.cuda12 is None:
            lacking.add("openmp")
        return [
            each
            for each in table.all_cases()
            if each.api == (api or each.api) and each.api not in lacking
            # A reference that no compiler here can build says nothing.
            if not each.reference_of or (self.sources / each.file).exists()
            if not self.only or each.name in self.only
        ]

    def build_references(self) -> None:
        """Build programs with the compilers alone, as far as these are there: see `REFERENCES`."""
        given = [f"-DVERSION={table.VERSION}", "-O2"]
        clang = ["clang++-22", *given, f"--cuda-path={self.toolkit}", "-Wno-unknown-cuda-version"]
        clang += [f"--offload-arch={target}" for target in table.FEW]
        nvcc: list[str | Path] = [self.machine.program("nvcc"), *given, f"-L{self.toolkit}/lib64"]
        real = [f"-gencode=arch=compute_{t[3:]},code=sm_{t[3:]}" for t in table.FEW]
        rdc = [*nvcc, "-rdc=true", "-lcudadevrt"]
        older = "-gencode=arch=compute_80,code=compute_80"
        commands = {
            "clang/cuda/early": [*clang, "early.cu", "empty_main.cpp", *self._cudart],
            "nvcc/cuda/nested": [*rdc, *real, "nested.cu"],
            "nvcc/cuda/ptx_nested": [*rdc, older, "nested.cu"],
        }
        for name, command in commands.items():
            output = self.sources / "reference" / name
            output.parent.mkdir(parents=True, exist_ok=True)
            log = f"reference-{name.replace('/', '-')}"
            self.run(log=log, command=[*command, "-o", output])

    def _extract(self, device: str) -> None:
        folder = self.folder / "extracted" / device
        shutil.rmtree(folder, ignore_errors=True)
        module = self.sources / "build/cuda/module/module.fatbin"
        (image,) = extract_device_images(module, folder, devices=[Device.parse(device)])
        place = self.sources / "derived/extracted" / device
        place.parent.mkdir(parents=True, exist_ok=True)
        # The loader reads PTX as text that ends.
        place.write_bytes(Path(image.path).read_bytes() + b"\0")

    @property
    def _cudart(self) -> list[str]:
        return [f"-L{self.toolkit}/lib64", "-lcudart_static", "-ldl", "-lpthread", "-lrt"]

    def _link_with_cudart(self, output: Path, *inputs: Path) -> None:
        words = ["clang++-22", *inputs, "-o", output, *self._cudart, "-Wl,--as-needed", "-Wl,-s"]
        subprocess.run(words, check=True, capture_output=True)

    def _link_thinned(self, device: str) -> None:
        built, out = self.sources / "build/cuda/static", self.sources / "derived/thin" / device
        libraries = [out / name for name in ("libfirst.a", "libsecond.a")]
        for path in libraries:
            thin_file(built / path.name, path, keep=[Device.parse(device)])
        self._link_with_cudart(out / "static", built / "two.o", *libraries)

    def _launch(self) -> None:
        """Compile as CMake does, with ``offload-tool launch`` before the compiler."""
        out = self.sources / "derived/launch"
        out.mkdir(parents=True, exist_ok=True)
        objects = []
        for name in ("first.cu", "second.cu", "two.cpp"):
            words = ["launch", "clang++-22", "-O2", "-Wno-unknown-cuda-version"]
            if name.endswith(".cu"):
                words += ["-x", "cuda", "--offload-arch=sm_80", "--offload-arch=sm_90"]
                words += [f"--cuda-path={self.toolkit}", f"-DVERSION={table.VERSION}"]
            objects.append(out / Path(name).with_suffix(".o"))
            command = [sys.executable, "-m", "offload_tool", *words, "-c", self.sources / name]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            command += ["-o", objects[-1]]
            subprocess.run(command, check=True, capture_output=True, env=environment)
        self._link_with_cudart(out / "launch", *objects)


def describe(case: Case, build: Build) -> dict[str, Any]:
    """Return what run.py needs to know about a case."""
    expected: dict[str, dict[str, Any]] = {}
    for device in DEVICES[case.api]:
        row = _expected(case, device)
        if row is not None:
            expected[device] = row
            if broken := _missing(case, device, build) or check_prediction(case, device, build):
                row["broken"] = broken
    row = {"name": case.name, "api": case.api, "about": case.about, "expected": expected}
    return row | ({"reference_of": case.reference_of} if case.reference_of else {})


def _missing(case: Case, device: str, build: Build) -> str:
    """Return which file of a case is not there, and why; '' if all are."""
    for file in (case.file, *case.files):
        name = file.format(device=device)
        if not (build.sources / name).exists():
            fitting = [why for place, why in build.broken.items() if name.startswith(place)]
            return f"'{name}' was not built: {fitting[0] if fitting else 'nothing says why'}"
    return ""


def _expected(case: Case, device: str) -> dict[str, Any] | None:
    found = table.expected_lines(case, device)
    if found is None:
        return None
    lines, is_native = found
    file = "{here}/" + case.file.replace("{device}", device)
    command = [file, *("{here}/" + each for each in case.arguments)]
    if case.kind == table.MODULE:
        command = ["{python}", "{here}/run.py", "--load", file, next(iter(case.units))]
    elif case.kind == table.SETS:
        command = ["{python}", "{here}/run.py", "--load-sets", file, device]
    environment = {"OMP_TARGET_OFFLOAD": "MANDATORY"} if case.api == "openmp" else {}
    if case.api == "cuda":
        environment["CUDA_CACHE_DISABLE"] = "1"
        if case.units and is_native:  # so that PTX cannot stand in for a cubin that is not there
            environment["CUDA_DISABLE_PTX_JIT"] = "1"
    row = {"command": command, "lines": lines, "environment": environment}
    others = {key: getattr(case, key) for key in ("status", "older_driver", "libraries")}
    return row | {key: value for key, value in others.items() if value}


def check_prediction(case: Case, device: str, build: Build) -> str:
    """Return how `match` and the table disagree about a file, '' if they do not."""
    is_plain = case.kind == table.MODULE and not case.file.endswith(".fatbin")
    if case.kind == table.SETS or is_plain or not case.units or case.files or case.reference_of:
        return ""
    wanted = [table.served(device, targets) for targets in case.units.values()]
    expected = {
        each.target if each.is_native else each.target.replace("sm_", "compute_")
        for each in wanted
        if each is not None
    }
    matches = match_images(build.sources / case.file.format(device=device), Device.parse(device))
    matched = {each.rpartition("-")[2] for match in matches for each in match.ids}
    if expected == matched or ("nested" in case.name and expected <= matched):  # NVIDIA's own code
        return ""
    return f"match says {sorted(matched)}, expected {sorted(expected)}"


def pack(
    folder: Path,
    *,
    build_folder: Path | None = None,
    only: Sequence[str] = (),
    runtime: tuple[str, str] | None = None,
) -> None:
    """Build all cases, or those named, and write the folder that run.py runs."""
    machine = Machine.of_environment()
    with tempfile.TemporaryDirectory() as temporary:
        build = Build(build_folder or Path(temporary), machine, only, runtime)
        build.build()
        if not only:
            build.derive()
            build.build_references()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rows = [_pack_case(case, build, folder) for case in build.cases()]
        if (folder / "build/openmp").exists():
            pack_openmp_runtime(build.openmp_libraries, folder / "lib/openmp")
        content = {"made": _versions(build), "cases": rows}
        (folder / "cases.json").write_text(json.dumps(content, indent=1))
        shutil.copy2(HERE / "run.py", folder)


def _pack_case(case: Case, build: Build, folder: Path) -> dict[str, Any]:
    """Copy the files of a case into the folder; return what run.py needs to know."""
    row = describe(case, build)
    for device, file in itertools.product(row["expected"], (case.file, *case.files)):
        name = file.format(device=device)
        source, place = build.sources / name, folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, place)
    if case.kind == table.SETS:
        sets = json.loads((folder / case.file / "sets.json").read_text())
        for device, expected in row["expected"].items():
            expected["lines"] = [f"{sum(device in each['expected'] for each in sets)} fat binaries"]
    return row


def _versions(build: Build) -> dict[str, str]:
    def first(pattern: str, *command: str | Path) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = re.search(pattern, done.stdout)
        return found[1] if found else "unknown"

    header = (build.machine.cuda / "include/cuda_runtime_api.h").read_text()
    number = int(re.findall(r"#define CUDART_VERSION\s+(\d+)", header)[0])
    made = {"CUDA": f"{number // 1000}.{number % 1000 // 10}"}
    if shutil.which("clang-22"):
        made["clang"] = first(r"version (\S+)", "clang-22", "--version")
    made["ptxas"] = first(r" V(\d\S+)", build.machine.program("ptxas"), "--version")
    if (openmp := build.machine.openmp) and build.machine.cuda12:
        ptxas = build.machine.cuda12 / "cuda_nvcc/bin/ptxas"
        version = openmp.parent.name.rpartition("-")[2]
        made["clang for OpenMP"] = first(r"version (\S+)", f"clang-{version}", "--version")
        made["its ptxas"] = first(r" V(\d\S+)", ptxas, "--version")
    return made


def main(argv: Sequence[str]) -> int:
    """Run ``pack FOLDER [--build FOLDER] [--only CASE...]`` or ``plant FOLDER OUTPUT``."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("pack", help="build the cases, for another machine")
    command.add_argument("folder", type=Path)
    command.add_argument("--build", type=Path, help="the folder to build in, and to keep")
    command.add_argument("--only", nargs="*", default=[], help="names of cases")
    command.set_defaults(output=None)
    command = commands.add_parser("plant", help="copy packed cases, each with a fault to name")
    command.add_argument("folder", type=Path)
    command.add_argument("output", type=Path)
    options = parser.parse_args(argv)
    if options.output is not None:
        print(*plant(options.folder, options.output), sep="\n")
        return 0
    folder = options.folder.resolve()
    pack(folder, build_folder=options.build, only=options.only)
    written = folder.with_name(folder.name + ".tar.xz")
    with tarfile.open(written, "w:xz", preset=6) as tar:
        tar.add(folder, folder.name)
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB")
    for row in json.loads((folder / "cases.json").read_text())["cases"]:
        for device, expected in row["expected"].items():
            if "broken" in expected:
                print(f"{row['name']}, {device}: {expected['broken']}")
    return 0
