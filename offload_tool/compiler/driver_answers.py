"""What clang's driver has answered, kept from one build to the next: see `answer_cache`.

An answer to ``-###`` depends on the command, its variables and folder, which are the question, and
on what the driver finds on the machine: itself, configuration files, installations of GCC and of
GPU libraries. Those it names, with the folders that they are in, and are looked at again.
"""

from __future__ import annotations

import os

from offload_tool.compiler.answer_cache import cached_answer
from offload_tool.compiler.driver import program_folders
from offload_tool.compiler.fingerprints import digest_of
from offload_tool.compiler.heeded import processor_of
from offload_tool.compiler.remembered import remembered
from offload_tool.formats.magics import ELF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

__all__ = ["kept_answer", "kept_folders", "program_of"]

_CONFIGURATION = ".cfg"
_OF_THE_CALL = frozenset(
    ("_", "OLDPWD", "SHLVL", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKE_TERMOUT", "MAKE_TERMERR")
)
"""Variables that shells and make set anew for each command or build: no driver heeds them."""


def program_of(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Give the program of a command; None where it is a script, which may do more than call it."""
    program: str | None = command[0]
    if "/" not in command[0]:
        import shutil  # slow to load, and most compilers are known by their place

        program = shutil.which(command[0], path=environment.get("PATH", os.defpath))
    return program if program is not None and _is_executable(program) else None


@remembered(16)
def _is_executable(program: str) -> bool:
    try:
        with open(program, "rb") as file:  # noqa: PTH123
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
    """Give an answer of the driver `program` about some words, kept or found.

    `named` gives the words of an answer, of which absolute names are looked at again.
    """
    own = os.getcwd()  # noqa: PTH109
    machine, variables = processor_of(words), _digest_of_variables(environment)
    question = [what, program, own, *words, machine, variables]

    def witnesses(answer: Any) -> list[str]:
        # The driver looks for nothing in the folder of the build, where files come and go.
        files = tuple(
            word
            for word in named(answer)
            if word.startswith("/") and not f"{word}/".startswith(f"{own}/")
        )
        folders = [os.path.dirname(file) for file in files]  # noqa: PTH120
        from offload_tool.compiler.lookups import origins

        searched = program_folders([program, *words], environment)
        return [__file__, *_of_program(program), *searched, *files, *folders, *origins(files)]

    return cached_answer(question, find, witnesses)


def _digest_of_variables(environment: Mapping[str, str]) -> str:
    """Give what stands for the variables on disk: passwords can be among them."""
    heeded = sorted({*environment} - _OF_THE_CALL)
    text = "\0".join(f"{name}={environment[name]}" for name in heeded)
    return digest_of(os.fsencode(text))


def _of_program(program: str) -> list[str]:
    from offload_tool.compiler.probing import CONFIGURATION_FOLDERS

    real = os.path.realpath(program)
    folders = [os.path.dirname(name) for name in (program, real)]  # noqa: PTH120
    folders += map(os.path.expanduser, CONFIGURATION_FOLDERS)
    found = [program, real, *folders]
    for folder in folders:
        if os.path.isdir(folder):  # noqa: PTH112
            names = os.listdir(folder)  # noqa: PTH208
            found += (f"{folder}/{name}" for name in names if name.endswith(_CONFIGURATION))
    return found


def kept_folders(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Give what `lookups.search_folders` gives, kept or found."""
    from offload_tool.compiler.lookups import search_folders

    program = program_of(words, environment)
    if program is None or any(word.startswith(("@", "--config")) for word in words):
        return search_folders(words, environment)

    def find() -> list[str]:
        return [*search_folders(words, environment)]

    found = kept_answer("folders searched", program, words, environment, find, list)
    is_right = isinstance(found, list) and all(isinstance(name, str) for name in found)
    return tuple(found) if is_right and found else search_folders(words, environment)
