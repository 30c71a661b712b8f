"""Compositions of constructs: headers in folders, a search path, flags, and a source."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from tests.pch_constructs.constructs import CONSTRUCTS, STANDARDS, Construct

_OPEN = "#pragma clang force_cuda_host_device begin\n"
_END = "#pragma clang force_cuda_host_device end\n"
_LAUNCH = """\
#pragma once
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1); };
extern "C" int KINDLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
extern "C" unsigned CONFIGURE(dim3, dim3, unsigned long = 0, struct stream* = 0);
extern "C" int __cudaGetParameterBuffer();
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
#define __managed__ __attribute__((managed))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
"""
_CONFIGURE = {"hip": "__hipPushCallConfiguration", "cuda": "__cudaPushCallConfiguration"}
_SOURCE = """\
float sum(float a, float b, float c) { float d = a * b; return d + c + (a + b) - b + a / c; }
double quotient(double a, double b) { return a / b + b / b; }
struct Layout { char c; int i; double d; short s; long l; int a : 3; char b : 4; };
struct Virtual { virtual int f(); virtual ~Virtual(); };
int Virtual::f() { return sizeof(Layout); }
Virtual::~Virtual() {}
int initialised = 3, zero;
extern const int read_only[];
const int read_only[] = {1, 2, 3};
static int internal = 5;
int loop(int* p, int n) { for (int i = 0; i < n; ++i) p[i] = i + internal++; return p[0]; }
inline int shared(int x) { static int n; return n += x; }
int counted() { return __COUNTER__ * 1000 + __LINE__; }
const char* place() { return __FILE__; }
template <class T> const char* name(T) { return __PRETTY_FUNCTION__; }
const char* of_lambda() { auto l = [](int x) { return x; }; return name(l) + l(shared(2)); }
static __attribute__((device)) int on_device;
__attribute__((global)) void kernel(float* p, int* n) {
  float d = p[0] * p[1]; p[2] = d + p[3] + (p[4] + p[5]) - p[5] + p[6] / p[7];
  for (int i = 0; i < 8; ++i) n[i] = i * sizeof(Layout);
  n[8] = on_device++;
}
void launch(float* p, int* n) { kernel<<<1, 1>>>(p, n); }
"""
"""What states of a compiler show in: arithmetic, layouts, sections, names, counters, kernels."""
_PATHS = (
    *(["-I{at}inc"], ["-I./{at}inc"], ["-I{here}/inc"], ["-isystem", "{at}inc"]),
    *(["-idirafter", "{at}inc"], ["-I{at}early", "-I{at}inc"], ["-I{here}/../{name}/inc"]),
    *(["-I{at}none", "-I{at}shadow", "-I{at}inc"], ["-I{at}inc", "-I{here}/inc"], ["-I{at}inc/"]),
    *(["-I{here}/shadow", "-I{at}inc"], ["-iquote", "{at}inc", "-I{at}inc"], ["-I{at}link"]),
    *(["-I{at}inc/../inc"], ["-I{here}/link", "-I."], ["-I{at}inc", "-I{at}other"]),
)
_NAMES = (
    *(["-fmacro-prefix-map={here}=/mapped"], ["-ffile-prefix-map={here}/=mapped/"]),
    *(["-ffile-reproducible"], ["-fno-file-reproducible"], ["-fmacro-prefix-map={at}inc=mapped"]),
)
_TIME = 1_700_000_000
"""Of all files: some constructs show it."""
_ALWAYS = ("-nogpuinc", "-nogpulib", "-Wno-unknown-cuda-version", "-w")

_FLAGS = (
    *(["-ffast-math"], ["-fvisibility=hidden"], ["-fno-exceptions"], ["-fPIC"], ["-fno-inline"]),
    *(["-funsigned-char"], ["-ffunction-sections", "-fdata-sections"], ["-fpack-struct=4"]),
    *(["-ffp-contract=off"], ["-fwrapv"], ["-fno-threadsafe-statics"], ["-fstack-protector-all"]),
    *(["-ftrivial-auto-var-init=pattern"], ["-fdelayed-template-parsing"], ["-fshort-enums"]),
    *(["-include", "{at}inc/launch.h"], ["-fgpu-approx-transcendentals"], ["-DVALUE=3"]),
)


@dataclass
class Composition:
    """One source and its headers."""

    names: list[str]
    kind: str
    stage: str
    flags: list[str]
    files: dict[str, str] = field(default_factory=dict)
    folder: str = "."
    """Of the source, to which quoted names are relative."""
    is_both: bool = False
    """All that can be is code for the host and the device."""
    is_rdc: bool = False

    @property
    def source(self) -> str:
        return str(Path(self.folder) / ("k.hip" if self.kind == "hip" else "k.cu"))

    def write(self, project: Path) -> None:
        """Write its files into a folder."""
        for name in ("early", "none", "shadow", "inc", "other"):
            (project / name).mkdir(parents=True, exist_ok=True)
        (project / "link").symlink_to("inc")
        for name, text in self.files.items():
            file = project / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            os.utime(file, (_TIME, _TIME))

    def command(self, folder: Path, at: str = "") -> list[str]:
        """Return its flags where it is written into `folder`, which is `at` for the compiler."""
        return [flag.format(here=folder, name=folder.name, at=at) for flag in self.flags]

    def __str__(self) -> str:
        how = ", for both sides" * self.is_both + ", relocatable" * self.is_rdc
        return f"{self.kind} {self.stage}{how}: {' '.join(self.flags)}: {'; '.join(self.names)}"


def alone(
    name: str, kind: str, stage: str, *, is_both: bool = False, warns: bool = False
) -> Composition:
    """Return the composition of one construct, in one header."""
    construct = CONSTRUCTS[name]
    flags = [*_ALWAYS, f"-std=c++{_spelled(max(construct.standard, 17))}", "-O2", "-I{at}inc"]
    found = Composition([name], kind, stage, [*flags, *construct.flags])
    found.is_both = is_both
    if warns:
        found.flags.remove("-w")
    header, use = _texts(construct, "c0_", is_both=is_both)
    found.files = {
        **_base(kind),
        "inc/top.h": f"#pragma once\n#include <launch.h>\n{header}",
        found.source: f"#include <top.h>\n{use}{_SOURCE}",
    }
    return found


def composed(rng: random.Random, of: list[str], kind: str = "") -> Composition:
    """Compose one to six constructs of those named, of any kind or of one."""
    kind = kind or rng.choice(["hip", "cuda"])
    stage = rng.choice(["device", "host"])
    standard = rng.choice(STANDARDS[2:])
    known = [name for name in of if _goes(CONSTRUCTS[name], kind, standard)]
    known = [name for name in known if not CONSTRUCTS[name].is_alone]
    if rng.random() < 0.7:
        known = [name for name in known if not CONSTRUCTS[name].is_refused]
    names = rng.sample(known, rng.randint(1, 6))
    flags = [*_ALWAYS, f"-std=c++{_spelled(standard)}"]
    if rng.random() < 0.1:
        flags.remove("-w")  # a header that warns is refused
    flags.append(rng.choice(["-O1", "-O2", "-O2", "-O3", "-Os"]))
    if rng.random() < 0.08:
        flags += rng.choice(_NAMES)
    if rng.random() < 0.4:
        flags += rng.choice(_FLAGS)
    flags += rng.choice(_PATHS)
    for name in names:
        flags += [flag for flag in CONSTRUCTS[name].flags if flag not in flags]
    found = Composition(names, kind, stage, flags, is_both=rng.random() < 0.4)
    found.is_rdc = rng.random() < (0.3 if stage == "host" else 0.03)
    found.folder = rng.choice([".", ".", "src", "src/deep"])
    found.files = _base(kind)
    texts = [
        _texts(CONSTRUCTS[name], f"c{number}_", is_both=found.is_both)
        for number, name in enumerate(names)
    ]
    tops = _headers(rng, found.files, [header for header, _ in texts])
    if any("shadow" in flag for flag in flags) and not tops[0].startswith("../"):
        found.files["shadow/" + tops[0]] = f"#include_next <{tops[0]}>\n"
    first = f'"{_chain(rng, found, tops.pop(0))}"' if rng.random() < 0.4 else ""
    begin = "".join(f"#include {name}\n" for name in [first, *(f"<{n}>" for n in tops)] if name)
    uses = "".join(use for _, use in texts)
    found.files[found.source] = begin + uses + _SOURCE
    return found


def _chain(rng: random.Random, found: Composition, top: str) -> str:
    """Put headers beside the source before its first one; return the name of the first of them."""
    after = f"<{top}>"
    for number in range(rng.randint(1, 3)):
        name, folder = f"c{number}.h", rng.choice(["", "", "sub/"])
        before = rng.choice(["", "#pragma once\n", f"#ifndef C{number}\n#define C{number}\n"])
        asks = rng.choice(["", "", f"#if defined(C{(number + 2) % 3})\nint c{number}();\n#endif\n"])
        end = "#endif\n" if before.startswith("#ifndef") else ""
        if after[0] == '"' and folder:
            after = f'"../{after[1:]}'
        text = f"// the chain\n{before}#include {after}\n{asks}{end}"
        found.files[str(Path(found.folder) / folder / name)] = text
        after = f'"{folder}{name}"'
    return after[1:-1]


def _headers(rng: random.Random, files: dict[str, str], texts: list[str]) -> list[str]:
    """Put the texts into nested headers; return the names for the source to include."""
    tops: list[str] = []
    inner: list[tuple[str, str]] = []  # folder below inc, name
    for number, text in enumerate(texts):
        folder = rng.choice(["", "", "sub/", "sub/deep/", "../other/"])
        name = f"h{number}.h"
        lines = [rng.choice(["#pragma once\n", f"#ifndef H{number}\n#define H{number}\n"])]
        lines.append("#include <launch.h>\n")
        # A header that nobody includes yet goes into this one, before or behind its own text.
        below = [inner.pop(rng.randrange(len(inner))) for _ in inner[:2] if rng.random() < 0.6]
        includes = [_include(rng, folder, *each) for each in below]
        lines += [*includes, text] if rng.random() < 0.7 else [text, *includes]
        if lines[0].startswith("#ifndef"):
            lines.append("#endif\n")
        file = f"other/{name}" if folder == "../other/" else f"inc/{folder}{name}"
        files[file] = "".join(lines)
        inner.append((folder, name))
    tops = [f"{folder}{name}" for folder, name in inner]
    rng.shuffle(tops)
    return tops


def _include(rng: random.Random, at: str, folder: str, name: str) -> str:
    """Spell an include of a header, for one in the folder `at` below the search path."""
    up = {"": "", "sub/": "../", "sub/deep/": "../../", "../other/": "../inc/"}[at]
    ways = [f"<{folder}{name}>"] * 4
    if at == folder:
        ways += [f'"{name}"'] * 4
    if rng.random() < 0.3:  # by another spelling of a folder, which may be refused
        ways += [f'"{up}{folder}{name}"', f'"./{up}{folder}{name}"', f"<{folder}./{name}>"]
    return f"#include {rng.choice(ways)}\n"


def _texts(construct: Construct, prefix: str, *, is_both: bool) -> tuple[str, str]:
    header, use = construct.text(prefix)
    if is_both and not construct.is_host and construct.file in ("standard", "gnu"):
        return _OPEN + header + _END, _OPEN + use + _END
    return header, use


def _base(kind: str) -> dict[str, str]:
    text = _LAUNCH.replace("KIND", kind).replace("CONFIGURE", _CONFIGURE[kind])
    return {"inc/launch.h": text}


def _goes(construct: Construct, kind: str, standard: int) -> bool:
    return construct.standard <= standard and construct.kind in ("", kind)


def _spelled(standard: int) -> str:
    return {23: "2b", 26: "2c"}.get(standard, str(standard))
