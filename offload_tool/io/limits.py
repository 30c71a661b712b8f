"""Resource limits of one run, for untrusted input.

::

    bytes unpacked     at most `unpacked`, plus `UNPACKED_RATIO` times the bytes read
    bytes written      at most `written`, plus `WRITTEN_RATIO` times the bytes read and unpacked
    bytes read again   at most `reread`, plus `REREAD_RATIO` times those read and unpacked
    members            of archives and zip files, and files of folders; one file may have a part
                       of the limit, plus one for each `MEMBER_BYTES` bytes
    depth              files nested in each other

Code requests each amount before it does the work, so a rejected request costs nothing. A file
cannot use the allowance that an earlier file left unused, see `next_file`.

The command line limits the whole run (`limited`). A long-running program that uses this package has
no limit per run; each payload then has its own budget.
"""

from __future__ import annotations

import re
from _thread import RLock  # that of `threading`, which loads more
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from typing import Any, NamedTuple

from offload_tool.errors import LimitError, UsageError

UNPACKED_RATIO = 100
"""Device code expands 3 to 50 times; decompression bombs expand a thousand times."""
WRITTEN_RATIO = 16
"""One image can be written to the outputs of several targets."""
REREAD_RATIO = 8
"""Bytes are read once each as file, section and image; malformed tables can repeat ranges."""
MEMBER_BYTES = 100
"""Smallest size of a member with its name and row; compressed rows can be far smaller."""
_EXTRA_MEMBERS, _EXTRA_FRACTION = 20_000, 100
"""Extra members that one file may have: this number, or this fraction of the limit."""
_HOLES = 1 << 30  # bytes
_ANY = 1 << 40  # size of the inputs where none are counted, in bytes
_SIZE = r"(?ia)([0-9]+)\s*([kmgt]?)(i?b)?"
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TRUE, _FALSE = ("1", "yes", "on"), ("", "0", "no", "off")


class Limits(NamedTuple):
    """The limits of a run, the first three in bytes; each has a variable ``OFFLOAD_MAX_...``."""

    unpacked: int = 1 << 30
    written: int = 1 << 30
    reread: int = 8 << 20
    members: int = 2_000_000
    depth: int = 8
    thin_outside: bool = False
    """Whether thin archives may name files outside their folder."""
    kpack_outside: bool = False
    """Whether kpack markers may name archives outside the program's folder and the folders
    ``.kpack`` above it."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Limits:
        """Read the limits from environment variables; raise UsageError for anything but numbers."""
        values: dict[str, Any] = {}
        for field in ("unpacked", "written", "reread", "members", "depth"):
            name = f"OFFLOAD_MAX_{field.upper()}"
            if text := environ.get(name, ""):
                values[field] = read_size(text, name)
        for field in ("thin_outside", "kpack_outside"):
            name = f"OFFLOAD_{field.upper()}"
            value = environ.get(name, "").lower()
            if value not in (*_TRUE, *_FALSE):
                raise UsageError(f"{name}={value!r}: expected 1 or 0")
            values[field] = value in _TRUE
        return cls(**values)


def read_size(text: str, name: str) -> int:
    """Parse a number or a size such as ``512M`` or ``4GiB``; raise UsageError, with `name`."""
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        raise UsageError(f"{name}: expected a number or a size such as 512M or 4G, found {text!r}")
    return int(match[1]) << _UNITS[match[2].lower()]


class _Share:
    """The rest of one limit: `own` belongs to the current file, `common` to the run."""

    def __init__(self, common: int, ratio: float) -> None:
        self.own, self.common, self._ratio = 0.0, common, ratio

    def add(self, size: int) -> None:
        self.own += size * self._ratio

    @property
    def left(self) -> int:
        return int(self.own) + self.common

    def take(self, size: int) -> None:
        own = min(size, int(self.own))
        self.own -= own
        self.common -= size - own


class Budget:
    """The rest of a run's limits; thread-safe."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        self._lock = RLock()
        self._read = self._unpacked = self._written = self._members = 0
        self._extra_members = max(self.limits.members // _EXTRA_FRACTION, _EXTRA_MEMBERS)
        self._unpack = _Share(self.limits.unpacked, UNPACKED_RATIO)
        self._reread = _Share(self.limits.reread, REREAD_RATIO)
        self._rows = _Share(self._extra_members, 1 / MEMBER_BYTES)
        self._identities: set[object] = set()

    def add_input(self, size: int, identity: object = None, length: int = 0) -> None:
        """Record that an input of `size` bytes was opened, and add its allowance.

        A file with a known `identity` adds nothing the second time. Holes, which are fast to read,
        count for `reread` only: up to `_HOLES` bytes of `length`.
        """
        with self._lock:
            if identity is not None:
                if identity in self._identities:
                    return
                self._identities.add(identity)
            self._read += size
            self._reread.add(max(size, min(length, _HOLES)))
            for share in (self._unpack, self._rows):
                share.add(size)

    def next_file(self) -> None:
        """Start the next of many files: the allowance of the last one expires."""
        with self._lock:
            self._identities.clear()
            for share in (self._unpack, self._reread, self._rows):
                share.own = 0.0

    def unpack(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Request `size` decompressed bytes; raise LimitError, naming `path`, beyond the budget."""
        with self._lock:
            self.check_unpack(size, path)
            self._unpack.take(size)
            self._reread.add(size)
            self._unpacked += size

    def check_unpack(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Raise LimitError if `unpack` would, without taking `size` bytes."""
        with self._lock:
            left = self._unpack.left
        if size > left:
            message = f"unpacking needs {size} bytes, and {left} are left of this run's limit"
            raise LimitError(message, "OFFLOAD_MAX_UNPACKED", path)

    def write(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Request `size` bytes of output; raise LimitError beyond the budget."""
        with self._lock:
            self.check_write(size, path)
            self._written += size

    def check_write(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Raise LimitError if `write` would, without taking `size` bytes."""
        with self._lock:
            known = self._read + self._unpacked
            beyond = self._written + size - WRITTEN_RATIO * known
        if beyond > self.limits.written:
            message = f"expected at most {self.limits.written} bytes to write beyond "
            message += f"{WRITTEN_RATIO} times the {known} that were read, found {beyond}"
            raise LimitError(message, "OFFLOAD_MAX_WRITTEN", path)

    def reread(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Request `size` bytes to read, possibly again; raise LimitError beyond the budget."""
        with self._lock:
            if size > self._reread.left:
                message = f"expected at most {self.limits.reread} bytes to be looked at again "
                message += f"beyond {REREAD_RATIO} times those read and unpacked, found more"
                raise LimitError(message, "OFFLOAD_MAX_REREAD", path)
            self._reread.take(size)

    def file(self, path: str | PathLike[str] | None = None, count: int = 1) -> None:
        """Request `count` more files of a folder; raise LimitError beyond the budget."""
        self._members += count  # only one thread walks files
        if self._members > self.limits.members:
            message = f"expected at most {self.limits.members} members and files in a run"
            raise LimitError(f"{message}, found more", "OFFLOAD_MAX_MEMBERS", path)

    def member(self, path: str | PathLike[str] | None = None, count: int = 1) -> None:
        """Request `count` more members of a file; raise LimitError beyond the budget."""
        self.check_members(count, path)
        self._rows.take(count)
        self.file(path, count)

    def check_members(self, count: int, path: str | PathLike[str] | None = None) -> None:
        """Raise LimitError if `member` would for `count` members of one file."""
        if count > self._rows.left:
            message = f"expected one member for each {MEMBER_BYTES} bytes of a file, and "
            message += f"{self._extra_members} beyond, found more"
            raise LimitError(message, "OFFLOAD_MAX_MEMBERS", path)

    def check_depth(self, depth: int, path: str | PathLike[str] | None = None) -> None:
        """Raise LimitError if a file nested in `depth` others must not be opened."""
        if depth > self.limits.depth:
            message = f"expected at most {self.limits.depth} nested files"
            raise LimitError(f"{message}, found more", "OFFLOAD_MAX_DEPTH", path)


def how_to_allow(field: str) -> str | None:
    """Return None if `field` of `Limits` is set for this run, else how to allow it."""
    if getattr(effective_budget().limits, field):
        return None
    return f"allow it with OFFLOAD_{field.upper()}=1"


_running: ContextVar[Budget | None] = ContextVar("running", default=None)


def run_budget() -> Budget | None:
    """Return the budget of the run; None if the run has no limits."""
    return _running.get()


def effective_budget(payload: int = _ANY) -> Budget:
    """Return the budget of the run; without one, a new budget for `payload` bytes of input."""
    found = _running.get()
    if found is None:
        found = Budget()
        found.add_input(payload)
    return found


@contextmanager
def limited(budget: Budget) -> Iterator[Budget]:
    """Set the budget of the run for the block."""
    token = _running.set(budget)
    try:
        yield budget
    finally:
        _running.reset(token)
