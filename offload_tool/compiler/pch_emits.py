"""What a precompiled header (PCH) of a C or C++ source puts into each object by itself.

Clang emits most definitions where a source asks for them, in the order in which it asks, and that
is the same with a PCH. What headers have emitted into each source that includes them (objects with
constructors, variables of ``__attribute__((used))``, aliases, statements of the assembler) is
emitted at other places with a PCH: it changed the order of initialisation. So an empty source is
compiled with the PCH and without: where that makes a difference, no source may use the PCH.

The one thing that is let through is ``std::ios_base::Init`` of libstdc++'s ``<iostream>``.

Source: clang 19.1 and 22.1, observed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.compiler.aside import beside
from offload_tool.errors import ContentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload_tool.compiler.pch import PchRecipe

    Run = Callable[[Sequence[str], Mapping[str, str]], tuple[int, bytes]]

__all__ = ["reason_of_emission"]

_OF_IOSTREAM = frozenset(
    {
        *("_ZStL8__ioinit", "_ZNSt8ios_base4InitC1Ev", "_ZNSt8ios_base4InitD1Ev"),
        *("__cxa_atexit", "__dso_handle", "__cxx_global_var_init", "_GLOBAL__sub_I_null"),
    }
)


def reason_of_emission(recipe: PchRecipe, run: Run) -> str:
    """Say what a PCH, which is there, would put into each object; "" where it is nothing.

    `run` runs a command; it gives its exit status, and all that it says.
    """
    output = beside(recipe.file, ".o")
    words, program = recipe.words, recipe.program
    use = [part for word in ("-include-pch", recipe.file) for part in ("-Xclang", word)]
    made: list[bytes] = []
    try:
        for more in ([], [*use, *recipe.reading()]):
            command = [*words[:program], *more, *words[program:], "-w", "-c", "-o", output]
            status, said = run([*command, os.devnull], recipe.environment)
            if status or said:
                return "an empty source does not compile with it"
            made.append(Path(output).read_bytes())
    except OSError:
        return "an empty source does not compile with it"
    finally:
        with suppress(OSError):
            os.unlink(output)  # noqa: PTH108
    if made[0] == made[1]:
        return ""
    names = sorted(_symbols(made[1]) - _symbols(made[0]) - _OF_IOSTREAM)
    if not names and _symbols(made[1]) >= {"_ZStL8__ioinit"}:
        return ""
    return f"its headers define '{names[0]}' in each source" if names else "its headers emit code"


def _symbols(data: bytes) -> set[str]:
    """Give the names of an object's symbols; none where it is no ELF file."""
    from offload_tool.formats.objects.elf import read_elf_sections

    try:
        return {symbol.name for symbol in read_elf_sections(memoryview(data)).named_symbols()}
    except ContentError:
        return set()
