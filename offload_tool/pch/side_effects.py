"""Side effects of a precompiled header (PCH), found by compiling a probe with and without it.

A PCH must not change the bytes of a compile. Clang does not store all its state in a PCH
(docs/precompiled-headers.md has the table). Code that headers emit into each including source
moves: objects with constructors, variables of ``__attribute__((used))``, kernels, assembler
statements. Therefore each PCH is checked with a small source, compiled

- with it, and with the same ``#include``s instead: if the assembly differs, no source may use the
  PCH. The source with it also repeats the ``#include``s, to check that all headers are guarded;
- for the host, as an empty source, with it and without any header: a difference would reorder
  initialisation and variables of a source. Device code showed none.

The verdict "no difference" is cached on disk, by the code of the headers: see `_key_of_effects`.

The one exception is ``<iostream>``: ``std::ios_base::Init``, since libstdc++ 13 the name of a
function of the library.

Source: clang 19.1, 21.1, 22.1 and 23, observed.

A source may reach the PCH ``common.cuh`` through ``norm.cuh``, which defines only guards before its
include (see `include_prefix`). The PCH was made without these guards. If its headers test such a
macro, or include an earlier header, they differ in this source. Therefore no macro of a chain may
be a token of the headers, nor be defined before the source by the compiler, a flag, or an
``-include`` file. Headers may also paste tokens to a macro name (``a##b``): two or three tokens
that join to the name count as a use.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from offload_tool.clang.depfile import read_depfile
from offload_tool.clang.options import TARGETS, does
from offload_tool.io.file_digests import (
    cached_by_stat,
    content_of,
    digest_of,
    file_stat,
    identity,
    is_system_path,
)
from offload_tool.io.paths import remove, sibling
from offload_tool.io.process import capture_merged
from offload_tool.manifest.source_text import code_digest
from offload_tool.passes.command import dependency_flags
from offload_tool.pch.include_prefix import Candidate, absolute_name, without_dots
from offload_tool.pch.recipe import SHARED_OPTIONS, Names, PchRecipe
from offload_tool.toolchain.disk_cache import cached_result

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
"""Its output depends on the state that pragmas set, and on what clang has counted."""
_OF_PROCESSOR = ("-target-cpu", "-target-feature", "-mlink-builtin-bitcode")
"""Options of the front end whose values differ between the targets of one compile."""
_OF_IOSTREAM = re.compile(
    r"_ZStL8__ioinit|_ZSt21ios_base_library_initv|__cxx_global_var_init|_GLOBAL__sub_I_.*"
)
_COMMENT = re.compile(r"[ \t]+(?:#|;|//|@ ).*")
_LABEL = re.compile(r"(?m)^([A-Za-z_$][\w.$]*):")
_GLOBAL = re.compile(r"(?m)^\s*\.(?:globl|weak|type|local|comm)\s+([A-Za-z_$][\w.$]*)")
_DIFFERENCES = (
    *((_LABEL, "symbol"), (_GLOBAL, "symbol")),
    (re.compile(r"\.section\s+([^,\s]+)"), "section"),
    (re.compile(r"\.(?:asciz|string|ascii)\s+\"(.*)\""), "string"),
    (re.compile(r"(.+)"), "line"),
)
_SPLICE = re.compile(rb"(?:\\|\?\?/)[ \t\f\v]*\r?\n")
_WORD_BYTES = b"_$0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OTHERS = bytes(byte for byte in range(256) if byte not in _WORD_BYTES)
_BLANKS = bytes.maketrans(_OTHERS, b" " * len(_OTHERS))
_KEY = "no side effects of a precompiled header"
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
_UNKNOWN = "the compiler does not tell its macros, or a header has just changed"


def run_quietly(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a command without input; return its exit status and its output."""
    try:
        return capture_merged(command, environment)
    except OSError as error:
        return 127, str(error).encode()


class _Probe:
    """The compiles of the probe."""

    def __init__(self, recipe: PchRecipe, naming: Sequence[str]) -> None:
        self.source, self.depfile, self._output, self._names = (
            sibling(recipe.file, end) for end in (".probe", ".probe.d", ".s", ".probe.names")
        )
        self._recipe = recipe
        self._use = ["-Xclang", "-include-pch", "-Xclang", recipe.file, *SHARED_OPTIONS, *naming]
        self.is_guarded = False

    def _compiled(self, *more: str, source: str = os.devnull) -> str:
        args = self._recipe.with_args("-w", "-S", *more, "-o", self._output, source)
        status, messages = run_quietly(args, self._recipe.environment)
        return "" if status or messages else Path(self._output).read_text(errors="replace")

    def with_it(self) -> str:
        """Return the assembly with the PCH; set whether all its headers are guarded."""
        includes = Path(self._recipe.text_file).read_bytes()
        Path(self.source).write_bytes(includes + _PROBE)
        remove(self._names)
        use, listed = self._use, dependency_flags(self.depfile)
        again = self._compiled(*use, *_names_options(self._names), *listed, source=self.source)
        self.is_guarded = bool(again) and not names_in(self._names)
        Path(self.source).write_bytes(_PROBE)
        return again if self.is_guarded else self._compiled(*use, *listed, source=self.source)

    def reason_of_effects(self, with_it: str, making: Sequence[str]) -> str:
        """Return which effect of the headers differs with the PCH; "" if none."""
        text = self._recipe.text_file
        plain = self._compiled("-include", text, *making, source=self.source)
        if not plain:
            return "a probe does not compile without it"
        if difference := _difference(plain, with_it):
            return f"a probe compiles to other bytes with it: {difference}"
        if self._recipe.stage == "device":
            return ""
        alone, nothing = self._compiled(*self._use), self._compiled()
        return _reason_of_emission(alone, nothing, lambda: self._compiled("-include", "iostream"))

    def remove(self) -> None:
        """Remove its files."""
        for name in (self.source, self.depfile, self._output, self._names):
            remove(name)


def reason_of_probe(
    recipe: PchRecipe,
    making: Sequence[str],
    naming: Sequence[str],
    entered: Iterable[str],
    read: Iterable[str],
) -> tuple[str, bool]:
    """Return why no pass may use the PCH, or "", and whether all its headers are guarded.

    `making` give its text the names of a source; `naming` and `entered` are as in
    `recipe.options_for`; `read` are all its files.
    """
    probe = _Probe(recipe, naming)
    try:
        with_it = probe.with_it()
        if not with_it:
            return "a probe does not compile with it", False
        known = {*read_depfile(probe.depfile)}
        for name in entered:
            if absolute_name(name, recipe.folder) not in known:
                return f"'{name}' has another name in it", False
        key = _key_of_effects(recipe, read)
        with _locks[key]:  # another target's check may run
            reason = cached_result(
                [_KEY, key],
                lambda: probe.reason_of_effects(with_it, making),
                lambda reason: None if reason else (),
            )
        return str(reason), probe.is_guarded
    except OSError as error:
        return f"a probe cannot be compiled: {error.strerror}", False
    finally:
        probe.remove()


def _key_of_effects(recipe: PchRecipe, read: Iterable[str]) -> str:
    """Return a digest of all that decides whether a PCH has side effects.

    That is the code of its headers: comments have none, and `eligibility` reads what is for other
    processors, too. So the targets of a build need one probe, and edited comments none.
    """
    args = ("", *recipe.args)
    common = (
        arg
        for before, arg in itertools.pairwise(args)
        if before not in _OF_PROCESSOR and not does(arg, TARGETS)
    )
    codes = (f"{n} {file_stat(n)}" if is_system_path(n) else code_digest(n) for n in read)
    text = "\0".join([recipe.stage, recipe.compiler_identity, *common, "", *codes])
    return digest_of(text.encode(errors="surrogateescape"))


def reason_of_order(recipe: PchRecipe, candidate: Candidate, entered: Sequence[str]) -> str:
    """Return how the source's reading order differs from its PCH's; "" if it does not.

    `entered` are the PCH's files, with names and order as in a source. This runs the preprocessor
    on the source of the PCH.
    """
    names = sibling(recipe.file, ".source.names")
    source, *passed = (each.name for each in candidate.includers)
    try:
        remove(names)
        args = ("-w", "-fsyntax-only", "-Xclang", "-Eonly", *_names_options(names), source)
        status, _ = run_quietly(recipe.with_args(*args), recipe.environment)
        if status:
            return f"'{source}' does not compile by itself"
        read = names_in(names)
    finally:
        remove(names)
    for name in passed:
        if name not in read:
            return f"'{name}' is not what '{source}' reads first"
        read.remove(name)
    for expected, found in zip(entered, [*read, *[""] * len(entered)], strict=False):
        if expected != found:
            last = candidate.includers[-1].name
            return f"'{expected}' is not read behind '{last}', but '{found}'"
    return ""


def _names_options(file: str) -> list[str]:
    """Return the options by which clang writes the names of headers that it enters."""
    return ["-Xclang", "-header-include-file", "-Xclang", file, "-Xclang=-sys-header-deps"]


def names_in(file: str) -> list[str]:
    """Return the names that clang wrote to a file: see `_names_options`."""
    return os.fsdecode(content_of(file)).splitlines()


def _reason_of_emission(with_it: str, nothing: str, iostream: Callable[[], str]) -> str:
    """Return what a PCH would add to each object; "" if nothing."""
    if with_it == nothing:
        return ""
    emitted = _symbols(with_it) - _symbols(nothing)
    if names := sorted(name for name in emitted if not _OF_IOSTREAM.fullmatch(name)):
        return f"its headers define '{names[0]}' in each source"
    if emitted and with_it == iostream():
        return ""
    return "its headers emit code"


def _difference(plain: str, with_it: str) -> str:
    """Return the first difference of two assembly texts; "" if they are equal."""
    if plain == with_it:
        return ""
    first, second = (
        dict.fromkeys(_COMMENT.sub("", line).strip() for line in text.splitlines())
        for text in (plain, with_it)
    )
    for lines, other, where in ((first, second, "without"), (second, first, "with")):
        alone = [line for line in lines if line and line not in other]
        for pattern, what in _DIFFERENCES:
            if found := next((match[1] for line in alone if (match := pattern.match(line))), ""):
                return f"{what} '{found}' is there only {where}"
    return "another order"


def _symbols(text: str) -> set[str]:
    """Return the symbols that assembly defines or declares global."""
    return {*_LABEL.findall(text), *_GLOBAL.findall(text)}


class SourceStart(NamedTuple):
    """State before the first line of a source, and in the headers of its PCH."""

    tokens: frozenset[str]
    """The tokens of the headers, and the macros defined before the source."""
    files: tuple[str, ...]
    """The files that flags and the compiler itself include before the source."""


def reason_of_includers(
    recipe: PchRecipe, inputs: Iterable[str], candidate: Candidate, known: SourceStart | None
) -> str:
    """Return why a source may not use the PCH with these `inputs`; "" if it may."""
    names = Names.of(candidate.headers, recipe.folder)
    made_of = {identity(name): names.shown(name) for name in inputs}
    for each in candidate.includers:
        if inside := made_of.get(identity(each.name)):
            name = without_dots(each.name)
            return f"'{name}' is before the precompiled header, and in it as '{inside}'"
    if known is None:
        return _UNKNOWN
    for each in candidate.includers:
        for guard, line in each.guards:
            if forming := _tokens_forming(guard, known.tokens):
                location = f"{without_dots(each.name)}:{line}"
                where = _location_of(forming[0], inputs, names)
                how = "" if forming == (guard,) else f" as {' and '.join(forming)}"
                return f"'{location}' defines {guard}, which {where} has{how}"
    return ""


def source_start(recipe: PchRecipe, inputs: Mapping[str, str]) -> SourceStart | None:
    """Return the state before a PCH's sources, by the digests of its inputs; None if not known."""
    file = recipe.tokens_file
    if file_stat(file) is None:
        from offload_tool.io import replace_file

        depfile = sibling(recipe.file, f".{os.urandom(8).hex()}.d")  # another pass may do the same
        args = ("-w", "-E", "-dM", *dependency_flags(depfile), os.devnull)
        try:
            status, macros = run_quietly(recipe.with_args(*args), recipe.environment)
            if status or not macros:
                return None
            files = [name for name in read_depfile(depfile) if name != os.devnull]
        finally:
            remove(depfile)
        listed = {name: _tokens_of(name) for name in inputs}
        if any(listed[name][1] != digest for name, digest in inputs.items()):
            return None  # edited since the PCH was found to be current
        found = _tokens_in(macros).union(*(tokens for tokens, _ in listed.values()))
        with replace_file(file) as out:
            out.write(json.dumps([files, b" ".join(sorted(found)).decode()]).encode())
    return _read_source_start(file)


@cached_by_stat
def _read_source_start(file: str) -> SourceStart | None:
    try:
        files, tokens = json.loads(content_of(file))
        return SourceStart(frozenset(tokens.split()), tuple(files))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


@cached_by_stat  # targets read the same headers
def _tokens_of(file: str) -> tuple[frozenset[bytes], str]:
    """Return the tokens of a file, and the digest of the text that has them."""
    text = content_of(file)
    return _tokens_in(text), digest_of(text)


def _tokens_in(text: bytes) -> frozenset[bytes]:
    return frozenset(_SPLICE.sub(b"", text).translate(_BLANKS).split())


def _tokens_forming(macro: str, tokens: frozenset[str]) -> tuple[str, ...]:
    """Return the tokens that are a macro, or form it when pasted."""
    if macro in tokens:
        return (macro,)
    begins = [at for at in range(1, len(macro)) if macro[:at] in tokens]
    ends = [at for at in range(1, len(macro)) if macro[at:] in tokens]
    for first in begins:
        for last in ends:
            if first == last:
                return macro[:first], macro[last:]
            if first < last and macro[first:last] in tokens:
                return macro[:first], macro[first:last], macro[last:]
    return ()


def _location_of(token: str, inputs: Iterable[str], names: Names) -> str:
    """Return the first position of a token in the headers, or the compiler's command."""
    pattern = re.compile(rb"(?<![\w$])" + re.escape(token.encode()) + rb"(?![\w$])")
    for name in inputs:
        text = content_of(name)
        if found := pattern.search(text):
            line = text.count(b"\n", 0, found.start()) + 1
            return f"'{names.shown(name)}:{line}'"
    return "the compiler's command"
