"""Leading includes: which lines count, and that nothing else of a source is taken with them."""

from __future__ import annotations

import os
import random
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from offload_tool.pch.include_prefix import SearchPath, includes_text, leading_includes
from tests.conftest import found_toolchain

BEGINNINGS = {
    b"#include <a.h>\n": ("a.h",),
    b"\n// text\n/* more\n * text */ #include <a.h>\n\n#include<b/c>\n": ("a.h", "b/c"),
    b"  #  include\t<a.h> // why\r\n#include <b.h> /* why */\n": ("a.h", "b.h"),
    b"// \\file x\n#include <a.h>\nint x;\n#include <b.h>\n": ("a.h",),
    b"#include <a.h>": (),
    b'#include "a.h"\n#include <b.h>\n': (),
    b"#include <a.h>\n#define X\n#include <b.h>\n": ("a.h",),
    b"#include <a.h>\n#include NAME\n": ("a.h",),
    b"#include_next <a.h>\n": (),
    b"#import <a.h>\n": (),
    b"%:include <a.h>\n": (),
    b"#pragma once\n#include <a.h>\n": (),
    b"// goes on \\\n#include <a.h>\n": (),
    b"// goes on \\ \n#include <a.h>\n": (),
    b"#include <a.h> // goes on \\\n#include <b.h>\n": (),
    b"#include \\\n<a.h>\n": (),
    b"/* ends *\\\n/ #include <a.h>\n": (),
    b"// trigraph ??/\n#include <a.h>\n": (),
    b"#include /* where? */ <a.h>\n": (),
    b"/* open\n#include <a.h>\n": (),
    b"#include <a.h> /* two\nlines */\n#include <b.h>\n": (),
    b"\xef\xbb\xbf#include <a.h>\n": (),
    b"": (),
}


@pytest.mark.parametrize("text", BEGINNINGS)
def test_headers(text: bytes) -> None:
    """Lines of includes in angle brackets count up to the first thing that is anything else."""
    found = leading_includes(text)
    assert tuple(name for name, _ in found) == BEGINNINGS[text]
    assert {text[end - 1 : end] for _, end in found} <= {b"\n"}


def test_unreadable_source(tmp_path: Path) -> None:
    """A source that is not there begins with nothing."""
    assert SearchPath(str(tmp_path)).candidates(str(tmp_path / "none.hip")).all == ()


PIECES = (
    *("#include <h0>\n", "#include <h1>\n", "  # include <h2> // c\n", "/* c */", "// c\n", "\n"),
    *("#define M <h1>\n", "#include M\n", '#include "h2"\n', "// c \\\n", "#if 1\n", "#endif\n"),
    *("/* c\n c */ ", "#undef N0\n", "int x;\n", "\\\n", "#include <h0> /* c */\n", "%:"),
)


def test_clang_agrees(tmp_path: Path) -> None:
    """What clang makes of a source, it makes of the headers' text and the rest, in one file each.

    The judge is the preprocessor, with all macros, over random beginnings.
    """
    rng = random.Random(1)
    for number in range(3):
        (tmp_path / f"h{number}").write_text(f"#define N{number} __COUNTER__\nint n{number};\n")
    sources, split = [], []
    for number in range(150):
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 6))).encode()
        found = leading_includes(text)
        if found:
            end = found[-1][1]
            begin = includes_text(tuple(f"<{name}>" for name, _ in found), "/")
            sources.append((tmp_path / f"{number}.hpp", text))
            split.append((tmp_path / f"{number}-split.hpp", begin + text[end:]))
    assert len(sources) > 30
    texts, clang = [], found_toolchain().clang
    for files in (sources, split):
        for path, text in files:
            path.write_bytes(text)
        command = [*clang, "-x", "c++", "-E", "-P", "-dD", "-w", f"-I{tmp_path}"]
        runs = [subprocess.run([*command, path], capture_output=True) for path, _ in files[:40]]
        # A source that is an error is one in both.
        texts.append([run.stdout.split() if run.returncode == 0 else [] for run in runs])
    assert texts[0] == texts[1]
    assert sum(map(bool, texts[0])) > 20


def test_beginning_of_a_large_file(tmp_path: Path) -> None:
    """A gigabyte of holes behind the includes is not read."""
    source = tmp_path / "s.hip"
    source.write_bytes(b"#include <a.h>\nint x;\n")
    os.truncate(source, 1 << 30)
    tracemalloc.start()
    found = SearchPath(str(tmp_path)).candidates(str(source)).all
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(each.headers, each.end) for each in found] == [(("<a.h>",), 15)]
    assert most < 8 << 20
