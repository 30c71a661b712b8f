"""The rules of ``offload-tool check --rules``, in TOML.

::

    [[rule]]
    paths = ["lib/libfoo.so", "*.hsaco"]    # patterns for names as seen from the PATH given
    targets = ["gfx90a", "gfx942"]
    same-kernels = true
    no-spills = true
    max-size = "50M"                        # or a number of bytes
"""

from __future__ import annotations

import sys
from typing import NoReturn

from offload_tool.errors import OffloadError, UsageError
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import read_size
from offload_tool.operations.check import Rule
from offload_tool.operations.match import Device

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KEYS = ("paths", "targets", "same-kernels", "no-spills", "max-size")


def read_rules(path: StrPath) -> list[Rule]:
    """Read the rules in the file at `path`.

    :raises UsageError: it is no TOML, or something in it is no rule.
    :raises FileError: it cannot be read.
    """
    with InputFile(path) as source:
        content = bytes(source.data)
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(
            f"'{path}': expected TOML: {error}; docs/checking.md has an example"
        ) from error
    rules = tables.get("rule")
    if list(tables) != ["rule"] or not isinstance(rules, list) or not rules:
        found = ", ".join(tables) or "nothing"
        raise UsageError(f"'{path}': expected tables [[rule]] and nothing else, found {found}")
    named = ((f"'{path}', rule {number}", table) for number, table in enumerate(rules, 1))
    return [_RuleTable(label, table).read() for label, table in named]


class _RuleTable:
    """One table ``[[rule]]``; `label` names it in messages."""

    def __init__(self, label: str, table: object) -> None:
        self.label = label
        if not isinstance(table, dict):
            self.refuse(f"expected a table, found {table!r:.40}")
        self.table: dict[str, object] = table
        if unknown := sorted(table.keys() - set(_KEYS)):
            self.refuse(f"expected the keys {', '.join(_KEYS)}, found {', '.join(unknown)}")

    def read(self) -> Rule:
        """Return the rule."""
        paths = self._texts("paths")
        if not paths:
            self.refuse("expected paths, a list of patterns for the names of libraries")
        try:
            targets = tuple(map(Device.parse, self._texts("targets")))
            size = self.table.get("max-size")
            if isinstance(size, str):
                size = read_size(size, "max-size")
        except OffloadError as error:
            self.refuse(str(error), error)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            self.refuse(f"expected a number of bytes, or '50M', for max-size, found {size!r:.40}")
        return Rule(paths, targets, self._flag("same-kernels"), self._flag("no-spills"), size)

    def _texts(self, key: str) -> tuple[str, ...]:
        found = self.table.get(key, [])
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            self.refuse(f"expected a list of strings for {key}, found {found!r:.40}")
        return tuple(found)

    def _flag(self, key: str) -> bool:
        found = self.table.get(key, False)
        if not isinstance(found, bool):
            self.refuse(f"expected true or false for {key}, found {found!r:.40}")
        return found

    def refuse(self, message: str, cause: OffloadError | None = None) -> NoReturn:
        """Raise an error about this table.

        :raises UsageError: always.
        """
        raise UsageError(f"{self.label}: {message}") from cause
