"""What one run may use: limits for what the bytes of strangers can ask for.

::

    bytes unpacked     at most `unpacked`, and `UNPACKED_RATIO` times the files read
    bytes written      at most `written`, and `WRITTEN_RATIO` times the bytes read and unpacked
    bytes looked at    at most `reread`, and `REREAD_RATIO` times those read and unpacked
    members            of archives and zip files, and files of folders; of one file, a part of the
                       limit, and one for each `MEMBER_BYTES` that it has
    depth              files one inside the other

Each is asked for before the work is done, so that what is refused costs nothing. What a file
may have unpacked by its own size is not left to the files after it, see `next_file`.

The command line limits each run (`limited`). Where nobody does, in a program that uses this
package for long, each unpacking is limited alone, by its own payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import LimitError, UsageError

if TYPE_CHECKING:
    from os import PathLike

UNPACKED_RATIO = 100
"""Device code becomes 3 to 50 times larger when it is unpacked; bombs a thousand times."""
WRITTEN_RATIO = 16
"""One image may go into the outputs of several targets."""
REREAD_RATIO = 8
"""Bytes are looked at once as a file, as a section, as an image; tables can name them again."""
MEMBER_BYTES = 100
"""The least that a member takes, with its name and row; rows can be packed a thousand times."""
_FEW_MEMBERS, _PART = 20_000, 100
"""What a file may have beyond: so many, or that part of the limit."""
_HOLES = 1 << 30
"""Bytes."""
_ANY = 1 << 40
"""Bytes of files that nobody has counted."""
_SIZE = r"(?ia)([0-9]+)\s*([kmgt]?)(i?b)?"
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TRUE, _FALSE = ("1", "yes", "on"), ("", "0", "no", "off")


class Limits(NamedTuple):
    """The limits of a run; each is a variable ``OFFLOAD_MAX_...`` of the environment as well."""

    unpacked: int = 1 << 30
    """Bytes."""
    written: int = 1 << 30
    """Bytes."""
    reread: int = 8 << 20
    """Bytes."""
    members: int = 2_000_000
    depth: int = 8
    thin_outside: bool = False
    """Whether thin archives may name files outside of their folder."""
    kpack_outside: bool = False
    """Whether kpack markers may: archives that are neither in the program's folder nor in a folder
    ``.kpack`` of one above."""

    def having(self, field: str, value: int) -> Limits:
        """Return the same with another number."""
        return Limits(**{**self._asdict(), field: value})

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Limits:
        """Read the variables of the environment.

        :raises UsageError: one of them is no number.
        """
        limits = cls()
        for field in ("unpacked", "written", "reread", "members", "depth"):
            name = f"OFFLOAD_MAX_{field.upper()}"
            if text := environ.get(name, ""):
                limits = limits.having(field, read_size(text, name))
        for field in ("thin_outside", "kpack_outside"):
            name = f"OFFLOAD_{field.upper()}"
            word = environ.get(name, "").lower()
            if word not in (*_TRUE, *_FALSE):
                raise UsageError(f"{name}={word!r}: expected 1 or 0")
            limits = limits.having(field, word in _TRUE)
        return limits


def read_size(text: str, name: str) -> int:
    """Read a number, or a size such as ``512M`` or ``4GiB``; `name` is for messages.

    :raises UsageError: it is neither.
    """
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        raise UsageError(f"{name}: expected a number or a size such as 512M or 4G, found {text!r}")
    return int(match[1]) << _UNITS[match[2].lower()]


class _Share:
    """What is left of one limit: `own` of the file that is read, `common` of the run."""

    def __init__(self, common: int, ratio: float) -> None:
        self.own, self.common, self._ratio = 0.0, common, ratio

    def bring(self, size: int) -> None:
        """Add what `size` bytes of a file allow."""
        self.own += size * self._ratio

    @property
    def left(self) -> int:
        """What may be taken."""
        return int(self.own) + self.common

    def take(self, size: int) -> None:
        """Take of the file's own first."""
        own = min(size, int(self.own))
        self.own -= own
        self.common -= size - own


class Budget:
    """What is left of a run's limits; safe to use from several threads."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        self._lock = RLock()
        self._read = self._unpacked = self._written = self._members = 0
        self._few = max(self.limits.members // _PART, _FEW_MEMBERS)
        self._unpack = _Share(self.limits.unpacked, UNPACKED_RATIO)
        self._reread = _Share(self.limits.reread, REREAD_RATIO)
        self._rows = _Share(self._few, 1 / MEMBER_BYTES)
        self._opened: set[object] = set()

    def opened(self, size: int, identity: object = None, length: int = 0) -> None:
        """Note that an input of `size` bytes was opened: it brings an allowance of its own.

        What is the same file by its `identity` brings nothing again. Of its `length`, holes count
        as what may be looked at, which is fast, up to `_HOLES`.
        """
        with self._lock:
            if identity is not None:
                if identity in self._opened:
                    return
                self._opened.add(identity)
            self._read += size
            self._reread.bring(max(size, min(length, _HOLES)))
            for share in (self._unpack, self._rows):
                share.bring(size)

    def next_file(self) -> None:
        """Begin with another file of many: what the last one brought ends with it."""
        with self._lock:
            self._opened.clear()
            for share in (self._unpack, self._reread, self._rows):
                share.own = 0.0

    def unpack(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Ask for the room of `size` bytes that are to be unpacked; `path` is for the message.

        :raises LimitError: that is more than is left.
        """
        with self._lock:
            self.check_unpack(size, path)
            self._unpack.take(size)
            self._reread.bring(size)
            self._unpacked += size

    def check_unpack(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Raise now what `unpack` would raise for so many bytes.

        :raises LimitError: it would.
        """
        with self._lock:
            left = self._unpack.left
        if size > left:
            message = f"unpacking needs {size} bytes, and {left} are left of this run's limit"
            raise LimitError(message, "OFFLOAD_MAX_UNPACKED", path)

    def write(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Ask for `size` bytes to be written into outputs.

        :raises LimitError: that is more than is left.
        """
        with self._lock:
            self.check_write(size, path)
            self._written += size

    def check_write(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Raise now what `write` would raise for so many bytes.

        :raises LimitError: it would.
        """
        with self._lock:
            known = self._read + self._unpacked
            beyond = self._written + size - WRITTEN_RATIO * known
        if beyond > self.limits.written:
            message = f"expected at most {self.limits.written} bytes to write beyond "
            message += f"{WRITTEN_RATIO} times the {known} that were read, found {beyond}"
            raise LimitError(message, "OFFLOAD_MAX_WRITTEN", path)

    def look(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Ask for `size` bytes to be looked at, which may have been looked at before.

        :raises LimitError: that is more than is left.
        """
        with self._lock:
            if size > self._reread.left:
                message = f"expected at most {self.limits.reread} bytes to be looked at again "
                message += f"beyond {REREAD_RATIO} times those read and unpacked, found more"
                raise LimitError(message, "OFFLOAD_MAX_REREAD", path)
            self._reread.take(size)

    def file(self, path: str | PathLike[str] | None = None) -> None:
        """Ask for one more file of a folder to be looked at.

        :raises LimitError: that is more than is left.
        """
        self._count(1, path)

    def member(self, path: str | PathLike[str] | None = None, count: int = 1) -> None:
        """Ask for `count` more members of a file to be looked at.

        :raises LimitError: that is more than is left.
        """
        self.check_members(count, path)
        self._rows.take(count)
        self._count(count, path)

    def check_members(self, count: int, path: str | PathLike[str] | None = None) -> None:
        """Raise now what `member` would raise for so many of one file.

        :raises LimitError: it would.
        """
        if count > self._rows.left:
            message = f"expected one member for each {MEMBER_BYTES} bytes of a file, and "
            message += f"{self._few} beyond, found more"
            raise LimitError(message, "OFFLOAD_MAX_MEMBERS", path)

    def _count(self, count: int, path: str | PathLike[str] | None) -> None:
        self._members += count  # whoever walks is alone
        if self._members > self.limits.members:
            message = f"expected at most {self.limits.members} members and files in a run"
            raise LimitError(f"{message}, found more", "OFFLOAD_MAX_MEMBERS", path)

    def enter(self, depth: int, path: str | PathLike[str] | None = None) -> None:
        """Ask for a file to be looked into that is in `depth` others.

        :raises LimitError: that is deeper than allowed.
        """
        if depth > self.limits.depth:
            message = f"expected at most {self.limits.depth} files one inside the other"
            raise LimitError(f"{message}, found more", "OFFLOAD_MAX_DEPTH", path)


def allowed_outside(field: str) -> str | None:
    """Return None if the run allows what `field` of `Limits` says; else, what would allow it."""
    if getattr(current().limits, field):
        return None
    return f"allow it with --{field.replace('_', '-')} or OFFLOAD_{field.upper()}=1"


_running: ContextVar[Budget | None] = ContextVar("running", default=None)


def running() -> Budget | None:
    """Return the budget of the run; None where nobody limits one."""
    return _running.get()


def current() -> Budget:
    """Return the budget of the run; where there is none, a new one, as if all were open."""
    found = _running.get()
    if found is None:
        found = Budget()
        found.opened(_ANY)
    return found


def budget(payload: int) -> Budget:
    """Return the budget to ask before `payload` packed bytes are unpacked.

    That of the run; where there is none, one for them alone.
    """
    found = _running.get()
    if found is None:
        found = Budget()
        found.opened(payload)
    return found


@contextmanager
def limited(budget: Budget) -> Iterator[Budget]:
    """Run the block with this budget."""
    token = _running.set(budget)
    try:
        yield budget
    finally:
        _running.reset(token)
