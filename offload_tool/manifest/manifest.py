"""The manifest of a pass: the inputs of its output, and the output's digest.

One record decides whether an output is current, whether a result in a shared cache is valid for a
compile, and whether the file on disk is unchanged::

    key      everything that is known before the compile: see `Key`
    inputs   the files that were read, each with its digest at the time of reading
    earlier  other digests of the inputs, from which the pass made the same output
    lookups  failed lookups: a file that appears there may be read the next time
    same     the names that belong to one file
    output   the digest of the output

On disk it is a text of four lines of JSON next to the output, ``.<name>.manifest``::

    the record, except the parts outside the working directory
    the stat() records of its files, which validate digests without reading (see `file_digests`)
    the inputs outside, and the names under which these are looked up
    their stat() records

The last two lines are mostly equal for all sources; equal ones are parsed and checked once. The
records of several passes that make one output are one file: a line of the output, its stat()
record, and then the four lines of each pass (`OutputRecord`). A damaged record, or one of another
version, is ignored: the pass runs.

A preprocessor identifies files and directories by inode: ``#pragma once`` and ``#import`` skip a
file that was read under another name, and of two names of one search directory, it drops one. So a
copy of the same content is another file. Source: clang 22.1.8, observed: a link to a header with
``#pragma once`` that becomes a copy is a redefinition; ``#include_next`` counts a directory and a
link to it as one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from offload_tool.io.file_digests import (
    CHANGED,
    DigestCache,
    FileStat,
    digest_of,
    digest_of_file,
    file_stat,
    identity,
    is_cacheable,
)
from offload_tool.io.paths import naming, replace_small_file
from offload_tool.manifest.include_search import Lookups, appeared, digest_of_path, is_outside
from offload_tool.manifest.key import Cause, Key, Reason
from offload_tool.manifest.race_check import RaceCheck, Start
from offload_tool.toolchain.disk_cache import kept_by_stat

_VERSION = 10
_IDENTITY = "@"
"""Separates an input's digest from its identity."""
_REPLACED = {"": CHANGED}
"""Marks directories that were replaced while the pass ran: equal to no record."""
_NO_STATS = b"{}"
_MOST_EARLIER = 8
_LINES = 4
_DAMAGE = (
    OSError,
    ArithmeticError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
)
_LARGEST = 64 << 20
"""Bytes; the record of a pass with 10,000 headers has 2 MB."""

_outside_by_text: dict[str | bytes, OutsideFiles] = {}
"""By the text, or its digest; the records of a build hold them anyway."""
_SHORT = 1 << 10


class OutsideFiles:
    """Files outside the working directory, and the names under which they are looked up."""

    __slots__ = ("folders", "inputs", "names", "text")

    def __init__(self, inputs: dict[str, str], names: tuple[str, ...], text: str) -> None:
        self.text = text
        self.inputs = inputs
        self.names = names
        self.folders = frozenset(name.rpartition("/")[0] or "/" for name in inputs)


class Inputs(dict[str, str]):
    """The digest of each file that a pass has read; those outside come last."""

    __slots__ = ("_positions", "outside", "own")

    def __init__(self, own: Mapping[str, str], positions: list[int], outside: OutsideFiles) -> None:
        super().__init__(own)
        self.update(outside.inputs)
        self._positions = positions
        self.own = own
        self.outside = outside

    def in_order(self) -> list[str]:
        """Return the names in the order in which they were read."""
        names = list(self.outside.inputs)
        for position, name in zip(self._positions, self.own, strict=True):
            names.insert(position, name)
        return names


def _parse_outside(text: bytes) -> OutsideFiles:
    """Parse the line of the inputs outside; equal ones are one object. Raise one of `_DAMAGE`."""
    key = text if len(text) < _SHORT else digest_of(text)
    found = _outside_by_text.get(key)
    if found is None:
        value = json.loads(text)
        inputs = dict(value["inputs"])
        _strings([*inputs, *inputs.values()])
        found = _outside_by_text[key] = OutsideFiles(
            inputs, _strings(value["names"]), text.decode("ascii")
        )
    return found


def _strings(value: Any) -> tuple[str, ...]:
    """Return a JSON value that is a list of strings; raise TypeError if it is not."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError("no list of texts")
    return tuple(value)


class PassRecord(NamedTuple):
    """The inputs and outputs of one run of a pass."""

    key: Key
    inputs: Mapping[str, str]
    """The digest of each file that was read, by its name as the compiler spells it."""
    lookups: Lookups
    output: str
    """The digest of the output; "" if it is invalid."""
    side_outputs: Mapping[str, str] = MappingProxyType({})
    """The digest of each further output; "" if other passes write it, too."""
    same_files: Mapping[str, str] = MappingProxyType({})
    """The first name of the same file, for inputs of equal content: see `same_files`."""
    same_folders: Mapping[str, str] = MappingProxyType({})
    """The first name of the same directory, for search directories with several names."""
    why: Reason | None = None
    bitcode: str = ""
    """The digest of the unoptimised bitcode of the output; "" if it is not relevant."""
    earlier: tuple[Mapping[str, str], ...] = ()
    """States of the inputs that gave the same output, as digests that differ from `inputs`."""

    def after(self, before: PassRecord) -> PassRecord:
        """Return the record with the states of `before`, which has the same output."""
        states = [before.inputs, *({**before.inputs, **each} for each in before.earlier)]
        varying = ("inputs", "output", "why", "bitcode", "earlier")  # read, parts have no output
        like_before = self._replace(**{name: getattr(before, name) for name in varying})
        if before != like_before or before.inputs.keys() != self.inputs.keys():
            return self
        now = self.inputs
        differences = [{n: d for n, d in state.items() if now[n] != d} for state in states]
        return self._replace(earlier=tuple(filter(None, differences))[:_MOST_EARLIER])

    @property
    def has_bitcode(self) -> bool:
        """Whether it ran in two stages, whose second printed nothing."""
        return len(self.bitcode) == len(digest_of(b""))

    @property
    def result(self) -> str:
        """A digest of key, inputs and output: equal for equal results of equal work."""
        return digest_of_parts([self.key, self.inputs, self.output])

    @property
    def name(self) -> str:
        """A digest of `result` and of the links that a compile must find to have it."""
        same = [dict(self.same_files), dict(self.same_folders)]
        return digest_of_parts([self.result, *same]) if any(same) else self.result

    @property
    def is_sure(self) -> bool:
        """Return whether nothing that determines the output changed while the pass ran."""
        is_stable = CHANGED not in self.inputs.values() and self.same_folders != _REPLACED
        return is_stable and self.key.is_sure


class OutputRecord(NamedTuple):
    """An output that several passes make."""

    output: str
    passes: Mapping[str, PassRecord]
    texts: Mapping[str, str]
    """What else the maker of the output must know, by name."""


class State(Enum):
    """The verdict on an output."""

    CURRENT = "current"
    OUTDATED = "outdated"
    UNSURE = "unsure"
    """A file appeared on the search path, or the compiler's own path may have changed: the
    preprocessor must run."""


class Judgement(NamedTuple):
    """Whether an output is current, and why not."""

    state: State
    reason: Reason | None = None
    appeared: tuple[str, ...] = ()
    search_path_changed: bool = False


def digest_of_parts(parts: Any) -> str:
    """Return a digest of a value of JSON's types."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return digest_of(text.encode())


def judge(
    record: PassRecord | None,
    key: Key,
    digests: DigestCache,
    output: str | None = None,
    *,
    search_path: Callable[[], tuple[str, ...]] | None = None,
) -> Judgement:
    """Return whether a record is valid for this key, the present files and, if given, `output`.

    `search_path` returns the present one; without it, that of the record counts.
    """
    if record is None:
        return Judgement(State.OUTDATED, Reason(Cause.NO_RECORD))
    reason = key.change_from(record.key)
    if reason is None and output is not None:
        reason = _damage(record, digests, output)
    reason = reason or _changed_input(record, digests)
    if reason is not None:
        return Judgement(State.OUTDATED, reason)
    found_now = appeared(record.lookups, frozenset(record.inputs), digests)
    known = record.lookups.search_path
    present = digest_of_path(search_path()) if known and search_path else known
    search_path_changed = known != present
    if found_now or record.lookups.unknown or search_path_changed:
        names = ", ".join(f"'{name}'" for name in found_now)
        names = names or ("another folder" if search_path_changed else "a computed name")
        return Judgement(
            State.UNSURE, Reason(Cause.APPEARED, names), tuple(found_now), search_path_changed
        )
    return Judgement(State.CURRENT)


def _changed_input(record: PassRecord, digests: DigestCache) -> Reason | None:
    changed = {}
    for name, digest in _inputs_to_check(record.inputs, digests).items():
        now = _digest_with_identity(name, digests.digest(name), _IDENTITY in digest)
        if now != digest:
            changed[name] = now
            if not record.earlier:
                break
    if changed and changed not in record.earlier:
        name = next(iter(changed))
        return Reason(Cause.WRITTEN if record.inputs[name] == CHANGED else Cause.INPUT, name)
    if _same_names(record.same_files) != record.same_files:
        return Reason(Cause.LINK)
    if same_folders(record.lookups.folders, digests) != record.same_folders:
        return Reason(Cause.FOLDER_LINK)
    return None


def _inputs_to_check(inputs: Mapping[str, str], digests: DigestCache) -> Mapping[str, str]:
    """Return the inputs to check: without those outside, if these are known to be unchanged."""
    if not isinstance(inputs, Inputs):
        return inputs
    outside = inputs.outside

    def is_unchanged() -> bool:
        return all(digests.digest(name) == digest for name, digest in outside.inputs.items())

    if all(map(digests.caches_listing, outside.folders)) and digests.memoize(outside, is_unchanged):
        return inputs.own
    return inputs


def files_in_order(record: PassRecord) -> list[str]:
    """Return the files that a pass has read, in that order."""
    inputs = record.inputs
    return inputs.in_order() if isinstance(inputs, Inputs) else list(inputs)


def _damage(record: PassRecord, digests: DigestCache, output: str) -> Reason | None:
    """Return what happened to the outputs of a pass; None if they are unchanged."""
    found = digests.digest(output)
    if not found:
        return Reason(Cause.MISSING)
    if not record.output:
        return Reason(Cause.UNKNOWN_INPUTS)
    if found != record.output:
        return Reason(Cause.OUTPUT)
    for name, digest in record.side_outputs.items():
        if file_stat(name) is None or (digest and digests.digest(name) != digest):
            return Reason(Cause.SIDE_OUTPUT, name)
    return None


def record_pass_result(
    key: Key,
    read: Iterable[str],
    lookups: Lookups,
    output: str,
    start: Start,
    digests: DigestCache,
    *,
    with_identity: bool = False,
) -> PassRecord:
    """Return the record of a pass that has read the files `read` and written `output`.

    `with_identity`: the result also depends on the identity of these files, not on their content
    alone. OpenMP puts the device and inode numbers of files into the names of target regions; a
    source that an editor saves atomically has new ones, with the same content.
    """
    race_check, read = RaceCheck(start), [*read]
    for name in filter(is_outside, read):
        status = file_stat(name) if digests.cached(name) is None else None
        if status is not None and is_cacheable(status):
            digests.add(name, status, _digest_outside(name))
    inputs = {
        name: _digest_with_identity(name, race_check.digest_as_read(name, digests), with_identity)
        for name in read
    }
    equal = _equal_names(inputs)
    # Their content is unchanged, but which of them were one file is not known.
    inputs.update((name, CHANGED) for name in equal if not race_check.is_old(name))
    # The pass may have looked for a file before it appeared.
    present = tuple(
        name for name in lookups.present if race_check.is_old(name, was_reachable=False)
    )
    made, status = digests.digest(output), file_stat(output)
    if status is not None:
        digests.store(output, status, made)
    return PassRecord(
        key,
        inputs,
        lookups._replace(present=present),
        made,
        same_files=_same_names(equal),
        same_folders=_REPLACED
        if race_check.folders_were_replaced()
        else same_folders(lookups.folders, digests),
    )


@kept_by_stat
def _digest_outside(name: str) -> str:
    return digest_of_file(name)


def _digest_with_identity(name: str, digest: str, with_identity: bool) -> str:
    if not with_identity or digest == CHANGED:
        return digest
    return f"{digest}{_IDENTITY}{identity(name) or 'none'}"


def write_record(path: str, record: PassRecord, digests: DigestCache, output: str | None) -> None:
    """Write a record, with known stat() records; raise FileError if it cannot be written."""
    _write_lines(path, _lines_of(record, digests, output, {}))


def write_output_record(path: str, record: OutputRecord, digests: DigestCache, output: str) -> None:
    """Write the record of several passes' output, as `write_record` does."""
    value = {"version": _VERSION, **record._asdict(), "passes": [*record.passes]}
    stats = _known_stats({output: record.output}, digests)
    lines = [json.dumps(value), json.dumps(dict(zip([""], stats.values(), strict=False)))]
    known: dict[str, str] = {}
    for one in record.passes.values():
        lines += _lines_of(one, digests, None, known)
    _write_lines(path, lines)


def _write_lines(path: str, lines: Iterable[str]) -> None:
    with naming(path):
        replace_small_file(path, "".join(f"{line}\n" for line in lines).encode())


def _lines_of(
    record: PassRecord, digests: DigestCache, output: str | None, known: dict[str, str]
) -> list[str]:
    """Return a record's lines; `known` has last lines, by the ones before, which passes share."""
    read = record.inputs.outside if isinstance(record.inputs, Inputs) else None
    if read is not None and record.lookups.outside is not read.names:
        read = None
    names = files_in_order(record)
    if read is None:
        outside = {name: record.inputs[name] for name in names if is_outside(name)}
        shared = json.dumps({"inputs": outside, "names": record.lookups.outside})
    else:
        outside, shared = read.inputs, read.text
    own = [(position, name) for position, name in enumerate(names) if name not in outside]
    inputs = {name: record.inputs[name] for _, name in own}
    value = {
        "version": _VERSION,
        "key": {**record.key.parts},
        "files": {**record.key.files},
        "inputs": inputs,
        "places": [position for position, _ in own],
        "lookups": {**record.lookups._asdict(), "outside": []},
        "output": record.output,
        "beside": dict(record.side_outputs),
        "same files": dict(record.same_files),
        "same folders": dict(record.same_folders),
        "why": None if record.why is None else [record.why.cause.name, *record.why[1:]],
        "bitcode": record.bitcode,
        "earlier": [{**each} for each in record.earlier],
    }
    by_name = {**record.key.files, **inputs, **record.side_outputs}
    if output is not None:
        by_name[output] = record.output
    stats = _known_stats(by_name, digests)
    if output in stats:
        stats[""] = stats.pop(output)
    if shared not in known:
        known[shared] = json.dumps(_known_stats(outside, digests))
    return [json.dumps(value), json.dumps(stats), shared, known[shared]]


def _known_stats(by_name: Mapping[str, str], digests: DigestCache) -> dict[str, FileStat]:
    """Return the known stat() records of files with just these digests."""
    found = {}
    for name, digest in by_name.items():
        known = digests.cached(name)
        if known is not None and known[1] == digest.partition(_IDENTITY)[0]:
            found[name] = known[0]
    return found


def read_record(path: str, digests: DigestCache, output: str | None = None) -> PassRecord | None:
    """Read a record, None without a valid one; add its stat() records to `digests`."""
    try:
        *lines, _ = _content(path).split(b"\n")
        return _parse_lines(lines, digests, output)
    except _DAMAGE:
        return None


def read_output_record(path: str, digests: DigestCache, output: str) -> OutputRecord | None:
    """Read the record of an output that several passes make, as `read_record` does."""
    try:
        head, stats, *lines, _ = _content(path).split(b"\n")
        value = json.loads(head)
        if value["version"] != _VERSION:
            raise ValueError("of another version")
        names, texts = _strings(value["passes"]), _strings_by_name(value["texts"])
        records = [
            _parse_lines(lines[at : at + _LINES], digests, "")
            for at in range(0, len(lines), _LINES)
        ]
        record = OutputRecord(str(value["output"]), dict(zip(names, records, strict=True)), texts)
        _add_stats(json.loads(stats), {"": record.output}, digests, output)
    except _DAMAGE:
        return None
    return record


def _parse_lines(lines: Sequence[bytes], digests: DigestCache, output: str | None) -> PassRecord:
    """Parse a record; without `output`, omit its stat() records. Raise one of `_DAMAGE`."""
    first, second, shared, stats = lines
    value = json.loads(first)
    outside = _parse_outside(shared)
    record = _parse_record(value, outside)
    if output is not None:
        by_name = {**record.key.files, **value["inputs"], **record.side_outputs}
        by_name[""] = record.output
        _add_stats(json.loads(second), by_name, digests, output)
        if stats != _NO_STATS:
            digests.memoize(
                (outside, stats), lambda: _add_stats(json.loads(stats), outside.inputs, digests)
            )
    return record


def _content(path: str) -> bytes:
    """Read a file with few system calls: there is one for each pass."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # no FIFO blocks
    try:
        return os.read(descriptor, min(os.fstat(descriptor).st_size, _LARGEST))
    finally:
        os.close(descriptor)


def _parse_record(value: Any, outside: OutsideFiles) -> PassRecord:
    if value["version"] != _VERSION:
        raise ValueError("of another version")
    lookups = value["lookups"]
    texts = {name: _strings(lookups[name]) for name in ("folders", "names", "present")}
    output = value["output"]
    own, positions = _strings_by_name(value["inputs"]), list(map(int, value["places"]))
    if len(own) != len(positions) or not own.keys().isdisjoint(outside.inputs):
        raise ValueError("not of one record")
    if not isinstance(output, str):
        raise TypeError("no digest")
    return PassRecord(
        Key(_strings_by_name(value["key"]), _strings_by_name(value["files"])),
        Inputs(own, positions, outside),
        Lookups(
            **texts,
            unknown=bool(lookups["unknown"]),
            search_path=str(lookups["search_path"]),
            outside=outside.names,
        ),
        output,
        _strings_by_name(value["beside"]),
        _strings_by_name(value["same files"]),
        _strings_by_name(value["same folders"]),
        _parse_reason(value["why"]),
        str(value["bitcode"]),
        tuple(map(_strings_by_name, value["earlier"])),
    )


def _add_stats(
    stats: Any, by_name: Mapping[str, str], digests: DigestCache, output: str = ""
) -> None:
    """Add stat() records of files with some digests to `digests`; "" stands for `output`."""
    for name, numbers in stats.items():
        if by_name.get(name):
            digest = by_name[name].partition(_IDENTITY)[0]
            digests.add(name or output, FileStat(*map(int, numbers)), digest)


def _parse_reason(value: Any) -> Reason | None:
    if value is None:
        return None
    cause, subject, note = _strings(value)
    return Reason(Cause[cause], subject, note)


def _strings_by_name(value: Any) -> dict[str, str]:
    _strings([*value.keys(), *value.values()])
    return dict(value)


def _equal_names(inputs: Mapping[str, str]) -> list[str]:
    """Return the names of files that share their digest: only these can be one file's."""
    first: dict[str, str] = {}
    found: dict[str, None] = {}
    for name, digest in inputs.items():
        known = first.setdefault(digest, name)
        if known != name:
            found[known] = found[name] = None
    return list(found)


def _same_names(names: Iterable[str]) -> dict[str, str]:
    """Return the first name of each one's file, by name: itself if it is the only one."""
    return _first_names(names, identity)


def same_folders(folders: tuple[str, ...], digests: DigestCache) -> dict[str, str]:
    """Return folders that are the same as an earlier one; those checked once are left out."""
    found = _first_names(folders, digests.identity_of_folder)
    return {folder: first for folder, first in found.items() if first != folder}


def _first_names(names: Iterable[str], identity_of: Callable[[str], str | None]) -> dict[str, str]:
    first: dict[str, str] = {}
    found = {}
    for name in names:
        known = identity_of(name)
        found[name] = first.setdefault(known, name) if known else name
    return found
