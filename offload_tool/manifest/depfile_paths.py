r"""Names with backslashes, for which clang's depfiles have slashes.

Source: clang 22.1.8, observed: the depfile of a compile of ``a\b.hip`` lists ``a/b.hip``. What
was read is found again among the words of the command, and else in the folders on disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

_ATTACHED = re.compile(r"-(?:I|isystem|iquote|idirafter|include|imacros)(?=.)|--?[\w-]+=")
"""Options with the name of a file or folder in the same word."""


def with_backslashes(names: Iterable[str], words: Iterable[str]) -> list[str]:
    """Return the names of a depfile as the files are called that the command `words` has read.

    Where two files may be meant by a name, both are given.
    """
    spelled = {_written(each): each for word in words if "\\" in word for each in _spellings(word)}
    found: dict[str, None] = {}
    for name in names:
        meant = [each for each in _meant(name, spelled) if os.path.exists(each)]
        if os.path.exists(name):
            meant.append(name)
        found.update(dict.fromkeys(meant or _on_disk(name) or [name]))
    return list(found)


def _spellings(word: str) -> Iterator[str]:
    attached = _ATTACHED.match(word)
    for name in (word, word[attached.end() :] if attached else ""):
        folder = os.path.dirname(name)
        yield from (each for each in (name, folder) if "\\" in each)


def _meant(name: str, spelled: dict[str, str]) -> Iterator[str]:
    for written, each in spelled.items():
        if name == written:
            yield each
        elif name.startswith(f"{written}/"):
            yield each + name[len(written) :]


def _on_disk(name: str) -> list[str]:
    if name.startswith("/"):
        return list(_below("/", name.lstrip("/")))
    return list(_below("", name))


def _below(folder: str, rest: str) -> Iterator[str]:
    """Yield the files below a folder whose names are written as `rest`."""
    head, _, tail = rest.partition("/")
    if tail and os.path.isdir(os.path.join(folder, head)):
        yield from _below(os.path.join(folder, head), tail)
    try:
        entries = sorted(os.listdir(folder or "."))
    except OSError:
        return
    for entry in entries:
        if "\\" not in entry:
            continue
        path, written = os.path.join(folder, entry), _written(entry)
        if rest == written:
            yield path
        elif rest.startswith(f"{written}/"):
            yield from _below(path, rest[len(written) + 1 :])


def _written(name: str) -> str:
    return name.replace("\\", "/")
