"""What a precompiled header (PCH) changes: a probe is compiled with it and without.

A PCH promises the bytes of a compile without it. Clang does not write all that it knows into one
(docs/precompiled-headers.md has the table). What headers emit into each source that includes them
stands at other places with one: objects with constructors, variables of ``__attribute__((used))``,
kernels, statements of the assembler. So for each PCH a small source is
compiled:

- with it, and with the same ``#include``s: where the assembly differs, no source may use the PCH;
  the source with it has those ``#include``s, too, by which no header may come twice;
- for the host an empty one, with it and without any header: where that makes a difference, the
  order of initialisation and of variables would change in a source. Device code was the same.

What is let through is that of ``<iostream>`` alone: ``std::ios_base::Init``, since libstdc++ 13 the
name of a function of the library.

Source: clang 19.1, 21.1, 22.1 and 23, observed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.depfile import read_depfile
from offload_tool.io.paths import beside, remove
from offload_tool.passes.compile_pass import dependency_flags
from offload_tool.pch.file_names import absolute_name

if TYPE_CHECKING:
    from offload_tool.pch.include_prefix import Candidate
    from offload_tool.pch.pch import PchRecipe

    Run = Callable[[Sequence[str], Mapping[str, str]], tuple[int, bytes]]

_PROBE = b"""\
#if defined __HIP_DEVICE_COMPILE__ || defined __CUDA_ARCH__
#define OFFLOAD_PROBE __attribute__((global))
__attribute__((device))
#else
#define OFFLOAD_PROBE
#endif
int offload_probe_data = 1;
struct offload_probe_layout { char offload_a; long long offload_b; int offload_c : 3; };
OFFLOAD_PROBE void offload_probe(float *f, int *a, int n) {
  while (n--) a[n] += __COUNTER__;
  *a += sizeof(struct offload_probe_layout) + offload_probe_data;
  f[3] = f[0] * f[1] + f[2] - f[0] / f[1];
}
#if __cplusplus >= 201103L
static auto offload_probe_lambda = [] {};
template <class T> OFFLOAD_PROBE void offload_probe_name(int *a) { *a = sizeof(T); }
template OFFLOAD_PROBE void offload_probe_name<decltype(offload_probe_lambda)>(int *);
#endif
"""
"""What comes out of it shows what pragmas have set, and what clang has counted."""
_OF_IOSTREAM = re.compile(
    r"_ZStL8__ioinit|_ZSt21ios_base_library_initv|__cxx_global_var_init|_GLOBAL__sub_I_.*"
)
_COMMENT = re.compile(r"[ \t]+(?:#|;|//|@ ).*")
_LABEL = re.compile(r"(?m)^([A-Za-z_$][\w.$]*):")
_GLOBAL = re.compile(r"(?m)^\s*\.(?:globl|weak|type|local|comm)\s+([A-Za-z_$][\w.$]*)")
_SHOWN = (
    *((_LABEL, "symbol"), (_GLOBAL, "symbol")),
    (re.compile(r"\.section\s+([^,\s]+)"), "section"),
    (re.compile(r"\.(?:asciz|string|ascii)\s+\"(.*)\""), "string"),
    (re.compile(r"(.+)"), "line"),
)


def reason_of_probe(
    recipe: PchRecipe,
    making: Sequence[str],
    naming: Sequence[str],
    entered: Iterable[str],
    run: Run,
) -> tuple[str, bool]:
    """Return why no pass may use a PCH, which is there; "" where they may.

    The second value is whether its headers come once where they are included again. `making` are
    the words by which its text has the names of a source, `naming` and the files `entered` are as
    of `file_names.words_for`. `run` runs a command; it gives its exit status, and all that it says.
    """
    source, output, depfile, again = (
        beside(recipe.file, end) for end in (".probe", ".s", ".probe.d", ".probe.names")
    )
    use = ["-Xclang", "-include-pch", "-Xclang", recipe.file, *recipe.reading(), *naming]
    use_again = [*use, *_writing_names(again)]

    def compiled(*more: str, source: str = os.devnull) -> str:
        words, program = recipe.words, recipe.program
        end = ["-w", "-S", *more, "-o", output, source]
        status, said = run([*words[:program], *words[program:], *end], recipe.environment)
        return "" if status or said else Path(output).read_text(errors="replace")

    try:
        includes = Path(recipe.text_file).read_bytes()
        Path(source).write_bytes(includes + _PROBE)
        remove(again)
        with_it = compiled(*use_again, *dependency_flags(depfile), source=source)
        is_guarded = bool(with_it) and not _names_in(again)
        Path(source).write_bytes(_PROBE)
        if not is_guarded:
            with_it = compiled(*use, *dependency_flags(depfile), source=source)
        plain = compiled("-include", recipe.text_file, *making, source=source)
        if not with_it or not plain:
            return "a probe does not compile with it", False
        if difference := _difference(plain, with_it):
            return f"a probe compiles to other bytes with it: {difference}", False
        known = {*read_depfile(depfile)}
        for name in entered:
            if absolute_name(name, recipe.folder) not in known:
                return f"'{name}' has another name in it", False
        if recipe.stage == "device":
            return "", is_guarded
        return _reason_of_emission(
            compiled(*use), compiled(), lambda: compiled("-include", "iostream")
        ), is_guarded
    except OSError as error:
        return f"a probe cannot be compiled: {error.strerror}", False
    finally:
        for name in (source, output, depfile, again):
            remove(name)


def reason_of_order(recipe: PchRecipe, of: Candidate, entered: Sequence[str], run: Run) -> str:
    """Return which file a source reads otherwise than its PCH, without it; "" if there is none.

    `entered` are the files of the PCH by the names and in the order of a source. That is asked of
    the preprocessor, for the source for which it is made.
    """
    names = beside(recipe.file, ".source.names")
    source, *passed = (each.name for each in of.passed)
    try:
        remove(names)
        words = [*recipe.words, "-w", "-fsyntax-only", "-Xclang", "-Eonly", *_writing_names(names)]
        status, _ = run([*words, source], recipe.environment)
        if status:
            return f"'{source}' does not compile by itself"
        read = _names_in(names)
    finally:
        remove(names)
    for name in passed:
        if name not in read:
            return f"'{name}' is not what '{source}' reads first"
        read.remove(name)
    for expected, found in zip(entered, [*read, *[""] * len(entered)], strict=False):
        if expected != found:
            return f"'{expected}' is not read behind '{of.passed[-1].name}', but '{found}'"
    return ""


def _writing_names(file: str) -> list[str]:
    """Return the words by which clang writes the names of the headers that it enters.

    With those for system headers, it names those of ``-include``, too.
    """
    return ["-Xclang", "-header-include-file", "-Xclang", file, "-Xclang=-sys-header-deps"]


def _names_in(file: str) -> list[str]:
    try:
        return os.fsdecode(Path(file).read_bytes()).splitlines()
    except OSError:
        return []


def _reason_of_emission(with_it: str, nothing: str, iostream: Callable[[], str]) -> str:
    """Return what a PCH would put into each object; "" where it is nothing."""
    if with_it == nothing:
        return ""
    emitted = _symbols(with_it) - _symbols(nothing)
    if names := sorted(name for name in emitted if not _OF_IOSTREAM.fullmatch(name)):
        return f"its headers define '{names[0]}' in each source"
    if emitted and with_it == iostream():
        return ""
    return "its headers emit code"


def _difference(plain: str, with_it: str) -> str:
    """Return what one text of assembly has and the other has not; "" where they are equal."""
    if plain == with_it:
        return ""
    first, second = (
        dict.fromkeys(_COMMENT.sub("", line).strip() for line in text.splitlines())
        for text in (plain, with_it)
    )
    for lines, other, where in ((first, second, "without"), (second, first, "with")):
        alone = [line for line in lines if line and line not in other]
        for pattern, what in _SHOWN:
            if found := next((match[1] for line in alone if (match := pattern.match(line))), ""):
                return f"{what} '{found}' is there only {where}"
    return "another order"


def _symbols(text: str) -> set[str]:
    """Return the names of the symbols that assembly defines, or makes global."""
    return {*_LABEL.findall(text), *_GLOBAL.findall(text)}
