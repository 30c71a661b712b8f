"""The identity of a compiler, without paths: part of each signature.

The version text alone is not enough. The output also depends on the other arguments in
``OFFLOAD_CLANG``, on the lld that links device code, on configuration files that clang reads by
default, and on the additions of a wrapper script. The identity holds digests of their content, so
that two machines with the same programs agree.

The identity of a program is its version text and the digest of its files and libraries: see
`toolchain.programs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from offload_tool.clang.argument_files import all_args
from offload_tool.clang.driver import query_plan
from offload_tool.clang.options import CONFIGURATION, does, takes_next
from offload_tool.clang.response_file import configuration_args, expand_command
from offload_tool.errors import CompilerError
from offload_tool.util.memoize import memoized
from offload_tool.util.which import which

_CONFIGURATION = re.compile(r"^Configuration file: (?P<path>.+)$", re.MULTILINE)
_PLAIN_NAME = re.compile(r"clang(-\d+)?")
_MOST_INCLUDED = 64


def identity_text(parts: Iterable[str]) -> str:
    """Join the parts into one line, escaping ``;``."""
    return "; ".join(part.replace(";", "\\;") for part in parts if part)


def configuration_files(result: str) -> list[str]:
    """Return the configuration files that clang lists, as in ``clang --version``."""
    return [match["path"].strip() for match in _CONFIGURATION.finditer(result)]


def command_identity(command: Sequence[str], path: str, library_path: str = "") -> list[str]:
    """Return the identity of each argument of a compiler command.

    Programs are searched in `path`, and libraries in `library_path`. A plain name such as
    ``clang-22`` has no meaning; ``clang++`` and ``riscv64-linux-gnu-clang`` select modes and
    targets.
    """
    from offload_tool.toolchain.programs import program_identity

    found = []
    args = iter(expand_command(command).args)
    for arg in args:
        program = None if arg.startswith(("-", "@")) else which(arg, path)
        if program is not None:
            name = os.path.basename(arg)
            parts = [
                "" if _PLAIN_NAME.fullmatch(name) else name,
                program_identity(program, library_path),
            ]
            found.append(" ".join(filter(None, parts)))
        elif does(arg, CONFIGURATION):  # clang lists the files that it reads
            if takes_next(arg):
                next(args, None)
        else:
            found.append(arg)
    return [arg for arg in found if arg]


def all_configuration_files(paths: Iterable[str]) -> list[str]:
    """Return configuration files and those that they include by ``@file``.

    Source: Clang User's Manual: names are relative to the file; ``<CFGDIR>`` is its folder.
    """
    queue = list(dict.fromkeys(paths))
    for path in queue:  # grows
        if len(queue) < _MOST_INCLUDED:
            queue += [name for name in _included(path) if name not in queue]
    return queue


def _included(path: str) -> list[str]:
    """Return the files that a configuration file includes; bare names may be anywhere."""
    folder = os.path.dirname(path)
    found: list[str] = []
    for arg in configuration_args(path):
        option, _, name = arg.partition("=")
        if arg.startswith("@"):
            name = arg[1:]
        elif option != "--config":
            continue
        elif "/" not in name:
            from offload_tool.toolchain.driver_cache import CONFIGURATION_FOLDERS

            usual = (os.path.join(os.path.expanduser(x), name) for x in CONFIGURATION_FOLDERS)
            found += filter(os.path.isfile, usual)
        found.append(os.path.join(folder, name.replace("<CFGDIR>", folder)))
    return found


def has_configuration(args: Iterable[str]) -> bool:
    """Return whether flags make clang read configuration files."""
    return any(does(arg, CONFIGURATION) for arg in all_args(args))


@memoized(64)
def configuring_files(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configuration files that a compile reads, if its flags name any.

    The driver is queried, as it searches several directories for a bare name, and its mode and
    target select further files there. `command` is the compile, without its source and options for
    outputs. Files in the working directory have relative names, so that a `CacheDir` serves other
    checkouts.
    """
    if not has_configuration(command):
        return ()
    try:
        result = query_plan([*command, "-c", "-x", "c++", os.devnull], environment)
    except CompilerError:
        return ()
    found = all_configuration_files(configuration_files(result.output + result.errors))
    prefixes = [f"{folder}/" for folder in (os.getcwd(), environment.get("PWD")) if folder]
    return tuple(name.removeprefix(next(filter(name.startswith, prefixes), "")) for name in found)
