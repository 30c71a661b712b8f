"""Random flags and sources, compiled by the driver and by ``offload-tool launch``."""

from __future__ import annotations

import random
from pathlib import Path

from tests.launch.compiles import HIP, in_ways, make_project

DRIVERS = ("--offload-new-driver", "--no-offload-new-driver")
CHOICES = [
    ("-std=c++17", "-std=c++20", "-std=gnu++14"),
    ("-O0", "-O1", "-O2", "-O3", "-Os", "-Og"),
    ("-g", "-gline-tables-only", "-ggdb", "-g0"),
    ("-fPIC", "-fPIE", "-fno-pic"),
    ("-fgpu-rdc", "-fno-gpu-rdc"),
    DRIVERS,
    (
        "--offload-compress",
        "--no-offload-compress",
        "--offload-compress --offload-compression-level=3",
    ),
    ("--offload-device-only", "--offload-host-only", "--offload-jobs=2"),
    ("-foffload-lto", "-foffload-lto=thin", "-fno-offload-lto"),
    ("-Xoffload-linker -O1", "-Xoffload-linker --lto-O1", "-Xoffload-linker --gc-sections"),
    ("-Rpass=.*", "-Rpass-missed=inline", "-mllvm -amdgpu-internalize-symbols=0", "-mcumode"),
    ("-MD", "-MMD", "-MD -MP", "-MD -MF other.d", "-MMD -MT a -MQ b$c"),
    ("-DVALUE_2=2", "-UVALUE", '-DTEXT="a b\\"c"'),
    ("-I.", "-isystem .", "-iquote ."),
    ("-Xarch_gfx906 -DONE", "-Xarch_device -O1", "-Xarch_host -O3", "-Xarch_gfx942 -g"),
    ("-Wall -Wextra", "-Weverything", "-w", "-Werror"),
    ("-ffast-math", "-fno-exceptions", "-fno-rtti", "-ffunction-sections", "-fdata-sections"),
    ("-march=native", "-m64", "-mavx2"),
    ("-save-temps", "-save-temps=obj", "-fstack-usage", "-fsave-optimization-record"),
    ("--no-offload-arch=gfx906", "--offload-arch=gfx1030,gfx1201", "--offload-arch=all"),
    ("-include value.h", "-fvisibility=hidden", "-fcoverage-mapping -fprofile-instr-generate"),
    ("-flto", "-flto=thin", "-fuse-cuid=none", "-foffload-lto"),
    ("-mllvm -amdgpu-early-inline-all", "-mcode-object-version=4", "-munsafe-fp-atomics"),
    ("-fgpu-default-stream=per-thread", "-fhip-new-launch-api", "-fgpu-flush-denormals-to-zero"),
    ("-fdiagnostics-color=always", "-fno-caret-diagnostics", "-ferror-limit=1"),
    ("-Wl,--nothing", "-L.", "-no-such-option", "-Wno-no-such"),
]
ARCHS = ["gfx906", "gfx90a:xnack+", "gfx942", "gfx1100", "gfx90a:sramecc+:xnack-", "gfx9-4-generic"]
SOURCES = [
    "",
    "static __device__ int state; __device__ int *where() { return &state; }\n",
    "__constant__ float table[100] = {1};\n#define __shared__ __attribute__((shared))\n",
    "template <class T> __global__ void other(T *x) { *x = 1; }\ntemplate __global__ void "
    "other(int *);\n",
    "int unused(int x) { int y; return 1; }\n",
    "#ifdef __gfx942__\nint here(int x) { int y; return 1; }\n#endif\n",
    "#ifdef __gfx906__\n#error not for gfx906\n#endif\n",
    '#include "missing.h"\n',
    "struct S { ~S(); }; static S s;\n",
]


def args_of(seed: int) -> list[str]:
    """Return the flags of a compile."""
    chosen = random.Random(seed)
    archs = chosen.sample(ARCHS[:4], chosen.randint(1, 3))
    if chosen.random() < 0.2:
        archs = chosen.sample(ARCHS[4:], 1) + archs[:1]
    words = [f"--offload-arch={','.join(archs)}"]
    if chosen.random() < 0.5:  # the default of clang 23; a flag below may say otherwise
        words.append(chosen.choice(DRIVERS))
    for _ in range(chosen.randint(0, 5)):
        words += chosen.choice(chosen.choice(CHOICES)).split(" ")
    return words


def differences(clang: str, seed: int, folder: Path) -> str:
    """Return how the two compiles differ."""
    chosen = random.Random(~seed)
    source = "".join(chosen.sample(SOURCES, chosen.choice([0, 0, 1, 1, 2])))
    words = [clang, *HIP, *args_of(seed), "-c", "s.hip", "-o", "s.o"]

    def prepare(place: Path) -> None:
        make_project(place)
        text = (place / "s.hip").read_text()
        (place / "s.hip").write_text(text + source)

    driver, ours = in_ways(folder, words, prepare)
    results = []
    for each in (driver, ours):
        made = {name: data for name, data in each.files.items() if not name.endswith(".d")}
        results.append((each.status, made if each.status == 0 else {}))
    (status, expected), (our_status, found_files) = results
    found = []
    if status != our_status:
        found.append(f"status {our_status} for {status}")
    names = {*expected, *found_files}
    names = {name for name in names if expected.get(name) != found_files.get(name)}
    found += [f"'{name}' differs" for name in sorted(names)]
    return f"{' '.join(words)}: {', '.join(found)}; {ours.said[:300]}" if found else ""
