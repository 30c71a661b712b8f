"""The chain of first includes: a precompiled header (PCH) on it changes no result.

One source makes the PCH, another uses it. Results are compared with the same compile without; for
rejected cases, with the compile that would otherwise result.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from offload_tool.pch import pch
from tests.cli.conftest import hits
from tests.cli.test_compile_manifest import SETTLED
from tests.cli.test_compile_pch import LAUNCH, SIDES, assert_same, compiled, emit
from tests.conftest import Capture, program

DIFFERENT = (
    "different leading includes: it must begin with those of the precompiled header, '{}' is"
)
ENDS = f"{DIFFERENT} where they end"
NAMES = """\
#include "below/more.h"
template <class T> const char* name(T) { return __PRETTY_FUNCTION__; }
inline const char* of_lambda() { auto l = [] {}; return name(l); }
inline const char* builtin(const char* p = __builtin_FILE()) { return p; }
inline const char* macro() { return __FILE__; }
"""
H = f"#pragma once\n#include <launch.h>\n{NAMES}inline int value() {{ return VALUE; }}\n"
USE = """
__global__ void kernel(int* p) { *p = __LINE__ + __COUNTER__; }
int host(int* p) { kernel<<<dim3{1, 1, 1}, dim3{1, 1, 1}>>>(p); return value(); }
const char* names[] = {of_lambda(), builtin(), macro(), more(), __FILE__};
"""
ONCE = "#pragma once\n"
A_H = '#ifndef A_H\n#define A_H\n#include "h.h"\n#endif\n'
FLAGS = ["-nogpuinc", "-nogpulib", "-Iinc", "-DVALUE=3", "-O2"]
BASE = {
    "inc/launch.h": LAUNCH,
    "h.h": H,
    "below/more.h": f"{ONCE}inline const char* more() {{ return __FILE__; }}\n",
    "maker.hip": f'#include "h.h"{USE}',
    "k.hip": f'#include "a.h"{USE}',
    "a.h": A_H,
}
ASKED = "inline int asked() {{\n#if {}\n  return 1;\n#else\n  return 2;\n#endif\n}}\n"
SHOWN = "#ifdef SEEN\nextern const int seen = 1;\n#endif\n"
"""Shows whether the header was read: sources that get a different result compile, too."""


LIST = "inline const char* NAMED() { return __FILE__; }\n"
GUARDED_LIST = (
    f"// text\n#ifndef LIST_H\n#define LIST_H\n{LIST}#if 1\n#else\n#endif\n#endif // LIST_H\n"
)


class Case(NamedTuple):
    """A project, and the reason why its source ``k.hip`` uses no PCH of ``maker.hip``."""

    files: dict[str, str]
    why: str = ""
    flags: tuple[str, ...] = ()
    source: str = "k.hip"
    is_harmless: bool = False
    """The result would be equal even with the rejected PCH."""


def asks(what: str, where: str = "h.h", **files: str) -> dict[str, str]:
    """Return a project's files: a header tests a condition, and the source shows the result."""
    text = {**BASE, **files}[where] + ASKED.format(what)
    return {**files, where: text, "k.hip": f"{BASE['k.hip']}int k = asked();\n"}


def again(text: str, before: str = "", use: str = "const char* k = second();\n") -> dict[str, str]:
    """Return a project whose source reads a header of the PCH again, by another name."""
    return {
        "list.h": text,
        "h.h": f'{H}#define NAMED first_name\n#include "list.h"\n#undef NAMED\n',
        "k.hip": f'{BASE["k.hip"]}{before}#define NAMED second\n#include "below/../list.h"\n{use}',
        "maker.hip": BASE["maker.hip"],
    }


AGAIN = "'below/../list.h' can be included twice, and is 'list.h' in the precompiled header"
SKIPPED = {
    "h.h": f"{H}#define SEEN\n",
    "maker.hip": f'#include "h.h"\n{SHOWN}',
    "k.hip": f'// text\n#include "a.h"\n{SHOWN}',
}
CASES = {
    "guard": Case({}),
    "once": Case({"a.h": f'// text\n{ONCE}/* and */ #include "h.h" // more\n'}),
    "both": Case({"a.h": f"{ONCE}{A_H}"}),
    "defined": Case({"a.h": A_H.replace("#ifndef A_H", "#if !defined(A_H) // a guard")}),
    "with -include": Case({"cfg.h": "#pragma once\n"}, flags=("-include", "cfg.h")),
    "no guard": Case({"a.h": '#include "h.h"\n'}),
    "through three": Case(
        {"a.h": A_H.replace("h.h", "b.h"), "b.h": f"{ONCE}#include <c.h>\n", "inc/c.h": A_H}
        | {"inc/c.h": '#ifndef C_H\n#define C_H\n#include "../h.h"\n#endif\n'},
        ENDS.format("inc/launch.h:2"),  # the same file by another name
    ),
    "angled": Case(
        {"maker.hip": f'#include "b.h"{USE}', "a.h": f"{ONCE}#include <b.h>\n"}
        | {"inc/b.h": '#ifndef B_H\n#define B_H\n#include "../h.h"\n#endif\n'}
    ),
    "dots": Case(
        {"src/k.hip": f'#include "./a.h"{USE}', "src/a.h": f'{ONCE}#include "../h.h"\n'}
        | {"src/maker.hip": f'#include "./../h.h"{USE}', "maker.hip": ""},
        source="src/k.hip",
    ),
    "guarded otherwise": Case(
        {"h.h": "#ifndef H_H\n#define H_H 1\n" + H.replace(ONCE, "") + "#endif\n"}
    ),
    "asked for": Case(asks("defined A_H"), "'a.h:1' defines A_H, which 'h.h:10' has"),
    "asked for below": Case(
        asks("defined(A_H)", "below/more.h"), "'a.h:1' defines A_H, which 'below/more.h:4' has"
    ),
    "asked for by pasting": Case(
        asks("CAT(A, _H) + 0", **{"h.h": f"{H}#define CAT(a, b) a##b\n"})
        | {"a.h": A_H.replace("define A_H", "define A_H 1")},
        "'a.h:1' defines A_H, which 'h.h:11' has as A and _H",
    ),
    "asked for in two lines": Case(
        asks("defined A\\\n_H"), "'a.h:1' defines A_H, which the compiler's command has"
    ),
    "defined by a flag": Case(
        SKIPPED, "'a.h:1' defines A_H, which the compiler's command has", ("-DA_H",)
    ),
    "defined by a file of flags": Case(
        {**SKIPPED, "flags": "-DA_H=2\n"},
        "'a.h:1' defines A_H, which the compiler's command has",
        ("@flags",),
    ),
    "defined by -include": Case(
        {**SKIPPED, "cfg.h": "\n#define A_H\n"},
        "'a.h:1' defines A_H, which 'cfg.h:2' has",
        ("-include", "cfg.h"),
    ),
    "defined by the compiler": Case(
        {**SKIPPED, "a.h": A_H.replace("A_H", "__clang__")},
        "'a.h:1' defines __clang__, which the compiler's command has",
    ),
    "built into the compiler": Case(
        {**SKIPPED, "a.h": A_H.replace("A_H", "__has_include")}, ENDS.format("a.h:1")
    ),
    "included by the header": Case(
        asks("defined AFTER", **{"a.h": f'{ONCE}#include "h.h"\n#define AFTER\n'})
        | {"h.h": f'{H}#include "a.h"\n{ASKED.format("defined AFTER")}'},
        "'a.h' is before the precompiled header, and in it as 'a.h'",
    ),
    "guarded in part": Case(
        {"h.h": "#ifndef H_H\n#define H_H\n" + H.replace(ONCE, "") + "#endif\nint more(int);\n"},
        "'h.h' can be included twice: add '#pragma once'",
        is_harmless=True,
    ),
    "guarded no more": Case(
        {"h.h": "#ifndef H_H\n#define H_H\nint value();\n#undef H_H\n#endif\n"}
        | {"k.hip": '#include "a.h"\n', "maker.hip": '#include "h.h"\n'},
        "'h.h' can be included twice: add '#pragma once'",
        is_harmless=True,
    ),
    "two with one guard": Case(
        {"a.h": A_H.replace("h.h", "b.h"), "b.h": A_H, "h.h": SKIPPED["h.h"]}
        | {"k.hip": SKIPPED["k.hip"]},
        ENDS.format("b.h:3"),
    ),
    "another one": Case(
        {
            "src/k.hip": f'#include "h.h"{USE}',
            "src/h.h": H,
            "src/below/more.h": BASE["below/more.h"],
        },
        ENDS.format("inc/launch.h:2"),
        source="src/k.hip",
    ),
    "read again by another name": Case(again(LIST), AGAIN),
    "guarded, read again by another name": Case(again(GUARDED_LIST, use="")),
    "guarded in part, read again": Case(
        again(f"#ifndef LIST_H\n#define LIST_H\n#endif\n{LIST}"), AGAIN
    ),
    "guard undefined, read again": Case(
        again(GUARDED_LIST, "#undef LIST_H\n"), AGAIN, is_harmless=True
    ),
    "a macro before it": Case(
        asks("X + 0", **{"a.h": f'{ONCE}#define X 1\n#include "h.h"\n'}), ENDS.format("a.h:2")
    ),
    "a condition before it": Case({"a.h": '#if 1\n#include "h.h"\n#endif\n'}, ENDS.format("a.h:1")),
    "a pragma before it": Case(
        {"a.h": '#pragma GCC system_header\n#include "h.h"\n'}, ENDS.format("a.h:1")
    ),
}


def write(files: dict[str, str]) -> None:
    for name, text in {**BASE, **files}.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CASES)
def test_table(
    folder: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch, name: str, side: str
) -> None:
    """With the PCH, a source has the same bytes, depfile and manifest, or a reason for no PCH.

    Without the check, they would differ.
    """
    case = CASES[name]
    write(case.files)
    flags = ["--", *FLAGS, *case.flags]
    maker = case.source.replace("k.hip", "maker.hip")
    assert emit(side, *flags, source=maker if Path(maker).exists() else "maker.hip") == 0
    why = case.why
    if why.endswith("add '#pragma once'"):
        assert f"no precompiled header: {why}" in capfd.readouterr().err
    assert_same(capfd, side, *flags, source=case.source, why=why)
    if side == "host" and why and DIFFERENT.partition(":")[0] not in why and not case.is_harmless:
        plain = compiled(side, *flags, source=case.source)
        monkeypatch.setattr(pch, "reason_of_includers", lambda *_: "")
        monkeypatch.setattr(pch.UsablePch, "reason_of_names", lambda *_: "")
        wrong = compiled(side, *flags, source=case.source, use=f"{side}.pch")
        assert wrong["output"] != plain["output"]


def test_cache_of_compiles(folder: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler cache hits with a PCH, of a chain too, also after an edit was undone."""
    program("ccache")
    monkeypatch.setenv("CCACHE_DIR", str(folder.parent / "ccache"))
    write({})
    expected = compiled("device", "--", *FLAGS)
    monkeypatch.setenv("OFFLOAD_LAUNCHER", "ccache")
    for text, count in ((H, 0), (H, 1), (f"{H}int x();\n", 1), (H, 2)):
        Path("h.h").write_text(text)
        time.sleep(SETTLED)
        assert emit("device", "--", *FLAGS, source="maker.hip") == 0
        found = compiled("device", "--", *FLAGS, use="device.pch")
        assert capfd.readouterr().err == ""
        assert (found == expected) == (text == H)
        assert hits() == count
