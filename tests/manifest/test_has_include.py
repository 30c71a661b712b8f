"""What ``__has_include`` asks for is known, or known to be unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.manifest.source_text import has_include_names

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
    "put together": "#define HAS(x) __has_include(<x/v.h>)\n",
    "made string": "#define T(x) #x\n#if __has_include(T(v.h))\n",
    "wrapper of a wrapper": f'{WRAPPER}#define B(x) HAS(x)\n#if B("x.h")\n',
    "wrapper by another name": f'{WRAPPER}#define B HAS\n#if B("x.h")\n',
    "wrapper of a macro": f"{WRAPPER}#if HAS(NAME)\n",
    "another name": "#define HAS __has_include\n#if HAS(<x.h>)\n",
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
