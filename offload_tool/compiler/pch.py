"""Precompiled headers (PCHs) of passes: how one is made, kept current, and used.

::

    F              clang's PCH of the text, for one compiler, pass, set of flags and folder;
                   or a line that says why there is none
    .F.includes    the text: lines ``#include <...>``
    .F.manifest    what it was made of: see `manifest`

A PCH only saves time: outputs, messages, depfiles and manifests are what they would be without.
It takes the place of the first bytes of a source, where those are its text (`beginning`); clang
skips them. Both when it is made and when it is used, the contents of headers count and not their
times (see `BY_CONTENT`). A compile that says anything, or fails, is done again without.

Source: clang 19.1 and 22.1, observed.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.compiler.aside import beside
from offload_tool.compiler.beginning import beginning_of, includes_text
from offload_tool.compiler.named_files import possible_files
from offload_tool.compiler.passes import dependency_flags
from offload_tool.compiler.pch_rules import reason_of_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload_tool.compiler.pass_commands import Surroundings
    from offload_tool.compiler.pass_runner import Outputs
    from offload_tool.compiler.recorded import Work

__all__ = [
    "BY_CONTENT",
    "PCH_SOURCE",
    "PchRecipe",
    "UsablePch",
    "find_usable",
    "is_current",
    "make_pch",
    "read_with_pch",
    "refusal_of",
    "refuse",
    "run_quietly",
    "words_without_source",
]

PCH_SOURCE = ".includes"
"""Suffix of the file with the text of a PCH, beside it."""
_REFUSAL = b"offload: no precompiled header: "
_LONGEST_REASON = 1 << 12
_JOBS = ("-c", "-S")
_NO_CUID = "-cuid=0"
BY_CONTENT = ("-Xclang", "-fno-pch-timestamp", "-Xclang", "-fvalidate-ast-input-files-content")
"""With one of the two alone, clang takes edits of the same size and time, or refuses a header with
``#pragma once`` that was touched. Source: clang 22.1.8, observed."""


class PchRecipe(NamedTuple):
    """A PCH, and the passes that it is for."""

    file: str
    stage: str
    """Of these passes: ``device``, or ``host``."""
    words: tuple[str, ...]
    """The command of these passes: see `words_without_source`."""
    program: int
    """How many words name the compiler."""
    environment: Mapping[str, str]
    compiler: str
    """What tells the compiler from another one."""
    surroundings: Callable[[], Surroundings]
    """Gives where these passes look for headers."""
    version: Callable[[], str] = str
    """As `recorded.Work.version`."""

    @property
    def text_file(self) -> str:
        """The file whose text the PCH is made of."""
        return beside(self.file, PCH_SOURCE)

    @property
    def depfile(self) -> str:
        """The file in which the compiler lists what it reads for the PCH."""
        return beside(self.file, ".d")

    def command(self) -> list[str]:
        """Give the command that makes the PCH."""
        making = ("-emit-pch", "-o", self.file)
        words = [part for word in making for part in ("-Xclang", word)]
        dependencies = dependency_flags(self.depfile)
        return [*self.words, "-fsyntax-only", *words, *BY_CONTENT, *dependencies, self.text_file]

    def work(self) -> Work:
        """Describe it for its manifest."""
        from offload_tool.compiler import reading
        from offload_tool.compiler.recorded import Work

        text = self.text_file
        job = [*self.words, "-c", *dependency_flags(self.depfile), "-o", self.file, text]
        asked = (self.depfile, text, job, self.environment)
        return Work(
            self.file,
            [*self.words, "-fsyntax-only", text],
            self.environment,
            # A PCH holds the absolute names of its headers: that of a copied folder is made anew.
            f"{self.compiler}, in {os.getcwd()}",  # noqa: PTH109
            self.program,
            (text,),
            self.surroundings,
            lambda: reading.files_read(*asked),
            lambda: reading.preprocess(*asked),
            version=self.version,
        )


class UsablePch(NamedTuple):
    """A PCH that is current, for one source that begins with its text."""

    recipe: PchRecipe
    end: int
    """Bytes of the source that it stands for."""
    inputs: tuple[str, ...]
    """The files that it was made of, as the compiler spells them."""

    def words(self) -> list[str]:
        """Give the words that let a pass use it."""
        words = ("-include-pch", self.recipe.file, f"-preamble-bytes={self.end},1")
        return [*(part for word in words for part in ("-Xclang", word)), *BY_CONTENT]

    def run(self, command: Sequence[str], launcher: Sequence[str] = ()) -> bool:
        """Run a pass with it, behind a launcher; tell whether that is a result.

        `command` is without the launcher. Where there is anything to say, it is not: the compile
        without says that.

        :raises CompilerError, FileError: what a launcher needs cannot be written.
        """
        if launcher:
            from offload_tool.compiler.pch_wrapper import launched_with_pch

            status, said = run_quietly(*launched_with_pch(launcher, command, self))
        else:
            program = self.recipe.program
            words = [*command[:program], *self.words(), *command[program:]]
            status, said = run_quietly(words, self.recipe.environment)
        return status == 0 and not said


def words_without_source(words: Iterable[str]) -> tuple[str, ...]:
    """Give the words of a pass, without input and output, that are alike for all sources."""
    return tuple(
        _NO_CUID if word.startswith("-cuid=") else word for word in words if word not in _JOBS
    )


def refusal_of(file: str) -> str:
    """Say why the file `file` is no PCH; "" where it is one."""
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - called for each pass
            begin = opened.read(_LONGEST_REASON)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not begin.startswith(_REFUSAL):
        return ""
    return begin.removeprefix(_REFUSAL).decode(errors="replace").strip()


def refuse(file: str, reason: str) -> None:
    """Write a file that says why there is no PCH.

    :raises FileError: it cannot be written.
    """
    from offload_tool.files import replace_file

    with replace_file(file) as out:
        out.write(_REFUSAL + reason.encode(errors="replace") + b"\n")


def find_usable(recipe: PchRecipe, source: str) -> UsablePch | str:
    """Give the PCH as it is for a source; or say why that compiles without."""
    headers = beginning_of(recipe.text_file).headers
    end = beginning_of(source).end_of(headers)
    if not headers:
        return "no precompiled header is there"
    if not end:
        return "another beginning"
    read = _inputs_if_current(recipe)
    if read is None:
        return "the precompiled header is of other flags, or out of date"
    reason = refusal_of(recipe.file)
    return reason or UsablePch(recipe, end, tuple(read))


def is_current(recipe: PchRecipe) -> bool:
    """Tell whether the file of a PCH, or of why there is none, is what would be made now."""
    return _inputs_if_current(recipe) is not None


def _inputs_if_current(recipe: PchRecipe) -> list[str] | None:
    from offload_tool.compiler.recorded import Recorded

    return Recorded(recipe.work()).files_if_current()


def run_quietly(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a command without input; give its exit status, and all that it says."""
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        return 127, str(error).encode()
    return done.returncode, done.stdout


def make_pch(
    recipe: PchRecipe,
    headers: tuple[str, ...],
    *,
    failed: Callable[[bytes], None] = lambda _: None,
    outputs: Outputs | None = None,
    installed: Sequence[str] = (),
) -> int:
    """Make the PCH of some headers where it is not current; give the compiler's exit status.

    Where no pass may use it, its file says why. `failed` is told what the compiler says where it
    fails. `outputs` has what is written beside the PCH; `installed` are further files for the rule.

    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.compiler.pass_runner import OutputJob, Outputs, produce_output
    from offload_tool.files import replace_file

    text = includes_text(headers)
    if not _holds(recipe.text_file, text):
        with replace_file(recipe.text_file) as out:
            out.write(text)
    reasons: list[str] = []

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        status, said = run_quietly(command, environment)
        if status:
            failed(said)
        elif said:
            reasons.append("messages while it was made")
        return status

    def check() -> None:
        own = recipe.text_file
        read = (name for name in recipe.work().listed() if name != own)
        reason = "".join(reasons[:1]) or reason_of_headers(recipe.stage, read)
        if reason:
            refuse(recipe.file, reason)

    job = OutputJob(
        recipe.command(),
        recipe.environment,
        outputs or Outputs(recipe.file),
        recipe.words[: recipe.program],
        check,
        (recipe.text_file,),
        recipe.work,
        installed,
    )
    return produce_output(job, run)


def _holds(file: str, text: bytes) -> bool:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123
            return opened.read() == text
    except OSError:
        return False


def read_with_pch(pch: UsablePch, source: str, listed: Sequence[str]) -> list[str]:
    """Give what a pass has read, in the order in which it reads without a PCH.

    `listed` is what its depfile lists with it: the text of the PCH, its headers, the source, and
    what else the source includes. What the PCH is made of is absolute there; what ``__has_include``
    has found is known to the PCH's own manifest alone.
    """
    text, known = pch.recipe.text_file, set(listed)
    named = set(possible_files(pch.recipe.words))
    first = [
        name
        for name in pch.inputs
        if name != text and (name not in named or {name, _absolute(name)} & known)
    ]
    begin = [source, *first]
    theirs = {_absolute(name) for name in (text, *pch.inputs)}.difference(begin)
    return list(dict.fromkeys([*begin, *(name for name in listed if name not in theirs)]))


def _absolute(name: str) -> str:
    """Give a name as clang spells it in a PCH."""
    return name if name.startswith("/") else f"{os.getcwd()}/{name}"  # noqa: PTH109
