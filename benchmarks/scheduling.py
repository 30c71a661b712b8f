"""Device nodes on many machines: the share of a build that is our own overhead.

A stand-in for remote machines replaces the launcher: it waits, then copies a precompiled object.
With J jobs, N nodes and a wait of W seconds, the ideal is W * N / J. Plain SCons with the same
number of ``Object`` nodes is measured, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.measure import TARGETS, remove, run_process, scons

SOURCES = 80
WAIT = 2.0

# Reads a compile command; finds the output, the depfile and the prepared object.
LAUNCHER = r"""
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <fcntl.h>
int main(int argc, char **argv) {
    const char *output = 0, *depfile = 0, *source = argv[argc - 1], *target = "host", *base;
    char prepared[4096];
    for (int i = 1; i < argc; ++i) {
        if (!strcmp(argv[i], "-o")) output = argv[i + 1];
        if (!strcmp(argv[i], "-dependency-file")) depfile = argv[i + 2];
        if (!strncmp(argv[i], "--offload-arch=", 15)) target = argv[i] + 15;
    }
    usleep((useconds_t)(atof(getenv("WAIT_SECONDS")) * 1e6));
    base = strrchr(source, '/') ? strrchr(source, '/') + 1 : source;
    snprintf(prepared, sizeof prepared, "%s/%s.%s", getenv("PREPARED"), base, target);
    int in = open(prepared, O_RDONLY), out = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    struct stat status;
    if (in < 0 || out < 0 || fstat(in, &status)) return perror(prepared), 1;
    if (sendfile(out, in, 0, status.st_size) != status.st_size) return 1;
    if (depfile) {
        FILE *file = fopen(depfile, "w");
        fprintf(file, "object: %s common.h\n", source);
        fclose(file);
    }
    return 0;
}
"""

SCONSTRUCT = """\
import os
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets!r},
    OFFLOAD_FLAGS=["-nogpuinc", "-nogpulib"],
    OFFLOAD_LAUNCHER=ARGUMENTS.get("launcher", ""),
    CPPPATH=["."],
)
for name in ("PREPARED", "WAIT_SECONDS"):
    env["ENV"][name] = os.environ.get(name, "")
for number in range({sources}):
    env.OffloadDeviceObject(f"k{{number}}.hip")
"""

PLAIN = """\
import os
env = Environment(CPPPATH=["."], CC=ARGUMENTS["launcher"], CCCOM="$CC -c -o $TARGET $SOURCE")
env["ENV"].update({{name: os.environ[name] for name in ("PREPARED", "WAIT_SECONDS")}})
for number in range({sources}):
    for target in {targets!r}:
        env.Object(f"k{{number}}.{{target}}.o", f"plain{{number}}.c")
"""


def _prepare(folder: Path) -> None:
    (folder / "common.h").write_text("#define COMMON 1\n")
    for number in range(SOURCES):
        kernel = f"__attribute__((global)) void k{number}(int* p) {{ *p = COMMON; }}"
        text = f'#include "common.h"\n{kernel}\n'
        (folder / f"k{number}.hip").write_text(text)
        (folder / f"plain{number}.c").write_text('#include "common.h"\n')
    (folder / "SConstruct").write_text(SCONSTRUCT.format(targets=list(TARGETS), sources=SOURCES))
    (folder / "plain").write_text(PLAIN.format(targets=list(TARGETS), sources=SOURCES))
    run_process(scons("-j2"), folder)
    prepared = make_stand_in(folder)
    for number in range(SOURCES):
        for target in TARGETS:
            shutil.move(folder / f"k{number}.{target}.co", prepared / f"k{number}.hip.{target}")
        (prepared / f"plain{number}.c.host").write_bytes(bytes(3000))


def make_stand_in(folder: Path) -> Path:
    """Compile the launcher ``wait``; return the new folder of its objects."""
    (folder / "wait.c").write_text(LAUNCHER)
    compiler = shutil.which("clang-22") or shutil.which("cc") or "clang"
    run_process([compiler, "-O2", "wait.c", "-o", "wait"], folder)
    prepared = folder / "prepared"
    prepared.mkdir()
    return prepared


def _time(folder: Path, jobs: int, wait: float, *arguments: str) -> tuple[float, float]:
    remove(folder, "*.co", "*.o", ".sconsign.dblite")
    environment = {
        "PREPARED": str(folder / "prepared"),
        "WAIT_SECONDS": str(wait),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    command = scons(f"-j{jobs}", f"launcher={folder / 'wait'}", *arguments)
    figures = run_process(command, folder, environment)
    return figures.wall, figures.cpu


def main(folder: Path, _llvm: str) -> None:
    """Measure and print wall time over the ideal, with 1, 16 and 64 jobs."""
    _prepare(folder)
    nodes = SOURCES * len(TARGETS)
    print(f"\n{nodes} device nodes on machines that take {WAIT:g} s for each")
    for jobs in (1, 16, 64):
        # One job would take 20 minutes; a shorter wait gives the same ideal.
        wait = WAIT * jobs / 64
        ideal = wait * nodes / jobs
        ours, cpu = _time(folder, jobs, wait)
        plain, plain_cpu = _time(folder, jobs, wait, "-f", "plain")
        print(
            f"  -j{jobs:<3} ideal {ideal:5.1f} s   "
            f"offload {ours:5.1f} s ({ours / ideal:4.2f} x, cpu {cpu:5.1f} s)   "
            f"Object {plain:5.1f} s ({plain / ideal:4.2f} x, cpu {plain_cpu:5.1f} s)"
        )
