"""The constructs, as the data files have them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

FILES = ("standard", "gnu", "offload", "pragmas")
STANDARDS = (11, 14, 17, 20, 23, 26)


class Construct(NamedTuple):
    """What a header has, and what a source does with it; ``@`` begins names of its own."""

    file: str
    name: str
    header: str
    use: str
    standard: int = 11
    """The oldest C++ that has it."""
    is_host: bool = False
    """It cannot be made to be device code, too."""
    is_alone: bool = False
    """Nothing else may follow it."""
    is_refused: bool = False
    """No PCH can have it, so that seven of ten compositions are without."""
    kind: str = ""
    flags: tuple[str, ...] = ()

    def text(self, prefix: str) -> tuple[str, str]:
        """Return the header and the use, with names that begin with `prefix`."""
        return self.header.replace("@", prefix), self.use.replace("@", prefix)


@functools.cache
def _read(file: str) -> tuple[Construct, ...]:
    text = (Path(__file__).parent / f"{file}.txt").read_text()
    return tuple(_construct(file, part) for part in ("\n" + text).split("\n=== ")[1:])


def _construct(file: str, part: str) -> Construct:
    heading, _, rest = part.partition("\n")
    name, _, options = heading.partition(" | ")
    header, _, use = f"{rest}\n".partition("\n---\n")
    args = options.split()
    known = [word for word in args if word.startswith(("c++", "kind=", "flags="))]
    if others := {*args} - {*known, "host", "alone", "refused"}:
        raise ValueError(f"{file}.txt: {heading!r}: no such options: {others}")

    def values(begin: str) -> tuple[str, ...]:
        return tuple(word.removeprefix(begin) for word in known if word.startswith(begin))

    return Construct(
        file,
        name,
        f"{header}\n",
        use,
        standard=int("".join(values("c++")) or 11),
        is_host="host" in args,
        is_alone="alone" in args,
        is_refused="refused" in args,
        kind="".join(values("kind=")),
        flags=values("flags="),
    )


CONSTRUCTS: dict[str, Construct] = {
    f"{file}: {construct.name}": construct for file in FILES for construct in _read(file)
}
