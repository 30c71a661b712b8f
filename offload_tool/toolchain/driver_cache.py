"""What clang's driver has answered, kept from one build to the next: see `disk_cache`.

An answer to ``-###`` depends on the command, its variables and folder, which are the question, and
on what the driver finds on the machine: itself, configuration files, installations of GCC and of
GPU libraries. Those it names, with the folders that they are in, and are looked at again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from offload_tool.clang.environment import processor_of
from offload_tool.clang.options import CONFIGURATION, does
from offload_tool.formats.magic import ELF
from offload_tool.io.file_digests import digest_of
from offload_tool.toolchain.disk_cache import cached_answer
from offload_tool.util.memoize import remembered

if TYPE_CHECKING:
    from offload_tool.clang.search_path import FrontEnd

_OF_THE_CALL = frozenset(
    ("_", "OLDPWD", "SHLVL", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKE_TERMOUT", "MAKE_TERMERR")
)
"""Variables that shells and make set anew for each command or build: no driver heeds them."""


def program_of(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return the program of a command; None where it is a script, which may do more."""
    program: str | None = command[0]
    if "/" not in command[0]:
        import shutil  # slow to load, and most compilers are known by their place

        program = shutil.which(command[0], path=environment.get("PATH", os.defpath))
    return program if program is not None and _is_executable(program) else None


@remembered(16)
def _is_executable(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return file.read(len(ELF)) == ELF and os.access(program, os.X_OK)
    except OSError:
        return False


def kept_answer(
    what: str,
    program: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    find: Callable[[], Any],
    named: Callable[[Any], Iterable[str]],
) -> Any:
    """Return an answer of the driver `program` about some words, kept or found.

    `named` gives the words of an answer, of which absolute names are looked at again.
    """
    own = os.getcwd()
    machine, variables = processor_of(words), _digest_of_variables(environment)
    question = [what, program, own, *words, machine, variables]

    def witnesses(answer: Any) -> list[str]:
        # The driver looks for nothing in the folder of the build, where files come and go.
        files = tuple(
            word
            for word in named(answer)
            if word.startswith("/") and not f"{word}/".startswith(f"{own}/")
        )
        folders = [os.path.dirname(file) for file in files]
        from offload_tool.clang.search_path import origins

        return [*files, *folders, *origins(files)]

    return cached_answer(question, find, witnesses, lambda _: [program, *words], environment)


def _digest_of_variables(environment: Mapping[str, str]) -> str:
    """Return what stands for the variables on disk: passwords can be among them."""
    heeded = sorted({*environment} - _OF_THE_CALL)
    text = "\0".join(f"{name}={environment[name]}" for name in heeded)
    return digest_of(os.fsencode(text))


def kept_front_end(words: Sequence[str], environment: Mapping[str, str]) -> FrontEnd:
    """Return what `search_path.front_end_of` does, kept or found."""
    from offload_tool.clang.search_path import FrontEnd, front_end_of

    program = program_of(words, environment)
    if program is None or any(does(word, CONFIGURATION) or word.startswith("@") for word in words):
        return front_end_of(words, environment)

    def find() -> list[Any]:
        return [*front_end_of(words, environment)]

    kept = kept_answer("front end", program, words, environment, find, lambda found: found[0])
    try:
        folders, tells = kept
        if folders and all(isinstance(name, str) for name in folders):
            return FrontEnd(tuple(folders), bool(tells))
    except (TypeError, ValueError):  # a file that was changed by hand
        pass
    return front_end_of(words, environment)


def kept_triple(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the triple for which the compiler of a command makes host code; "" if it says none.

    Source: clang 19 to 23: ``-print-effective-triple`` prints the ``-triple`` of the driver's plan.
    """
    from offload_tool.clang.driver import ask

    def find() -> str:
        answer = ask([*words, "-print-effective-triple"], environment)
        return answer.output.strip() if answer.status == 0 else ""

    program = program_of(words, environment)
    if program is None or any(does(word, CONFIGURATION) or word.startswith("@") for word in words):
        return find()
    return str(kept_answer("triple", program, words, environment, find, lambda _: words))
