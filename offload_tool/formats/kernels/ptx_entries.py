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

from offload_tool.formats.kernels.kernel import WARP, Kernel

__all__ = ["ptx_statements", "read_ptx_kernels"]

_ENTRY = re.compile(rb"\.entry\s+([A-Za-z_$%][\w$]*)")
_END_OF_HEAD = re.compile(rb"[{;]")
_THREADS = re.compile(rb"\.(?:max|req)ntid\s+(\d{1,9})(?:\s*,\s*(\d{1,9}))?(?:\s*,\s*(\d{1,9}))?")
_BLOCK_COMMENT = re.compile(rb"/\*.*?(?:\*/|\Z)", re.DOTALL)
_LINE_COMMENT = re.compile(rb"//[^\n]*")
_DEBUG_LINE = re.compile(rb"^[ \t]*\.(?:file|loc)\b[^\n]*", re.MULTILINE)


def read_ptx_kernels(text: memoryview) -> list[Kernel]:
    """Read the kernels that a module defines, in its order; a name that comes again, once."""
    module = bytes(text)
    if b"/*" in module:
        module = _BLOCK_COMMENT.sub(b" ", module)
    found: dict[bytes, Kernel] = {}
    for entry in _ENTRY.finditer(module):
        line = module[module.rfind(b"\n", 0, entry.start()) + 1 : entry.start()]
        end = _END_OF_HEAD.search(module, entry.end())
        if b"//" in line or line.count(b'"') % 2 or end is None or end[0] == b";":
            continue
        head = _LINE_COMMENT.sub(b"", module[entry.end() : end.start()])
        found.setdefault(entry[1], _kernel(entry[1].decode("ascii"), head))
    return list(found.values())


def ptx_statements(text: memoryview) -> bytes:
    """Give a module without comments and blank lines, and what only debuggers read of it."""
    module = _BLOCK_COMMENT.sub(b" ", bytes(text).partition(b"\0")[0])
    lines = _DEBUG_LINE.sub(b"", _LINE_COMMENT.sub(b"", module)).splitlines()
    return b"\n".join(filter(None, map(bytes.strip, lines)))


def _kernel(name: str, head: bytes) -> Kernel:
    threads = _THREADS.search(head)
    largest = math.prod(int(part or 1) for part in threads.groups()) if threads else None
    return Kernel(name, wavefront_size=WARP, max_workgroup_size=largest)
