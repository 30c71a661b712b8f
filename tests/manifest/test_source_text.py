"""What the text of sources says of inputs: names in ``__has_include``, and assembler statements.

The judge of statements is what clang 22 reads for them.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_tool.manifest.source_text import (
    code_digest,
    has_assembler_include,
    has_include_names,
)
from tests.conftest import Tool, run_tool

NONE: list[str] = []
WRAPPER = "#define HAS(n) __has_include(n)\n"
KNOWN = {
    "as it is": ('#if __has_include(<x.h>) && __has_include("y.h")\n', ["x.h", "y.h"]),
    "stand-in": ("#ifndef __has_include\n#define __has_include(x) 0\n#endif\n", NONE),
    "told": ("#if defined(__has_include) || defined __has_embed\n#ifdef __has_include\n", NONE),
    "in a macro": ('#define ASK __has_include("x.h")\n#if ASK\n', ["x.h"]),
    "wrapper": (
        WRAPPER + '#ifdef HAS\n#if HAS("x.h") || defined(HAS) && HAS( "y.h" )\n',
        ["x.h", "y.h"],
    ),
    "another name": (
        "#ifdef __has_include\n#define HAS __has_include\n#else\n#define HAS(...) 0\n#endif\n"
        '#if defined HAS && HAS(<x.h>) || HAS ("y.h")\n',
        ["x.h", "y.h"],
    ),
    "in a comment": ("// see __has_include\n/* #if __has_include(WHAT) */\n", NONE),
    "not in a directive": ('const char* text = "__has_include";\n', NONE),
    "with a limit": ("#if __has_embed(<x.bin> limit(1)) == 1\n", ["x.bin"]),
}
IN_ANGLES = {
    "in a macro": "#define ASK __has_include(<LIB/x.h>)\n",
    "wrapper": f"{WRAPPER}#if HAS(<LIB/x.h>)\n",
}
UNKNOWN = {
    "macro": "#define NAME <x.h>\n#if __has_include(NAME)\n",
    "macro of an embedded file": "#define NAME(x) <x.bin>\n#if __has_embed(NAME(v))\n",
    "put together": "#define HAS(x) __has_include(<x/v.h>)\n",
    "made string": "#define T(x) #x\n#if __has_include(T(v.h))\n",
    "wrapper of a wrapper": f'{WRAPPER}#define B(x) HAS(x)\n#if B("x.h")\n',
    "wrapper by another name": f'{WRAPPER}#define B HAS\n#if B("x.h")\n',
    "wrapper of a macro": f"{WRAPPER}#if HAS(NAME)\n",
    "another name of a macro": "#define HAS __has_include\n#if HAS(NAME)\n",
    "another name in a macro": "#define HAS __has_include\n#define ASK HAS(<LIB/x.h>)\n",
    "another name of another name": "#define HAS __has_include\n#define B HAS\n#if B(<x.h>)\n",
    **IN_ANGLES,
}


def names_in(folder: Path, text: str) -> tuple[list[str], bool]:
    """Return the names in a file of the working directory, and whether there may be more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("k.hip").write_text(text)
        (found,) = has_include_names(["k.hip"]).values()
        return list(found.names), found.unknown


@pytest.mark.parametrize(("text", "names"), KNOWN.values(), ids=KNOWN.keys())
def test_known_names(tmp_path: Path, text: str, names: list[str]) -> None:
    """Names that are spelled out are known, and no preprocessor runs in each build."""
    assert names_in(tmp_path, text) == (names, False)


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_names(tmp_path: Path, text: str) -> None:
    """A name that a macro may make or change is unknown."""
    assert names_in(tmp_path, text)[1]


@pytest.mark.parametrize("text", IN_ANGLES.values(), ids=IN_ANGLES.keys())
def test_headers_outside(tmp_path: Path, text: str) -> None:
    """In headers outside of the working directory, as of CUDA, names in angles are as spelled."""
    header = tmp_path / "k.h"
    header.write_text(text)
    (found,) = has_include_names([str(header)]).values()
    assert (list(found.names), found.unknown) == (["LIB/x.h"], False)


def test_wrapper_of_another_file(tmp_path: Path) -> None:
    """A wrapper counts in all files of a pass."""
    (tmp_path / "has.h").write_text(WRAPPER)
    source = tmp_path / "k.hip"
    source.write_text('#if HAS("x.h")\n')
    assert has_include_names([str(source)])[str(source)].names == ()
    found = has_include_names([str(source), str(tmp_path / "has.h")])
    assert found[str(source)].names == ("x.h",)


TEXT = "#define TEXT(...) #__VA_ARGS__\n"
BOTH = "#define BOTH(a, b) TEXT(a##b)\n"
READING = {
    "plain": r'asm(".incbin \"data\"");',
    "include": r'asm(".include \"data\"");',
    "tab": r'asm("\t.include\t\"data\"");',
    "capitals": r'asm(".INCBIN \"data\"");',
    "some capitals": r'asm(".Include \"data\"");',
    "hexadecimal": r'asm(".inc\x62in \"data\"");',
    "octal": r'asm(".inc\142in \"data\"");',
    "dot of the other name": r'asm("\x2einclude \"data\"");',
    "first letter": r'asm(".\x69nclude \"data\"");',
    "dot": r'asm("\x2eincbin \"data\"");',
    "braces": r'asm(".inc\x{62}in \"data\"");',
    "universal": r'asm(".inc\u0062in \"data\"");',
    "name": r'asm(".inc\N{LATIN SMALL LETTER B}in \"data\"");',
    "parts": r'asm(".inc" "bin \"data\"");',
    "parts with a comment": r'asm(".inc" /* c */ "bin \"data\"");',
    "parts on lines": 'asm(".in"\n"cbin \\"data\\"");',
    "line": 'asm(".inc\\\nbin \\"data\\"");',
    "later": r'asm("nop; .inc" "bin \"data\"");',
    "raw": 'asm(R"(.INCBIN "data")");',
    "raw parts": r'asm(R"(.inc)" "bin \"data\"");',
    "argument goes on": TEXT + r'asm(".inc" TEXT(bin) " \"data\"");',
    "argument in the middle": '#define P(x) ".inc" #x\n' + r'asm(P(bin) " \"data\"");',
    "argument is the name": '#define D(x) "." #x\n' + r'asm(D(incbin) " \"data\"");',
    "argument is the other name": '#define D(x) "." #x\n' + r'asm(D(include) " \"data\"");',
    "argument begins": TEXT + r'asm(TEXT(.inc) "bin \"data\"");',
    "argument is all": TEXT + 'asm(TEXT(.incbin "data"));',
    "arguments pasted": TEXT + BOTH + r'asm(BOTH(.inc, bin) " \"data\"");',
    "part between": TEXT + r'asm("." TEXT(inc) "bin \"data\"");',
    "macro begins": '#define A ".inc"\n' + r'asm(A "bin \"data\"");',
    "macro is the name": '#define A ".incbin"\n' + r'asm(A " \"data\"");',
    "macro goes on": '#define A "bin"\n' + r'asm(".inc" A " \"data\"");',
    "name in its own string": r'asm(".include" " \"data\"");',
    "comment of the assembler": r'asm(".incbin /* c */ \"data\"");',
    "other comment of it": r'asm(".include /* c */ \"data\"");',
    "its macro": r'asm(".macro m x\n.inc\\x \"data\"\n.endm\nm bin");',
    "its macro, raw": 'asm(R"(.macro m x\n.inc\\x "data"\n.endm\nm bin)");',
    "its repetition": r'asm(".irp d,include\n.\\d \"data\"\n.endr");',
    "expression": "struct T { constexpr const char *data() const { return TEXT; }\n"
    "constexpr unsigned long size() const { return 14; } };\nasm((T()));",
}
HIDDEN = r'-DTEXT=".in" "cbin \"data\""'


@pytest.mark.llvm
@pytest.mark.parametrize("text", READING.values(), ids=READING.keys())
def test_reading(text: str, tmp_path: Path, llvm: Tool) -> None:
    """A text for which clang's assembler reads a file, in whatever way it is put together."""
    (tmp_path / "k.cpp").write_text(f"{text}\n")
    made = set()
    for content in (".long 1111\n", ".long 2222\n"):
        (tmp_path / "data").write_text(content)
        command = [llvm("clang++"), "-std=c++20", "-w", HIDDEN, "-c", "k.cpp", "-o", "k.o"]
        run_tool(*command, cwd=tmp_path)
        made.add((tmp_path / "k.o").read_bytes())
    assert len(made) == 2
    assert has_assembler_include(text.encode())


ORDINARY = [
    r'asm volatile("s_nop 0");',
    r'asm volatile("s_waitcnt vmcnt(" #x ")");',
    r'asm("{ add" #type ".f16x2 %0,%1,%2;\n}" : "=r"(x));',
    r'asm volatile("sust.b." __asm_dim "." __asmtype "[%0];");',
    r'asm(".section .text\n\t.globl " #name);',
    r'asm("incl %0; inc %1");',
    r'asm("ld.param.u32 %0, [" P "];");',
    'extern int f() __asm__ (__ASMNAME ("g"));',
    '__asm__ ("bswap %0" : "=r"(x));',
    '#include <a.h>\n#include "b.inc"\n',
    '// Include the file. Include (see there.)\n#include "x"',
    'if (s == ".inc" || s == ".in") include(x);',
    'path("include"); std::string e = ".i";',
    r'printf("a.in\n"); copy(".\\convert.exe");',
    'const char data[] = "\\x01\\x02\\377";',
    'version = TEXT(A) "." TEXT(B);',
    "/* { .add, .min, .max, .inc, .dec } */",
    "include(foo)",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary(text: str) -> None:
    """Instructions with operands of macros read nothing, nor does what looks like a directive."""
    assert not has_assembler_include(text.encode())


SAME_CODE = {
    "comments": ("int a; // one\n/* two\n */ int b;\n", "\nint a;\n  int b; // it's another\n"),
    "name that ends like a raw string": ('f("AN_ERROR"); // a\n', 'f("AN_ERROR"); // b\n'),
    "separators of digits": ("int a = 1'000; // a\n", "int a = 1'000; // b's\n"),
    "quotes in strings": ("f('\"', \"'\"); // a\n", "f('\"', \"'\"); /* b */\n"),
}
OTHER_CODE = {
    "raw string": ('auto a = u8R"(/*a*/)";\n', 'auto a = u8R"(/*b*/)";\n'),
    "raw string after a splice": ('auto a = R\\\n"(//a\n)";\n', 'auto a = R\\\n"(//b\n)";\n'),
    "comment that goes on": ("// a\nint b;\n", "// a\\\nint b;\n"),
    "comment that begins on two lines": ('/\\\n* " */ f("//a");\n', '/\\\n* " */ f("//b");\n'),
    "slashes in a name": ("#include <a//b.h>\n", "#include <a//c.h>\n"),
    "slashes in a string": ('f("//a");\n', 'f("//b");\n'),
    "lone quote": ("#error don't /*\nint a;\n/**/\n", "#error don't /*\nint b;\n/**/\n"),
    "separator of digits": ("f(1'0, '/*'); int a; /**/\n", "f(1'0, '/*'); int b; /**/\n"),
}


def _code_digest(folder: Path, text: str) -> str:
    file = folder / f"{len(list(folder.iterdir()))}.h"
    file.write_bytes(text.encode())
    return code_digest(str(file))


@pytest.mark.parametrize(("one", "other"), SAME_CODE.values(), ids=SAME_CODE.keys())
def test_code_without_comments(tmp_path: Path, one: str, other: str) -> None:
    """Comments, empty lines and blanks around lines are not code."""
    assert _code_digest(tmp_path, one) == _code_digest(tmp_path, other)


@pytest.mark.parametrize(("one", "other"), OTHER_CODE.values(), ids=OTHER_CODE.keys())
def test_code_like_comments(tmp_path: Path, one: str, other: str) -> None:
    """What only looks like a comment is code."""
    assert _code_digest(tmp_path, one) != _code_digest(tmp_path, other)


_PIECES = (
    *("\n", "\\\n", "??/\n", "#if 0\n", "\n#endif\n", " ", "a", "1", "u8", "R"),
    *("/", "*", "//", "/*", "*/", '"', "'", 'R"(', ')"'),
)
_TEXTS = st.lists(st.sampled_from(_PIECES), max_size=12).map("".join)


@pytest.mark.llvm
@given(st.lists(_TEXTS, min_size=40, max_size=40))
@settings(max_examples=8, deadline=None)
def test_equal_code_is_equal_for_clang(llvm: Tool, texts: list[str]) -> None:
    """Texts of equal code have equal tokens, as clang 22 prints them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        by_code: dict[str, set[str]] = {}
        for text in texts:
            for other in (text, text.replace("a", "b"), text + "// b", text.replace("1", "/*a*/")):
                file = folder / "text.h"
                file.write_bytes(other.encode())
                by_code.setdefault(code_digest(str(file)), set()).add(other)
        for group in (each for each in by_code.values() if len(each) > 1):
            tokens = set()
            for other in group:
                (folder / "text.cpp").write_bytes(other.encode())
                command = [llvm("clang"), "-E", "-P", "-w", "-std=c++14", str(folder / "text.cpp")]
                done = subprocess.run(command, capture_output=True, check=False)
                tokens.add((*done.stdout.split(),))
            assert len(tokens) == 1, group
