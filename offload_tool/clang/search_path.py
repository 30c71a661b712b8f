"""A compiler's header search path, and the directories that determine parts of it."""

from __future__ import annotations

import functools
import itertools
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence

from offload_tool.clang.driver import option_values, query_front_end
from offload_tool.clang.environment import ImplicitInputs, embeds_folder
from offload_tool.clang.options import FOLDER, prefixes
from offload_tool.errors import CompilerError
from offload_tool.io.file_digests import DigestCache, digest_of

_FOLDER_OPTIONS = frozenset(prefixes(FOLDER))
"""In the front end's job the directory is the next argument."""
_ATTACHED = ("-I", "--embed-dir=")
"""Directories of ``CPATH`` share one argument with their option."""
_GCC = "/usr/lib/gcc"
_GCC_FOLDERS = ("gcc", "gcc-cross")
_UP = "/../"


def front_end_of(command: Sequence[str], environment: Mapping[str, str]) -> ImplicitInputs:
    """Return a compile's header search path, and whether its output names the directory.

    The device libraries are left out: see `driver_cache.device_libraries`.

    `command` is the compile up to its input, without options for outputs. The driver is queried; if
    the query fails, nothing is known. Source: clang 22.1.8, observed: ``-###`` prints each front
    end's command, with every directory as an option, those of ``CPATH`` (in one argument with
    ``-I``) and of configuration files included. Without a language, an empty file is not a source.
    C++ searches all directories of C.
    """
    jobs = query_front_end(with_language(command), environment).jobs
    directory = (os.getcwd(), environment.get("PWD", ""))
    return ImplicitInputs(
        tuple(dict.fromkeys(folder for job in jobs for folder in folders_of_job(job))),
        not jobs or any(embeds_folder(job, directory) for job in jobs),
    )


def with_language(command: Sequence[str]) -> list[str]:
    """Return the command that `front_end_of` queries."""
    return [*command] if "-x" in command else [*command, "-x", "c++"]


def searched_folders(report: str, program: str) -> list[str]:
    """Return the search path that ``-E -v`` prints; raise CompilerError, naming `program`."""
    _, _, rest = report.partition("#include <...> search starts here:\n")
    folders, end, _ = rest.partition("End of search list.")
    if not end:
        raise CompilerError(f"{program} -E -v did not print its header folders")
    return [line.strip() for line in folders.splitlines()]


def folders_of_job(job: Sequence[str]) -> Iterator[str]:
    """Yield the header search path in a front-end command."""
    root = next(reversed([*option_values(job, "-isysroot")]), "")
    prefix = ""
    for option, value in itertools.pairwise(job):
        if option == "-iprefix":
            prefix = value
        elif option in ("-iwithprefix", "-iwithprefixbefore"):
            yield f"{prefix}{value}"
        elif option == "-iwithsysroot":
            yield f"{root}{value}" if value.startswith("/") else value
        elif option in _FOLDER_OPTIONS:
            yield _in_root(value, root)
        for attached in _ATTACHED:
            if option.startswith(attached) and option != attached:
                yield _in_root(option.removeprefix(attached), root)


def _in_root(folder: str, root: str) -> str:
    """Return a directory as clang reads it: ``=`` stands for the root of the system's headers."""
    return f"{root}{folder[1:]}" if root and folder.startswith("=") else folder


@functools.lru_cache(maxsize=4096)
def origins(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories whose entries decide the compiler's own directories among `folders`.

    Source: clang 22.1.8, observed: it uses the GCC installation of the highest version, and spells
    the directories of its C++ headers from there, such as
    ``/usr/lib/gcc/x86_64-linux-gnu/12/../../../../include/c++/12``.
    """
    found = {_GCC: None}
    for folder in folders:
        version, up, _ = folder.partition(_UP)
        triple = posixpath.dirname(version)
        installed = posixpath.dirname(triple)
        if up and posixpath.basename(installed) in _GCC_FOLDERS:
            found.update(dict.fromkeys((installed, triple, posixpath.dirname(folder))))
    return tuple(found)


def origins_digest(folders: tuple[str, ...], digests: DigestCache) -> str:
    """Return a digest of the entries of `origins`: a change invalidates results of the compiler."""
    return _digest_of_names(tuple(digests.names(folder) for folder in origins(folders)))


@functools.lru_cache(maxsize=256)
def _digest_of_names(listed: tuple[frozenset[str], ...]) -> str:
    return digest_of(repr([sorted(names) for names in listed]).encode(errors="surrogateescape"))
