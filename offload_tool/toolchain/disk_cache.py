"""A disk cache of slow queries, shared by runs of the command line and of SCons.

Each result is a file::

    <cache folder>/answers/<its first two digits>/<checksum of the key>.json
        checksum of the rest
        {"key": [text, ...], "result": ..., "package": checksum of `package_state`,
         "dependencies": {path: [mtime in ns, ctime in ns, size, inode] or null, ...}}

A result is valid while the package and the stat() of every dependency are unchanged; no program can
set ctime. A result is not stored if a dependency changes during the query. The reader ignores a
file that is unreadable, corrupt, or writable by others.

Keys contain working directories and commands with names of sources, so builds in new places would
fill a disk: each of the 256 folders has at most `_MOST_RESULTS`, of which the older half then goes.

Results about headers of toolkits and libraries are in one such file, each with its header's stat().
"""

from __future__ import annotations

import atexit
import binascii
import functools
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from offload_tool.errors import CompilerError, OffloadError
from offload_tool.io.file_digests import (
    FileStat,
    cached_by_stat,
    clock_step,
    content_of,
    digest_of,
    file_stat,
    is_cacheable,
)
from offload_tool.io.paths import is_writable_by_others

_LARGEST = 4 << 20
"""Bytes; results have a few thousand, and those of 2,048 headers about 600,000."""
_KEYS = {"key", "package", "dependencies", "result"}
_HEADERS = ("headers",)
"""The key of the results of `kept_by_stat`."""
_MOST_HEADERS = 2048
_MOST_RESULTS = 64
"""Files of a folder; with a result of 17,000 bytes for each source, all take 280 MB."""
_DAY = 86_400
"""Seconds after which the use of a result is noted, as its file's time."""
_T = TypeVar("_T")
_P = ParamSpec("_P")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWNER_ONLY, _EXECUTABLE = 0o600, 0o700


@functools.cache
def cache_folder() -> str:
    """Return the directory of this machine's caches, created if missing; raise CompilerError.

    ``$XDG_CACHE_HOME/offload_tool``, else ``~/.cache/offload_tool``, else one of this user's in the
    temporary directory.
    """
    for folder in _cache_folders():
        if not os.path.isabs(folder):  # HOME is not set
            continue
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            found, link = os.stat(folder), os.lstat(folder)
        except OSError:
            continue
        # Programs are run from here, so reject a directory, or a link to one, that another user
        # made or can write to.
        is_own = link.st_uid == os.getuid() and not is_writable_by_others(found)
        if is_own and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise CompilerError("no folder for the embedded compiler's cache; set XDG_CACHE_HOME to one")


def _cache_folders() -> Iterator[str]:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield os.path.join(base, "offload_tool")
    from offload_tool.io.temporary_directory import system_temp_folder  # slow, and rarely needed

    yield os.path.join(system_temp_folder(), f"offload_tool-{os.getuid()}")


def cached_script(name: str, text: bytes) -> str:
    """Return the path of a script in `cache_folder`; raise CompilerError, OSError or FileError."""
    file = os.path.join(cache_folder(), name)
    if content_of(file) != text or not os.access(file, os.X_OK):
        from offload_tool.io import replace_file

        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with replace_file(file) as out:
            out.set_mode(_EXECUTABLE)
            out.write(text)
    return file


def cached_result(
    key: Sequence[str], find: Callable[[], Any], dependencies: Callable[[Any], Iterable[str] | None]
) -> Any:
    """Return the result for `key`, made of JSON's types, from disk or from `find`.

    `dependencies` returns the files and directories on which a result depends, or None for a result
    that must not be stored. Errors of `find` and results that cannot be written are not stored.
    """
    try:
        file = _file_of(key)
    except OffloadError:
        return find()
    known = _read(file, key)
    if known is not None and all(
        _state(path) == state for path, state in known["dependencies"].items()
    ):
        return known["result"]
    started = time.time_ns()
    result = find()
    own = dependencies(result)
    if own is None:
        return result
    states = {path: file_stat(path) for path in own}
    if all(one is None or one.changed + clock_step(one) < started for one in states.values()):
        _write(file, key, states, result)
    return result


def kept_by_stat(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Cache a function of a file's content as `cached_by_stat` does, and for later processes.

    These get the results for files with absolute names: in depfiles, those of the working directory
    have relative ones. Results consist of JSON's types.
    """
    within = cached_by_stat(function)
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"

    @functools.wraps(function)
    def wrapper(*args: _P.args, **options: _P.kwargs) -> _T:
        path = str(args[0])
        status = file_stat(path) if path.startswith("/") else None
        if status is None:
            return within(*args, **options)
        state, call = [*status], f"{name} {args[1:]}{options or ''}"
        known, results = _by_header().get(path, (None, {}))
        if known == state and call in results:
            return results[call]  # type: ignore[no-any-return]
        result = function(*args, **options)
        if is_cacheable(status) and file_stat(path) == status:
            before = results if known == state else {}
            _by_header()[path] = (state, {**before, call: result})
            _save_at_exit()
        return result

    return wrapper


@functools.cache
def _by_header() -> dict[str, Any]:
    """Return the results of `kept_by_stat`: a file's state, and results by call."""
    try:
        known = _read(_file_of(_HEADERS), _HEADERS)
    except OffloadError:
        known = None
    return {} if known is None else dict(known["result"])


@functools.cache
def _save_at_exit() -> None:
    def save() -> None:
        last = dict([*_by_header().items()][-_MOST_HEADERS:])
        with suppress(OffloadError):
            _write(_file_of(_HEADERS), _HEADERS, {}, last)

    atexit.register(save)


def _file_of(key: Sequence[str]) -> str:
    checksum = binascii.crc32("\0".join(key).encode(errors="surrogateescape"))
    name = f"{checksum:08x}"
    return f"{cache_folder()}/answers/{name[:2]}/{name}.json"


@functools.cache
def package_state(package: str = PACKAGE) -> str:
    """Return a checksum of names, times and sizes of all the package's modules.

    Of a package in a zip file, such as that of ``zipapp``, it is of this file.
    """
    parts = []
    folders = [package]
    if not os.path.isdir(package):
        folders, archive = [], package
        while not os.path.lexists(archive):
            archive = os.path.dirname(archive)
        parts.append(_described(archive, os.stat(archive)))
    while folders:
        with os.scandir(folders.pop()) as items:
            for item in items:
                if item.name.endswith(".py"):
                    parts.append(_described(item.path, item.stat()))
                elif item.name != "__pycache__" and "." not in item.name and item.is_dir():
                    folders.append(item.path)
    text = "\n".join(sorted(parts))
    return f"{binascii.crc32(text.encode(errors='surrogateescape')):08x}"


def _described(path: str, found: os.stat_result) -> str:
    return f"{path} {found.st_mtime_ns} {found.st_size} {found.st_ino}"


def _state(path: str) -> list[int] | None:
    found = file_stat(path)
    return None if found is None else [*found]


def _read(file: str, key: Sequence[str]) -> dict[str, Any] | None:
    """Return what is stored for `key` by this state of the package, checked but for its states."""
    known = None
    with suppress(OSError, ValueError, RecursionError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            is_safe = stat.S_ISREG(status.st_mode) and not is_writable_by_others(status)
            if is_safe and status.st_size <= _LARGEST:
                checksum, _, text = opened.read().partition(b"\n")
                known = json.loads(text) if checksum == digest_of(text).encode() else None
    if not isinstance(known, dict) or known.keys() != _KEYS:
        return None
    is_own = known["key"] == list(key) and known["package"] == package_state()
    if not is_own or not isinstance(known["dependencies"], dict):
        return None
    if status.st_mtime < time.time() - _DAY:
        with suppress(OSError):
            os.utime(file, follow_symlinks=False)
    return known


def _write(
    file: str, key: Sequence[str], states: Mapping[str, FileStat | None], result: Any
) -> None:
    from offload_tool.io import replace_file

    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        if os.path.lexists(file) and not stat.S_ISREG(os.lstat(file).st_mode):
            os.unlink(file)
        with replace_file(file) as out:
            out.set_mode(_OWNER_ONLY)
            known = {"key": [*key], "package": package_state(), "dependencies": states}
            text = json.dumps({**known, "result": result}).encode()
            out.write(digest_of(text).encode() + b"\n" + text)
        _make_room(os.path.dirname(file))
    except (OSError, OffloadError):
        pass  # such as a full disk: the result is still right


def _make_room(folder: str) -> None:
    """Remove the results of a folder that were used longest ago, if there are too many.

    :raises OSError: another process removes them, too.
    """
    with os.scandir(folder) as items:
        found = [(item.stat().st_mtime_ns, item.path) for item in items]
    if len(found) > _MOST_RESULTS:
        for _, path in sorted(found)[: len(found) // 2]:
            os.unlink(path)
