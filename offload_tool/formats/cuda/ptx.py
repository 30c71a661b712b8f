r"""PTX, NVIDIA's assembly text: version, short form in fat binaries, kernels, and variables.

``fatbinary`` of CUDA 13 removes text that the assembler would skip::

    // to the end of the line, and /* ... */     removed ("/*/" is a whole comment)
    blanks and tabs after white space            removed
    "..." with \" in it                          unchanged

Source: fatbinary 13.0 and 13.5 and libnvfatbin 13.5, observed with 38,000 random texts.

A kernel is a directive ``.entry``; comments and strings are skipped::

    .visible .entry NAME(        NAME: letters, digits, _, $, %
        .param .u64 NAME_param_0
    )
    .maxntid 128, 2, 1           at most this many threads in each dimension; 1 if omitted
    .reqntid 64                  exactly this many
    {                            the body; without one (";") it is a declaration

The driver determines a kernel's resources when it compiles it; PTX has no more information. Source:
NVIDIA's PTX ISA 9.0, "Kernel and Function Directives" and "Performance-Tuning Directives".

Clang writes each module-scope variable after those that its initializer names, and takes the latter
from a set of pointers: the order differs from run to run. `settled` gives them one order. In
relocatable code, it also corrects what nvcc accepts and NVIDIA's linkers refuse::

    .extern .global .u32 _ZL1v;                    a static variable whose first user was device
    .visible .global .u32 _ZL1v__static__HASH;     code: host code knows it by the second name,
                                                   which becomes that of all uses

    .extern .func _Z1kPi ( ... ) ;                 a kernel of another source, which host code
    .global .align 8 .u64                          starts: declared as a function, to keep it for
        __clang_gpu_used_external[1] = {_Z1kPi};   a linker of archives; both are removed

Source: clang 22.1.8 and 23.1, observed; VisitGlobalVariable in NVPTXAsmPrinter of LLVM 22.
"""

from __future__ import annotations

import math
import re
from graphlib import CycleError, TopologicalSorter

from offload_tool.errors import FormatError
from offload_tool.formats.kernel import NUMBER_LIMIT, WARP, Kernel
from offload_tool.io.limits import effective_budget

_BEGIN = 4096  # bytes to search for the version: only comments precede it
_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+(\d+)\.(\d+)", re.MULTILINE)
_WHITE = b" \t\n\v\f\r"
_STRING = rb'(?<!\\)"(?:.*?(?<!\\)"|.*\Z)'
_BLOCK_COMMENT = rb"/\*(?:/|.*?\*/|.*\Z)"
_TOKEN = re.compile(
    _STRING + rb"|//[^\r\n]*|" + _BLOCK_COMMENT + rb'|[^"/ \t]+|[ \t]+|.', re.DOTALL
)

_NUMBER = rb"\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?\s*"
_COMMENT = rb"//[^\n]*|/\*[^*]*\*/|/\*.*?(?:\*/|\Z)"  # the usual form first: it is faster
_QUOTED = rb'"[^"\\\n]*"|"[^"\\\n]*(?:\\.[^"\\\n]*){0,9999}"?'
_GAP = re.compile(rb"(?:\s|%b){1,1000}" % _COMMENT, re.DOTALL)
"""Nothing may follow it in a pattern: a comment could then end in many ways."""
_NAME = re.compile(rb"[A-Za-z_$%][\w$]*")
_THREADS = re.compile(
    rb"\.(?:max|req)ntid\s" + _NUMBER + rb"(?:," + _NUMBER + rb")?(?:," + _NUMBER + rb")?"
)
_NTID = re.compile(rb"\.(?:max|req)ntid")
_LONGEST_THREADS = 999  # bytes


def _run_up_to(stops: bytes, directives: bytes, passed: bytes) -> re.Pattern[bytes]:
    """Return a pattern that skips text, strings, comments, up to `stops` or `directives`."""
    passed += rb'[^"/.%b]+|%b|%b|/(?![/*])|\.(?!(?:%b)\b)' % (stops, _QUOTED, _COMMENT, directives)
    return re.compile(rb"(?:%b){1,1000}" % passed, re.DOTALL)


_ENTRY = b".entry"
_DECLARATION = rb'\.entry\b[^"/.{;]*(?:;|(?=\.entry\b))|'  # or nothing, before another directive
_OUTSIDE = _run_up_to(b"", b"entry", _DECLARATION)
_HEAD = _run_up_to(b"{;", b"entry|maxntid|reqntid", b"")
_REST_OF_HEAD = _run_up_to(b"{;", b"entry", b"")
_STRING_OR_COMMENT = re.compile(rb"%b|%b" % (_QUOTED, _COMMENT), re.DOTALL)
"""The first match counts: a comment may contain quotes, and a string comment signs."""
_LONGEST_NUMBER = 40  # digits
_DEBUG_LINE = re.compile(rb"^[ \t]*\.(?:file|loc)\b[^\n]*", re.MULTILINE)


def is_ptx(data: bytes | memoryview) -> bool:
    """Return whether `data` begins as a PTX module does: comments, then its version."""
    return _VERSION.search(bytes(data[:_BEGIN])) is not None


def ptx_version(text: bytes | memoryview) -> tuple[int, int]:
    """Return major and minor version of a PTX module; raise FormatError without ``.version``."""
    found = _VERSION.search(bytes(text[:_BEGIN]))
    if found is None:
        raise FormatError(
            f"expected a cubin or PTX with a line '.version', found {bytes(text[:8])!r}"
        )
    return int(found[1]), int(found[2])


def shorten(text: bytes | memoryview) -> bytes:
    """Return the text as ``fatbinary`` stores it, without a NUL."""
    out = bytearray()
    before = b""
    for match in _TOKEN.finditer(bytes(text).partition(b"\0")[0]):
        token = match[0]
        if token[0] in b" \t":
            if not before or before[-1] not in _WHITE:
                out += token[:1]
        elif token[:2] not in (b"//", b"/*"):
            out += token
        before = token
    return bytes(out)


def read_ptx_kernels(text: memoryview) -> list[Kernel]:
    """Read the kernels that a module defines; repeated names count once. Raise LimitError.

    The time is linear in the size of the text, whatever its content.
    """
    module = bytes(text)
    limit = effective_budget(len(module))
    found: dict[bytes, Kernel] = {}
    at = directives = 0
    while (at := _stop(_OUTSIDE, module, at)) < len(module):
        directives += 1
        limit.check_members(directives)
        at += len(_ENTRY)
        kernel = _NAME.match(module, _stop(_GAP, module, at)) if _GAP.match(module, at) else None
        if kernel is None:
            continue
        largest, at = NUMBER_LIMIT, _stop(_HEAD, module, kernel.end())
        if threads := _NTID.match(module, at):
            largest, at = _threads(module[at : at + _LONGEST_THREADS]), threads.end()
            at = _stop(_REST_OF_HEAD, module, at)
        if module[at : at + 1] == b"{" and kernel[0] not in found:
            most = largest if largest < NUMBER_LIMIT else None
            name = kernel[0].decode("ascii")
            found[kernel[0]] = Kernel(name, wavefront_size=WARP, max_workgroup_size=most)
    return list(found.values())


def _stop(run: re.Pattern[bytes], module: bytes, at: int) -> int:
    """Return where repeated matches of `run` end."""
    while passed := run.match(module, at):
        at = passed.end()
    return at


def _threads(text: bytes) -> int:
    threads = _THREADS.match(_without_comments(text))
    return math.prod(map(_number, threads.groups())) if threads else NUMBER_LIMIT


def ptx_statements(text: memoryview) -> bytes:
    """Return a module without comments, blank lines and debug information."""
    module = _without_comments(bytes(text).partition(b"\0")[0])
    lines = _DEBUG_LINE.sub(b"", module).splitlines()
    return b"\n".join(filter(None, map(bytes.strip, lines)))


def _without_comments(module: bytes) -> bytes:
    return _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0][:1] == b'"' else b" ", module)


def _number(digits: bytes | None) -> int:
    """Return a C number, capped at the largest value of a `Kernel`."""
    if digits is None:
        return 1
    if len(digits) > _LONGEST_NUMBER:
        return NUMBER_LIMIT
    is_octal = digits[:1] == b"0" and digits.isdigit()
    try:
        return int(digits, 8 if is_octal else 0)
    except ValueError:  # 09
        return NUMBER_LIMIT


# -- clang's declarations -------------------------------------------------------------------------

# Not compiled before their use, which is rare.
_VARIABLE = (
    rb"(?m)^(?P<linkage>\.(?:visible|extern|weak|common) )?\.(?:global|const|shared) [^=;\n]*?"
    rb"(?P<name>[A-Za-z_$%][\w$]*)(?:\[\d*\])*(?: = (?P<initial>[^\n]*))?;$\n?"
)
_STATIC = rb"(?P<plain>.+?)__static__[0-9a-f]+"
_USED = b"__clang_gpu_used_external"
_LEAST = 2  # variables in an initializer whose order is open


def settled(module: bytes) -> bytes:
    """Return a module of clang's with its variables in one order, under names that link."""
    if b"__static__" in module:
        module = _one_name(module)
    if _USED in module:
        module = _without_kernels(module)
    return _in_order(module)


def _variables(module: bytes) -> list[re.Match[bytes]]:
    first, *_ = re.split(rb"(?m)^\{", module, maxsplit=1)  # before the first function's body
    return [*re.finditer(_VARIABLE, first)]


def _one_name(module: bytes) -> bytes:
    """Return the module with one name for each static variable that it declares and defines."""
    rows = _variables(module)
    declared = {row["name"] for row in rows if row["linkage"] == b".extern "}
    plain = {row["name"]: re.fullmatch(_STATIC, row["name"]) for row in rows}
    names = {found["plain"]: name for name, found in plain.items() if found is not None}
    names = {name: names[name] for name in declared & names.keys()}
    if not names:
        return module
    for row in reversed(rows):
        if row["name"] in names:
            module = module[: row.start()] + module[row.end() :]
    return _NAME.sub(lambda found: names.get(found[0], found[0]), module)


def _without_kernels(module: bytes) -> bytes:
    """Return the module without declarations of kernels that only host code starts."""
    row = next((row for row in _variables(module) if row["name"] == _USED), None)
    elements = re.search(rb"\[\d+\] = \{(.*)\};", row[0]) if row is not None else None
    if row is None or elements is None:
        return module
    every = elements[1].split(b", ")
    kept = [name for name in every if not _NAME.fullmatch(name)]
    head = row[0][: elements.start()]
    line = b"%b[%d] = {%b};\n" % (head, len(kept), b", ".join(kept)) if kept else b""
    rest = module[: row.start()] + line + module[row.end() :]
    for name in set(every) - set(kept):
        declaration = re.compile(rb"^\.extern \.func  ?%b\n\([^()]*\)\n;\n" % name, re.MULTILINE)
        without = declaration.sub(b"", rest)
        if not re.search(rb"(?<![\w$])%b(?![\w$])" % name, without):
            rest = without
    return rest


def _in_order(module: bytes) -> bytes:
    """Return the module with its variables in the order of their names, each before its users."""
    rows = _variables(module)
    names = {row["name"] for row in rows}
    needs = {
        row["name"]: names.intersection(_NAME.findall(row["initial"])) - {row["name"]}
        for row in rows
        if row["initial"]
    }
    is_open = any(len(found) >= _LEAST for found in needs.values())
    if not is_open or len(names) < len(rows):
        return module
    sorter = TopologicalSorter({name: needs.get(name, set()) for name in names})
    try:
        sorter.prepare()
    except CycleError:
        return module
    order: list[bytes] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    text = {row["name"]: row[0] for row in rows}
    parts, at = [], 0
    for row, name in zip(rows, order, strict=True):
        parts += [module[at : row.start()], text[name]]
        at = row.end()
    return b"".join([*parts, module[at:]])
