"""Random projects: which features of the preprocessor and of SCons stand together."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from tests.driver.linking import add_twice
from tests.driver.state import State
from tests.driver.surroundings import add_surroundings

TARGETS = {
    "hip": ["gfx906", "gfx90a", "gfx1030", "gfx90a:xnack+"],
    "rdc": ["gfx906", "gfx90a", "gfx1030"],
    "openmp": ["gfx906", "gfx90a", "x86_64-pc-linux-gnu"],
    "cuda": ["sm_70", "sm_80", "sm_90"],
}
_ONE_TARGET = {
    "hip": "defined(__gfx90a__)",
    "rdc": "defined(__gfx90a__)",
    "openmp": "defined(__gfx90a__)",
    "cuda": "__CUDA_ARCH__ == 800",
}
_HOST = {
    "hip": "!defined(__HIP_DEVICE_COMPILE__)",
    "rdc": "!defined(__HIP_DEVICE_COMPILE__)",
    "openmp": "!defined(__AMDGCN__)",
    "cuda": "!defined(__CUDA_ARCH__)",
}
_QUIET = {
    "hip": ["-nogpuinc", "-nogpulib"],
    "rdc": ["-nogpuinc", "-nogpulib"],
    "openmp": ["-nogpulib"],
    "cuda": ["-nocudainc", "-nocudalib"],
}
_LAUNCH = """\
struct dim3 {{ unsigned x, y, z; }};
extern "C" int {0}LaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
"""
_RUNTIME = """\
#define OWN 1
int own = OWN;
void **__RTRegisterFatBinary(const void *data) { static void *handle; return &handle; }
void __RTRegisterFatBinaryEnd(void **h) {}
void __RTRegisterFunction() {}
void __RTUnregisterFatBinary(void **h) {}
int __RTPushCallConfiguration() { return 0; }
int __RTPopCallConfiguration() { return 0; }
int RTLaunchKernel() { return 100; }
int main(void) { return 0; }
"""

_CALLS = {
    "hip": [
        "env.OffloadProgram('prog', SOURCES + ['runtime.c'])",
        "[env.OffloadBundle(source) for source in SOURCES]",
        "env.OffloadDeviceObject(SOURCES)\nenv.OffloadHostObject(SOURCES)",
        "env.OffloadStaticLibrary('whole', SOURCES)",
        "env.OffloadSharedLibrary('shared', SOURCES)",
        "[env.OffloadPackage(source.split('.')[0] + '_pack', source) for source in SOURCES]",
        "env.OffloadBundle('all', env.OffloadDeviceObject(SOURCES[0]), OFFLOAD_COMPRESS='zstd')",
        "env.OffloadUnbundle('again', env.OffloadBundle(SOURCES[0]))",
        "env.OffloadProgram('apart', SOURCES + ['runtime.c'], OFFLOAD_KPACK='group')",
        "env.OffloadSharedLibrary('lib/own', SOURCES, OFFLOAD_KPACK=True,"
        " OFFLOAD_KPACK_COMPRESS='none', OFFLOAD_KPACK_INTERFACE=True)",
    ],
    "rdc": [
        "env.OffloadProgram('prog', SOURCES + ['runtime.c'])",
        "library = env.OffloadArchive('device', SOURCES[1:] or SOURCES)\n"
        "env.OffloadDeviceArchive('extracted', library)\n"
        "env.OffloadProgram('linked', SOURCES[:1] * (len(SOURCES) > 1) + ['runtime.c', library])",
        "env.OffloadDeviceObject(SOURCES)",
        "env.OffloadProgram('apart', SOURCES + ['runtime.c'], OFFLOAD_KPACK='group')",
    ],
    "openmp": [
        "env.OffloadProgram('prog', SOURCES)",
        "env.OffloadDeviceObject(SOURCES)\nenv.OffloadHostObject(SOURCES)",
    ],
    "cuda": [
        "env.OffloadObject(SOURCES)",
        "env.OffloadProgram('prog', SOURCES + ['runtime.c'])",
        "env.OffloadDeviceObject(SOURCES)",
    ],
}

_INCLUDES = {
    "plain": "#include {0}\n",
    "spaced": "  #  include   {0}  // why\n",
    "import": "#import {0}\n",
    "macro": "#define N_{1} {0}\n#include N_{1}\n",
    "comment": "/* first\n */ #include /* where? */ {0}\n",
    "continued": "#inc\\\nlude \\\n  {0}\n",
    "digraph": "%:include {0}\n",
    "asked": "#if __has_include({0})\n#include {0}\n#else\n#define F{1} 0\n#endif\n",
    "asked by macro": (
        "#define N_{1} {0}\n"
        "#if __has_include(N_{1})\n#include N_{1}\n#else\n#define F{1} 0\n#endif\n"
    ),
    "asked only": "#if __has_include({0})\n#define F{1} 1\n#else\n#define F{1} 0\n#endif\n",
}
_NEXT = "#include_next <{0}>\n#define N_{1} 1\n"
_NEXT_ASKED = (
    "#if __has_include_next(<{0}>)\n#include_next <{0}>\n#else\n#define F{1} 0\n#endif\n"
    "#define N_{1} 1\n"
)
_SPELLINGS = [
    *_INCLUDES,
    *("next", "next asked", "nested", "embed", "embed asked"),
    *("-include", "-imacros", "-Xclang -include", "generated", "flag file", "config", "beside"),
]
_ALL_PASSES_ONLY = ("-include", "-imacros", "-Xclang -include", "flag file", "config")
_TWICE = 0.4
_FLAG_FOLDERS = ("-I", "-isystem", "-iquote", "-idirafter", "CPATH", "--embed-dir=")


@dataclass
class _Maker:
    """Adds one feature after the other to a state."""

    rng: random.Random
    state: State

    def feature(self, number: int) -> tuple[str, str]:
        """Add a feature; return its text in the source, and the name of its macro."""
        rng, state = self.rng, self.state
        spelling = rng.choice(_SPELLINGS)
        if "embed" in spelling and state.layout == "variant1":
            spelling = "plain"  # SCons copies what it knows only
        scope = "all" if spelling in _ALL_PASSES_ONLY else rng.choice(["all", "all", "one", "host"])
        text = self._spelled(spelling, number)
        if scope == "all":
            return text, f"F{number}"
        condition = (_ONE_TARGET if scope == "one" else _HOST)[state.kind]
        return f"#if {condition}\n{text}#else\n#define F{number} 0\n#endif\n", f"F{number}"

    def _spelled(self, spelling: str, number: int) -> str:
        if spelling.startswith("embed"):
            return self._embed(spelling, number)
        if spelling.startswith("next"):
            return self._next(spelling, number)
        if spelling in ("flag file", "config"):
            return self._flag_file(spelling, number)
        name, text = f"h{number}.h", f"#define F{number} {self.rng.randint(1, 99)}\n"
        quoted = spelling not in _INCLUDES or self.rng.random() < 0.5
        folder = self._folder(quoted=quoted and self.state.layout != "variant1")
        if spelling == "beside" and self.state.layout != "variant1":
            folder = self.state.base
        if spelling.startswith("-"):
            return self._forced(spelling, name, text)
        if spelling == "nested":
            self.state.files[f"{folder}{name}"] = f'#include "n{number}.h"\n'
            self.state.files[f"{folder}n{number}.h"] = text
        elif spelling == "generated":
            self._generated(name, text)
        elif not spelling.startswith("asked") or self.rng.random() < 0.5:
            self.state.files[folder + name] = text
        form = _INCLUDES.get(spelling, "#include {0}\n")
        return form.format(f'"{name}"' if quoted else f"<{name}>", number)

    def _folder(self, *, quoted: bool) -> str:
        """Return a folder that is searched."""
        state = self.state
        found = [f"{state.base}{folder}/" for folder in state.path]
        found += [f"{folder}/" for folder in _given(state, quoted=quoted)]
        if quoted:
            found.append(state.base)
        return self.rng.choice(found)

    def _next(self, spelling: str, number: int) -> str:
        name = f"h{number}.h"
        state = self.state
        form = _NEXT if spelling == "next" else _NEXT_ASKED
        state.files[f"{state.base}{state.path[0]}/{name}"] = form.format(name, number)
        if spelling == "next" or self.rng.random() < 0.5:
            text = f"#define F{number} {self.rng.randint(1, 99)}\n"
            state.files[f"{state.base}{state.path[-1]}/{name}"] = text
        return f"#include <{name}>\n"

    def _embed(self, spelling: str, number: int) -> str:
        name = f"h{number}.bin"
        quoted = f'"{name}"'
        there = spelling == "embed" or self.rng.random() < 0.5
        if there:
            self.state.files[self.state.base + name] = str(self.rng.randint(1, 9))
        if spelling == "embed":
            return f"enum {{ F{number} =\n#embed {quoted}\n}};\n"
        return (
            f"#if __has_embed({quoted})\n#define F{number} 1\n#else\n#define F{number} 0\n#endif\n"
        )

    def _forced(self, flag: str, name: str, text: str) -> str:
        # Clang's job of the preprocessed text gets -Xclang's flags, too, but no -I.
        words = flag.split()[-1:] if self.state.keeps_temporaries else flag.split()
        where = self.rng.choice(["", *(f"{folder}/" for folder in _given(self.state, quoted=True))])
        self.state.files[where + name] = text
        added = [*words, name] if len(words) == 1 else [*words, "-Xclang", name]
        self.state.flags["CCFLAGS"] += added
        return ""

    def _generated(self, name: str, text: str) -> None:
        folder = "made"  # SCons comes to it after the sources, if nothing says otherwise
        if folder not in self.state.path:
            self.state.path.append(folder)
        self.state.files[f"{self.state.base}{folder}/{name}.txt"] = text
        self.state.generated.append((f"{folder}/{name}", f"{folder}/{name}.txt"))

    def _flag_file(self, spelling: str, number: int) -> str:
        name = f"flags{number}.txt"
        self.state.files[name] = f"-DF{number}={self.rng.randint(1, 99)}\n"
        words = [f"@{name}"] if spelling == "flag file" else ["--config", f"./{name}"]
        if spelling == "config" and any("--config" in word for word in self.state.flags["CCFLAGS"]):
            words = [f"@{name}"]
        self.state.flags["CCFLAGS"] += words
        return ""


def _given(state: State, *, quoted: bool) -> list[str]:
    """Return the folders that flags name and where includes look."""
    args = state.flags["CCFLAGS"]
    found = []
    for flag, folder in itertools.pairwise(args):
        if flag in ("-isystem", "-idirafter") or (flag == "-iquote" and quoted):
            found.append(folder)
    found += [word[2:] for word in args if word.startswith("-I")]
    return found + state.variables.get("CPATH", "").split(":")[: bool(state.variables)]


def candidates(state: State) -> list[str]:
    """Name files that may appear: each header in each other folder that anything searches."""
    folders = [f"{state.base}{folder}/" for folder in state.path]
    folders += [f"{folder}/" for folder in _given(state, quoted=True)]
    args = state.flags["CCFLAGS"]
    folders += [word.split("=")[1] + "/" for word in args if word.startswith("--embed-dir=")]
    folders += [state.base, "", "unsearched/"]
    if state.layout == "repository":
        folders += [f"{folder}/" for folder in state.path]
    numbers = range(20)
    names = [f"h{n}.h" for n in numbers] + [f"n{n}.h" for n in numbers]
    names += [f"h{n}.bin" for n in numbers]
    used = "\n".join(state.files.values()) + " ".join(args)
    made = {f"{state.base}{target}" for target, _ in state.generated}
    found = [
        state.real(folder + name)
        for name in names
        if name in used
        for folder in dict.fromkeys(folders)
    ]
    there = {*state.files, *state.links, *state.hard, *made}
    return [name for name in dict.fromkeys(found) if name not in there]


def project(seed: object) -> State:
    """Return a random project; it builds."""
    rng = random.Random(f"project {seed}")
    kind = rng.choices(["hip", "rdc", "openmp", "cuda"], [5, 2, 2, 1])[0]
    layout = rng.choices(["plain", "variant0", "variant1", "repository"], [6, 1, 1, 1])[0]
    decider = rng.choices(
        ["content", "content-timestamp", "timestamp-match", "timestamp-newer"], [5, 1, 1, 1]
    )[0]
    # What a CacheDir gives is older than the headers: for make's rule, for ever out of date.
    caches = decider != "timestamp-newer" and rng.random() < 0.5
    targets = TARGETS[kind]
    archs = rng.sample(targets, rng.randint(1, 2) + (kind != "openmp"))
    if "gfx90a" in archs and "gfx90a:xnack+" in archs:
        archs.remove("gfx90a:xnack+")
    stems = [f"k{number}" for number in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    state = State(kind, layout, decider, caches, archs, stems, [])
    state.path = [f"inc{number}" for number in range(rng.randint(1, 3))]
    quiet = _QUIET[kind]
    state.flags = {"CCFLAGS": [], "OFFLOAD_FLAGS": [*quiet], "OFFLOAD_HOST_FLAGS": [*quiet]}
    _add_folders(rng, state)
    state.defines = {"GIVEN": rng.randint(1, 9)}
    if rng.random() < 0.2:
        state.words = [f"-DWORD={rng.randint(1, 9)}"]
    calls = _CALLS[kind]
    state.calls = [calls[n] for n in sorted(rng.sample(range(len(calls)), rng.choice([1, 1, 2])))]
    if kind == "hip" and rng.random() < 0.25:
        state.second = {"EXTRA": rng.randint(1, 9)}
    elif layout == "plain" and rng.random() < 0.12 and "--embed-dir" not in str(state.flags):
        state.flags["CCFLAGS"].append("--save-temps")  # clang's assembler refuses the other one
    _write_sources(rng, state)
    own = random.Random(f"links {seed}")
    free = not any(name.endswith("h7.h") or "F7" in state.files[name] for name in state.files)
    if own.random() < _TWICE and layout != "variant1" and free:
        add_twice(own, state, 7)
    add_surroundings(random.Random(f"surroundings {seed}"), state)
    return state


_BEGINNING = ("h8.h", "h9.h")
_FEWEST_USERS = 3


def with_shared_beginning(state: State) -> State:
    """Return a project as another one whose sources may share a precompiled header.

    There are at least three; all begin with the same two headers, whose values they use.
    """
    made = state.copy()
    made.pch = True
    made.flags["CCFLAGS"] = ["-O1", *made.flags["CCFLAGS"]]
    numbers = range(len(made.stems), _FEWEST_USERS)
    for stem in [f"k{number}" for number in numbers]:
        made.stems.append(stem)
        launch = "" if made.kind == "openmp" else _LAUNCH
        text = launch.format("cuda" if made.kind == "cuda" else "hip")
        made.files[f"{made.base}{stem}{made.suffix}"] = f"#define OWN 1\n{text}"
    for number, name in enumerate(_BEGINNING):
        folder = made.path[-1 if number else 0]
        macro = f"F{8 + number}"
        text = f"#ifdef SCALE\n#define {macro} SCALE\n#else\n#define {macro} {number + 1}\n#endif\n"
        made.files[f"{made.base}{folder}/{name}"] = text
    begin = "// text\n" + "".join(f"#include <{name}>\n" for name in _BEGINNING)
    for stem in made.stems:
        name = made.source_file(stem + made.suffix)
        kernel = f"__attribute__((global)) void begun_{stem}(int* p) {{ *p = F8 + F9; }}\n"
        host = f"int begun_host_{stem}() {{ return F8 + F9; }}\n"
        text = host if made.kind == "openmp" else kernel + host
        made.files[name] = begin + made.files[name] + text
    return made


def _add_folders(rng: random.Random, state: State) -> None:
    for number in range(rng.choice([0, 1, 1, 2])):
        flag = rng.choice(_FLAG_FOLDERS)
        folder = f"flag{number}"
        if flag == "CPATH":
            state.variables["CPATH"] = folder
        elif flag.endswith("=") or flag == "-I":
            state.flags["CCFLAGS"].append(flag + folder)
        else:
            state.flags["CCFLAGS"] += [flag, folder]


def _write_sources(rng: random.Random, state: State) -> None:
    maker = _Maker(rng, state)
    shared = [maker.feature(number) for number in range(rng.randint(0, 2))]
    number = len(shared)
    for index, stem in enumerate(state.stems):
        own = [maker.feature(number + n) for n in range(rng.randint(0, 2))]
        number += len(own)
        features = rng.sample(shared, rng.randint(0, len(shared))) + own
        last = index == len(state.stems) - 1
        name = f"{state.base}{stem}{state.suffix}"
        state.files[name] = _source(rng, state, stem, features, last=last)
    if any("runtime.c" in call for call in state.calls):
        runtime = "cuda" if state.kind == "cuda" else "hip"
        state.files[f"{state.base}runtime.c"] = _RUNTIME.replace("RT", runtime)


def _source(
    rng: random.Random, state: State, stem: str, features: list[tuple[str, str]], *, last: bool
) -> str:
    names = ["OWN", "GIVEN", "WORD", "EXTRA", *(macro for _, macro in features)]
    text = "".join(text for text, _ in features) + f"#define OWN {rng.randint(1, 99)}\n"
    for name in ("GIVEN", "WORD", "EXTRA", "ARCH", "HERE"):
        text += f"#ifndef {name}\n#define {name} 0\n#endif\n"
    values = "".join(f"  p[{n}] = {name};\n" for n, name in enumerate([*names, "ARCH", "HERE"]))
    host = f"void host_{stem}(int* p) {{\n{values}}}\n"
    if state.kind == "openmp":
        region = (
            f"void region_{stem}(int* p) {{\n"
            f"#pragma omp target map(tofrom : p[0 : 16])\n  {{\n{values}  }}\n}}\n"
        )
        return text + host + region + ("int main(void) { return 0; }\n" if last else "")
    launch = _LAUNCH.format("cuda" if state.kind == "cuda" else "hip")
    kernel = f"__attribute__((global)) void kernel_{stem}(int* p) {{\n{values}}}\n"
    return text + launch + kernel + host
