"""The files that a compile is asked for, as the driver treats what is there under their names.

An object is renamed to its name when it is complete. Where its name is that of a device (a
configuration check's ``-o /dev/null``), a pipe or a folder, that would put a file into its place.
A depfile the driver writes into the file that is there, through symbolic links and for all hard
links of it. In a folder that takes no new files, it writes both into the files that are there. A
file that may not be written it refuses, although another could be renamed to its place. Source:
clang 22.1.8, observed.
"""

from __future__ import annotations

import os
import stat


def why_not_replaced(name: str) -> str:
    """Return why a file cannot get its name when it is complete; "" where it can."""
    if name == "-":
        return "a result is standard output"
    folder = os.path.dirname(name) or "."
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        if not os.path.isdir(folder):
            return f"there is no folder '{folder}'"
    except OSError as error:
        return f"'{name}': {error.strerror}"
    else:
        if not stat.S_ISREG(mode):
            return f"'{name}' is no regular file"
        if not _is_writable(name, os.W_OK):
            return f"'{name}' cannot be written"
    return (
        ""
        if _is_writable(folder, os.W_OK | os.X_OK)
        else f"the folder '{folder}' cannot be written"
    )


def write_depfile(name: str, text: bytes) -> None:
    """Write a depfile; a file that has other names, too, keeps them.

    :raises OSError: it cannot be written.
    """
    if _has_other_names(name):
        with open(name, "wb") as file:
            file.write(text)
        return
    beside = f"{name}.{os.urandom(6).hex()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(text)
        os.replace(beside, name)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def _is_writable(name: str, mode: int) -> bool:
    return os.access(name, mode, effective_ids=True)


def _has_other_names(name: str) -> bool:
    try:
        found = os.lstat(name)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or found.st_nlink > 1
