r"""PTX, NVIDIA's assembly text: version, short form in fat binaries, and kernels.

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
"""

from __future__ import annotations

import math
import re

from offload_tool.errors import FormatError
from offload_tool.formats.kernel import NUMBER_LIMIT, WARP, Kernel
from offload_tool.io.limits import effective_budget

_BEGIN = 4096
"""Bytes to search for the version: only comments precede it."""
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
_LONGEST_THREADS = 999
"""Bytes."""


def _run_up_to(stops: bytes, directives: bytes, passed: bytes) -> re.Pattern[bytes]:
    """Return a pattern that skips text, strings, comments, up to `stops` or `directives`."""
    passed += rb'[^"/.%b]+|%b|%b|/(?![/*])|\.(?!(?:%b)\b)' % (stops, _QUOTED, _COMMENT, directives)
    return re.compile(rb"(?:%b){1,1000}" % passed, re.DOTALL)


_ENTRY = b".entry"
_DECLARATION = rb'\.entry\b[^"/.{;]*(?:;|(?=\.entry\b))|'
"""Or nothing, before another directive."""
_OUTSIDE = _run_up_to(b"", b"entry", _DECLARATION)
_HEAD = _run_up_to(b"{;", b"entry|maxntid|reqntid", b"")
_REST_OF_HEAD = _run_up_to(b"{;", b"entry", b"")
_STRING_OR_COMMENT = re.compile(rb"%b|%b" % (_QUOTED, _COMMENT), re.DOTALL)
"""The first match counts: a comment may contain quotes, and a string comment signs."""
_LONGEST_NUMBER = 40
"""Digits."""
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
    """Read the kernels that a module defines, in order; repeated names count once.

    The time is linear in the size of the text, whatever its content.

    :raises LimitError: the module has too many directives for its size.
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
