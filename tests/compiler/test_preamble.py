"""What a source begins with, for a precompiled header of its own; clang is the judge."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from offload_tool.compiler.preamble import preamble_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ('#include "a.h"\nint x;\n', "int x;"),
        ("// c\n/* d\n e */ #include <a.h> // f\n\n#define A(x) \\\n  x + 'a'\nint x;\n", "int x;"),
        (
            '#include "a.h"\n#if A\n#include <b.h>\n#else // c\n#endif\n#if B\nint x;\n#endif\n',
            "#if B",
        ),
        ('#ifdef A\n#include "a.h"\n', "#ifdef A"),  # a conditional without an end
        ('#include "a.h"\n#define A "//" /* b */ 1\n#pragma once\n', "#pragma"),
        ('#include "a.h"\n#define R R"(\n#include <b.h>\n', "#define R"),
        ('#include "a.h"\n#include A\n', "#include A"),
        ('#include "a.h"\n#define A /* b\n*/ 1\n', "#define A"),
        ('#include "a.h"\n// b\\\n#include <b.h>\n', "// b"),
        ('#include "a.h"\n// b??/\n#include <b.h>\n', "// b"),
        ('#include "a.h"\r\n#define A\r\n// b\rint x;\n', "// b"),
        ('#include "a.h"\n#endif\n', "#endif"),
        ('#include "a.h"\n#else\n#endif\n', "#else"),
        ('#include "a.h"\n#import <b.h>\n#line 3\n', "#import"),
    ],
)
def test_ends(tmp_path: Path, text: str, end: str) -> None:
    """It ends before what is no plain directive, or a conditional that goes on."""
    source = tmp_path / "a.hip"
    source.write_bytes(text.encode())
    found = preamble_of(str(source)).text.decode()
    assert text.startswith(found)
    rest = text[len(found) :]
    assert rest.lstrip("\r\n").startswith(end)


def test_none(tmp_path: Path) -> None:
    """One that includes nothing is none; nor is that of a file that is not there."""
    source = tmp_path / "a.hip"
    source.write_text("#define A 1\nint x;\n")
    assert preamble_of(str(source)).includes == 0
    assert preamble_of(str(tmp_path / "b.hip")).text == b""


PIECES = [
    *(
        "\n",
        "// text\n",
        "/* text */\n",
        "/* text\n */",
        '#include "a.h"\n',
        "#include <b.h> // c\n",
    ),
    *("#define A 1\n", "#define B(x) x \\\n  + 1\n", "#undef A\n", "# define C '\"'\n", "\r\n"),
    *(
        "#if A\n",
        "#ifdef B\n",
        "#ifndef C\n",
        "#else\n",
        "#elif A > 1\n",
        "#endif\n",
        "#endif // c\n",
    ),
    *("int x;\n", "#pragma once\n", '#define S "//"\n', '#define R R"(\n', ')"\n', "// text\\\n"),
    *(
        "/\\\n* text */\n",
        "// t??/\n",
        "#error no\n",
        "\\\n",
        "#define D /* e\n */ 1\n",
        "\r",
        "#\n",
    ),
    *("%:define E\n", "??=define F\n", '#define G "\\"//"\n', "#include /* c */ <d.h>\n", "  \t"),
]


@pytest.mark.llvm
def test_within_what_clang_says(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Of random texts it is never more than what clang takes for the preamble (-print-preamble)."""
    clang = llvm("clang")
    found = 0
    for seed in range(60):
        random_ = random.Random(seed)
        pieces = random_.choices(PIECES, k=random_.randint(2, 12))
        source = tmp_path / "a.cpp"
        source.write_bytes(("#include <a.h>\n" + "".join(pieces)).encode())
        ours = preamble_of(str(source)).text
        command = [clang, "-cc1", "-std=c++17", "-print-preamble", str(source)]
        theirs = subprocess.run(command, capture_output=True, check=True).stdout
        assert theirs.startswith(ours.rstrip(b"\r\n")), (seed, ours, theirs)
        found += len(ours) > len("#include <a.h>\n")
    assert found > 10
