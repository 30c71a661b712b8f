"""What is known of a pass before it runs, and the reasons why one runs.

`Cause` is the one table of their messages. A manifest stores a reason by its name, and no message
is parsed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from offload_tool.clang.argument_files import all_args
from offload_tool.clang.environment import RESULT_VARIABLES, processor_of

_NAMED = 5
_CHANGED_MEANWHILE = "changed meanwhile"
"""The value of a part that changed while the pass ran: equal to no other."""


class Part(str, Enum):
    """A part of a key. The value is its name in manifests and in messages."""

    COMMAND = "its command"
    PLACE = "its place"
    SOURCE_PLACE = "its source's place"
    VARIABLES = "a variable that the compiler reads"
    COMPILER = "the compiler"
    DEPENDENCIES = "the compiler, or a variable that it reads,"
    FOLDER = "the folder of the build"
    IGNORED = "the list of ignored files"
    PROCESSOR = "the processor of this machine"
    VERSION = "what the compiler says of itself"

    __hash__ = str.__hash__  # keys of manifests are texts
    __str__ = str.__str__


class Cause(Enum):
    """A kind of reason why a pass runs."""

    NO_RECORD = "it has no manifest of an earlier compile"
    KEY = "{} changed"
    INPUT = "'{}' changed"
    WRITTEN = "'{}' was written to while it was read"
    MISSING = "it does not exist"
    UNKNOWN_INPUTS = "its inputs are not fully known"
    OUTPUT = "it is not the file that was made"
    RESULT = "its result cannot be taken from the object"
    OTHERS = "other passes have new results"
    SIDE_OUTPUT = "'{}' is not the file that was made"
    LINK = "a link became a file of its own, or the reverse"
    FOLDER_LINK = "a link became a folder of its own, or the reverse"
    APPEARED = "{} may be read now"


class Reason(NamedTuple):
    """Why a pass runs."""

    cause: Cause
    subject: str = ""
    """The `Part`, the file, or the files."""
    note: str = ""
    """Further text, with the blank or the punctuation before it."""

    def __str__(self) -> str:
        return self.cause.value.format(self.subject) + self.note


class Key(NamedTuple):
    """What is known before a pass runs; equal keys and inputs give equal outputs."""

    parts: Mapping[str, str] = MappingProxyType({})
    """A digest, or a text, of each `Part`."""
    files: Mapping[str, str] = MappingProxyType({})
    """The digest of each file that the command names, by name."""

    def without(self, part: Part) -> Key:
        """Return the key without a part."""
        return self._replace(parts={name: v for name, v in self.parts.items() if name != part})

    def since(self, before: Key) -> Key:
        """Return the key of a run since `before`; what changed meanwhile equals no other."""
        return Key(_since(self.parts, before.parts), _since(self.files, before.files))

    @property
    def is_sure(self) -> bool:
        """Return whether nothing of it changed while the pass ran."""
        return _CHANGED_MEANWHILE not in (*self.parts.values(), *self.files.values())

    def change_from(self, before: Key) -> Reason | None:
        """Return the first difference from the key of an earlier run; None if they are equal."""
        if self == before:
            return None
        for name in sorted({*self.files, *before.files}):
            if self.files.get(name) != before.files.get(name):
                return Reason(Cause.INPUT, name)
        now, old = self.parts, before.parts
        part = next(p for p in sorted({*now, *old}) if now.get(p) != old.get(p))
        is_command = part == Part.COMMAND and {part} <= {*self.parts} & {*before.parts}
        note = _args_changed(before.parts[part], self.parts[part]) if is_command else ""
        return Reason(Cause.KEY, str(part), note)


def key_of_command(
    command: Sequence[str],
    compiler: str,
    version: str,
    environment: Mapping[str, str],
    files: Mapping[str, str],
    *,
    embeds_folder: bool,
) -> Key:
    """Return the key of a command in this working directory; `files` are their digests."""
    variables = {name: environment.get(name, "") for name in RESULT_VARIABLES}
    folder = [os.getcwd(), environment.get("PWD", "")] if embeds_folder else []
    parts: dict[str, str] = {
        Part.COMMAND: json.dumps([*command]),
        Part.COMPILER: compiler,
        Part.VERSION: version,
        Part.VARIABLES: json.dumps(variables),
        Part.FOLDER: json.dumps(folder),
        Part.PROCESSOR: processor_of(all_args(command)),
    }
    return Key(parts, files)


def _since(now: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    return {
        name: now[name] if now.get(name) == before.get(name) else _CHANGED_MEANWHILE
        for name in {**before, **now}
    }


def _args_changed(before: str, now: str) -> str:
    old, new = _args_of(before), _args_of(now)
    lists = {
        "without": [arg for arg in old if arg not in new],
        "with": [arg for arg in new if arg not in old],
    }
    parts = [f"{how} {', '.join(args[:_NAMED])}" for how, args in lists.items() if args]
    return f" ({'; '.join(parts)})" if parts else ""


def _args_of(text: str) -> list[str]:
    """Return the arguments of a command: a list in JSON, or a digest and the command's text."""
    if not text.startswith("["):
        return text.split()[1:]
    try:
        return [*map(str, json.loads(text))]
    except (ValueError, RecursionError):  # of a damaged manifest
        return []
