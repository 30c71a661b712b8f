"""The configuration files that flags let clang read: ``--config F``, ``--config-user-dir=D``.

A name without a folder is looked for in several, and the driver's mode and target choose files of
their own there. So the driver is asked, and what its files include by ``@file`` counts, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from offload_tool.clang.argument_files import all_words
from offload_tool.clang.driver import plan_of
from offload_tool.clang.options import CONFIGURATION, does
from offload_tool.errors import CompilerError
from offload_tool.util.memoize import remembered


def has_configuration(words: Iterable[str]) -> bool:
    """Return whether flags let clang read configuration files."""
    return any(does(word, CONFIGURATION) for word in all_words(words))


def may_have_configuration(signed: bytes) -> bool:
    """Return whether the words of a command's text can be those that `has_configuration` looks for.

    They may be in a response file, too.
    """
    return b"-config" in signed or b"@" in signed


def configuring_files(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configuration files that a compile reads, where its flags tell of any.

    `command` is the compile, without options for outputs and without its source. Those in the
    current folder have relative names, so that a `CacheDir` serves other checkouts.
    """
    if not has_configuration(command):
        return ()
    return _found(tuple(command), tuple(sorted(environment.items())))


@remembered(64)
def _found(command: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    try:
        answer = plan_of([*command, "-c", "-x", "c++", os.devnull], dict(environment))
    except CompilerError:
        return ()
    from offload_tool.toolchain.identity import all_configuration_files, configuration_files

    found = all_configuration_files(configuration_files(answer.output + answer.errors))
    here = [f"{folder}/" for folder in (os.getcwd(), dict(environment).get("PWD")) if folder]
    return tuple(_local(name, here) for name in found)


def _local(name: str, here: Iterable[str]) -> str:
    """Name a file in the folder of the build as it is called from there: a copy has it, too."""
    inside = [name[len(folder) :] for folder in here if name.startswith(folder)]
    return inside[0] if inside else name


def forget_configuring_files() -> None:
    """Forget what the driver said: another build begins."""
    _found.cache_clear()
