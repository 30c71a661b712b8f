"""Read untrusted MessagePack as a stream, without building objects for ignored values.

Only maps, arrays, strings and integers are read; other values, at any depth, are skipped. The
length of strings is bounded, and callers check numbers. The caller makes the errors, because it
knows the file. Source: https://msgpack.org, "Specification".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from offload_tool.errors import OffloadError, UsageError

_READ_SIZE = 1 << 16  # bytes per read
_MAX_STRING = 1 << 20  # bytes of a string; the longest known one, the name of a kernel, has 30,000
_STRINGS = frozenset((*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB))
_INTEGERS = frozenset((*range(0x80), *range(0xCC, 0xD4)))
MAPS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
_ARRAYS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
"""First bytes of MessagePack strings, integers, maps and arrays."""


def messagepack() -> ModuleType:
    """Return the module ``msgpack``; raise UsageError if it is not installed."""
    try:
        import msgpack  # few formats need it
    except ImportError as error:  # in a vendored copy of this package
        message = "AMD's kernels and .kpack archives are read with the package 'msgpack'; "
        raise UsageError(message + "install it") from error
    library: ModuleType = msgpack
    return library


def check_text(*texts: str) -> None:
    """Raise UsageError if a string, such as a file name, is not UTF-8."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError as error:
        message = "is not UTF-8, as names in kpack archives and markers have to be; rename it"
        raise UsageError(f"{error.object!r} {message}") from error


class _Pieces:
    """A file-like view of bytes, which avoids a second copy."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int) -> bytes:
        start = self._position
        self._position = min(start + size, len(self._data))
        return bytes(self._data[start : self._position])


class MessagePackReader:
    """A document that is read sequentially, in a block of `reading`."""

    def __init__(self, data: memoryview, refuse: Callable[[str], OffloadError]) -> None:
        self.data = data
        self.refuse = refuse
        """Makes the error for a message."""
        self._unpacker = messagepack().Unpacker(
            _Pieces(data),
            read_size=_READ_SIZE,
            max_buffer_size=max(len(data), _READ_SIZE),
            strict_map_key=True,
            unicode_errors="surrogateescape",
            max_str_len=_MAX_STRING,
            max_array_len=len(data),
            max_map_len=len(data),
        )

    @property
    def position(self) -> int:
        """Number of bytes read."""
        at: int = self._unpacker.tell()
        return at

    def map_size(self, what: str = "a map") -> int:
        """Read the beginning of a map; return the number of its pairs."""
        self._expect(MAPS, what)
        count: int = self._unpacker.read_map_header()
        return count

    def map_keys(self, what: str = "a map", key: str = "a string") -> Iterator[str]:
        """Read a map: yield each key, whose value is to be read or skipped before the next."""
        for _ in range(self.map_size(what)):
            yield self.string(key)

    def array_size(self, what: str = "an array") -> int:
        """Read the beginning of an array; return the number of its values."""
        self._expect(_ARRAYS, what)
        count: int = self._unpacker.read_array_header()
        return count

    def string(self, what: str = "a string") -> str:
        """Read a string; bytes that are not UTF-8 become surrogates."""
        self._expect(_STRINGS, what)
        text: str = self._unpacker.unpack()
        return text

    def number(self, what: str, maximum: int) -> int:
        """Read an integer from 0 to `maximum`."""
        self._expect(_INTEGERS, f"a number for {what}")
        value: int = self._unpacker.unpack()
        if not 0 <= value <= maximum:
            raise self.refuse(f"expected a number from 0 to {maximum} for {what}, found {value}")
        return value

    def skip(self) -> memoryview:
        """Skip a value of any type; return its bytes."""
        start = self.position
        self._unpacker.skip()
        return self.data[start : self.position]

    def _expect(self, kinds: frozenset[int], what: str) -> None:
        """Raise unless the next value begins as one of `kinds`, before building it."""
        at = self.position
        if at < len(self.data) and self.data[at] not in kinds:
            message = f"expected {what} at byte {at} of it, found type {self.data[at]:#x}"
            raise self.refuse(message)


@contextmanager
def reading(data: memoryview, refuse: Callable[[str], OffloadError]) -> Iterator[MessagePackReader]:
    """Read a document at the start of `data`; `refuse` makes all errors except UsageError."""
    library = messagepack()
    try:
        yield MessagePackReader(data, refuse)
    except library.OutOfData:
        raise refuse("it ends too early") from None
    except (library.UnpackException, ValueError, RecursionError) as error:
        raise refuse(str(error) or type(error).__name__) from error
