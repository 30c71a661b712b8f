"""Results of passes in a folder that many builds share: ``OFFLOAD_LAUNCH_CACHE``.

::

    <folder>/<2 digits>/<key>/<manifest's digest>/manifest    what it was made of (`manifest`)
                                                 /output      what the pass wrote
                                                 /depfile     which files it read
                                                 /said        its messages
    <folder>/new/<random>/                                    one that is being written

The key is everything that is known before a pass runs; there are several results where headers
changed between. One is taken where its manifest says that the pass would read the same now, and
the digests of its files are those that were written: damage is a miss, and is removed.

A result is renamed to its place when it is complete, so that processes need not wait for one
another, and a killed one leaves at most a folder below ``new``. When the folder is larger than
``OFFLOAD_LAUNCH_CACHE_SIZE`` (MiB, 5120 unless told), what was not used for longest goes.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress

from offload_tool.io.file_digests import Fingerprints, digest_of, new_digest
from offload_tool.manifest.manifest import (
    State,
    judge,
    read_record,
    record_pass_result,
    write_record,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from offload_tool.manifest.include_search import Lookups
    from offload_tool.manifest.manifest import PassRecord
    from offload_tool.manifest.race_check import Start

__all__ = ["PassFiles", "ResultCache"]

_FOLDER, _SIZE = "OFFLOAD_LAUNCH_CACHE", "OFFLOAD_LAUNCH_CACHE_SIZE"
_DEFAULT_SIZE = 5 << 30
_MIB = 1 << 20
_NEW = "new"
_FILES = ("output", "depfile", "said")
_CHECKS_SIZE_ONE_IN = 32
_SHRINKS_TO = 0.8
_ABANDONED = 24 * 3600.0
"""Seconds after which nobody writes to a folder below ``new`` any more."""
_MOST_RESULTS = 16
"""Of one key; the oldest goes."""
_CHUNK = 1 << 20


class PassFiles:
    """The files that a pass writes, under the names that it has in this run."""

    __slots__ = ("depfile", "output", "said")

    def __init__(self, output: str, depfile: str, said: str) -> None:
        self.output = output
        self.depfile = depfile
        self.said = said

    def named(self) -> dict[str, str]:
        """Return them by the names that they have in the cache."""
        return dict(zip(_FILES, (self.output, self.depfile, self.said), strict=True))


class ResultCache:
    """The folder, as one run uses it."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder = folder
        self._limit = limit
        self._prints = Fingerprints()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ResultCache | None:
        """Return the cache that the environment names; None where it names none.

        :raises UsageError: the size is no number.
        """
        folder = environ.get(_FOLDER, "")
        if not folder:
            return None
        size = environ.get(_SIZE, "")
        if size and not size.isdecimal():
            from offload_tool.errors import UsageError

            raise UsageError(f"{_SIZE}={size!r}: expected a number of MiB")
        return cls(os.path.abspath(folder), int(size) * _MIB if size else _DEFAULT_SIZE)  # noqa: PTH100

    @property
    def prints(self) -> Fingerprints:
        """What is known of files."""
        return self._prints

    def fetch(self, key: str, files: PassFiles) -> bool:
        """Write the files of a pass with this key that reads what it read; tell whether it did."""
        for place in self._results(key):
            record = self._record(place)
            if record is None:
                self._remove(place)  # damaged, or somebody removes it
                continue
            if judge(record, {"key": key}, self._prints).state is not State.CURRENT:
                continue
            if all(
                _copy(f"{place}/{name}", wanted, record.beside.get(name, ""))
                for name, wanted in files.named().items()
            ):
                with suppress(OSError):
                    os.utime(place)
                return True
            for wanted in files.named().values():  # what a pass says is put behind what is there
                with suppress(OSError):
                    os.unlink(wanted)  # noqa: PTH108
            self._remove(place)
        return False

    def _record(self, place: str) -> PassRecord | None:
        """Read the manifest of a result; None where it is not what was written."""
        try:
            digest = _digest_of_file(f"{place}/manifest")
        except OSError:
            return None
        if digest != os.path.basename(place):  # noqa: PTH119
            return None
        return read_record(f"{place}/manifest", self._prints, "")

    def store(
        self,
        key: str,
        files: PassFiles,
        read: Sequence[str],
        lookups: Lookups,
        start: Start,
    ) -> None:
        """Keep what a pass has written. What cannot be kept is not: the build goes on."""
        record = record_pass_result({"key": key}, read, lookups, files.output, start, self._prints)
        if not record.is_sure or not record.output:
            return
        with suppress(OSError):
            self._store(key, files, record)
            if os.urandom(1)[0] % _CHECKS_SIZE_ONE_IN == 0:
                self.shrink()

    def _store(self, key: str, files: PassFiles, record: PassRecord) -> None:
        from offload_tool.errors import OffloadError

        made = f"{self.folder}/{_NEW}/{os.urandom(8).hex()}"
        os.makedirs(made, mode=0o700)  # noqa: PTH103
        try:
            digests = {}
            for name, source in files.named().items():
                digests[name] = _digest_of_copy(source, f"{made}/{name}")
            record = record._replace(beside=digests)
            write_record(f"{made}/manifest", record, self._prints, None)
            place = f"{self._place(key)}/{_digest_of_file(f'{made}/manifest')}"
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
            os.rename(made, place)  # noqa: PTH104 - fails where another run has made it
        except OffloadError:
            pass
        finally:
            shutil.rmtree(made, ignore_errors=True)
        for old in list(self._results(key))[_MOST_RESULTS:]:
            self._remove(old)

    def shrink(self) -> None:
        """Remove the results that were not used for longest, where there is too much."""
        found = []
        for place, used in self._all():
            with suppress(OSError):
                size = sum(entry.stat().st_size for entry in os.scandir(place))
                found.append((used, size, place))
        total = sum(size for _, size, _ in found)
        if total <= self._limit:
            return
        for _, size, place in sorted(found):
            if total <= self._limit * _SHRINKS_TO:
                break
            self._remove(place)
            total -= size

    def _all(self) -> Iterator[tuple[str, float]]:
        """Yield each result with the time when it was used last; remove what killed runs left."""
        for first in _entries(self.folder):
            for second in _entries(first.path):
                if first.name == _NEW:
                    if time.time() - _used(second.path) > _ABANDONED:
                        shutil.rmtree(second.path, ignore_errors=True)
                    continue
                for result in _entries(second.path):
                    yield result.path, _used(result.path)

    def _place(self, key: str) -> str:
        return f"{self.folder}/{key[:2]}/{key}"

    def _results(self, key: str) -> Iterator[str]:
        """Yield the folders of a key's results, the last used first."""
        places = [entry.path for entry in _entries(self._place(key))]
        yield from sorted(places, key=_used, reverse=True)

    def _remove(self, place: str) -> None:
        """Take a result away in one step, then remove it: nobody finds a part of it."""
        gone = f"{self.folder}/{_NEW}/{os.urandom(8).hex()}"
        with suppress(OSError):
            os.makedirs(f"{self.folder}/{_NEW}", mode=0o700, exist_ok=True)  # noqa: PTH103
            os.rename(place, gone)  # noqa: PTH104
            shutil.rmtree(gone, ignore_errors=True)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _used(place: str) -> float:
    try:
        return os.stat(place).st_mtime  # noqa: PTH116
    except OSError:
        return 0.0


def _copy(source: str, output: str, digest: str) -> bool:
    """Copy a file whose digest is known; tell whether it was this one."""
    try:
        return bool(digest) and _digest_of_copy(source, output) == digest
    except OSError:
        return False


def _digest_of_copy(source: str, output: str) -> str:
    digest = new_digest()
    with open(source, "rb", buffering=0) as read, open(output, "wb") as out:  # noqa: PTH123
        while chunk := read.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return str(digest.hexdigest())


def _digest_of_file(name: str) -> str:
    with open(name, "rb") as file:  # noqa: PTH123
        return digest_of(file.read())
