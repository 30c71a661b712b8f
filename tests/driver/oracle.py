"""The least number of compiles: which passes' inputs are others than those of their outputs.

A pass has to be compiled if its *inputs* are not those that made its output, or if the output
is not what that compile wrote. Inputs are what the counting compiler was told in the clean build:
the driver's own lines for the command, each file that was read, the preprocessed text (in which
an answer of ``__has_include`` shows), the files that the command line names, the variables.

What may be compiled beyond that, and why:

- OpenMP's host IR, where a file that it was made of was replaced by an equal one: names of target
  regions hold inode numbers (docs/rebuilds.md, (d));
- with the deciders that go by time alone (``timestamp-newer``, ``timestamp-match``), what read a
  file that was only touched, and what is made of an output that was made again;
- with other words in the command, of which the driver makes the same (a second ``-O1``): these are
  another command;
- with the compiler by another name, all: its mode is in the command;
- with another lld, the passes that do not link: it is part of what tells a compiler from another;
- where two of its files, or of the folders that are searched, are now one, or no longer: in the
  places of links there are copies, or the reverse;
- a pass whose compile was cut short: scons or clang killed, a file saved meanwhile. What became
  of it, nobody knows; it is compiled at most once more.

With a CacheDir, what was compiled before with the same inputs, in any checkout, is fetched, but
for compiles with ``--save-temps``: a cache has one file of each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.driver.linking import searched_folders
from tests.driver.running import digest
from tests.driver.state import State

BY_TIME = ("timestamp-newer", "timestamp-match")


@dataclass(frozen=True)
class Made:
    """What is known of a pass's output on disk."""

    inputs: str
    soft: str
    """Inputs that matter only where one of the allowances applies."""
    output: str
    """The digest of the output."""


@dataclass
class Oracle:
    """Remembers what was compiled, in all checkouts of a trial."""

    folder: Path
    memories: dict[str, dict[str, Made | None]] = field(default_factory=dict)
    cached: set[tuple[str, str]] = field(default_factory=set)

    def made(self, checkout: str) -> dict[str, Made | None]:
        """Return what is known of each output in a checkout; None: nobody knows its inputs."""
        return self.memories.setdefault(checkout, {})

    def damaged(self, checkout: str) -> set[str]:
        """Name the passes whose outputs are not what their compiles wrote; ask before a build."""
        here = self.folder / checkout
        return {
            name
            for name, made in self.made(checkout).items()
            if made and (not (here / name).exists() or digest(here / name) != made.output)
        }

    def judge(
        self, checkout: str, state: State, passes: dict[str, dict[str, Any]], damaged: set[str]
    ) -> set[str]:
        """Return what a build of these passes may compile: what it must, and what is lenient."""
        known, found = self.made(checkout), set()
        for name, record in passes.items():
            before = known.get(name)
            inputs = inputs_of(record)
            if name in known and before is None:
                found.add(name)
            elif before is None or before.inputs != inputs or name in damaged:
                if (name, self._shared(checkout, state, record)) not in self.cached:
                    found.add(name)  # the CacheDir holds the others
            elif before.soft != self._soft(checkout, state, record):
                found.add(name)
        return found

    def remember(
        self, checkout: str, state: State, passes: dict[str, dict[str, Any]], names: set[str]
    ) -> None:
        """Note that these outputs are made of the present inputs."""
        known = self.made(checkout)
        for name in names & set(passes):
            file = self.folder / checkout / name
            if file.exists():
                soft = self._soft(checkout, state, passes[name])
                was_cut_short = name in known and known[name] is None
                known[name] = Made(inputs_of(passes[name]), soft, digest(file))
                # SCons, when it was killed, had perhaps not put it into the cache.
                if state.caches and not state.keeps_temporaries and not was_cut_short:
                    self.cached.add((name, self._shared(checkout, state, passes[name])))

    def forget(self, checkout: str, names: set[str]) -> None:
        """Note that nobody knows of what these outputs are made."""
        self.made(checkout).update(dict.fromkeys(names))

    def _soft(self, checkout: str, state: State, record: dict[str, Any]) -> str:
        found: list[object] = [state.linker, record["words"], self._same(checkout, state, record)]
        for name in record["files"]:
            place = self.folder / checkout / name
            if not place.exists():
                continue
            status = place.stat()
            if state.kind == "openmp":
                found.append((name, status.st_ino))
            if state.decider in BY_TIME:
                found.append((name, status.st_mtime_ns))
        return json.dumps(found)

    def _shared(self, checkout: str, state: State, record: dict[str, Any]) -> str:
        inodes = self._soft(checkout, state, record) if state.kind == "openmp" else ""
        same = str(self._same(checkout, state, record))
        return inputs_of(record) + inodes + same + str(state.linker) + record["words"]

    def _same(self, checkout: str, state: State, record: dict[str, Any]) -> list[int]:
        """Return a number for each file that was read, and each folder: what is one has one."""
        names = [*record["files"], *searched_folders(state)]
        places = [self.folder / checkout / name for name in names]
        inodes = [place.stat().st_ino if place.exists() else 0 for place in places]
        first = {inode: number for number, inode in reversed([*enumerate(inodes)])}
        return [first[inode] for inode in inodes]


def inputs_of(record: dict[str, Any]) -> str:
    """Return all that decides what a compile makes, as text."""
    return json.dumps([record["command"], record["files"], record["text"]], sort_keys=True)


def difference(before: str, after: str) -> str:
    """Return words for what differs between two compiles' inputs."""
    (command, files, text), (command2, files2, text2) = json.loads(before), json.loads(after)
    found = [f"{name}" for name in {*files, *files2} if files.get(name) != files2.get(name)]
    found += ["the command"] * (command != command2)
    found += ["the preprocessed text"] * (text != text2)
    return ", ".join(sorted(found)) or "nothing"
