"""The files that a compile writes beside its output: split DWARF, traces, reports, temporaries.

Clang's driver says which ones, so nothing has to be known of how it names them. Two passes may
write one file: temporaries that ``--save-temps`` keeps are named after the source alone, and a
user may name one file for all. Only a file that is named after the output is known to be the one
of that compile.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence

from offload_tool.clang.driver import jobs_of, option_values, plan_of
from offload_tool.clang.options import WRITES, values
from offload_tool.errors import CompilerError

_KEEPS = ("-save-temps", "--save-temps")
_OF_LLD = ".resolution.txt"
"""What lld writes beside its output with ``--save-temps``, without being told the name."""


def keeps_temporaries(words: Iterable[str]) -> bool:
    """Return whether a compile with these words leaves the files of its jobs in between.

    Each job reads what the one before has written, so that two compiles of one source, or of two
    with one name, must not run at the same time.
    """
    return any(word.startswith(_KEEPS) for word in words)


def side_files(
    command: Sequence[str], environment: Mapping[str, str], output: str
) -> dict[str, bool]:
    """Return the files beside `output` that a compile has written, as they are spelled.

    True: the file is named after the output, and no other compile's. Source: clang 22.1.8,
    observed: ``-###`` prints the command of each job, with the files that it writes.
    """
    try:
        jobs = jobs_of(plan_of(command, environment))
    except CompilerError:
        return {}
    found: dict[str, bool] = {}
    for job in jobs:
        found.update(_written(job, output))
    return {name: own for name, own in found.items() if os.path.isfile(name)}


def _written(words: list[str], output: str) -> dict[str, bool]:
    stem = posixpath.splitext(output)[0]
    found = {}
    for name in values(words, WRITES):
        local = posixpath.relpath(name) if name.startswith("/") else name
        found[local] = local.startswith(stem)
    for written in option_values(words, "-o"):  # temporaries that are not kept are gone
        found |= dict.fromkeys({written, f"{written}{_OF_LLD}"} - {output}, False)
    return found
