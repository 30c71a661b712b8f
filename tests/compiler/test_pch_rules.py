"""Which passes may use a precompiled header, and what is said of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.compiler.pch_rules import may_lose_messages, reason_of_flags, reason_of_headers
from offload_tool.compiler.toolchain import find_toolchain
from offload_tool.errors import CompilerError
from tests.conftest import missing

DEVICE = "-x hip --cuda-device-only --offload-arch=gfx90a --no-gpu-bundle-output -c -nogpuinc"
HOST = "-x hip --offload-host-only -c -nogpuinc"
PTX = "-x cuda --cuda-device-only --offload-arch=sm_80 -nocudainc -nocudalib -S"


def reason(stage: str, words: str, kind: str = "hip") -> str:
    try:
        clang = find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
        raise
    base = {"hip": DEVICE if stage == "device" else HOST, "cuda": PTX}.get(kind, "")
    command = [*clang.clang, *base.split(), "-nogpulib", *words.split()]
    return reason_of_flags(kind, stage, command, dict(os.environ))


@pytest.mark.parametrize(
    ("stage", "words", "expected"),
    [
        ("device", "-O2", ""),
        ("device", "-Os", ""),
        ("device", "-O2 -g0", ""),
        ("device", "-O3 -DX -std=c++20 -ffast-math -Wall", ""),
        ("host", "-O2 -fgpu-rdc", ""),
        ("host", "-O2 -fPIC", ""),
        ("device", "", "no optimization (-O0)"),
        ("device", "-O2 -O0", "no optimization (-O0)"),
        ("host", "", "no optimization (-O0)"),
        ("device", "-O2 -g", "debug information (-g)"),
        ("host", "-O2 -gline-tables-only", "debug information (-g)"),
        ("device", "-O2 -fgpu-rdc", "relocatable device code"),
        ("host", "-O2 -emit-llvm", "its output is bitcode"),
        ("host", "-O2 -flto", "its output is bitcode"),
        ("host", "-O2 --coverage", "coverage"),
        ("host", "-O2 -fsanitize=address", "sanitizers"),
        ("host", "-O2 -fprofile-instr-generate", "profiles"),
        ("host", "-O2 -fmodules", "modules"),
        ("host", "-O2 -Xclang -include-pch -Xclang x", "a precompiled header of its own"),
        ("host", "-O2 -save-temps", "several jobs"),
        ("host", "-O2 -ftime-trace", "files beside its output"),
        ("host", "-O2 -no-such-option", "the compiler does not say what it would run"),
    ],
)
def test_flags(stage: str, words: str, expected: str) -> None:
    """Passes whose output was seen to differ, or that were not looked at, use none."""
    assert reason(stage, words) == expected


def test_kinds() -> None:
    """CUDA's passes to PTX may use one; those of OpenMP, which name inodes, do not."""
    assert reason("device", "-O2", "cuda") == ""
    assert reason("device", "-O2", "openmp") == "openmp sources"


def test_plain_sources() -> None:
    """Those of C and C++ may use one without optimization, too; which language, their flags say."""
    clang = find_toolchain()

    def of(words: str) -> str:
        command = [*clang.cxx, *words.split(), "-x", "c++"]
        return reason_of_flags("c++", "host", command, dict(os.environ))

    assert of("-O0 -fPIC") == ""
    assert of("-O2 -g") == "debug information (-g)"
    assert of("-O2 -fms-extensions") == "Microsoft's extensions"
    assert of("-O2 -MMD") == "files beside its output"
    assert of("-std=c++20 -fprebuilt-module-path=x") == "modules"


def test_unused_macros() -> None:
    """What clang says of a source's own macros is lost with a precompiled header of them."""
    clang = find_toolchain()
    command = [*clang.cxx, "-Wunused-macros", "-x", "c++"]
    assert may_lose_messages(b"#define X\n", command, dict(os.environ))
    assert not may_lose_messages(b"#include <x>\n", command, dict(os.environ))
    command = [*clang.cxx, "-Wall", "-x", "c++"]
    assert not may_lose_messages(b"#define X\n", command, dict(os.environ))


def test_flags_of_files_count(tmp_path: Path) -> None:
    """What a response file says counts as if it stood on the command line."""
    (tmp_path / "words").write_text("-g\n")
    assert reason("host", f"-O2 @{tmp_path}/words") == "debug information (-g)"


TEXTS = {
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
    expected = f"'{header}' has {TEXTS[text]}" if TEXTS[text] else ""
    assert reason_of_headers("device", [str(header)]) == expected


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
