"""Writes bitcode modules anew with llvmlite, which gives them a symbol table.

LLVM ends the process when it meets some broken modules, so llvmlite runs in a child, which
is kept for the next module. Child and parent talk in messages over pipes: size (8 bytes,
little-endian, signed), then that many bytes; a negative size comes before an error's text.
"""

from __future__ import annotations

import atexit
import importlib
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import IO, TYPE_CHECKING

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.util.shortage import shortage

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["rewrite"]

_SIZE = struct.Struct("<q")
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from offload_tool.formats.bitcode.llvmlite_worker import serve; serve()"
)
_BROKEN, _UNSUPPORTED = b"!", b"?"
"""With which a message begins that says why there is no answer."""
_lock = threading.Lock()
_children: list[subprocess.Popen[bytes]] = []
"""The child, if there is one."""


def rewrite(module: bytes) -> bytes:
    """Return `module` as this LLVM writes it.

    :raises FormatError: LLVM cannot read it.
    :raises UnsupportedError: llvmlite is not installed.
    """
    with _lock:
        try:
            return _ask(_children[0] if _children else _start(), module)
        except (OSError, EOFError) as error:
            _stop()
            if shortage(error):
                raise
            raise FormatError("broken bitcode: LLVM gave up on it") from error


def _start() -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _START, *sys.path]
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    _children.append(child)
    return child


def _stop() -> None:
    while _children:
        with suppress(OSError):  # what it did not take any more
            _children[0].__exit__(None, None, None)
        _children.pop()


atexit.register(_stop)


def _ask(child: subprocess.Popen[bytes], module: bytes) -> bytes:
    if child.stdin is None or child.stdout is None:
        raise OSError
    _send(child.stdin, len(module), module)
    size, answer = _receive(child.stdout)
    if size < 0:
        sort, text = answer[:1], answer[1:].decode("utf-8", "replace")
        raise (UnsupportedError if sort == _UNSUPPORTED else FormatError)(text)
    return answer


def _send(stream: IO[bytes], size: int, data: bytes) -> None:
    stream.write(_SIZE.pack(size) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[int, bytes]:
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError if not head else OSError
    (size,) = _SIZE.unpack(head)
    data = stream.read(abs(size))
    if len(data) < abs(size):
        raise OSError
    return size, data


def serve() -> None:
    """Answer messages until there are no more; what the child does."""
    work = _load()
    while True:
        try:
            _, module = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = work(module)
        except Exception as error:  # whatever it is, the parent is to know
            sort = _UNSUPPORTED if isinstance(error, UnsupportedError) else _BROKEN
            answer = sort + " ".join(str(error).split()).encode()
            _send(sys.stdout.buffer, -len(answer), answer)
        else:
            _send(sys.stdout.buffer, len(answer), answer)


def _load() -> Callable[[bytes], bytes]:
    try:
        llvm = importlib.import_module("llvmlite.binding")
    except (ImportError, OSError) as error:  # the latter of a part of it
        lacking = shortage(error)
        reason = "needs llvmlite; pip install llvmlite" if lacking is None else f"failed: {lacking}"
        return partial(_refuse, reason)
    llvm.initialize_all_targets()
    llvm.initialize_native_asmparser()

    def write(module: bytes) -> bytes:
        with llvm.parse_bitcode(module) as parsed:
            return bytes(parsed.as_bitcode())

    return write


def _refuse(reason: str, module: bytes) -> bytes:
    raise UnsupportedError(f"bitcode ({len(module)} bytes) without a symbol table {reason}")
