"""A compile behind a launcher: a cache gives what was made of the files that are read now.

The direct mode of ccache and sccache compares the files that an earlier compile has read, and
looks for no others. A header that appears earlier on the path, or answers a ``__has_include``,
leaves the old output. So the preprocessor is asked before. They also take a compiler for the same
whose libraries or lld were replaced. What they do not see becomes a word of the command that has
no effect, but is in the key of every cache::

    the compiler, names of the files that are read now --> -frandom-seed=DIGEST --> LAUNCHER COMMAND

Clang ignores that option without a word (19.1 and 22.1, observed). A cache that knew the output
may write no depfile; it is written here then. One that names other files makes the compile run
again without the launcher.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from offload_tool.clang.argument_files import all_words
from offload_tool.clang.depfile import depfile_text
from offload_tool.clang.options import SHOWN, does
from offload_tool.io.file_digests import digest_of, identity
from offload_tool.manifest.inputs import listed_files, preprocess
from offload_tool.passes.compile_pass import depfile_in

_OPTION = "-frandom-seed="


def run_launched(
    launcher: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    compiler: str,
    run: Callable[[Sequence[str], Sequence[str]], int],
) -> int:
    """Run ``LAUNCHER COMMAND``, a pass that ends in ``-o OUTPUT SOURCE``; return its exit status.

    `compiler` tells the compiler from another one. `run` is given the launcher and the command.
    Where the preprocessor fails, no cache knows the command.
    """
    if not launcher:
        return run(launcher, command)
    if any(does(word, SHOWN) for word in all_words(command)):
        return run((), command)
    depfile, source = depfile_in(command), command[-1]
    # Without a depfile, a pass reads its source alone.
    read = [] if depfile is None else preprocess(depfile, source, command, environment)
    key = os.urandom(16).hex() if read is None else _digest(compiler, read)
    status = run(launcher, [*command[:-3], f"{_OPTION}{key}", *command[-3:]])
    if status or read is None or depfile is None:
        return status
    told = listed_files(depfile, source, command)
    if told is not None:
        return status if {*told} == {*read} else run((), command)
    with open(depfile, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(depfile_text("object", read))
    return status


def _digest(compiler: str, read: Sequence[str]) -> str:
    """Return a digest of files' names, relative to this folder, of which are one, and more."""
    here = f"{os.getcwd()}/"
    first: dict[str, int] = {}
    parts = [
        f"{first.setdefault(identity(name), place)} {name.removeprefix(here)}"
        for place, name in enumerate(read)
    ]
    return digest_of("\n".join([compiler, *parts]).encode(errors="surrogateescape"))
