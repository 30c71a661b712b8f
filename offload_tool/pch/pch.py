"""Precompiled headers (PCHs) of passes: how they are made, kept current, and used.

::

    F              clang's PCH of the text, for one compiler, pass, set of flags and folder;
                   or a line with the reason why there is none
    .F.includes    the text: lines ``#include``
    .F.manifest    its dependencies: see `manifest`
    .F.names       the options that restore the names of its headers: see `recipe`
    .F.words       the tokens in its headers: see `side_effects`

A PCH only saves time: outputs, messages, depfiles and manifests are the same without it. It
replaces the first bytes of a source, if they equal its text, and clang skips them. Or it replaces a
header on the chain of first includes, which is guarded (`include_prefix`). Validation compares the
contents of headers, not their times (see `SHARED_OPTIONS`). If a compile with it prints messages
or fails, the pass is compiled again without.

ccache and sccache preprocess a source before the lookup. With a PCH in the command that fails, or
yields other text. Therefore they get the plain command, with a script as the compiler. The script
adds the PCH, from an environment variable, to compiles but not to preprocessing. Its text, which
these caches hash to identify the compiler, holds the compiler's identity.

Source: clang 19.1 and 22.1, observed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.clang.argument_files import possible_files
from offload_tool.clang.depfile import read_depfile
from offload_tool.io.file_digests import (
    cached_by_stat,
    content_of,
    digest_of,
    file_stat,
    identity,
)
from offload_tool.io.paths import remove
from offload_tool.manifest import manifest_path
from offload_tool.manifest.output_state import pass_run
from offload_tool.passes.command import Command
from offload_tool.pch.eligibility import guard_of, reason_of_headers, undefined_macros
from offload_tool.pch.include_prefix import (
    Candidate,
    absolute_name,
    has_pragma_once,
    includes_text,
    without_dots,
)
from offload_tool.pch.recipe import (
    MAP,
    SHARED_OPTIONS,
    Names,
    PchRecipe,
    mapped_name,
    options_for,
    read_options,
    write_options,
)
from offload_tool.pch.side_effects import (
    names_in,
    reason_of_includers,
    reason_of_order,
    reason_of_probe,
    run_quietly,
    source_start,
)
from offload_tool.toolchain.disk_cache import cached_script

if TYPE_CHECKING:
    from offload_tool.run.run_pass import Outputs

_REFUSAL = b"offload: no precompiled header: "
MESSAGES = "messages of the compiler: mend or disable them"
ERRORS = "headers that do not compile by themselves: mend what they do not include"
SMALL = "small headers: name them in OFFLOAD_PCH to precompile them all the same"
_ACTIONS = ("-c", "-S", "-emit-obj", "-emit-llvm-bc")
_LONGEST_REASON = 1 << 12
_VARIABLE = "OFFLOAD_PCH_WORDS"
"""The variable from which the script takes the options of a PCH."""
_SCRIPT = """\
#!/bin/sh
# {identity}
case " $* " in
*" -E "* | *" -### "*) ;;
*" -c "* | *" -S "*)
    eval "set -- ${variable} \\"\\$@\\"" ;;
esac
exec {compiler} "$@"
"""


class UsablePch(NamedTuple):
    """A current PCH, for one source."""

    recipe: PchRecipe
    candidate: Candidate
    """The source's candidate whose headers it holds."""
    inputs: tuple[str, ...]
    """Its dependencies, as the compiler spells them."""
    naming: tuple[str, ...] = ()
    """The options that restore the dependencies' names."""
    included: tuple[str, ...] = ()
    """Dependencies that are included before the first line of a source."""

    def args(self) -> list[str]:
        """Return the options by which a pass uses the PCH."""
        args = ["-include-pch", self.recipe.file]
        args += [f"-preamble-bytes={self.candidate.end},1"] if self.candidate.end else []
        flags = (part for arg in args for part in ("-Xclang", arg))
        return [*flags, *SHARED_OPTIONS, *self.naming]

    def run(
        self,
        command: Command,
        launcher: Sequence[str] = (),
        without_driver: Callable[[Sequence[str], Mapping[str, str]], bool | None] | None = None,
    ) -> str:
        """Run a pass with the PCH, behind a launcher; return why it gave no result, "" on success.

        Messages count as a failure: the compile without the PCH
        prints them. Without a launcher, `without_driver` runs the pass first.

        :raises CompilerError, FileError: a launcher's files cannot be written.
        """
        environment = self.recipe.environment
        if launcher:
            from offload_tool.run.launcher import run_launched

            messages = b""
            script = _script(command.program, self.recipe.compiler_identity)
            variables = {
                "CCACHE_COMPILERCHECK": "content",
                **environment,
                _VARIABLE: shlex.join(self.args()),
            }

            def run_once(before: Sequence[str], command: Command) -> int:
                nonlocal messages
                status, messages = run_quietly([*before, *command.argv()], variables)
                return status

            by_script = command._replace(program=(script,))
            status = run_launched(
                launcher, by_script, variables, self.recipe.compiler_identity, run_once
            )
            is_done: bool | None = status == 0 and not messages
        else:
            args = command._replace(flags=(*self.args(), *command.flags)).argv()
            is_done = without_driver(args, environment) if without_driver else None
            if is_done is None:
                is_done = run_quietly(args, environment) == (0, b"")
        return self.reason_of_names(command) if is_done else MESSAGES

    def _chain(self) -> list[str]:
        """Return the files through which the source reaches the PCH, as in its depfile."""
        names = [each.name for each in self.candidate.includers]
        names += [each[1:-1] for each in self.candidate.headers if names and each[0] == '"']
        return [without_dots(name) for name in names]

    def files_read(self, source: str, listed: Sequence[str]) -> list[str]:
        """Return the files that a pass with the PCH read, in the order without a PCH.

        `listed` are those in its depfile: the PCH's text and headers, the source, and its other
        includes. Dependencies of the PCH are absolute there; files found by ``__has_include`` are
        only in the PCH's own manifest.
        """
        recipe, known = self.recipe, set(listed)
        text, named = recipe.text_file, set(possible_files(recipe.args))
        absolute = partial(absolute_name, folder=recipe.folder)
        names = Names.of(self.candidate.headers, recipe.folder)
        first = [
            name
            for name in self.inputs
            if name != text and (name not in named or {name, absolute(name)} & known)
        ]
        first = [*map(names.shown, first)] if names.options else first
        begin = [source, *self.included, *self._chain()[1:], *first]
        of_pch = {absolute(text), *_absolute_names(self.inputs, recipe.folder)}.difference(begin)
        return list(dict.fromkeys([*begin, *(name for name in listed if name not in of_pch)]))

    def reason_of_names(self, command: Command) -> str:
        """Return which of the source's own files changed its name; "" if none."""
        of_pch = {*self.inputs, *_absolute_names(self.inputs, self.recipe.folder)}
        read = read_depfile(command.depfile) if command.depfile else []
        own = [name for name in (command.source, *read) if name not in of_pch]

        @cache
        def undefined() -> frozenset[str]:
            in_pch = _undefined_in(self.recipe.file, self.inputs)
            return in_pch.union(*map(undefined_macros, own))

        for name in self._chain():
            if name not in read:
                return f"'{name}' was not found where its source leads to"
        for name in own:
            if mapped_name(name, self.naming) != name:
                return (
                    f"'{name}' is absolute, in a folder that a precompiled header has as relative"
                )
            if other := self._name_inside(name, undefined):
                return f"'{name}' can be included twice, and is '{other}' in the precompiled header"
        return ""

    def _name_inside(self, name: str, undefined: Callable[[], frozenset[str]]) -> str:
        """Return the PCH's name of a file of which more may be read; "" if equal or none.

        `undefined` returns the macros that a file of the pass undefines: see `undefined_macros`.
        """
        inside = _identities(self.recipe.file, self.inputs)
        found = inside.get(identity(name), "")
        shown = Names.of(self.candidate.headers, self.recipe.folder).shown(found)
        if not found or shown == name or has_pragma_once(found):
            return ""
        guard = guard_of(found)
        return "" if guard and undefined().isdisjoint((guard, "")) else shown


@lru_cache(maxsize=64)
def _absolute_names(names: tuple[str, ...], folder: str) -> frozenset[str]:
    return frozenset(absolute_name(name, folder) for name in names)


@cached_by_stat
def _identities(_pch: str, inputs: tuple[str, ...]) -> dict[str, str]:
    found = {identity(name): name for name in reversed(inputs)}
    found.pop("", None)
    return found


@cached_by_stat
def _undefined_in(_pch: str, inputs: tuple[str, ...]) -> frozenset[str]:
    return frozenset[str]().union(*map(undefined_macros, inputs))


def args_without_source(args: Iterable[str]) -> tuple[str, ...]:
    """Return a pass's arguments that are equal for all sources, without input and output."""
    return tuple(
        "-cuid=0" if arg.startswith("-cuid=") else arg for arg in args if arg not in _ACTIONS
    )


def refusal_of(file: str) -> str:
    """Return why `file` is not a PCH; "" if it is."""
    try:
        with open(file, "rb") as opened:
            begin = opened.read(_LONGEST_REASON)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not begin.startswith(_REFUSAL):
        return ""
    return begin.removeprefix(_REFUSAL).decode(errors="replace").strip()


def refuse(file: str, reason: str) -> None:
    """Write the reason why there is no PCH to `file`; raise FileError."""
    from offload_tool.io import replace_file

    with replace_file(file) as out:
        out.write(_REFUSAL + reason.encode(errors="replace") + b"\n")


def states(recipe: PchRecipe) -> list[PchRecipe]:
    """Return the recipes of the last two states of the headers; the one used last is at the end.

    So an edit that is undone finds its PCH again. A new state replaces the first.
    """
    other = f"{recipe.file.removesuffix('.pch')}-2.pch"
    return sorted((recipe, recipe._replace(file=other)), key=_last_use)


def _last_use(recipe: PchRecipe) -> int:
    found = file_stat(manifest_path(recipe.file))
    return found.modified if found is not None else 0


def find_state(recipe: PchRecipe, source: str) -> UsablePch | str | None:
    """Return the PCH of the present state, or why the source compiles without; None if missing."""
    for each in reversed(states(recipe)):
        read = _inputs_if_current(each)
        if read is not None:
            with suppress(OSError):  # such as a read-only folder
                os.utime(manifest_path(each.file))
            return _usable(each, source, read)
    return None


def find_usable(recipe: PchRecipe, source: str) -> UsablePch | str:
    """Return the PCH at the recipe's place for a source, or why the source compiles without."""
    if not content_of(recipe.text_file):
        return "no precompiled header is there: make it first"
    read = _inputs_if_current(recipe)
    if read is None:
        return "the precompiled header is of other flags, or out of date: make it again"
    return _usable(recipe, source, read)


def _usable(recipe: PchRecipe, source: str, read: dict[str, str]) -> UsablePch | str:
    text = content_of(recipe.text_file)
    found = recipe.search_path.candidates(source)
    candidate = next(
        (each for each in found.all if includes_text(each.headers, recipe.folder) == text), None
    )
    if candidate is None:
        return (
            "different leading includes: it must begin with those of the precompiled header, "
            f"'{found.stop}' is where they end"
        )
    if reason := refusal_of(recipe.file):
        return reason
    options = read_options(recipe.names_file)
    if options is None:
        return f"'{recipe.names_file}' is not there: make the precompiled header again"
    naming, is_guarded = options
    if not candidate.includers:
        return UsablePch(recipe, candidate, tuple(read), naming)
    if not is_guarded:
        return _reason_unguarded(candidate)
    known = source_start(recipe, read)
    reason = reason_of_includers(recipe, read, candidate, known)
    return reason or UsablePch(recipe, candidate, tuple(read), naming, known.files if known else ())


def _reason_unguarded(candidate: Candidate) -> str:
    header = without_dots(candidate.headers[0][1:-1])
    return f"'{header}' can be included twice: add '#pragma once'"


def _inputs_if_current(recipe: PchRecipe) -> dict[str, str] | None:
    """Return the digests of the inputs of a PCH, or of the reason against one, if it is current."""
    run = pass_run(recipe.work(), recipe.digests())
    if not run.is_current() or run.record is None:
        return None
    digests = {**run.record.inputs, **run.record.key.files}
    return {name: digests[name] for name in run.inputs()}


def make_pch(
    recipe: PchRecipe,
    candidate: Candidate,
    *,
    failed: Callable[[bytes], None] = lambda _: None,
    outputs: Outputs | None = None,
    installed: Sequence[str] = (),
    least: int = 0,
    refuses_errors: bool = False,
) -> int:
    """Make the PCH of a candidate unless it is current; return the compiler's status.

    If no pass may use it, its file holds the reason. `failed` gets the messages of a failed
    compile. `outputs` are the files to write; `installed` are further dependencies for the rule.
    `least` is the minimum size of its headers in bytes. With `refuses_errors`, headers that do not
    compile are such a reason, and the status is 0.

    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.io import replace_file
    from offload_tool.run.run_pass import OutputJob, Outputs, produce_output

    text = includes_text(candidate.headers, recipe.folder)
    names = Names.of(candidate.headers, recipe.folder)
    if content_of(recipe.text_file) != text:
        with replace_file(recipe.text_file) as out:
            out.write(text)
    reason = ""

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        nonlocal reason
        remove(recipe.tokens_file)
        remove(recipe.names_file)  # clang appends to it
        status, messages = run_quietly(command, environment)
        check = recipe.with_args("-fsyntax-only", recipe.text_file)
        if status and refuses_errors and run_quietly(check, environment)[0]:
            reason, status = ERRORS, 0  # it is no full disk
            refuse(recipe.file, reason)
        elif status:
            failed(messages)
        elif messages:
            reason = "messages of the compiler about its headers: mend or disable them"
        return status

    def check() -> None:
        if refusal := reason or _reason_against(recipe, candidate, names, least):
            refuse(recipe.file, refusal)

    job = OutputJob(
        recipe.work(),
        command=recipe.command(names),
        outputs=outputs or Outputs(recipe.file),
        tool=recipe.args[: recipe.program_args],
        check=check,
        installed=installed,
    )
    return produce_output(job, run)


def _reason_against(recipe: PchRecipe, candidate: Candidate, names: Names, least: int) -> str:
    """Return why a new PCH may not be used; "" if it may."""
    read = [name for name in recipe.work().files_read() if name != recipe.text_file]
    reason = reason_of_headers(recipe.stage, read)
    if not reason and sum(stat.size for stat in map(file_stat, read) if stat is not None) < least:
        reason = SMALL
    if reason:
        return reason
    entered = [*map(names.restored, names_in(recipe.names_file))]
    naming, wrong = options_for(entered, recipe.folder)
    if wrong:
        return f"the folder of '{wrong}' is spelled in two ways"
    if any(arg.startswith(MAP) for arg in recipe.args) and (naming or names.options):
        return f"{MAP} in its flags, and relative names of headers: name folders absolutely"
    reason, is_guarded = reason_of_probe(recipe, names.options, naming, entered, read)
    if not reason and not is_guarded and names.folder:
        reason = _reason_unguarded(candidate)
    if not reason and candidate.includers:
        reason = reason_of_order(recipe, candidate, entered)
    write_options(recipe.names_file, naming, is_guarded=is_guarded)
    return reason


def _script(compiler: Sequence[str], identity: str) -> str:
    """Return the script that adds a PCH's options, written if missing."""
    script = _SCRIPT.format(
        identity=" ".join(identity.split()),
        variable=_VARIABLE,
        compiler=shlex.join(compiler),
    )
    text = os.fsencode(script)
    name = os.path.basename(compiler[0])
    file = name if "clang" in name else "clang"
    return cached_script(f"pch/{digest_of(text)[:16]}/{file}", text)
