"""The command of one pass, as a value: nobody parses a command that this package has written.

::

    PROGRAM...  FLAGS...  [those that write a depfile]  -o OUTPUT  SOURCE

SCons has commands as text that users may replace: `Command.read` is the one reader of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_OUTPUT = "-o"
_DEPFILE = "-dependency-file"


class Command(NamedTuple):
    """The compiler's command for one output."""

    program: tuple[str, ...]
    flags: tuple[str, ...]
    output: str
    source: str
    """The input: with host IR, that file."""
    depfile: str = ""

    @classmethod
    def read(cls, args: Sequence[str], program: int, source: str = "") -> Command | None:
        """Return the command of arguments, the first `program` of which name the compiler, or None.

        `source` is the name of its input; the last argument if it is not given.
        """
        row = [*args[program:]]
        outputs = [at for at, arg in enumerate(row[:-1]) if arg == _OUTPUT]
        if not outputs:
            return None
        output = row[outputs[-1] + 1]
        del row[outputs[-1] : outputs[-1] + 2]
        source = source or (row[-1] if row else "")
        if source not in row:
            return None
        del row[len(row) - 1 - row[::-1].index(source)]
        depfile = ""
        for at, arg in enumerate(row[:-2]):
            flags = dependency_flags(row[at + 2])
            if arg == _DEPFILE and row[at - 1 : at - 1 + len(flags)] == flags:
                depfile = row[at + 2]
                del row[at - 1 : at - 1 + len(flags)]
                break
        return cls(tuple(args[:program]), tuple(row), output, source, depfile)

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments without output, input and depfile."""
        return (*self.program, *self.flags)

    def argv(self) -> list[str]:
        """Return the arguments, the program's first."""
        depfile = dependency_flags(self.depfile) if self.depfile else []
        return [*self.args, *depfile, _OUTPUT, self.output, self.source]

    def with_flags(self, *flags: str) -> Command:
        """Return the command with more flags, which follow the others."""
        return self._replace(flags=(*self.flags, *flags))

    @property
    def without_depfile(self) -> Command:
        """The command that writes no depfile."""
        return self._replace(depfile="")


def dependency_flags(depfile: str) -> list[str]:
    """Return the flags that write a depfile, for the front end: the driver ignores its own."""
    args = [_DEPFILE, depfile, "-MT", "object"]
    # One argument: sccache does not cache commands with an unknown option after -Xclang.
    return [*(flag for arg in args for flag in ("-Xclang", arg)), "-Xclang=-sys-header-deps"]
