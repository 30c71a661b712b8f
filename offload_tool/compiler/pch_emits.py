"""What a precompiled header (PCH) puts into each host object by itself.

Clang emits most definitions where a source asks for them, in the order in which it asks, and that
is the same with a PCH. What headers have emitted into each source that includes them (objects with
constructors, variables of ``__attribute__((used))``, aliases, kernels, statements of the assembler)
is emitted at other places with a PCH: it changed the order of initialisation, and of variables. So
an empty source is compiled with the PCH and without: where that makes a difference, no source may
use the PCH. Device code was the same with all of these.

What is let through is that of ``<iostream>`` alone: ``std::ios_base::Init``, since libstdc++ 13 the
name of a function of the library.

Source: clang 19.1, 21.1 and 22.1, observed.
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
        "_ZSt21ios_base_library_initv",
    }
)


def reason_of_emission(recipe: PchRecipe, run: Run) -> str:
    """Say what a PCH, which is there, would put into each object; "" where it is nothing.

    `run` runs a command; it gives its exit status, and all that it says.
    """
    use = [part for word in ("-include-pch", recipe.file) for part in ("-Xclang", word)]
    without = _compiled(recipe, run, [])
    with_it = _compiled(recipe, run, [*use, *recipe.reading()])
    if not without or not with_it:
        return "an empty source does not compile with it"
    if without == with_it:
        return ""
    emitted = _symbols(with_it) - _symbols(without)
    if names := sorted(emitted - _OF_IOSTREAM, key=_as_people_know_it):
        return f"its headers define '{names[0]}' in each source"
    if emitted and with_it == _compiled(recipe, run, ["-include", "iostream"]):
        return ""
    return "its headers emit code"


def _as_people_know_it(name: str) -> tuple[bool, str]:
    return name.startswith("."), name


def _compiled(recipe: PchRecipe, run: Run, more: Sequence[str]) -> bytes:
    """Give the object of an empty source, with some words more; none where it does not compile."""
    output = beside(recipe.file, ".o")
    words, program = recipe.words, recipe.program
    command = [*words[:program], *more, *words[program:], "-w", "-c", "-o", output, os.devnull]
    try:
        status, said = run(command, recipe.environment)
        return b"" if status or said else Path(output).read_bytes()
    except OSError:
        return b""
    finally:
        with suppress(OSError):
            os.unlink(output)  # noqa: PTH108


def _symbols(data: bytes) -> set[str]:
    """Give the names of an object's symbols; none where it is no ELF file."""
    from offload_tool.formats.objects.elf import read_elf_sections

    try:
        return {symbol.name for symbol in read_elf_sections(memoryview(data)).named_symbols()}
    except ContentError:
        return set()
