"""Wheels: what their names, ``RECORD`` and ``METADATA`` say, and how these are written.

::

    torch-2.9.0+rocm7-1-cp312-cp312-linux_x86_64.whl      a zip file
    ^name ^version    ^ ^tags
                      build, optional
    torch/lib/libtorch_hip.so
    torch-2.9.0+rocm7.dist-info/METADATA     headers as of mail, then a text
                                WHEEL        tags, and the scheme that the root stands for
                                RECORD       a row for each file: path, digest, size (CSV);
                                             none of itself; paths from the folder around
                                RECORD.jws, RECORD.p7s    signatures of RECORD

A digest is ``sha256=`` and the digest in base64, with the alphabet for URLs and without padding.
Source: the PyPA specifications "Binary distribution format", "Recording installed projects" and
"Core metadata".
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import FormatError

if TYPE_CHECKING:
    from offload_tool.io import StrPath

RECORD = "RECORD"
SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_NAME = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(-(?P<build>[0-9][^-]*))?"
    r"-(?P<tags>[^-]+-[^-]+-[^-]+)\.whl"
)
_RUNS = re.compile(r"[-_.]+")
_HEADER = re.compile(r"^([^\s:]+):[ \t]*(.*)$", re.MULTILINE)
_DATA = re.compile(r"[^/]+\.data/(?P<scheme>[^/]+)/(?P<rest>.*)", re.DOTALL)


def is_wheel(path: StrPath) -> bool:
    """Return whether a path is a wheel's, by its name."""
    return str(path).endswith(".whl")


class WheelName(NamedTuple):
    """A wheel's file name."""

    name: str
    version: str
    build: str
    """Empty if there is none."""
    tags: str

    @classmethod
    def parse(cls, text: str) -> WheelName:
        """Read a file name.

        :raises FormatError: it is no wheel's.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            message = "expected a wheel's name (NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM.whl)"
            raise FormatError(f"{message}, found {text!r}")
        return cls(match["name"], match["version"], match["build"] or "", match["tags"])

    def __str__(self) -> str:
        build = [self.build] if self.build else []
        return "-".join([self.name, self.version, *build, self.tags]) + ".whl"

    @property
    def dist_info(self) -> str:
        """Name the folder of metadata in it."""
        return f"{self.name}-{self.version}.dist-info"


def in_file_name(name: str) -> str:
    """Return a distribution's name as file names have it."""
    return _RUNS.sub("_", name).lower()


def installed_path(name: str) -> str | None:
    """Return where a member comes to be, from the folder of packages; None if that is elsewhere."""
    match = _DATA.fullmatch(name)
    if match is None:
        return name
    return match["rest"] if match["scheme"] in ("purelib", "platlib") else None


class Digest(NamedTuple):
    """What RECORD says of a file."""

    text: str
    size: int
    """Bytes."""


def digest(blocks: Iterable[bytes | memoryview]) -> Digest:
    """Make the digest of a file."""
    state, size = hashlib.sha256(), 0
    for block in blocks:
        state.update(block)
        size += len(block)
    text = base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode()
    return Digest(f"sha256={text}", size)


def new_record(digests: Mapping[str, Digest], own: str) -> bytes:
    """Write a RECORD, which has the name `own`."""
    rows = [[name, found.text, str(found.size)] for name, found in digests.items()]
    return _written([*rows, [own, "", ""]])


def edited_record(
    data: bytes,
    record: str,
    changed: Mapping[str, Digest],
    added: Mapping[str, Digest],
    removed: Iterable[str] = (),
    *,
    path: str,
) -> bytes | None:
    """Write the RECORD that is called `record` anew; None if nothing in it changed.

    Names are from the root of the tree that it is in.

    :raises FormatError: it is broken.
    """
    root = posixpath.dirname(posixpath.dirname(record))
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"expected rows of CSV in UTF-8: {error}", path=path) from error
    gone = set(removed)
    found, is_changed = [], False
    for number, row in enumerate(rows):
        if not row:
            continue
        if len(row) != 3:
            message = f"expected a path, a digest and a size in row {number + 1}, found {len(row)}"
            raise FormatError(f"{message} fields", path=path)
        name = posixpath.normpath(posixpath.join(root, row[0]))
        if name in gone:
            is_changed = True
            continue
        new = changed.get(name)
        if new is not None and row[1:] != [new.text, str(new.size)]:
            row = [row[0], new.text, str(new.size)]
            is_changed = True
        found.append(row)
    for name, new in added.items():
        is_changed = True
        at = len(found) - (1 if found and found[-1][0].endswith(f"/{RECORD}") else 0)
        relative = posixpath.relpath(name, root or ".")
        found.insert(at, [relative, new.text, str(new.size)])
    return _written(found) if is_changed else None


def _written(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


# -- METADATA ----------------------------------------------------------------------------


def _split(data: bytes, path: str) -> tuple[str, str, str]:
    """Return the headers, what is behind them from the empty line on, and the ends of lines."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"expected UTF-8: {error}", path=path) from error
    line = "\r\n" if "\r\n" in text.partition("\n")[0] + "\n" else "\n"
    head, gap, rest = text.partition(line * 2)
    return head.rstrip("\r\n") + line, gap[len(line) :] + rest, line


def header(data: bytes, name: str, *, path: str) -> str:
    """Return the first header of a name.

    :raises FormatError: there is none.
    """
    for found in _HEADER.finditer(_split(data, path)[0]):
        if found[1].lower() == name.lower() and found[2].strip():
            return found[2].strip()
    raise FormatError(f"expected the header {name}", path=path)


def with_headers(data: bytes, rows: Iterable[tuple[str, str]], *, path: str) -> bytes:
    """Write METADATA with more headers, behind those that are there.

    :raises FormatError: it is broken.
    """
    head, rest, line = _split(data, path)
    return (head + "".join(f"{name}: {value}{line}" for name, value in rows) + rest).encode()


def without_headers(data: bytes, rows: Iterable[tuple[str, str]], *, path: str) -> bytes:
    """Write METADATA without these headers.

    :raises FormatError: it is broken, or one of them is not there.
    """
    head, rest, line = _split(data, path)
    lines = head.split(line)
    for name, value in rows:
        wanted = f"{name}: {value}"
        if wanted not in lines:
            raise FormatError(f"expected the header {wanted!r}", path=path)
        lines.remove(wanted)
    return (line.join(lines) + rest).encode()
