"""What ``__has_include`` asks for is known, or known to be unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.manifest.has_include import has_include_names

NONE: list[str] = []
KNOWN = {
    "as it is": ('#if __has_include(<x.h>) && __has_include("y.h")\n', ["x.h", "y.h"]),
    "stand-in": ("#ifndef __has_include\n#define __has_include(x) 0\n#endif\n", NONE),
    "told": ("#if defined(__has_include) || defined __has_embed\n#ifdef __has_include\n", NONE),
    "in a macro": ("#define ASK __has_include(<x.h>)\n#if ASK\n", ["x.h"]),
    "macro": ("#define NAME <x.h>\n#if __has_include(NAME)\n", ["x.h"]),
    "macro of a macro": ('#define A "x.h"\n#define B A\n#if __has_include(B)\n', ["x.h"]),
    "two definitions": (
        "#define NAME <x.h>\n#define NAME <y.h>\n#if __has_include(NAME)\n",
        ["x.h", "y.h"],
    ),
    "wrapper": (
        '#define HAS(x) __has_include(x)\n#if HAS(<x.h>) || defined(HAS) && HAS("y.h")\n',
        ["x.h", "y.h"],
    ),
    "in a comment": ("// see __has_include\n/* #if __has_include(WHAT) */\n", NONE),
    "not in a directive": ('const char* text = "__has_include";\n', NONE),
    "with a limit": ("#if __has_embed(<x.bin> limit(1)) == 1\n", ["x.bin"]),
}
UNKNOWN = {
    "nobody's": "#if __has_include(NAME)\n",
    "put together": "#define HAS(x) __has_include(<x/v.h>)\n",
    "macro in a name": "#define LIB lib\n#define ASK __has_include(<LIB/v.h>)\n",
    "macro in a macro": "#define LIB lib\n#define NAME <LIB/v.h>\n#if __has_include(NAME)\n",
    "made string": "#define T(x) #x\n#if __has_include(T(v.h))\n",
    "wrapper of a wrapper": ("#define A(x) __has_include(x)\n#define B(x) A(x)\n#if B(<x.h>)\n"),
    "wrapper by another name": "#define A(x) __has_include(x)\n#define B A\n#if B(<x.h>)\n",
    "another name": "#define HAS __has_include\n#if HAS(<x.h>)\n",
    "macro of macros": "#define P(x) <x.h>\n#define NAME P(a)\n#if __has_include(NAME)\n",
}


@pytest.mark.parametrize(("text", "names"), KNOWN.values(), ids=KNOWN.keys())
def test_known_names(tmp_path: Path, text: str, names: list[str]) -> None:
    """Where names are told as they are, they are known: nobody has to be asked in each build."""
    source = tmp_path / "k.hip"
    source.write_text(text)
    found, unknown = has_include_names([str(source)], [])
    assert {*names} <= {*found}
    assert not unknown


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_names(tmp_path: Path, text: str) -> None:
    """Where a name is put together, the preprocessor has to be asked."""
    source = tmp_path / "k.hip"
    source.write_text(text)
    assert has_include_names([str(source)], [])[1]


def test_macro_of_a_configuration_file(tmp_path: Path) -> None:
    """A configuration file may define the macro in another way."""
    source = tmp_path / "k.hip"
    source.write_text("#define NAME <x.h>\n#if __has_include(NAME)\n")
    assert not has_include_names([str(source)], [])[1]
    assert has_include_names([str(source)], ["--config", "f.cfg"])[1]
