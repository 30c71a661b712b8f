"""Which passes may use a precompiled header (PCH): those whose output bytes do not change with it.

Measured on public HIP and CUDA sources, with clang 21 and 22. Everything that differed or was not
examined compiles without a PCH, and the reason is reported:

- debug information lacks declarations that a PCH has imported;
- clang's HIP wrapper has functions that move in device code of ``-O0``, and in relocatable device
  code;
- clang emits the explicit instantiations of a header after its functions without a PCH, and before
  them with one;
- clang forgets the sections that headers set (a variable there becomes a constant), pragmas that
  affect later code, and the number of lambdas outside of functions;
- names that headers set by ``#line`` become names in the working directory;
- ``.bss`` of Thrust's host code has another order, and inline assembly in bitcode moves.

Clang itself rejects a PCH of another processor, language, or header when a pass uses it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from offload_tool.clang.driver import query_front_end
from offload_tool.clang.environment import has_time_macro
from offload_tool.clang.options import reason_against_pch
from offload_tool.io.file_digests import content_of
from offload_tool.toolchain.disk_cache import kept_by_stat

RULES = 8
"""Increment when a rule is added: it invalidates existing PCHs."""

_KINDS = ("hip", "cuda")
_SEVERAL = "several jobs (flags like -save-temps)"
_HOST_CODE_MOVES = ("/thrust/", "/nvtx3/")

# Compiled lazily: a current PCH needs none of them.
_MAIN_FILE = rb"\b__(?:BASE_FILE|INCLUDE_LEVEL|TIMESTAMP|DATE|TIME)__\b"
# The text of pragmas, since macros may expand to them: ``DO_PRAGMA(omp begin ...)``.
_FORGOTTEN = (
    rb"(?:pragma[ \t]+|_Pragma[ \t]*\([ \t]*\\?\"[ \t]*)weak",
    *(rb"redefine_extname", rb"clang[ \t]+section[ \t]+\w+[ \t]*=", rb"omp[ \t]+(?:begin|end)"),
    rb"(?:clang|GCC)[ \t]+diagnostic[^\n]*(?:unused-macros|everything)",
    rb"clang[ \t]+fp[ \t][^\n]*eval_method",
    rb"clang[ \t]+(?:deprecated|restrict_expansion|final|header_unsafe)[ \t]*\(",
)
_LOST = (
    (rb"\n[ \t]*(?:#|%:)[ \t]*(?:line\b(?![ \t]+\d+[ \t]*\r?\n)|\d)", "a name by #line"),
    (rb"\b(?:__)?section(?:__)?[ \t\n]*\([ \t\n]*\"", "a section of its own"),
    (rb"\b(?:" + rb"|".join(_FORGOTTEN) + rb")", "a pragma that is lost"),
)
_PAIRS = (
    rb"\b(visibility)[ \t]+(push|pop)\b",
    rb"\b(?=\w+[ \t]*\([ \t]*\\?\"([^\"\\]*))(push|pop)_macro\b",
)
"""Pragmas that clang forgets after a PCH that leaves them open: the subject, and push or pop."""
_WHOLE_GUARD = (
    rb"(?s)\s*#\s*(?:ifndef\s+|if\s+!\s*defined\s*\(?\s*)(\w+)[ \t)]*\n\s*#[ \t]*define[ \t]+\1"
    rb"(?=\s)([^\n]*\n.*)#[ \t]*endif\s*"
)
_CONDITION = rb"(?m)^[ \t]*#[ \t]*(if|el|endif)"
_UNDEFINED = rb"\bundef[ \t]+(\w+)"
_RESTORED = rb"\bpop_macro[ \t]*(?:\([ \t]*\\?\"([^\"\\]*))?"
_OF_COMPILERS = ("/lib/clang/", "/crt/host_runtime.h")
"""Parts of the names of headers that were examined: their variables in sections are constants, and
other conditions end their pragmas."""
_OF_RUNTIMES = (*_OF_COMPILERS, "/hip/amd_detail/")
"""Likewise examined: their host code uses no device variable."""
_NEWLINE = b"\n"
_SPLICE = rb"\\\r?\n"
_NO_END = "a pragma without its end"
_INSTANTIATION = rb"(?<![.>:\w])(extern\s+)?template\s+[A-Za-z_:]"
_COMMENTS_AND_STRINGS = rb"(?s)/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)'"
_LAMBDA = rb"\[\s*(?:&?\s*\w+\s*=[^\[\]{};]*)?\]\s*(?=[({<]|mutable\b|__(?:device|host)__)"
"""A lambda that captures nothing, or something else; `_BEFORE_LAMBDA` decides."""
_BEFORE_LAMBDA = re.compile(rb"[^\w\s)\]]\s*\Z")
_DEVICE_VARIABLE = (
    rb"\b(?:__(?:device|constant|managed)__|[A-Z_]*(?:DEVICE|CONSTANT)[A-Z_]*)\s+"
    rb"((?:(?:__attribute__|alignas|__align__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|[^;{}()=#])+)(?:[;{\[]|=(?!=))"
)
_NAMESPACE = rb"\A\s*extern\s*\Z|\bnamespace\b"
_SCOPE_TOKENS = rb"(?m)^[ \t]*(?:#|%:)[ \t]*(\w+)[^\n]*|[{};]|" + _LAMBDA


def reason_of_flags(kind: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return why a pass with this command may not use a PCH; "" if it may.

    `command` is the pass's, without input and output. This function queries the driver (``-###``)
    to cover options in files and in the environment.
    """
    jobs = query_front_end(command, environment).jobs if kind in _KINDS else ((),)
    if len(jobs) != 1:
        return _SEVERAL if jobs else "flags that the compiler refuses: see what it says of them"
    return reason_of_front_end(kind, jobs[0])


def reason_of_front_end(kind: str, job: Sequence[str]) -> str:
    """Return why a pass with this job of the front end may not use a PCH; "" if it may.

    The job has no depfile.
    """
    if kind not in _KINDS:
        return f"{kind} sources: only those of HIP and CUDA can use one"
    if reason := reason_against_pch(job):
        return reason
    levels = [arg for arg in job if re.fullmatch(r"-O\w*", arg)]
    is_optimized = levels and levels[-1] != "-O0"
    return "" if is_optimized else "no optimization (-O0): add -O1 or more"


def reason_of_headers(stage: str, files: Collection[str]) -> str:
    """Return why a PCH of these files is not allowed; "" if it is."""
    for name in files:
        if stage != "device" and any(part in name for part in _HOST_CODE_MOVES):
            return f"host code of '{name}'"
        if reason := _reason_of_file(name):
            return reason
        if stage != "device" and (line := _inline_device_variable(name)):
            return f"'{name}:{line}' has an inline device variable"
    return _unbalanced_pragma(files)


@kept_by_stat
def _reason_of_file(name: str) -> str:
    try:
        with open(name, "rb") as file:
            text = _NEWLINE + _with_whole_lines(file.read())
    except OSError:
        return f"'{name}' cannot be read"
    found = _first_reason(text, is_of_compiler=any(part in name for part in _OF_COMPILERS))
    if found is None:
        if has_time_macro(text):
            return f"'{name}' has a pasted macro of the time, or '#pragma GCC dependency'"
        return ""
    end, what = found
    return f"'{name}:{text.count(_NEWLINE, 0, end)}' has {what}"


@kept_by_stat
def _inline_device_variable(name: str) -> int:
    """Return the line of a header's inline device variable, forgotten after a PCH; or 0."""
    if any(part in name for part in _OF_RUNTIMES):
        return 0
    text = content_of(name)
    if not re.search(rb"__(?:device|constant|managed)__|DEVICE|CONSTANT", text):
        return 0
    code = re.sub(rb"(?m)^[ \t]*#.*", b"", _blanked(_with_whole_lines(text)))
    for found in re.finditer(_DEVICE_VARIABLE, code):
        begin = re.split(rb"[;{}()]", code[max(0, found.start() - 200) : found.start()])[-1]
        tokens = set(re.findall(rb"\w+", begin + found[1]))
        is_inline = b"inline" in tokens or {b"static", b"constexpr"} <= tokens
        if is_inline and len(found[1].split()) > 1 and not tokens & {b"extern", b"operator"}:
            return code.count(_NEWLINE, 0, found.start()) + 1
    return 0


def _with_whole_lines(text: bytes) -> bytes:
    """Return a text with continued lines joined; all lines keep their numbers."""

    def joined(lines: re.Match[bytes]) -> bytes:
        whole, count = re.subn(_SPLICE, b"", lines[0])
        return whole + _NEWLINE * count

    return re.sub(_SPLICE + rb"(?:[^\n]*" + _SPLICE + rb")*[^\n]*", joined, text)


def _first_reason(text: bytes, *, is_of_compiler: bool) -> tuple[int, str] | None:
    """Return the end and the name of the first construct that rules out a PCH, if any."""
    if found := re.search(_MAIN_FILE, text):
        return found.end(), found[0].decode()
    if re.search(_INSTANTIATION, text):
        for found in re.finditer(_INSTANTIATION, _blanked(text)):
            if not found[1]:
                return found.end(), "an explicit instantiation"
    if is_of_compiler:
        return None
    for pattern, what in _LOST:
        if found := re.search(pattern, text):
            return found.end(), what
    if any(_is_lambda(text, found) for found in re.finditer(_LAMBDA, text)):
        end = _lambda_outside(_blanked(text))
        return (end, "a lambda outside of functions") if end else None
    return None


def _blanked(text: bytes) -> bytes:
    """Return a text with comments and strings blanked, and all line breaks kept."""
    return re.sub(_COMMENTS_AND_STRINGS, lambda text: re.sub(rb"[^\n]", b" ", text[0]), text)


def _is_lambda(text: bytes, found: re.Match[bytes]) -> bool:
    before = text[max(0, found.start() - 200) : found.start()]
    return _BEFORE_LAMBDA.search(before) is not None


def _lambda_outside(code: bytes) -> int:
    """Return the position of a lambda outside of functions, classes and inline variables, or 0.

    For HIP and CUDA, clang numbers these lambdas, and forgets their count after a PCH. The first
    one of a source then gets the name of the header's first one.
    """
    scopes: list[bool] = []  # whether each scope counts: namespaces do not
    conditions: list[list[bool]] = []
    begin = 0
    for found in re.finditer(_SCOPE_TOKENS, code):
        token, declaration = found[0], code[begin : found.start()]
        if found[1] is not None:
            scopes = _after_directive(found[1], scopes, conditions)
            is_outside, declaration = found[1] == b"define" and re.search(_LAMBDA, token), token
        else:
            is_outside = token[:1] == b"[" and not any(scopes) and _is_lambda(code, found)
            if token == b"{":
                scopes.append(not re.search(_NAMESPACE, declaration))
            elif token == b"}":
                del scopes[-1:]
        if is_outside and not re.search(rb"\binline\b", declaration):
            return found.end()
        if token[:1] != b"[":
            begin = found.end()
    return 0


def _after_directive(name: bytes, scopes: list[bool], conditions: list[list[bool]]) -> list[bool]:
    """Return the scopes after a directive: all branches of a condition start with the same."""
    if name.startswith(b"if"):
        conditions.append([*scopes])
    elif name.startswith(b"el") and conditions:
        return [*conditions[-1]]
    elif name == b"endif":
        del conditions[-1:]
    return scopes


def _unbalanced_pragma(files: Iterable[str]) -> str:
    """Return a message on a pragma that files leave unbalanced together, or ""."""
    in_all: Counter[str] = Counter()
    first: dict[str, str] = {}
    for name in files:
        if not any(part in name for part in _OF_COMPILERS):
            for what, count in _unbalanced_pragmas_in(name):
                in_all[what] += count
                first.setdefault(what, name)
    return next((f"'{first[what]}' has {_NO_END}" for what, count in in_all.items() if count), "")


@kept_by_stat
def _unbalanced_pragmas_in(name: str) -> Sequence[tuple[str, int]]:
    """Return the unbalanced pragmas of a file, each with its pushes minus its pops."""
    text = content_of(name)
    if not re.search(rb"visibility|_macro", text):
        return ()
    counts: Counter[str] = Counter()
    for pattern in _PAIRS:
        for what, end in re.findall(pattern, re.sub(_SPLICE, b"", text)):
            counts[what.decode(errors="replace")] += 1 if end == b"push" else -1
    return tuple((what, count) for what, count in counts.items() if count)


@kept_by_stat
def guard_of(name: str) -> str:
    """Return the macro whose definition leaves nothing of a header; "" if there is none."""
    text = _blanked(_with_whole_lines(content_of(name)))
    found = re.fullmatch(_WHOLE_GUARD, text)
    if found is None or b"%:" in text or b"??" in text:
        return ""
    depth = 0
    for condition in re.findall(_CONDITION, found[2]):
        depth += (condition == b"if") - (condition == b"endif")
        if depth < 0 or (not depth and condition == b"el"):
            return ""
    return "" if depth else str(found[1].decode())


@kept_by_stat
def undefined_macros(name: str) -> Sequence[str]:
    """Return the macros that a file undefines, or restores; "" is any."""
    text = content_of(name)
    if b"pop_macro" not in text and not re.search(rb"undef|\\\s*\n", text):
        return ()
    text = _with_whole_lines(text)
    return [
        each.decode(errors="replace")
        for each in (*re.findall(_UNDEFINED, _blanked(text)), *re.findall(_RESTORED, text))
    ]
