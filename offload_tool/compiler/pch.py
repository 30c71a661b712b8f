"""Precompiled headers (PCHs) of passes: how one is made, kept current, and used.

::

    F              clang's PCH of the text, for one compiler, pass, set of flags and folder;
                   or a line that says why there is none
    .F.includes    the text: lines ``#include <...>``, or the leading bytes of one source
    .F.overlay     for a source: where the compiler finds the text
    .F.manifest    what it was made of: see `manifest`

A PCH only saves time: outputs, messages, depfiles and manifests are what they would be without.
It takes the place of the first bytes of a source, where those are its text (`beginning`); clang
skips them. Both when it is made and when it is used, the contents of headers count and not their
times (see `BY_CONTENT`). A compile that says anything, or fails, is done again without.

The text of one source alone may name headers in quotes, which are looked up beside the source. So
the compiler reads it as a file of that folder, which a virtual file system has alone
(``-ivfsoverlay``); the driver knows of none, so its front end is run as it says (``-###``).

Source: clang 19.1 and 22.1, observed.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.compiler.aside import beside
from offload_tool.compiler.beginning import beginning_of, leading_includes
from offload_tool.compiler.driver import ask, jobs_of
from offload_tool.compiler.fingerprints import look_at
from offload_tool.compiler.named_files import possible_files
from offload_tool.compiler.passes import dependency_flags
from offload_tool.compiler.pch_rules import RULES, reason_of_headers
from offload_tool.errors import CompilerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload_tool.compiler.fingerprints import Fingerprints
    from offload_tool.compiler.pass_commands import Surroundings
    from offload_tool.compiler.pass_runner import Outputs
    from offload_tool.compiler.recorded import Work

__all__ = [
    "BY_CONTENT",
    "PCH_SOURCE",
    "SMALL",
    "PchRecipe",
    "UsablePch",
    "bytes_of",
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
SMALL = "small headers"
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
    source: str = ""
    """The one source whose leading bytes the text is; "" where it is lines that several share."""
    prints: Callable[[], Fingerprints] | None = None
    """Gives what is known of files; nothing unless told."""

    @property
    def main_file(self) -> str:
        """The name under which the compiler reads the text."""
        return beside(self.source, ".begin") if self.source else self.text_file

    @property
    def overlay(self) -> str:
        """The file that describes the virtual file system, for the text of one source."""
        return beside(self.file, ".overlay")

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
        return [
            *(*self.words, "-fsyntax-only", *words, *self.reading()),
            *(*dependency_flags(self.depfile), self.main_file),
        ]

    def reading(self) -> list[str]:
        """Give the words by which the PCH and a pass with it read the same."""
        overlay = ["-ivfsoverlay", self.overlay] if self.source else []
        return [*BY_CONTENT, *overlay]

    def work(self) -> Work:
        """Describe it for its manifest."""
        from offload_tool.compiler import reading
        from offload_tool.compiler.recorded import Work

        text, main = self.text_file, self.main_file
        job = [*self.words, "-c", *dependency_flags(self.depfile), "-o", self.file, main]
        asked = (self.depfile, main, job, self.environment)

        def listed() -> list[str]:
            return [text if name == main else name for name in reading.files_read(*asked)]

        def surroundings() -> Surroundings:
            found = self.surroundings()
            beside_source = [os.path.dirname(main)] if self.source else []  # noqa: PTH120
            folders = (*beside_source, *found.folders) if found.folders else ()
            return found._replace(folders=folders)

        return Work(
            self.file,
            [*self.words, "-fsyntax-only", main],
            self.environment,
            # A PCH holds the absolute names of its headers: that of a copied folder is made anew.
            f"{self.compiler}, in {_folder(self.environment)}, rules {RULES}",
            self.program,
            (text,),
            surroundings,
            listed,
            lambda: reading.preprocess(*asked),
            version=self.version,
            links=False,
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
        return [*(part for word in words for part in ("-Xclang", word)), *self.recipe.reading()]

    def run(
        self,
        command: Sequence[str],
        launcher: Sequence[str] = (),
        without_driver: Callable[[Sequence[str], Mapping[str, str]], bool | None] | None = None,
    ) -> bool:
        """Run a pass with it, behind a launcher; tell whether that is a result.

        `command` is without the launcher. Where there is anything to say, it is not: the compile
        without says that. `without_driver` is asked first, if there is no launcher.

        :raises CompilerError, FileError: what a launcher needs cannot be written.
        """
        if launcher:
            from offload_tool.compiler.pch_wrapper import launched_with_pch

            status, said = run_quietly(*launched_with_pch(launcher, command, self))
        else:
            program = self.recipe.program
            words = [*command[:program], *self.words(), *command[program:]]
            done = without_driver(words, self.recipe.environment) if without_driver else None
            if done is not None:
                return done
            status, said = run_quietly(words, self.recipe.environment)
        return status == 0 and not said


def words_without_source(words: Iterable[str]) -> tuple[str, ...]:
    """Give the words of a pass, without input and output, that are alike for all sources."""
    return tuple(
        _NO_CUID if word.startswith("-cuid=") else word for word in words if word not in _JOBS
    )


def bytes_of(files: Iterable[str]) -> int:
    """Give the size of some files together."""
    looks = map(look_at, files)
    return sum(look.size for look in looks if look is not None)


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
    text = _bytes_of(recipe.text_file)
    if not text:
        return "no precompiled header is there"
    end = _end_in(recipe, source, text)
    if not end:
        return "another beginning"
    read = _inputs_if_current(recipe)
    if read is None:
        return "the precompiled header is of other flags, or out of date"
    reason = refusal_of(recipe.file)
    return reason or UsablePch(recipe, end, tuple(read))


def _end_in(recipe: PchRecipe, source: str, text: bytes) -> int:
    """Give the number of bytes of a source that the text of a PCH stands for; 0 if it differs."""
    if recipe.source:
        return len(text) if _bytes_of(source, len(text)) == text else 0
    return beginning_of(source).end_of(leading_includes(text).headers)


def is_current(recipe: PchRecipe) -> bool:
    """Tell whether the file of a PCH, or of why there is none, is what would be made now."""
    return _inputs_if_current(recipe) is not None


def _inputs_if_current(recipe: PchRecipe) -> list[str] | None:
    from offload_tool.compiler.recorded import Recorded

    prints = recipe.prints() if recipe.prints is not None else None
    return Recorded(recipe.work(), prints).files_if_current()


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
    text: bytes,
    *,
    failed: Callable[[bytes], None] = lambda _: None,
    outputs: Outputs | None = None,
    installed: Sequence[str] = (),
    least: int = 0,
) -> int:
    """Make the PCH of a text where it is not current; give the compiler's exit status.

    Where no pass may use it, its file says why. `failed` is told what the compiler says where it
    fails. `outputs` has what is written beside the PCH; `installed` are further files for the rule.
    `least` is how many bytes its headers must have.

    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.compiler.pass_runner import OutputJob, Outputs, produce_output
    from offload_tool.files import replace_file

    beside_it = {recipe.text_file: text}
    if recipe.source:
        beside_it[recipe.overlay] = _overlay(recipe)
    for name, content in beside_it.items():
        if _bytes_of(name) != content:
            with replace_file(name) as out:
                out.write(content)
    reasons: list[str] = []

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        asked = _front_end(recipe, command, environment) if recipe.source else command
        status, said = run_quietly(asked, environment)
        if status:
            failed(said)
        elif said:
            reasons.append("messages while it was made")
        return status

    def check() -> None:
        reason = "".join(reasons[:1]) or _reason_of_made(recipe, least)
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


def _reason_of_made(recipe: PchRecipe, least: int) -> str:
    """Say why a PCH that was just made may not be used; "" where it may."""
    shared = "" if recipe.source else recipe.text_file
    read = [name for name in recipe.work().listed() if name != shared]
    reason = reason_of_headers(recipe.stage, read)
    if not reason and bytes_of(read) < least:
        reason = SMALL
    if not reason and recipe.stage != "device":
        from offload_tool.compiler.pch_emits import reason_of_emission

        reason = reason_of_emission(recipe, run_quietly)
    return reason


def _overlay(recipe: PchRecipe) -> bytes:
    """Give the description of the virtual file system that has the text beside its source.

    Source: LLVM's ``RedirectingFileSystem``; it is read as YAML, of which JSON is a part.
    """
    folder = _folder(recipe.environment)
    file = {
        "type": "file",
        "name": os.path.join(folder, recipe.main_file),  # noqa: PTH118
        "external-contents": os.path.join(folder, recipe.text_file),  # noqa: PTH118
    }
    value = {"version": 0, "case-sensitive": True, "use-external-names": False, "roots": [file]}
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogateescape")


def _front_end(
    recipe: PchRecipe, command: Sequence[str], environment: Mapping[str, str]
) -> Sequence[str]:
    """Give the front end's command for a text that the driver does not find.

    The driver is asked for one of the source, whose name the text then takes the place of. Where
    the answer is another one than expected, it is `command`, which the driver refuses.
    """
    try:
        jobs = jobs_of(ask([*command[:-1], recipe.source, "-###"], environment))
    except CompilerError:
        return command
    if len(jobs) != 1 or jobs[0][1:2] != ["-cc1"] or jobs[0][-1] != recipe.source:
        return command
    return [*jobs[0][:-1], command[-1]]


def _bytes_of(file: str, count: int = -1) -> bytes:
    """Give the content of a file, or its first bytes; none where it cannot be read."""
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - called for each pass
            return opened.read(count)
    except OSError:
        return b""


def _folder(environment: Mapping[str, str]) -> str:
    """Give the folder that names are relative to, as clang spells it.

    Source: LLVM's ``sys::fs::current_path``: ``PWD`` where that is the folder.
    """
    given = environment.get("PWD", "")
    with suppress(OSError):
        if os.path.isabs(given) and os.path.samefile(given, "."):  # noqa: PTH117, PTH121
            return given
    return os.getcwd()  # noqa: PTH109


def read_with_pch(pch: UsablePch, source: str, listed: Sequence[str]) -> list[str]:
    """Give what a pass has read, in the order in which it reads without a PCH.

    `listed` is what its depfile lists with it: the text of the PCH, its headers, the source, and
    what else the source includes. What the PCH is made of is absolute there; what ``__has_include``
    has found is known to the PCH's own manifest alone.
    """
    recipe, known = pch.recipe, set(listed)
    text, named = recipe.text_file, set(possible_files(recipe.words))
    folder = _folder(recipe.environment)

    def absolute(name: str) -> str:  # as clang spells it in a PCH
        return name if name.startswith("/") else f"{folder}/{name}"

    first = [
        name
        for name in pch.inputs
        if name != text and (name not in named or {name, absolute(name)} & known)
    ]
    begin = [source, *first]
    theirs = {absolute(name) for name in (recipe.main_file, text, *pch.inputs)}.difference(begin)
    return list(dict.fromkeys([*begin, *(name for name in listed if name not in theirs)]))
