"""``python -m benchmarks ggml FOLDER [SOURCES [TARGETS...]]``: a real project and five edits.

FOLDER is a checkout of ggml or llama.cpp's copy; nothing is written there. Some sources of its HIP
backend (6) are compiled for 1, 2 and 4 targets, in a separate copy for each of:

- CMake's language HIP and Ninja, with the compiler alone, and behind ``offload-tool launch``;
- SCons without `OFFLOAD_PCH` and `OFFLOAD_CUTOFF`, with the cut-off, and with both.

Then all copies get the same edits in turn. After each build, the device code of all objects is
compared with that of the compiler alone, for which Ninja recompiles each source that includes the
edited file. Whole objects are compared separately within CMake's copies and within SCons's, which
a linker has put together. The report shows processor and wall seconds of all processes.

Requires ``cmake``, ``ninja``, the headers of HIP and their CMake files; `OFFLOAD_CLANG` names the
compiler. Without hipBLAS, declarations replace its headers. `OFFLOAD_BENCHMARK_PLOT` names the file
of a picture of the last number of targets.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Figures, run_process
from benchmarks.plot import PLOT, draw_ratios
from offload_tool.passes.source_kind import derive_cuid
from offload_tool.toolchain.select import find_toolchain

LIGHT = ("clamp", "rope", "norm", "softmax", "getrows", "im2col", "unary", "sumrows", "pad")
TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1030")
SOURCES, POINTS = 6, (1, 2, 4)
_CODE = "src/ggml-cuda"
_JOBS = f"-j{os.cpu_count() or 1}"
_DEFINED = ("GGML_USE_HIP", "GGML_HIP_NO_VMM", "__HIP_PLATFORM_AMD__", "__HIP_ROCclr__=1", "NDEBUG")
_FOLDERS = ("include", "src", _CODE, "declared")
_FLAGS = ("-O3", "-std=gnu++17", "-fPIC", "-w")

_CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(ggml LANGUAGES HIP)
set(SOURCES {sources})
foreach(pair ${{SOURCES}})
    string(REPLACE "=" ";" pair ${{pair}})
    list(GET pair 0 source)
    list(GET pair 1 cuid)
    list(APPEND files ${{source}})
    set_source_files_properties(${{source}} PROPERTIES LANGUAGE HIP COMPILE_OPTIONS -cuid=${{cuid}})
endforeach()
add_library(ggml OBJECT ${{files}})
target_compile_options(ggml PRIVATE {flags} -ffile-prefix-map=${{CMAKE_SOURCE_DIR}}/=)
target_compile_definitions(ggml PRIVATE {defined})
target_include_directories(ggml PRIVATE {folders})
"""
_SCONS = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets!r},
    OFFLOAD_KIND="hip",
    OFFLOAD_PCH={pch},
    OFFLOAD_CUTOFF={cutoff},
    OFFLOAD_SUMMARY="#summary.json",
    CCFLAGS={flags!r},
    CPPDEFINES={defined!r},
    CPPPATH={folders!r},
)
for source in {sources!r}:
    env.OffloadObject(source)
"""
_SCONS_MODES = {
    "SCons": (False, False),
    "cut-off": (False, True),
    "cut-off and PCH": (True, True),
}
_FIRST = ("driver", "SCons")
"""Reference copies; later copies must have the same objects."""
_HIPBLAS = """\
#pragma once
#include <hip/hip_runtime.h>
#include <hip/hip_complex.h>
#include <hip/library_types.h>
typedef void *hipblasHandle_t;
enum hipblasStatus_t { HIPBLAS_STATUS_SUCCESS, HIPBLAS_STATUS_ALLOC_FAILED,
    HIPBLAS_STATUS_ARCH_MISMATCH, HIPBLAS_STATUS_EXECUTION_FAILED, HIPBLAS_STATUS_INTERNAL_ERROR,
    HIPBLAS_STATUS_INVALID_VALUE, HIPBLAS_STATUS_MAPPING_ERROR, HIPBLAS_STATUS_NOT_INITIALIZED,
    HIPBLAS_STATUS_NOT_SUPPORTED };
enum hipblasOperation_t { HIPBLAS_OP_N, HIPBLAS_OP_T };
enum hipblasDatatype_t { HIPBLAS_R_16F, HIPBLAS_R_32F, HIPBLAS_R_16B };
enum hipblasComputeType_t { HIPBLAS_COMPUTE_16F, HIPBLAS_COMPUTE_32F,
    HIPBLAS_COMPUTE_32F_FAST_16F };
enum hipblasGemmAlgo_t { HIPBLAS_GEMM_DEFAULT };
enum hipblasMath_t { HIPBLAS_DEFAULT_MATH };
extern "C" hipblasStatus_t hipblasCreate(hipblasHandle_t *), hipblasDestroy(hipblasHandle_t),
    hipblasSetStream(hipblasHandle_t, hipStream_t), hipblasSetMathMode(hipblasHandle_t, int);
"""


class _Edit(NamedTuple):
    what: str
    file: str
    old: str
    new: str
    """If `old` is empty, `new` is appended."""


_EDITS = (
    _Edit("comment in rope.cu", "rope.cu", '#include "rope.cuh"', '// a\n#include "rope.cuh"'),
    _Edit("host code in rope.cu", "rope.cu", "", "int host_code() { return 1; }\n"),
    _Edit("comment in common.cuh", "common.cuh", "#pragma once", "#pragma once\n// a comment"),
    _Edit(
        *("unused function in common.cuh", "common.cuh", ""),
        "static __device__ int unused_function(int x) { return x + 1; }\n",
    ),
    _Edit("kernel in clamp.cu", "clamp.cu", "dst[i] = (T)op_clamp", "dst[i] = (T)-op_clamp"),
)


class _Copy:
    """A copy of the sources, and its build command."""

    def __init__(self, name: str, folder: Path, command: Sequence[str]) -> None:
        self.name = name
        self.folder = folder
        self._command = command

    def build(self) -> Figures:
        """Build; return the figures."""
        return run_process(self._command, self.folder)

    def objects(self) -> dict[str, Path]:
        """Return the objects, by source name."""
        parts = ("host", "fatbin")
        found = {
            file.name.split(".")[0]: file
            for file in self.folder.rglob("*.o")
            if file.name.split(".")[1] not in parts
        }
        assert found, f"{self.folder}: no objects"
        return found

    def outputs(self) -> dict[str, bytes]:
        """Return the bytes of all objects."""
        return {name: file.read_bytes() for name, file in self.objects().items()}

    def device_code(self) -> dict[str, bytes]:
        """Return the bundles in all objects."""
        return {name: _bundle(file) for name, file in self.objects().items()}

    def apply(self, edit: _Edit) -> None:
        """Change a file."""
        path = self.folder / _CODE / edit.file
        text = path.read_text()
        assert edit.old in text, f"'{edit.file}' has no '{edit.old}' any more"
        path.write_text(text.replace(edit.old, edit.new, 1) if edit.old else text + edit.new)

    def cut_off(self) -> str:
        """Return how many of the executed device passes stopped after the front end."""
        summary = self.folder / "summary.json"
        if not summary.exists():
            return ""
        passes = json.loads(summary.read_text())["passes"]
        outcomes = [each["outcome"] for each in passes if each["target"] != "host"]
        cut_off = outcomes.count("front end only")
        return f"{cut_off} of {cut_off + outcomes.count('compiled')}"


def _copies(folder: Path, checkout: Path, names: Sequence[str], targets: int) -> Iterator[_Copy]:
    sources = [f"{_CODE}/{name}.cu" for name in names]
    clang = find_toolchain().clang
    common = {"sources": sources, "flags": [*_FLAGS], "defined": [*_DEFINED]}
    for name, launcher in (("driver", ""), ("launch", f"{sys.executable};-m;offload_tool;launch")):
        copy = _copied(folder / name, checkout)
        pairs = " ".join(f"{source}={derive_cuid(source)}" for source in sources)
        text = {each: " ".join(words) for each, words in {**common, "folders": _FOLDERS}.items()}
        (copy / "CMakeLists.txt").write_text(_CMAKE.format(**{**text, "sources": pairs}))
        words = [
            *(
                "cmake",
                "-G",
                "Ninja",
                "-B",
                "build",
                "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
            ),
            f"-DCMAKE_HIP_COMPILER={shutil.which(clang[0])}",
            f"-DCMAKE_HIP_ARCHITECTURES={';'.join(TARGETS[:targets])}",
            f"-DCMAKE_HIP_COMPILER_LAUNCHER={launcher}",
        ]
        subprocess.run(words, cwd=copy, check=True, stdout=subprocess.DEVNULL)
        yield _Copy(name, copy, ["ninja", "-C", "build", _JOBS])
    for name, (pch, cutoff) in _SCONS_MODES.items():
        copy = _copied(folder / name, checkout)
        lists = {**common, "folders": [*_FOLDERS], "targets": [*TARGETS[:targets]]}
        (copy / "SConstruct").write_text(_SCONS.format(**lists, pch=pch, cutoff=cutoff))
        yield _Copy(name, copy, [sys.executable, "-m", "SCons", "-Q", _JOBS])


def _bundle(file: Path) -> bytes:
    with tempfile.NamedTemporaryFile() as made:
        words = ["objcopy", "-O", "binary", "--only-section=.hip_fatbin", "--set-section-flags"]
        subprocess.run([*words, ".hip_fatbin=alloc", file, made.name], check=True)
        return Path(made.name).read_bytes()


def _copied(folder: Path, checkout: Path) -> Path:
    (folder / "src").mkdir(parents=True)
    for part in ("include", _CODE):
        shutil.copytree(checkout / part, folder / part)
    for header in checkout.glob("src/*.h"):
        shutil.copy(header, folder / "src")
    (folder / "declared/hipblas").mkdir(parents=True)
    (folder / "declared/hipblas/hipblas.h").write_text(_HIPBLAS)
    return folder


def _measure(folder: Path, checkout: Path, names: Sequence[str], targets: int) -> None:
    copies = [*_copies(folder, checkout, names, targets)]
    title = f"{len(names)} sources x {targets} targets"
    print(f"\n{title}: processor seconds (wall), beside the driver's")
    rows: dict[str, dict[str, float]] = {}
    for edit in (None, *_EDITS):
        what = edit.what if edit else "first build"
        print(f"  {what}")
        times = rows[what] = {}
        device_code: dict[str, bytes] = {}
        outputs: dict[str, bytes] = {}
        for copy in copies:
            if edit:
                copy.apply(edit)
            figures = copy.build()
            times[copy.name] = figures.cpu
            print(
                f"    {copy.name:15} {figures.cpu:7.1f} ({figures.wall:6.1f})  "
                f"{figures.cpu / times['driver']:5.2f}  {copy.cut_off()}"
            )
            device_code = device_code or copy.device_code()
            # Of some sources, HIP leaves out all.
            assert any(device_code.values()), f"{copy.folder}: objects without device code"
            assert copy.device_code() == device_code, f"{copy.folder}: other device code"
            if copy.name in _FIRST:
                outputs = copy.outputs()
                assert len(outputs) == len(names), copy.folder
            assert copy.outputs() == outputs, f"{copy.folder}: other objects"
    if file := os.environ.get(PLOT):
        draw_ratios(Path(file), f"ggml's HIP backend, {title}", rows)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    root = Path(words[0]).resolve() if words else Path("ggml")
    checkout = next((each for each in (root, root / "ggml") if (each / _CODE).is_dir()), None)
    if checkout is None:
        print(f"benchmarks: '{root}' is no checkout of ggml: it has no '{_CODE}'", file=sys.stderr)
        return 1
    count, *points = map(int, words[1:]) if words[1:] else (SOURCES,)
    every = sorted(path.stem for path in (checkout / _CODE).glob("*.cu"))
    names = [*dict.fromkeys([*LIGHT, *every])][:count]
    os.environ["PYTHONPATH"] = str(Path.cwd())
    for targets in points or POINTS:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder), checkout, names, targets)
    return 0
