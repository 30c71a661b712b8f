"""Wheels: file names, ``RECORD`` and ``METADATA``, read and written.

::

    torch-2.9.0+rocm7-1-cp312-cp312-linux_x86_64.whl      a zip file
    ^name ^version    ^ ^tags
                      build, optional
    torch/lib/libtorch_hip.so
    torch-2.9.0+rocm7.dist-info/METADATA     mail headers, then a text
                                WHEEL        tags, and the scheme of the root
                                RECORD       a row for each file: path, digest, size (CSV);
                                             none for itself; relative to the parent folder
                                RECORD.jws, RECORD.p7s    signatures of RECORD

A digest is ``sha256=`` and the digest in URL-safe base64 without padding. Source: the PyPA
specifications "Binary distribution format", "Recording installed projects" and "Core metadata".
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from offload_tool.errors import FormatError
from offload_tool.io import StrPath

RECORD = "RECORD"
SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_NAME = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(-(?P<build>[0-9][^-]*))?"
    r"-(?P<tags>[^-]+-[^-]+-[^-]+)\.whl"
)
_SEPARATORS = re.compile(r"[-_.]+")
_HEADER = re.compile(r"^([^\s:]+):[ \t]*(.*)$", re.MULTILINE)
_DATA = re.compile(r"[^/]+\.data/(?P<scheme>[^/]+)/(?P<rest>.*)", re.DOTALL)


def is_wheel(path: StrPath) -> bool:
    """Return whether a path has the name of a wheel."""
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
        """Parse a file name; raise FormatError if it is not a wheel's."""
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
        """Return the name of the metadata folder in the wheel."""
        return f"{self.name}-{self.version}.dist-info"


def in_file_name(name: str) -> str:
    """Return a distribution's name in the form of file names."""
    return _SEPARATORS.sub("_", name).lower()


def installed_path(name: str) -> str | None:
    """Return a member's path below the folder of packages; None if it is installed elsewhere."""
    match = _DATA.fullmatch(name)
    if match is None:
        return name
    return match["rest"] if match["scheme"] in ("purelib", "platlib") else None


class Digest(NamedTuple):
    """Digest and size, in bytes, of a file, as in RECORD."""

    text: str
    size: int


def digest(blocks: Iterable[bytes | memoryview]) -> Digest:
    """Return the digest of a file."""
    state, size = hashlib.sha256(), 0
    for block in blocks:
        state.update(block)
        size += len(block)
    text = base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode()
    return Digest(f"sha256={text}", size)


def new_record(digests: Mapping[str, Digest], own: str) -> bytes:
    """Return a RECORD with the name `own`."""
    rows = [[name, found.text, str(found.size)] for name, found in digests.items()]
    return _to_csv([*rows, [own, "", ""]])


def edited_record(
    data: bytes,
    record: str,
    changed: Mapping[str, Digest],
    added: Mapping[str, Digest],
    removed: Iterable[str] = (),
    *,
    path: str,
) -> bytes | None:
    """Return the RECORD `record` with changes in its tree, None without any; raise FormatError."""
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
            found.append([row[0], new.text, str(new.size)])
            is_changed = True
        else:
            found.append(row)
    for name, new in added.items():
        is_changed = True
        at = len(found) - (1 if found and found[-1][0].endswith(f"/{RECORD}") else 0)
        relative = posixpath.relpath(name, root or ".")
        found.insert(at, [relative, new.text, str(new.size)])
    return _to_csv(found) if is_changed else None


def _to_csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


# -- METADATA ----------------------------------------------------------------------------


def _split(data: bytes, path: str) -> tuple[str, str, str]:
    """Return the headers, the rest from the empty line on, and the line ending."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"expected UTF-8: {error}", path=path) from error
    line = "\r\n" if "\r\n" in text.partition("\n")[0] + "\n" else "\n"
    head, gap, rest = text.partition(line * 2)
    return head.rstrip("\r\n") + line, gap[len(line) :] + rest, line


def header(data: bytes, name: str, *, path: str) -> str:
    """Return the first header of a name; raise FormatError if there is none."""
    for found in _HEADER.finditer(_split(data, path)[0]):
        if found[1].lower() == name.lower() and found[2].strip():
            return found[2].strip()
    raise FormatError(f"expected the header {name}", path=path)


def with_headers(data: bytes, rows: Iterable[tuple[str, str]], *, path: str) -> bytes:
    """Return METADATA with headers appended; raise FormatError if it is broken."""
    head, rest, line = _split(data, path)
    return (head + "".join(f"{name}: {value}{line}" for name, value in rows) + rest).encode()


def without_headers(data: bytes, rows: Iterable[tuple[str, str]], *, path: str) -> bytes:
    """Return METADATA without these headers; raise FormatError if one is missing."""
    head, rest, line = _split(data, path)
    lines = head.split(line)
    for name, value in rows:
        wanted = f"{name}: {value}"
        if wanted not in lines:
            raise FormatError(f"expected the header {wanted!r}", path=path)
        lines.remove(wanted)
    return (line.join(lines) + rest).encode()
