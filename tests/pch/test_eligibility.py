"""Which passes may use a precompiled header, and what is said of the others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from offload_tool.pch.eligibility import (
    guard_of,
    reason_of_flags,
    reason_of_headers,
    undefined_macros,
)
from tests.conftest import found_toolchain

DEVICE = "-x hip --cuda-device-only --offload-arch=gfx90a --no-gpu-bundle-output -c -nogpuinc"
HOST = "-x hip --offload-host-only -c -nogpuinc"
PTX = "-x cuda --cuda-device-only --offload-arch=sm_80 -nocudainc -nocudalib -S"


def reason(stage: str, args: str, kind: str = "hip") -> str:
    base = {"hip": DEVICE if stage == "device" else HOST, "cuda": PTX}.get(kind, "")
    command = [*found_toolchain().clang, *base.split(), "-nogpulib", *args.split()]
    return reason_of_flags(kind, command, dict(os.environ))


@pytest.mark.parametrize(
    ("stage", "args", "expected"),
    [
        ("device", "-O2", ""),
        ("device", "-Os", ""),
        ("device", "-O2 -g0", ""),
        ("device", "-O3 -DX -std=c++20 -ffast-math -Wall", ""),
        ("host", "-O2 -fPIC", ""),
        ("device", "", "no optimization (-O0)"),
        ("device", "-O2 -O0", "no optimization (-O0)"),
        ("device", "-O0 -Xclang -O2", ""),
        ("host", "", "no optimization (-O0)"),
        ("device", "-O2 -g", "debug information (-g)"),
        ("host", "-O2 -gline-tables-only", "debug information (-g)"),
        ("device", "-O2 -fgpu-rdc", "relocatable device code"),
        ("host", "-O2 -fgpu-rdc", "relocatable device code"),
        ("host", "-O2 -emit-llvm", "bitcode output (-emit-llvm, -flto)"),
        ("host", "-O2 -flto", "bitcode output (-emit-llvm, -flto)"),
        ("host", "-O2 --coverage", "coverage"),
        ("host", "-O2 -fsanitize=address", "sanitizers"),
        ("host", "-O2 -fprofile-instr-generate", "profiles"),
        ("host", "-O2 -fmodules", "modules"),
        ("host", "-O2 -Xclang -include-pch -Xclang x", "a precompiled header in its flags"),
        ("host", "-O2 -save-temps", "several jobs"),
        ("host", "-O2 -fmacro-prefix-map=a=b", "other names of files (-fmacro-prefix-map)"),
        ("device", "-O2 -ffile-prefix-map=a=b", "other names of files (-fmacro-prefix-map)"),
        ("device", "-O2 -ffile-reproducible", "other names of files (-ffile-reproducible)"),
        ("host", "-O2 -Xclang -fmacro-prefix-map=a=b", "other names of files (-fmacro-prefix-map)"),
        (
            "device",
            "-O2 -foffload-implicit-host-device-templates",
            "implicit device code (-foffload",
        ),
        ("host", "-O2 -fdebug-prefix-map=a=b -fno-file-reproducible", ""),
        ("host", "-O2 -ftime-trace", "further output files (-ftime-trace)"),
        ("host", "-O2 -no-such-option", "flags that the compiler refuses"),
    ],
)
def test_flags(stage: str, args: str, expected: str) -> None:
    """Passes whose output was seen to differ, or that were not looked at, use none."""
    found = reason(stage, args)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
    assert not found or re.search(r"\(.*\w.*\)|: ", found)  # what the user can leave out, or do


def test_kinds() -> None:
    """CUDA's passes to PTX may use one; those of OpenMP, which name inodes, do not."""
    assert reason("device", "-O2", "cuda") == ""
    assert (
        reason("device", "-O2", "openmp")
        == "openmp sources: only those of HIP and CUDA can use one"
    )


def test_flags_of_files_count(tmp_path: Path) -> None:
    """What a response file says counts as if it stood on the command line."""
    (tmp_path / "words").write_text("-g\n")
    assert reason("host", f"-O2 @{tmp_path}/words") == "debug information (-g)"


LAMBDA = "a lambda outside of functions"
TIME = "a pasted macro of the time, or '#pragma GCC dependency'"
TEXTS = {
    "const char *time = P(__TIME, STAMP__);\n": TIME,
    '#pragma GCC dependency "value.h"\n': TIME,
    "template <class T> struct S {};\n": "",
    "extern template class S<int>;\n": "",
    "int f() { return x.template g<int>() + X::template h<int>(); }\n": "",
    '// a template class\n/* template int */ auto s = "a template class";\n': "",
    "template class S<int>;\n": "an explicit instantiation",
    "#define MAKE(T) template __global__ void k<T>(T*);\n": "an explicit instantiation",
    "template\nvoid f<int>();\n": "an explicit instantiation",
    "auto f = __BASE_FILE__;\n": "__BASE_FILE__",
    "int depth = __INCLUDE_LEVEL__;\n": "__INCLUDE_LEVEL__",
    "#define DAY __DATE__\n": "__DATE__",
    'int v __attribute__((section("s"))) = 1;\n': "a section of its own",
    'int v __attribute__ (( __section__ ("s") ));\n': "a section of its own",
    "// a section (three paragraphs)\n": "",
    '#pragma clang section data="s"\n': "a pragma that is lost",
    "#  pragma weak \\\n  f\n": "a pragma that is lost",
    "#pragma \\\n weak f\n": "a pragma that is lost",
    '_Pragma("redefine_extname f g")\n': "a pragma that is lost",
    "#pragma omp begin declare target\n": "a pragma that is lost",
    '#pragma clang diagnostic warning "-Wunused-macros"\n': "a pragma that is lost",
    "#pragma once\n#pragma pack(push, 1)\n": "",
    "#pragma clang fp contract(fast)\n": "",
    "#pragma clang fp eval_method(double)\n": "a pragma that is lost",
    "#pragma clang fp contract(off) eval_method(source)\n": "a pragma that is lost",
    "#define DO_PRAGMA(x) _Pragma(#x)\nDO_PRAGMA(redefine_extname f g)\n": "a pragma that is lost",
    '#define P(x) _Pragma(#x)\nP(push_macro("X"))\n': "a pragma without its end",
    '#line 3 "other.h"\n': "a name by #line",
    '  # 3 "other.h" 2\n': "a name by #line",
    "%:line LINE_AND_NAME\n": "a name by #line",
    "#line 3\n": "",
    "static auto f = [](int x) { return x; };\n": LAMBDA,
    'extern "C" {\nstatic auto f = [] { return "}"; };\n}\n': LAMBDA,
    "#if A\nnamespace n {\n#else\nnamespace m {\n#endif\n}\nconst auto f = [] {};\n": LAMBDA,
    "template <class T = decltype([]() {})> struct S;\n": LAMBDA,
    "auto f = [x = 1](int) mutable { return x; };\n": LAMBDA,
    "#define MAKE(n) static auto n = [] {};\n": LAMBDA,
    "inline constexpr auto f = [](int x) { return x; };\n": "",
    "namespace n::m {\n inline namespace l { namespace { auto f = [] {}; } } }\n": LAMBDA,
    "void f(int (*)(int) = [](int x) { return x; });\n": LAMBDA,
    "inline int f() { return [] { return 1; }() + [] { return 2; }(); }\n": "",
    '#pragma clang deprecated(OLD, "gone")\n': "a pragma that is lost",
    "struct S { int f() { return g([]() {}); } };\nint c[] = {1}, d[](2);\n": "",
    "// auto f = [] {};\n[[nodiscard]] int f();\nint operator[](S, int);\n": "",
    "#pragma GCC visibility push(hidden)\n": "a pragma without its end",
    "#pragma GCC visibility push(hidden)\n#pragma GCC visibility pop\n": "",
    '#pragma push_macro("X")\n': "a pragma without its end",
    '_Pragma("push_macro(\\"X\\")")\n': "a pragma without its end",
    '#pragma push_macro("X")\n#pragma pop_macro("Y")\n': "a pragma without its end",
    '#pragma push_macro( "X")\n_Pragma("pop_macro(\\"X\\")")\n': "",
}


@pytest.mark.parametrize("text", TEXTS)
def test_headers(tmp_path: Path, text: str) -> None:
    """Headers that name the main file, or instantiate explicitly, are not precompiled."""
    header = tmp_path / "h.h"
    header.write_text(text)
    found = reason_of_headers("device", [str(header)])
    expected = f"has {TEXTS[text]}" if TEXTS[text] else ""
    assert re.sub(r".*h\.h(?::\d+)?' ", "", found) == expected


def test_reasons_name_the_line(tmp_path: Path) -> None:
    """A reason names the header and the line, also behind lines that are joined."""
    header = tmp_path / "h.h"
    header.write_text('#define A \\\n 1 \\\n + 2\n\n#line 1 "other.h"\nint b;\n')
    assert reason_of_headers("host", [str(header)]) == f"'{header}:5' has a name by #line"


def test_one_header_may_end_what_another_begins(tmp_path: Path) -> None:
    """CUDA's core libraries have such headers."""
    for name, text in (("a.h", "push"), ("b.h", "pop"), ("c.h", "push")):
        (tmp_path / name).write_text(f'#pragma {text}_macro("X")\n')
    first, second, third = (str(tmp_path / name) for name in ("a.h", "b.h", "c.h"))
    assert reason_of_headers("host", [first, second]) == ""
    expected = f"'{first}' has a pragma without its end"
    assert reason_of_headers("host", [first, second, third]) == expected


def test_headers_of_the_compiler(tmp_path: Path) -> None:
    """Clang's own headers, and CUDA's stub, were looked at: their sections are of constants."""
    for name in ("lib/clang/22/include/x.h", "include/crt/host_runtime.h", "include/x.h"):
        header = tmp_path / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text('int v __attribute__((section("s")));\n#pragma push_macro("X")\n')
        assert bool(reason_of_headers("host", [str(header)])) == (name == "include/x.h")


def test_headers_of_host_code(tmp_path: Path) -> None:
    """Thrust's host code, and NVTX's, has another order with a precompiled header."""
    assert reason_of_headers("host", ["/x/thrust/sort.h"]) == "host code of '/x/thrust/sort.h'"
    missing_one = str(tmp_path / "thrust/none.h")
    assert reason_of_headers("device", [missing_one]) == f"'{missing_one}' cannot be read"


DEVICE_VARIABLES = {
    "struct S { static inline __device__ int v = 3; };\n": True,
    "struct S {\n static constexpr __constant__ int v[] = {3};\n};\n": True,
    "inline __device__ __attribute__((aligned(8))) int v;\n": True,
    "inline MY_DEVICE int v{3};\n": True,
    "static __device__ int v;\n": False,
    "extern __device__ int v;\n": False,
    "static __device__ int f(int);\n__device__ inline int g() { return 1; }\n": False,
    "struct S { __device__ static inline S& operator=(S); };\n#define X __device__ int\n": False,
    "static inline const int DEVICES = 3;\n": False,
}


@pytest.mark.parametrize("text", DEVICE_VARIABLES)
def test_inline_device_variables(tmp_path: Path, text: str) -> None:
    """Host passes use no PCH of inline device variables; of device passes a probe tells."""
    header = tmp_path / "h.h"
    header.write_text("\n" + text)
    assert reason_of_headers("device", [str(header)]) == ""
    expected = f"'{header}:{3 if len(text.splitlines()) > 1 else 2}' has an inline device variable"
    assert reason_of_headers("host", [str(header)]) == (expected if DEVICE_VARIABLES[text] else "")


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        ("#ifndef A\n#define A\nint a;\n#endif\n", "A"),
        (
            "// text\n # if !defined(A) //\n#\tdefine A 1\n#if 1\n#else\n#endif\n#endif /* A */",
            "A",
        ),
        ("#ifndef A\n#define A\\\n\n#endif\n", "A"),
        ('#ifndef A\n#define A\nauto a = "\\\n#endif";\n#endif\n', "A"),
        ("#ifndef A\n#define AB\n#endif\n", ""),
        ("#ifndef A\n#define A\n#else\nint a;\n#endif\n", ""),
        ("#ifndef A\n#define A\n#elif B\n#endif\n", ""),
        ("#ifndef A\n#define A\n#endif\n#if 1\nint a;\n#endif\n", ""),
        ("#ifndef A\n#define A\n%:endif\nint a;\n%:if 1\n#endif\n", ""),
        ("#ifndef A\n#define A\n#endif\nint a;\n", ""),
        ("int a;\n#ifndef A\n#define A\n#endif\n", ""),
        ("#if !defined A && B\n#define A\n#endif\n", ""),
        ('#ifndef A\n#define A\nR"(\n#if 1\n)"\n#endif\nint a;\n#if 1\n#endif\n', ""),
        ("#pragma once\n", ""),
    ],
)
def test_guards(text: str, guard: str, tmp_path: Path) -> None:
    """A header is guarded by a macro if nothing of it is left once that is defined."""
    header = tmp_path / "a.h"
    header.write_text(text)
    assert guard_of(str(header)) == guard


@pytest.mark.parametrize(
    ("text", "macros"),
    [
        ("#define A\n", []),
        ("#undef A\n%: undef /* text */ B // C\n#un\\\ndef D\n", ["A", "B", "D"]),
        ("// #undef A\nconst char* undef;\n", []),
        ('#pragma pop_macro("A")\n_Pragma("pop_macro(\\"B\\")")\n', ["A", "B"]),
        ("#define POP(x) DO(pop_macro(#x))\n", [""]),
    ],
)
def test_undefined_macros(text: str, macros: list[str], tmp_path: Path) -> None:
    """What a file undefines is no guard any more; "" stands for any macro."""
    header = tmp_path / "a.h"
    header.write_text(text)
    assert [*undefined_macros(str(header))] == macros
