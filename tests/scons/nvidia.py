"""Stand-ins for NVIDIA's programs and runtime, for machines that have none of them."""

from __future__ import annotations

import sys

from tests.scons.conftest import SCONSTRUCT, Project

_PROGRAM = """\
import pathlib, struct, sys
if "--version" in sys.argv:
    print("stand-in NAME\\nversion 1")
    sys.exit(0)
if "--help" in sys.argv:
    print("Allowed values for this option:  'compute_80','sm_70','sm_80','sm_86','sm_90','sm_90a'.")
    sys.exit(0)
def elf(kind, name):
    number = int(name[3:].rstrip("af"))
    return struct.pack("<4s5B7x2HIQQQI6H", b"\\x7fELF", 2, 1, 1, 0, 8, kind, 190, 1, 0, 0, 0,
                       number << 8, 64, 0, 0, 0, 0, 0)
pathlib.Path("NAME.log").open("a").write(" ".join(sys.argv[1:]) + "\\n")
"""


def _stand_in(name: str, work: str) -> str:
    """Return a script that knows NVIDIA's options, can write an empty cubin, and keeps a log."""
    return f"#!{sys.executable}\n{_PROGRAM.replace('NAME', name)}{work}"


# Writes an empty ELF file for machine 190 (EM_CUDA) and a processor, with the PTX behind it.
PTXAS = _stand_in(
    "ptxas",
    """\
output, source = sys.argv[sys.argv.index("-o") + 1 :]
name = next(a for a in sys.argv if a.startswith("--gpu-name="))[11:]
head = elf(1 if "--compile-only" in sys.argv else 2, name)
pathlib.Path(output).write_bytes(head + pathlib.Path(source).read_bytes())
""",
)
# Writes such a file with the inputs behind it, which must be called as nvlink wants it.
NVLINK = _stand_in(
    "nvlink",
    """\
*words, _, output = sys.argv[1:]
name = next(a for a in words if a.startswith("-arch="))[6:]
files = [pathlib.Path(a) for a in words if not a.startswith("-") and not a.endswith(".a")]
assert all(file.suffix in (".cubin", ".fatbin") for file in files), files
pathlib.Path(output).write_bytes(elf(2, name) + b"".join(file.read_bytes() for file in files))
""",
)
# Says what is registered: the images of the fat binary, those of each source, kernels, variables.
RUNTIME = """\
#include <stdio.h>
#include <stdlib.h>
typedef unsigned char *bytes;
static void images(bytes at) {
    if (*(unsigned *)at != 0xba55ed50) abort();
    for (bytes end = at + 16 + *(unsigned long *)(at + 8), e = at + 16; e < end;
         e += *(unsigned *)(e + 4) + *(unsigned long *)(e + 8))
        printf(" %s_%u", *e == 1 ? "compute" : "sm", *(unsigned *)(e + 28));
}
void **__cudaRegisterFatBinary(const void *data) {
    static void *handle;
    const unsigned *wrapper = data;
    bytes *sources = *(bytes **)(wrapper + 4);
    if (wrapper[0] != 0x466243b1) abort();
    printf("registered");
    images(*(bytes *)(wrapper + 2));
    for (; wrapper[1] == 2 && *sources; ++sources) printf(" |"), images(*sources);
    puts("");
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) { puts("end"); }
void __cudaRegisterFunction(void **h, const void *f, char *d, const char *name) { puts(name); }
void __cudaRegisterVar(void **h, char *v, char *d, const char *name) { puts(name); }
void __cudaRegisterManagedVar(void) {}
void __cudaRegisterSurface(void) {}
void __cudaRegisterTexture(void) {}
void __cudaUnregisterFatBinary(void **handle) { puts("unregistered"); }
int __cudaPushCallConfiguration(void) { return 0; }
int __cudaPopCallConfiguration(void) { return 0; }
int cudaLaunchKernel(void) { return 100; }
"""


BOTH = ("sm_80", "sm_90a")
HEAD = SCONSTRUCT.replace('"gfx906", "gfx90a:xnack+"', '"sm_80", "sm_90a"').replace(
    '["-nogpuinc", "-nogpulib"]', '["-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version"]'
)
"""Builds for both, without NVIDIA's toolkit."""


def write_tools(project: Project) -> None:
    """Put the stand-ins for ptxas and nvlink on the project's PATH, before any real ones."""
    for name, text in (("ptxas", PTXAS), ("nvlink", NVLINK)):
        project.write(f"bin/{name}", text).chmod(0o755)
    project.environment["PATH"] = f"{project.folder / 'bin'}:{project.environment['PATH']}"


def break_tool(project: Project, name: str, code: str) -> None:
    """Let a stand-in do something else in place of its work."""
    tool = project.folder / "bin" / name
    before, log, work = tool.read_text().partition(f'pathlib.Path("{name}.log")')
    assert log
    tool.write_text(f"{before}{code}\nsys.exit(0)\n{log}{work}")
