r"""The kernels of a PTX module: its ``.entry`` directives.

::

    .visible .entry NAME(        NAME: letters, digits, _, $, %
        .param .u64 NAME_param_0
    )
    .maxntid 128, 2, 1           at most so many threads in each dimension; 1 if it is not said
    .reqntid 64                  exactly so many
    {                            the body; without one (";") it is a declaration

What a kernel needs is decided when a driver compiles it; PTX says no more than this. Words in
comments and strings are passed over.

Source: NVIDIA's PTX ISA 9.0, "Kernel and Function Directives" and "Performance-Tuning Directives".
"""

from __future__ import annotations

import math
import re

from offload_tool.formats.kernel_info.kernel import MOST, WARP, Kernel

_DEFINITION = re.compile(rb"\.entry\s+([A-Za-z_$%][\w$]*)([^{;.]*(?:\.(?!entry\b)[^{;.]*)*)\{")
"""From the directive to its body; a head holds no other ``.entry``, so that time is linear."""
_NUMBER = rb"\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?\s*"
_THREADS = re.compile(
    rb"\.(?:max|req)ntid\s" + _NUMBER + rb"(?:," + _NUMBER + rb")?(?:," + _NUMBER + rb")?"
)
_STRING_OR_COMMENT = re.compile(
    rb'"[^"\\\n]*(?:\\.[^"\\\n]*){0,9999}"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL
)
"""What begins first counts: there may be the sign of one in the other."""
_PASSED_OVER = re.compile(rb"(?:(?:%b)\s*){1,1000}" % _STRING_OR_COMMENT.pattern, re.DOTALL)
"""Runs of both: a replacement for each alone takes three times as long."""
_LONGEST_NUMBER = 40
"""Digits."""
_DEBUG_LINE = re.compile(rb"^[ \t]*\.(?:file|loc)\b[^\n]*", re.MULTILINE)


def read_ptx_kernels(text: memoryview) -> list[Kernel]:
    """Read the kernels that a module defines, in its order; a name that comes again, once.

    The time grows with the size of the text, whatever is in it.
    """
    module = _PASSED_OVER.sub(b" ", bytes(text))
    found: dict[bytes, Kernel] = {}
    for entry in _DEFINITION.finditer(module):
        if entry[1] not in found:
            found[entry[1]] = _kernel(entry[1].decode("ascii"), entry[2])
    return list(found.values())


def ptx_statements(text: memoryview) -> bytes:
    """Return a module without comments and blank lines, and what only debuggers read of it."""
    module = _without_comments(bytes(text).partition(b"\0")[0])
    lines = _DEBUG_LINE.sub(b"", module).splitlines()
    return b"\n".join(filter(None, map(bytes.strip, lines)))


def _without_comments(module: bytes) -> bytes:
    return _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0][:1] == b'"' else b" ", module)


def _kernel(name: str, head: bytes) -> Kernel:
    threads = _THREADS.search(head)
    largest = math.prod(_number(part) for part in threads.groups()) if threads else MOST
    return Kernel(name, wavefront_size=WARP, max_workgroup_size=largest if largest < MOST else None)


def _number(digits: bytes | None) -> int:
    """Return a number of C, of which no more than what a `Kernel` may say is read."""
    if digits is None:
        return 1
    if len(digits) > _LONGEST_NUMBER:
        return MOST
    is_octal = digits[:1] == b"0" and digits.isdigit()
    try:
        return int(digits, 8 if is_octal else 0)
    except ValueError:  # 09
        return MOST
