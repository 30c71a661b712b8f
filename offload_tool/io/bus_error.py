"""A handler of SIGBUS that puts zeros where a mapped file has no more pages (Linux, 64-bit).

Python's own handlers run after the access that failed, which fails again for ever; this one
repairs it first. Source: sigaction(2), mmap(2); the structs are those of glibc and musl.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["address_of", "install"]

_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000
_SI_ADDR = 16
"""Where siginfo_t has the address."""
_FIXED_ZEROS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # MAP_FIXED
_FAILED = ctypes.c_void_p(-1).value
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Buffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("object", ctypes.py_object),
        ("length", ctypes.c_ssize_t),
        ("rest", ctypes.c_void_p * 16),
    )


def address_of(mapped: mmap.mmap) -> int:
    """Return the address of a map."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(buffer), 0)
    address: int = buffer.address
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def install(repair: Callable[[int], int]) -> Any:
    """Install the handler for all threads; return what must be kept as long as it is wanted.

    `repair` gives the end of the range that begins at the address's page and is to be zeros;
    0 where the fault is no concern of it.
    """
    library = ctypes.PyDLL(None)
    library.mmap.restype = ctypes.c_void_p
    number = ctypes.c_int
    library.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        number,
        number,
        number,
        ctypes.c_long,
    )
    before = _Action()

    def handle(signal_number: int, information: int, _: int) -> None:
        address = ctypes.c_void_p.from_address(information + _SI_ADDR).value or 0
        end = repair(address)
        if end:
            page = address & -mmap.PAGESIZE
            made = library.mmap(page, end - page, mmap.PROT_READ, _FIXED_ZEROS, -1, 0)
        if not end or made == _FAILED:  # the access fails again, and is handled as before
            library.sigaction(signal_number, ctypes.byref(before), None)

    handler = _HANDLER(handle)
    action = _Action(handler=ctypes.cast(handler, ctypes.c_void_p), flags=_SA_SIGINFO | _SA_ONSTACK)
    library.sigaction(int(signal.SIGBUS), ctypes.byref(action), ctypes.byref(before))
    return handler
