"""Which names are one file's: a preprocessor tells files and folders apart by inode.

Of a symbolic or hard link it makes the file that it leads to. ``#pragma once`` and ``#import``
leave out what was read under another name. Of two folders of the search path that are one, it
forgets one. A copy of the same content is another file, and so the result may be another one
while no content has changed.

Source: clang 22.1.8, observed: a link to a header with ``#pragma once`` that becomes a copy is a
redefinition; ``#include_next`` counts a folder and a link to it as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from offload_tool.io.file_digests import Fingerprints, identity


def equal_names(inputs: Mapping[str, str]) -> list[str]:
    """Return the names of files whose digest others have, too: only these can be one file's."""
    first: dict[str, str] = {}
    found: dict[str, None] = {}
    for name, digest in inputs.items():
        known = first.setdefault(digest, name)
        if known != name:
            found[known] = found[name] = None
    return list(found)


def same_names(names: Iterable[str]) -> dict[str, str]:
    """Return the first name of each one's file, by name: itself, where it is the only one."""
    first: dict[str, str] = {}
    found = {}
    for name in names:
        known = identity(name)
        found[name] = name if not known else first.setdefault(known, name)
    return found


def same_folders(folders: tuple[str, ...], prints: Fingerprints) -> dict[str, str]:
    """Return the folders that are the same as an earlier one, by that one's name.

    Those that are looked at once in a build are not compared again.
    """
    first: dict[str, str] = {}
    found = {}
    for folder in folders:
        known = prints.identity_of_folder(folder)
        if known and first.setdefault(known, folder) != folder:
            found[folder] = first[known]
    return found
