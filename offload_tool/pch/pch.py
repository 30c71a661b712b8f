"""Precompiled headers (PCHs) of passes: how one is made, kept current, and used.

::

    F              clang's PCH of the text, for one compiler, pass, set of flags and folder;
                   or a line that says why there is none
    .F.includes    the text: lines ``#include``
    .F.manifest    what it was made of: see `manifest`
    .F.names       the words that give its headers their names back: see `file_names`
    .F.words       the words that are in its headers: see `side_effects`

A PCH only saves time: outputs, messages, depfiles and manifests are what they would be without.
It takes the place of the first bytes of a source, where those are its text, and clang skips them.
Or it takes that of a header on the chain of first includes, which does not come twice
(`include_prefix`). Both when it is made and when it is used, the contents of headers count and
not their times (see `_BY_CONTENT`). A compile that says anything, or fails, is done again
without.

ccache and sccache preprocess a source before they look it up, which fails, or finds other text,
where the command names a PCH. So they are given the plain command of a compiler that is a script:
it adds the PCH, which the environment names, to what compiles, and nothing to what preprocesses.
Its text, by which they tell one compiler from another, holds the compiler's identity.

Source: clang 19.1 and 22.1, observed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.clang.argument_files import possible_files
from offload_tool.clang.options import STAGE, does
from offload_tool.io.file_digests import Fingerprints, by_look, content_of, digest_of, look_at
from offload_tool.io.paths import beside, remove
from offload_tool.passes.compile_pass import dependency_flags
from offload_tool.pch.eligibility import RULES, reason_of_headers
from offload_tool.pch.file_names import (
    Names,
    absolute_name,
    is_renamed,
    keep_words,
    kept_words,
    without_dots,
    words_for,
)
from offload_tool.pch.include_prefix import (
    Candidate,
    SearchPath,
    comes_once,
    identity,
    includes_text,
    own_folders,
)
from offload_tool.pch.side_effects import before, reason_of_passed, run_quietly, words_file

if TYPE_CHECKING:
    from offload_tool.manifest.output_state import Surroundings, Work
    from offload_tool.run.run_pass import Outputs

PCH_SOURCE = ".includes"
"""Suffix of the file with the text of a PCH, beside it."""
_REFUSAL = b"offload: no precompiled header: "
MESSAGES = "messages of the compiler: mend or disable them"
SMALL = "small headers: name them in OFFLOAD_PCH to precompile them all the same"
_LONGEST_REASON = 1 << 12
_NO_CUID = "-cuid=0"
_BY_CONTENT = ("-Xclang", "-fno-pch-timestamp", "-Xclang", "-fvalidate-ast-input-files-content")
"""With one of the two alone, clang takes edits of the same size and time, or refuses a header with
``#pragma once`` that was touched. Source: clang 22.1.8, observed."""
_WORDS = "OFFLOAD_PCH_WORDS"
_SCRIPT = """\
#!/bin/sh
# {identity}
case " $* " in
*" -E "* | *" -### "*) ;;
*" -c "* | *" -S "*)
    eval "set -- ${words} \\"\\$@\\"" ;;
esac
exec {compiler} "$@"
"""
_EXECUTABLE = 0o700


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
    """As `output_state.Work.version`."""
    prints: Callable[[], Fingerprints] | None = None
    """Gives what is known of files; nothing unless told."""

    @property
    def text_file(self) -> str:
        """The file whose text the PCH is made of."""
        return beside(self.file, PCH_SOURCE)

    @property
    def names_file(self) -> str:
        """The file with the words by which headers keep their names."""
        return beside(self.file, ".names")

    @property
    def folder(self) -> str:
        """The folder that names are relative to, as clang spells it."""
        return _folder(self.environment)

    @property
    def depfile(self) -> str:
        """The file in which the compiler lists what it reads for the PCH."""
        return beside(self.file, ".d")

    @property
    def search_path(self) -> SearchPath:
        """Where these passes look for headers."""
        return SearchPath(self.folder, self.surroundings().folders, own_folders(self.words))

    def command(self, names: Names) -> list[str]:
        """Return the command that makes the PCH of headers with such names."""
        making = ("-emit-pch", "-o", self.file, "-header-include-file", self.names_file)
        words = [part for word in making for part in ("-Xclang", word)]
        return [
            *(*self.words, "-fsyntax-only", *words, *self.reading(), *names.words),
            *(*dependency_flags(self.depfile), self.text_file),
        ]

    def reading(self) -> list[str]:
        """Return the words by which the PCH and a pass with it read the same."""
        return [*_BY_CONTENT]

    def work(self) -> Work:
        """Describe it for its manifest."""
        from offload_tool.manifest import inputs
        from offload_tool.manifest.output_state import Work

        text = self.text_file
        job = [*self.words, "-c", *dependency_flags(self.depfile), "-o", self.file, text]
        asked = (self.depfile, text, job, self.environment)
        return Work(
            self.file,
            [*self.words, "-fsyntax-only", text],
            self.environment,
            # A PCH holds the absolute names of its headers: that of a copied folder is made anew.
            f"{self.compiler}, in {self.folder}, rules {RULES}",
            (text,),
            self.surroundings,
            lambda: inputs.files_read(*asked),
            lambda: inputs.preprocess(*asked),
            version=self.version,
            links=False,
        )


class UsablePch(NamedTuple):
    """A PCH that is current, for one source."""

    recipe: PchRecipe
    of: Candidate
    """What it is for the source."""
    inputs: tuple[str, ...]
    """The files that it was made of, as the compiler spells them."""
    naming: tuple[str, ...] = ()
    """The words by which these keep their names."""
    included: tuple[str, ...] = ()
    """Those of them that are included before the first line of a source."""

    def words(self) -> list[str]:
        """Return the words that let a pass use it."""
        words = ["-include-pch", self.recipe.file]
        words += [f"-preamble-bytes={self.of.end},1"] if self.of.end else []
        flags = (part for word in words for part in ("-Xclang", word))
        return [*flags, *self.recipe.reading(), *self.naming]

    def run(
        self,
        command: Sequence[str],
        launcher: Sequence[str] = (),
        without_driver: Callable[[Sequence[str], Mapping[str, str]], bool | None] | None = None,
    ) -> str:
        """Run a pass with it, behind a launcher; return why that is no result, "" where it is one.

        `command` is without the launcher. Where there is anything to say, it is none: the compile
        without says that. `without_driver` is asked first, if there is no launcher.

        :raises CompilerError, FileError: what a launcher needs cannot be written.
        """
        done = None
        if launcher:
            from offload_tool.run.launcher_key import run_launched

            said = b""
            wrapped, variables = launched_with_pch(command, self)

            def run_once(before: Sequence[str], words: Sequence[str]) -> int:
                nonlocal said
                status, said = run_quietly([*before, *words], variables)
                return status

            done = (
                not run_launched(launcher, wrapped, variables, self.recipe.compiler, run_once)
                and not said
            )
        else:
            program, environment = self.recipe.program, self.recipe.environment
            words = [*command[:program], *self.words(), *command[program:]]
            done = without_driver(words, environment) if without_driver else None
        if done is None:
            status, said = run_quietly(words, environment)
            done = status == 0 and not said
        return self._reason_of_names(command) if done else MESSAGES

    def chain(self) -> list[str]:
        """Return the files through which the source reaches it, as its depfile has them."""
        names = [each.name for each in self.of.passed]
        names += [each[1:-1] for each in self.of.headers if names and each[0] == '"']
        return [without_dots(name) for name in names]

    def _reason_of_names(self, command: Sequence[str]) -> str:
        """Return which file of the source's own has another name than expected; "" if none has."""
        from offload_tool.clang.depfile import read_depfile
        from offload_tool.passes.compile_pass import depfile_in

        depfile, theirs = depfile_in(command), {*self.inputs}
        theirs.update(absolute_name(name, self.recipe.folder) for name in self.inputs)
        read = read_depfile(depfile) if depfile else []
        for name in self.chain():
            if name not in read:
                return f"'{name}' was not found where its source leads to"
        for name in [command[-1], *read]:
            if name in theirs:
                continue
            if is_renamed(name, self.naming):
                return (
                    f"'{name}' is absolute, in a folder that a precompiled header has as relative"
                )
            if other := self._name_inside(name):
                return f"'{name}' can be included twice, and is '{other}' in the precompiled header"
        return ""

    def _name_inside(self, name: str) -> str:
        """Return the other name that a file has in it which may be read again; "" if none has.

        Without a PCH such a file has the name by which it was read first, also the second time.
        """
        inside = _identities(self.recipe.file, self.inputs)
        found = inside.get(identity(name), "")
        shown = Names.of(self.of.headers, self.recipe.folder).shown(found)
        return "" if not found or shown == name or comes_once(found) else shown


@by_look
def _identities(_pch: str, inputs: tuple[str, ...]) -> dict[tuple[int, int] | None, str]:
    found = {identity(name): name for name in reversed(inputs)}
    found.pop(None, None)
    return found


def words_without_source(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a pass, without input and output, that are alike for all sources."""
    return tuple(
        _NO_CUID if word.startswith("-cuid=") else word for word in words if not does(word, STAGE)
    )


def bytes_of(files: Iterable[str]) -> int:
    """Return the size of some files together."""
    looks = map(look_at, files)
    return sum(look.size for look in looks if look is not None)


def refusal_of(file: str) -> str:
    """Return why the file `file` is no PCH; "" where it is one."""
    try:
        with open(file, "rb") as opened:
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
    from offload_tool.io import replace_file

    with replace_file(file) as out:
        out.write(_REFUSAL + reason.encode(errors="replace") + b"\n")


def find_usable(recipe: PchRecipe, source: str) -> UsablePch | str:
    """Return the PCH as it is for a source; or say why that compiles without."""
    text = content_of(recipe.text_file)
    if not text:
        return "no precompiled header is there: make it first"
    found = recipe.search_path.candidates(source)
    of = next(
        (each for each in found.all if includes_text(each.headers, recipe.folder) == text), None
    )
    if of is None:
        return (
            "different leading includes: it must begin with those of the precompiled header, "
            f"'{found.stop}' is where they end"
        )
    read = _inputs_if_current(recipe)
    if read is None:
        return "the precompiled header is of other flags, or out of date: make it again"
    if reason := refusal_of(recipe.file):
        return reason
    kept = kept_words(recipe.names_file)
    if kept is None:
        return f"'{recipe.names_file}' is not there: make the precompiled header again"
    naming, is_guarded = kept
    if of.passed and not is_guarded:
        return _twice(of)
    if not of.passed:
        return UsablePch(recipe, of, tuple(read), naming)
    known = before(recipe, read)
    reason = reason_of_passed(recipe, read, of, known)
    return reason or UsablePch(recipe, of, tuple(read), naming, known.files if known else ())


def _twice(of: Candidate) -> str:
    header = without_dots(of.headers[0][1:-1])
    return f"'{header}' can be included twice: add '#pragma once'"


def is_current(recipe: PchRecipe) -> bool:
    """Return whether the file of a PCH, or of why there is none, is what would be made now."""
    return _inputs_if_current(recipe) is not None


def _inputs_if_current(recipe: PchRecipe) -> list[str] | None:
    from offload_tool.manifest.output_state import Recorded

    prints = recipe.prints() if recipe.prints is not None else None
    return Recorded(recipe.work(), prints).files_if_current()


def make_pch(
    recipe: PchRecipe,
    of: Candidate,
    *,
    failed: Callable[[bytes], None] = lambda _: None,
    outputs: Outputs | None = None,
    installed: Sequence[str] = (),
    least: int = 0,
) -> int:
    """Make the PCH that a source may use where it is not current; return the compiler's status.

    Where no pass may use it, its file says why. `failed` is told what the compiler says where it
    fails. `outputs` has what is written beside the PCH; `installed` are further files for the rule.
    `least` is how many bytes its headers must have.

    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.io import replace_file
    from offload_tool.run.run_pass import OutputJob, Outputs, produce_output

    text = includes_text(of.headers, recipe.folder)
    names = Names.of(of.headers, recipe.folder)
    if content_of(recipe.text_file) != text:
        with replace_file(recipe.text_file) as out:
            out.write(text)
    reasons: list[str] = []

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        remove(words_file(recipe.file))
        remove(recipe.names_file)  # clang appends to it
        status, said = run_quietly(command, environment)
        if status:
            failed(said)
        elif said:
            reasons.append("messages of the compiler about its headers: mend or disable them")
        return status

    def check() -> None:
        reason = "".join(reasons[:1]) or _reason_of_made(recipe, of, names, least)
        if reason:
            refuse(recipe.file, reason)

    job = OutputJob(
        recipe.command(names),
        recipe.environment,
        outputs or Outputs(recipe.file),
        recipe.words[: recipe.program],
        check,
        (recipe.text_file,),
        recipe.work,
        installed,
    )
    return produce_output(job, run)


def _reason_of_made(recipe: PchRecipe, of: Candidate, names: Names, least: int) -> str:
    """Return why a PCH that was just made may not be used; "" where it may."""
    read = [name for name in recipe.work().listed() if name != recipe.text_file]
    reason = reason_of_headers(recipe.stage, read)
    if not reason and bytes_of(read) < least:
        reason = SMALL
    if reason:
        return reason
    from offload_tool.pch.side_effects import reason_of_order, reason_of_probe

    entered = [*map(names.given, os.fsdecode(content_of(recipe.names_file)).splitlines())]
    naming, wrong = words_for(entered, recipe.folder)
    if wrong:
        return f"the folder of '{wrong}' is spelled in two ways"
    reason, is_guarded = reason_of_probe(recipe, names.words, naming, entered)
    if not reason and not is_guarded and names.folder:
        reason = _twice(of)
    if not reason and of.passed:
        reason = reason_of_order(recipe, of, entered)
    keep_words(recipe.names_file, naming, is_guarded=is_guarded)
    return reason


def _folder(environment: Mapping[str, str]) -> str:
    """Return the folder that names are relative to, as clang spells it.

    Source: LLVM's ``sys::fs::current_path``: ``PWD`` where that is the folder.
    """
    given = environment.get("PWD", "")
    with suppress(OSError):
        if os.path.isabs(given) and os.path.samefile(given, "."):
            return given
    return os.getcwd()


def read_with_pch(pch: UsablePch, source: str, listed: Sequence[str]) -> list[str]:
    """Return what a pass has read, in the order in which it reads without a PCH.

    `listed` is what its depfile lists with it: the text of the PCH, its headers, the source, and
    what else the source includes. What the PCH is made of is absolute there; what ``__has_include``
    has found is known to the PCH's own manifest alone.
    """
    recipe, known = pch.recipe, set(listed)
    text, named = recipe.text_file, set(possible_files(recipe.words))
    absolute = partial(absolute_name, folder=recipe.folder)
    names = Names.of(pch.of.headers, recipe.folder)
    chain = pch.chain()
    first = [
        name
        for name in pch.inputs
        if name != text and (name not in named or {name, absolute(name)} & known)
    ]
    first = [*map(names.shown, first)] if names.words else first
    begin = [source, *pch.included, *chain[1:], *first]
    theirs = {absolute(name) for name in (text, *pch.inputs)}.difference(begin)
    return list(dict.fromkeys([*begin, *(name for name in listed if name not in theirs)]))


def launched_with_pch(
    command: Sequence[str], usable: UsablePch
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command of a pass with a PCH for a launcher, and the environment for it.

    :raises CompilerError: no folder for the script can be written.
    :raises FileError: the script cannot be written.
    """
    recipe = usable.recipe
    compiler = command[: recipe.program]
    variables = {
        "CCACHE_COMPILERCHECK": "content",
        **recipe.environment,
        _WORDS: shlex.join(usable.words()),
    }
    script = _script(compiler, recipe.compiler)
    return [script, *command[recipe.program :]], variables


def _script(compiler: Sequence[str], identity: str) -> str:
    from offload_tool.io import replace_file
    from offload_tool.toolchain.disk_cache import cache_folder

    text = _SCRIPT.format(
        identity=" ".join(identity.split()),
        words=_WORDS,
        compiler=shlex.join(compiler),
    ).encode(errors="surrogateescape")
    folder = Path(cache_folder()) / "pch" / digest_of(text)[:16]
    name = os.path.basename(compiler[0])
    file = folder / (name if "clang" in name else "clang")
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replace_file(file) as out:
            out.set_mode(_EXECUTABLE)
            out.write(text)
    return str(file)
