"""What one run may use: limits for what the bytes of strangers can ask for.

::

    bytes unpacked     at most `unpacked`, and `UNPACKED_RATIO` times the files read
    bytes written      at most `written`, and `WRITTEN_RATIO` times the bytes read and unpacked
    members            of archives and zip files, and files of folders
    depth              files one inside the other

Each is asked for before the work is done, so that what is refused costs nothing. What a file
may have unpacked by its own size is not left to the files after it, see `next_file`.

The command line limits each run (`limited`). Where nobody does, in a program that uses this
package for long, each unpacking is limited alone, by its own payload.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from offload_tool.errors import LimitError, UsageError
from offload_tool.util.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

__all__ = [
    "UNPACKED_RATIO",
    "WRITTEN_RATIO",
    "Budget",
    "Limits",
    "allowed_outside",
    "budget",
    "limited",
    "running",
]

UNPACKED_RATIO = 100
"""Device code becomes 3 to 50 times larger when it is unpacked; bombs a thousand times."""
WRITTEN_RATIO = 16
"""One image may go into the outputs of several targets."""
_SIZE = r"(?ia)([0-9]+)\s*([kmgt]?)(i?b)?"
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TRUE, _FALSE = ("1", "yes", "on"), ("", "0", "no", "off")


class Limits(NamedTuple):
    """The limits of a run; each is a variable ``OFFLOAD_MAX_...`` of the environment as well."""

    unpacked: int = 1 << 30
    """Bytes."""
    written: int = 1 << 30
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
        for field in ("unpacked", "written", "members", "depth"):
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


class Budget:
    """What is left of a run's limits; safe to use from several threads."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits
        self._lock = Lock()
        self._read = self._unpacked = self._written = self._members = 0
        self._own = 0
        """Bytes that may be unpacked for the files that are read, beyond the run's limit."""
        self._common = self.limits.unpacked

    def opened(self, size: int) -> None:
        """Note that an input of `size` bytes was opened: it brings an allowance of its own."""
        with self._lock:
            self._read += size
            self._own += size * UNPACKED_RATIO

    def next_file(self) -> None:
        """Begin with another file of many: what the last one brought ends with it."""
        with self._lock:
            self._own = 0

    def unpack(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Ask for the room of `size` bytes that are to be unpacked; `path` is for the message.

        :raises LimitError: that is more than is left.
        """
        with self._lock:
            self._check_unpack(size, path)
            own = min(size, self._own)
            self._own -= own
            self._common -= size - own
            self._unpacked += size

    def check_unpack(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Raise now what `unpack` would raise for so many bytes.

        :raises LimitError: it would.
        """
        with self._lock:
            self._check_unpack(size, path)

    def _check_unpack(self, size: int, path: str | PathLike[str] | None) -> None:
        left = self._own + self._common
        if size > left:
            message = f"unpacking needs {size} bytes, and {left} are left of this run's limit"
            raise LimitError(message, "OFFLOAD_MAX_UNPACKED", path)

    def write(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Ask for `size` bytes to be written into outputs.

        :raises LimitError: that is more than is left.
        """
        with self._lock:
            self._check_write(size, path)
            self._written += size

    def check_write(self, size: int, path: str | PathLike[str] | None = None) -> None:
        """Raise now what `write` would raise for so many bytes.

        :raises LimitError: it would.
        """
        with self._lock:
            self._check_write(size, path)

    def _check_write(self, size: int, path: str | PathLike[str] | None) -> None:
        known = self._read + self._unpacked
        beyond = self._written + size - WRITTEN_RATIO * known
        if beyond > self.limits.written:
            message = f"expected at most {self.limits.written} bytes to write beyond "
            message += f"{WRITTEN_RATIO} times the {known} that were read, found {beyond}"
            raise LimitError(message, "OFFLOAD_MAX_WRITTEN", path)

    def member(self, path: str | PathLike[str] | None = None, count: int = 1) -> None:
        """Ask for `count` more members, or files of a folder, to be looked at.

        :raises LimitError: that is more than is left.
        """
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
    if getattr((running() or Budget()).limits, field):
        return None
    return f"allow it with --{field.replace('_', '-')} or OFFLOAD_{field.upper()}=1"


_running: ContextVar[Budget | None] = ContextVar("running", default=None)


def running() -> Budget | None:
    """Return the budget of the run; None where nobody limits one."""
    return _running.get()


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
