"""Which passes may use a precompiled header (PCH): those whose outputs are the same bytes with it.

Measured on public HIP and CUDA sources, with clang 21 and 22; what was seen to differ, or was not
looked at, compiles without, for a reason that is told:

- debug information lacks declarations that a PCH has imported;
- clang's wrapper of HIP has functions that move to another place in device code of ``-O0``, and in
  relocatable device code (what headers of C and C++ sources do so, `pch_emits` finds);
- the explicit instantiations of a header are emitted after its functions without a PCH, and before
  them with one;
- clang forgets what headers say of sections (a variable there becomes a constant), and what some
  pragmas say of code that comes later;
- ``.bss`` of Thrust's host code has another order, and inline assembly in bitcode other places.

What clang itself refuses (another processor, language, or header) it refuses when the PCH is used.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import TYPE_CHECKING

from offload_tool.compiler.driver import front_end_jobs
from offload_tool.compiler.fingerprints import look_at

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from offload_tool.compiler.fingerprints import Look

__all__ = ["RULES", "may_lose_messages", "reason_of_flags", "reason_of_headers"]

RULES = 5
"""To be raised when one is added: what a PCH was made for once is not asked again."""

_PLAIN_KINDS = ("c", "c++")
"""Sources without device code."""
_KINDS = ("hip", "cuda", *_PLAIN_KINDS)
_REFUSED = (
    ("-debug-info-kind=", "debug information (-g)"),
    ("-fgpu-rdc", "relocatable device code"),
    ("-emit-llvm", "its output is bitcode"),
    ("-fsanitize", "sanitizers"),
    ("-coverage-", "coverage"),
    ("-fcoverage-mapping", "coverage"),
    ("-fprofile", "profiles"),
    ("-fmodule", "modules"),
    ("-fcxx-modules", "modules"),
    ("-fprebuilt-", "modules"),
    ("-include-pch", "a precompiled header of its own"),
    ("-emit-pch", "a precompiled header of its own"),
    ("-fpch-", "a precompiled header of its own"),
    ("-fno-validate-pch", "a precompiled header of its own"),
    ("-fallow-pch-", "a precompiled header of its own"),
    ("-preamble-bytes", "a precompiled header of its own"),
    ("-load", "a plugin"),
    ("-add-plugin", "a plugin"),
    ("-plugin", "a plugin"),
    ("-fpass-plugin", "a plugin"),
    ("-fms-", "Microsoft's extensions"),
    ("-fkeep-static-consts", "each static constant is emitted"),
    ("-fkeep-persistent-storage-variables", "each static variable is emitted"),
    ("-opt-record-file", "files beside its output"),
    ("-split-dwarf", "files beside its output"),
    ("-stack-usage-file", "files beside its output"),
    ("-ftime-trace", "files beside its output"),
    ("-serialize-diagnostic-file", "files beside its output"),
    ("-dependency-file", "files beside its output"),
    ("-header-include-file", "files beside its output"),
    ("-E", "it only preprocesses"),
    ("-fsyntax-only", "it only checks"),
)
"""How options of the front end begin, and what they are; the driver makes them of a user's."""
_OF_MACROS = ("-Wunused-macros", "-Weverything")
_HOST_ONLY = ("-fgpu-rdc",)
"""Those that matter to device code alone."""
_HOST_CODE_MOVES = ("/thrust/", "/nvtx3/")

# Compiled when they are needed: where a PCH is current, none is.
_MAIN_FILE = rb"\b__(?:BASE_FILE|INCLUDE_LEVEL|TIMESTAMP|DATE|TIME)__\b"
_PRAGMA = rb"(?:(?:#|%:)[ \t]*pragma[ \t]+|\b_Pragma[ \t]*\([ \t]*\"[ \t]*)"
_FORGOTTEN = (
    *(rb"weak", rb"redefine_extname", rb"clang[ \t]+section", rb"omp[ \t]+(?:begin|end)"),
    rb"(?:clang|GCC)[ \t]+diagnostic[^\n]*(?:unused-macros|everything)",
)
_LOST = (
    (rb"\b(?:__)?section(?:__)?[ \t\n]*\([ \t\n]*\"", "a section of its own"),
    (_PRAGMA + rb"(?:" + rb"|".join(_FORGOTTEN) + rb")\b", "a pragma that is lost"),
)
_PAIRS = (
    _PRAGMA + rb"(?:GCC[ \t]+)?(visibility)[ \t]+(push|pop)\b",
    _PRAGMA + rb"(?=\w+[ \t]*\([ \t]*\\?\"([^\"\\]*))(push|pop)_macro\b",
)
"""What clang forgets behind a PCH in which it has not ended: of what, and beginning or end."""
_OF_COMPILERS = ("/lib/clang/", "/crt/host_runtime.h")
"""Parts of the names of headers that were looked at: their variables in sections are constants,
their pragmas are ended under other conditions."""
_SPLICE = rb"\\\r?\n"
_NO_END = "a pragma without its end"
_INSTANTIATION = rb"(?<![.>:\w])template\s+[A-Za-z_:]"
_EXTERN = rb"\bextern\s*$"
_TEXTS = rb"(?s)/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\""


def reason_of_flags(
    kind: str, stage: str, command: Sequence[str], environment: Mapping[str, str]
) -> str:
    """Say why a pass with this command may not use a PCH; "" where it may.

    `command` is the pass's up to its input, without an output. The driver is asked (``-###``), so
    that options in files and in the environment count.
    """
    if kind not in _KINDS:
        return f"{kind} sources"
    jobs = front_end_jobs(command, environment)
    if len(jobs) != 1:
        return "several jobs" if jobs else "the compiler does not say what it would run"
    reason = _reason_of_job(jobs[0], is_host=stage != "device")
    return reason or ("" if kind in _PLAIN_KINDS else _reason_of_level(jobs[0]))


def may_lose_messages(text: bytes, command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether clang would say something of a source's own text, and not with a PCH of it.

    It warns of macros in a source that nothing uses, but not of those in a PCH.
    """
    if b"define" not in text:
        return False
    jobs = front_end_jobs(command, environment)
    return any(word in _OF_MACROS for job in jobs for word in job)


def _reason_of_job(job: Sequence[str], *, is_host: bool) -> str:
    for begin, reason in _REFUSED:
        if not (is_host and begin in _HOST_ONLY) and _has(job, begin):
            return reason
    return ""


def _reason_of_level(job: Sequence[str]) -> str:
    levels = [word for word in job if re.fullmatch(r"-O\w*", word)]
    return "no optimization (-O0)" if not levels or levels[-1] == "-O0" else ""


def _has(job: Sequence[str], begin: str) -> bool:
    if begin in ("-E", "-load"):
        return begin in job
    return any(word.startswith(begin) for word in job)


def reason_of_headers(stage: str, files: Collection[str]) -> str:
    """Say why no PCH may be made of these files, which it has read; "" where it may."""
    for name in files:
        if stage != "device" and any(part in name for part in _HOST_CODE_MOVES):
            return f"host code of '{name}'"
        reason = _reason_of_file(name, look_at(name))
        if reason:
            return f"'{name}' {reason}"
    return _what_is_not_ended(files)


@functools.lru_cache(maxsize=65536)
def _reason_of_file(name: str, look: Look | None) -> str:  # noqa: ARG001 - a look, a content
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - called for each header
            text = file.read()
    except OSError:
        return "cannot be read"
    reason = _reason_of_text(text)
    if not reason and not any(part in name for part in _OF_COMPILERS):
        reason = _what_is_lost(text)
    return f"has {reason}" if reason else ""


def _what_is_lost(text: bytes) -> str:
    """Say what clang would forget of a header; "" where there is nothing."""
    if not re.search(rb"section|[pP]ragma", text):
        return ""
    text = re.sub(_SPLICE, b"", text)
    for pattern, what in _LOST:
        if re.search(pattern, text):
            return what
    return ""


def _what_is_not_ended(files: Iterable[str]) -> str:
    """Say which file begins what none of the files ends, or the other way round.

    One header may begin what another ends: those of CUDA's core libraries do.
    """
    in_all: Counter[bytes] = Counter()
    first: dict[bytes, str] = {}
    for name in files:
        if not any(part in name for part in _OF_COMPILERS):
            for what, count in _not_ended_in(name, look_at(name)):
                in_all[what] += count
                first.setdefault(what, name)
    return next((f"'{first[what]}' has {_NO_END}" for what, count in in_all.items() if count), "")


@functools.lru_cache(maxsize=65536)
def _not_ended_in(name: str, look: Look | None) -> tuple[tuple[bytes, int], ...]:  # noqa: ARG001
    """Give what is begun in a file, and how often more than it is ended."""
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - called for each header
            text = file.read()
    except OSError:
        return ()
    if not re.search(rb"visibility|_macro", text):
        return ()
    counts: Counter[bytes] = Counter()
    for pattern in _PAIRS:
        for what, end in re.findall(pattern, re.sub(_SPLICE, b"", text)):
            counts[what] += 1 if end == b"push" else -1
    return tuple((what, count) for what, count in counts.items() if count)


def _reason_of_text(text: bytes) -> str:
    found = re.search(_MAIN_FILE, text)
    if found:
        return found[0].decode()
    if re.search(_INSTANTIATION, text) is None:
        return ""
    code = re.sub(_TEXTS, b" ", text)
    for match in re.finditer(_INSTANTIATION, code):
        if not re.search(_EXTERN, code[max(0, match.start() - 64) : match.start()]):
            return "an explicit instantiation"
    return ""
