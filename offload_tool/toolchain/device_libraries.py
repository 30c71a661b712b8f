"""The device libraries that clang links into device code by itself: ROCm's, and CUDA's libdevice.

No depfile lists them. Which ones they are depends on flags, variables and the processor, so
clang is asked. Source: clang 22.1.8, observed: ``-###`` prints each front end's command, with
``-mlink-builtin-bitcode FILE`` for each library.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from offload_tool.clang.driver import front_end_jobs, option_values
from offload_tool.clang.options import NO_LIBRARIES, does
from offload_tool.toolchain.disk_cache import cached_answer
from offload_tool.toolchain.programs import is_script
from offload_tool.util.memoize import remembered

_OPTION = "-mlink-builtin-bitcode"


def device_libraries(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of the libraries; none where the flags leave them out, or none are found.

    `command` is a device compile up to its input, `environment` the variables that it has.
    """
    if any(does(word, NO_LIBRARIES) for word in command):
        return ()
    return _known(tuple(command), tuple(sorted(environment.items())))


@remembered(256)
def _known(command: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the answer, remembered while the compiler and the libraries are the same files."""
    import shutil

    variables = dict(environment)
    program = shutil.which(command[0], path=variables.get("PATH")) or command[0]
    if is_script(program) or not Path(program).is_absolute():  # nobody knows what a script calls
        return _ask(command, environment)

    def find() -> list[str]:
        return list(_ask(command, environment))

    def witnesses(answer: list[str]) -> list[str]:
        folders = {os.path.dirname(file) for file in answer}
        return [*sorted(folders), *answer]

    question = ["device libraries", os.getcwd(), *command]
    answer = cached_answer(question, find, witnesses, lambda _: command, variables)
    # None of them may be somewhere tomorrow.
    return tuple(map(str, answer)) if answer else _ask(command, environment)


def _ask(command: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    jobs = front_end_jobs(command, dict(environment))
    return tuple(dict.fromkeys(file for job in jobs for file in option_values(job, _OPTION)))
