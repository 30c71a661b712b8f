"""What the compiler tells of a pass's reading: which files, and where it looks for them.

The depfile of a compile lists what it has read. It is not believed where it does not name the
source: with ``-save-temps`` each job of a compile writes one, and a compiler cache that knew the
output may write none. The preprocessor is asked then.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.clang.depfile import depfile_command, read_depfile
from offload_tool.errors import CompilerError, OffloadError
from offload_tool.io.paths import remove
from offload_tool.manifest.depfile_paths import with_backslashes

if TYPE_CHECKING:
    from offload_tool.clang.search_path import FrontEnd


def files_read(
    depfile: str, source: str, command: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    """Return the files that a compile has read, as its depfile lists them, or the preprocessor.

    `command` is the compile, with the flags that write `depfile`; its last word is the source.

    :raises CompilerError: the source is not among the files.
    """
    read = listed_files(depfile, source, command) or preprocess(
        depfile, source, command, environment
    )
    if read is None:
        raise CompilerError(
            f"the compiler did not tell what it has read of '{source}'; expected a depfile "
            f"'{depfile}' that lists the source"
        )
    return read


def preprocess(
    depfile: str, source: str, command: Sequence[str], environment: Mapping[str, str]
) -> list[str] | None:
    """Run the preprocessor; return the files that it reads, or None where it fails.

    The depfile is removed.
    """
    import subprocess

    try:
        remove(depfile)
        done = subprocess.run(
            depfile_command(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,  # the compile itself says what is wrong
        )
        return listed_files(depfile, source, command) if done.returncode == 0 else None
    except OSError:
        return None
    finally:
        remove(depfile)


def listed_files(depfile: str, source: str, command: Sequence[str]) -> list[str] | None:
    """Return the files in a depfile; None where it is not one of the compile of `source`."""
    try:
        names = with_backslashes(read_depfile(depfile), command)
    except OffloadError:
        return None
    known = {posixpath.normpath(name) for name in names}
    return names if posixpath.normpath(source) in known else None


def front_end(
    words: Iterable[str], without: Collection[str], environment: Mapping[str, str]
) -> FrontEnd:
    """Return what the driver hands to the front end of a compile.

    `words` are the compile's, without flags that write a depfile; those in `without` are its
    inputs and output.
    """
    from offload_tool.toolchain.driver_cache import kept_front_end

    return kept_front_end(general_words(words, without), environment)


def general_words(words: Iterable[str], without: Collection[str]) -> list[str]:
    """Return a compile's words but for those that differ from source to source.

    These are its inputs and output, which are in `without`, the source's ID, and macros.
    """
    found: list[str] = []
    before = ""
    for word in words:
        passed_on = before.startswith("-X")  # to the front end: the two belong together
        if word.startswith("-cuid="):
            found.append("-cuid=0")
        elif passed_on or not (
            word in without or word == "-o" or word.startswith("-D") or before == "-D"
        ):
            found.append(word)
        before = word
    return found
