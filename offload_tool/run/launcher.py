"""Compiles behind a launcher, ``OFFLOAD_LAUNCHER``: their cache key has the files read now.

The direct mode of ccache and sccache compares only the files that an earlier compile read. It
misses a header that appears earlier on the search path or satisfies a ``__has_include``, another
file behind ``#embed`` (ccache 4.7.5) or a flag, and a compiler's replaced libraries or lld. So this
module runs the preprocessor first, and adds an option without effect that enters each cache's key::

    the compiler, the names of the files that are read now,    -->  -frandom-seed=DIGEST
    the content of those that flags name, of all for #embed         LAUNCHER COMMAND

Clang ignores that option silently (19.1 and 22.1, observed). A cache hit may write no depfile; this
module then writes it. If the depfile names other files, the compile runs again without launcher.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence

from offload_tool.clang.argument_files import all_args, possible_files, unlisted_by
from offload_tool.clang.depfile import depfile_text
from offload_tool.clang.options import SHOWN, does
from offload_tool.errors import UsageError
from offload_tool.io.file_digests import content_of, digest_of, identity
from offload_tool.manifest.inputs import listed_files, preprocess
from offload_tool.manifest.source_text import has_embed
from offload_tool.passes.command import Command

_OPTION = "-frandom-seed="


def launcher_args(launcher: str, folder: str) -> list[str]:
    """Return the arguments of OFFLOAD_LAUNCHER; UsageError, also with OFFLOAD_DIST's `folder`."""
    try:
        args = shlex.split(launcher)
    except ValueError as error:
        raise UsageError(
            f"OFFLOAD_LAUNCHER={launcher!r} is not a command: {error}; quote it as a shell does"
        ) from error
    if args and folder:
        raise UsageError("OFFLOAD_DIST brings its own launcher; unset OFFLOAD_LAUNCHER")
    return args


def run_launched(
    launcher: Sequence[str],
    command: Command,
    environment: Mapping[str, str],
    compiler: str,
    run: Callable[[Sequence[str], Command], int],
) -> int:
    """Run a pass behind a launcher; return its status. A failed preprocessor prevents hits."""
    if not launcher:
        return run(launcher, command)
    args = all_args(command.argv())
    if any(does(arg, SHOWN) for arg in args) or unlisted_by(args):
        return run((), command)
    # Without a depfile, a pass reads only its source.
    read = preprocess(command, environment) if command.depfile else []
    key = os.urandom(16).hex() if read is None else _digest(compiler, command.flags, read)
    status = run(launcher, command.with_flags(f"{_OPTION}{key}"))
    if status or read is None or not command.depfile:
        return status
    listed = listed_files(command)
    if listed is not None:
        return status if {*listed} == {*read} else run((), command)
    with open(command.depfile, "wb") as file:
        file.write(os.fsencode(depfile_text("object", read)))
    return status


def _digest(compiler: str, flags: Sequence[str], read: Sequence[str]) -> str:
    """Return a digest of `compiler`, relative names, which names are one file, and contents."""
    here = f"{os.getcwd()}/"
    first: dict[str, int] = {}
    parts = [
        f"{first.setdefault(identity(name), position)} {name.removeprefix(here)}"
        for position, name in enumerate(read)
    ]
    compared = [*possible_files(flags), *(read if any(map(has_embed, read)) else ())]
    parts += [digest_of(content_of(name)) for name in compared]
    return digest_of("\n".join([compiler, *parts]).encode(errors="surrogateescape"))
