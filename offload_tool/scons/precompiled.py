"""Precompiled headers (PCHs) of compiles: ``OFFLOAD_PCH``.

A PCH is made by the first compile that needs it, in the folder ``.offload-pch``, and used by the
others; see `offload_tool.compiler.pch`. It is no node of the graph. As one, it would be made for
compiles that a ``CacheDir`` then gives, and they would wait for it where they do not use it; so
nothing that SCons decides or signs knows of it.

Compiles that differ in their target, their side, their language or their flags have different
PCHs::

    a.hip --+                        .offload-pch/gfx906.hip.1.pch
    b.hip --+-- gfx906 ----------->
    c.hip --+-- gfx90a ----------->  .offload-pch/gfx90a.hip.1.pch
            +-- host ------------->  .offload-pch/host.hip.1.pch
    d.cpp, e.cpp, f.cpp ---------->  .offload-pch/host.c++.1.pch

A source that is edited again and again has its own, of all directives with which it begins: see
`preambles`. What is here holds for each of them; `precompiled_passes` has the passes of offload
sources, `precompiled_plain` the C and C++ sources beside them.
"""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import SCons.Errors
import SCons.Script
import SCons.Util

from offload_tool.compiler import pch
from offload_tool.compiler.beginning import beginning_of, includes_text
from offload_tool.compiler.fingerprints import digest_of
from offload_tool.compiler.pch_rules import may_lose_messages
from offload_tool.compiler.preamble import preamble_of
from offload_tool.compiler.reading import folders_searched, general_words
from offload_tool.errors import OffloadError, UsageError
from offload_tool.scons import compat
from offload_tool.scons.pch_groups import FEWEST_USERS, Key, Pchs
from offload_tool.scons.preambles import MOST_SOURCES, Edits, folder_of, make_room
from offload_tool.scons.recording import prints_now
from offload_tool.scons.running import split_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload_tool.compiler.pass_commands import Surroundings
    from offload_tool.scons.protocols import Environment, Node

    Spawn = Callable[..., int]

__all__ = ["MOST_SHARED", "PCH_FOLDER", "SMALLEST", "Compile", "PchSpawn", "Question", "is_wanted"]

PCH_FOLDER = ".offload-pch"
SMALLEST = 256 << 10
"""Bytes of headers, measured: to read 120,000 takes as long as to read their PCH."""
MOST_SHARED = 2 / 3
"""Of the bytes that a compile reads. Where a PCH that sources share has more of them, one of the
source's own saves too little."""


class Compile(NamedTuple):
    """A compile that may use a PCH, as its command is."""

    source: str
    made: tuple[str, ...]
    """The words without source, output and depfile, with which a PCH is made."""
    command: list[str]
    """The whole command, without `launcher`."""
    variables: Mapping[str, str]
    launcher: tuple[str, ...] = ()
    without_driver: Callable[..., bool | None] | None = None
    """As of `UsablePch.run`."""


class Question(Protocol):
    """What decides whether a compile may have a PCH, and which: it differs from sort to sort."""

    name: str
    """Of the target and the language, with which the names of PCHs begin."""
    kind: str
    stage: str
    program: int
    """How many words name the compiler."""
    identity: str
    """What tells the compiler from another one."""

    def compile_of(self, command: list[str], variables: Mapping[str, str]) -> Compile | str:
        """Read the command that SCons runs; or say why it is not understood."""

    def refuses(self, compiled: Compile) -> str:
        """Say why its flags, or its compiler, allow no PCH; "" where they do."""

    def is_edit(self) -> bool:
        """Tell whether it is run because of its source alone."""

    def least_of_own(self, shared: pch.UsablePch | None) -> float | None:
        """Give how many bytes the headers of the source's own PCH must have.

        `shared` is the one that it would use without. None: there is to be none.
        """


def is_wanted(env: Environment) -> bool:
    """Tell whether PCHs are asked for.

    :raises UsageError: OFFLOAD_PCH is not what it may be.
    """
    return bool(_wanted(env))


def _wanted(env: Environment) -> tuple[str, ...] | bool:
    given = env["OFFLOAD_PCH"]
    if given is None or isinstance(given, int):  # ARGUMENTS have 1 for True
        return bool(given)
    names = tuple(env.subst(str(name)) for name in SCons.Util.flatten([given]))
    for name in names:
        if not name or name[0] in "<\"'" or "\n" in name:
            raise UsageError(
                f"OFFLOAD_PCH: expected True, or names of headers as they stand between < and >, "
                f"found {name!r}"
            )
    return names


class PchSpawn:
    """The SPAWN function of a compile: with a PCH where that does, and without where not.

    :raises UsageError: OFFLOAD_PCH or OFFLOAD_PCH_CHECK is not what it may be.
    """

    def __init__(
        self,
        env: Environment,
        question: Question,
        flags: tuple[str, ...],
        spawn: Spawn,
    ) -> None:
        """Begin with `flags`, all that its group has in common; `spawn` compiles without."""
        self._question, self._spawn = question, spawn
        self._pchs = compat.of_build(env, Pchs)
        path = str(env.get("CPPPATH", ""))
        key = Key(question.name, question.kind, _wanted(env), flags, path)
        self._group = self._pchs.group(key)
        self._check_each = _check_each(env)
        self._node: Any = None

    def belong_to(self, env: Environment, node: Node) -> None:
        """Be that of a node."""
        self._node = node
        self._group.nodes[node] = None
        if SCons.Script.GetOption("clean"):
            env.Clean(node, env.Dir(f"#{PCH_FOLDER}"))

    def run(
        self, shell: Any, escape: Any, name: str, words: list[str], variables: dict[str, str]
    ) -> int:
        """Run the command of the compile, as SCons's SPAWN."""
        self._node.attributes.offload_pch = None
        plain = partial(self._spawn, shell, escape, name, words, variables)
        try:
            compiled = self._question.compile_of(split_words(words), variables)
            if isinstance(compiled, str):
                return self._without(compiled, plain)
            found = self._find(compiled)
            if isinstance(found, str):
                return self._without(found, plain)
            if not found.run(compiled.command, compiled.launcher, compiled.without_driver):
                return self._without("messages of the compiler", plain)
        except OffloadError as error:
            return self._without(str(error), plain)
        with self._pchs.lock:
            self._pchs.statistics.used += 1
            is_checked = self._check_each and not self._pchs.statistics.used % self._check_each
        self._node.attributes.offload_pch = found
        return self._checked(plain) if is_checked else 0

    def _without(self, reason: str, plain: Callable[[], int]) -> int:
        with self._pchs.lock:
            self._pchs.statistics.reasons[reason] += 1
        return plain()

    def _find(self, compiled: Compile) -> pch.UsablePch | str:
        """Give the PCH for a compile, which is made if need be; or say why there is none."""
        source = compiled.source
        # A PCH that is there was made after this question.
        refused = cache(lambda: self._question.refuses(compiled))
        headers = self._group.headers_for(source)
        shared: tuple[pch.PchRecipe, pch.UsablePch | str] | None = None
        if headers:
            recipe = self._recipe(compiled, includes_text(headers))
            if not self._pchs.is_for(recipe):
                return "flags that were changed after they were given"
            shared = recipe, pch.find_usable(recipe, source)
        own = self._own(compiled, shared and shared[1], headers, refused)
        if own is not None:
            return own
        if shared is None:
            none = "another beginning" if beginning_of(source).headers else "no leading includes"
            return refused() or none
        if not isinstance(shared[1], str):
            return shared[1]
        if refused():
            return refused()
        with self._pchs.lock_of(shared[0].file):
            return self._made(shared[0], headers, source)

    def _own(
        self,
        compiled: Compile,
        shared: pch.UsablePch | str | None,
        headers: tuple[str, ...],
        refused: Callable[[], str],
    ) -> pch.UsablePch | None:
        """Give the PCH of the source's own preamble, if there is one, or should be."""
        source = compiled.source
        preamble = preamble_of(source)
        usable = None if shared is None or isinstance(shared, str) else shared
        if not preamble.includes or (usable and preamble.includes <= len(headers)):
            return None
        recipe = self._recipe(compiled, preamble.text, source)
        if not self._pchs.is_for(recipe):
            return None
        begin = recipe.file[: -len(".12345678.pch")]
        state = f"{begin}.edits"
        edits = Edits.read(state)
        if alone := self._question.is_edit():
            edits = edits.and_one(digest_of(preamble.text))
            edits.write(state)
        found = pch.find_usable(recipe, source)
        if not isinstance(found, str):
            return found
        if (
            not alone
            or pch.is_current(recipe)
            or not edits.want_one
            or not self._may_have_own(source)
        ):
            return None
        if isinstance(shared, str) and self._group.users_of(headers) >= FEWEST_USERS:
            return None  # these will share one
        words = general_words(compiled.made, ())
        if refused() or may_lose_messages(preamble.text, words, compiled.variables):
            return None
        least = self._question.least_of_own(usable)
        if least is None:
            return None
        for old in glob.glob(f"{glob.escape(begin)}.*.pch"):  # noqa: PTH207
            with suppress(OSError):
                os.unlink(old)  # noqa: PTH108
        failed = bool(pch.make_pch(recipe, preamble.text, least=round(least)))
        edits.with_made(failed=failed).write(state)
        make_room(PCH_FOLDER, os.path.dirname(recipe.file))  # noqa: PTH120
        found = pch.find_usable(recipe, source)
        return None if isinstance(found, str) else found

    def _may_have_own(self, source: str) -> bool:
        with self._pchs.lock:
            if len(self._pchs.edited) < MOST_SOURCES:
                self._pchs.edited.add(source)
            return source in self._pchs.edited

    def _recipe(self, compiled: Compile, text: bytes, source: str = "") -> pch.PchRecipe:
        """Describe a PCH of a text: that of one source, or lines that several share."""
        from offload_tool.compiler.pass_commands import Surroundings

        question = self._question

        def surroundings() -> Surroundings:
            return Surroundings(folders_searched(compiled.made, (), compiled.variables))

        folder = folder_of(PCH_FOLDER, source) if source else PCH_FOLDER
        number = f"{self._group.number}.{digest_of(text)[:8]}"
        return pch.PchRecipe(
            f"{folder}/{question.name}.{question.kind}.{number}.pch",
            question.stage,
            pch.words_without_source(compiled.made),
            question.program,
            compiled.variables,
            question.identity,
            surroundings,
            source=source,
            prints=prints_now,
        )

    def _made(
        self, recipe: pch.PchRecipe, headers: tuple[str, ...], source: str
    ) -> pch.UsablePch | str:
        found = pch.find_usable(recipe, source)
        if not isinstance(found, str) or pch.is_current(recipe):
            return found
        small = (self._question.kind, headers)
        if small in self._pchs.small:
            return pch.SMALL
        if recipe.file not in self._pchs.failed and self._group.users_of(headers) < FEWEST_USERS:
            return "too few users"
        os.makedirs(PCH_FOLDER, exist_ok=True)  # noqa: PTH103
        least = SMALLEST if self._group.wanted is True else 0  # the user's may be small
        if recipe.file in self._pchs.failed or pch.make_pch(
            recipe, includes_text(headers), least=least
        ):
            self._pchs.failed.add(recipe.file)
            return "its headers do not compile"
        found = pch.find_usable(recipe, source)
        if found == pch.SMALL:
            self._pchs.small.add(small)
        return found

    def _checked(self, plain: Callable[[], int]) -> int:
        """Compile again without the PCH, and compare.

        :raises BuildError: the result is another one.
        """
        output = self._node.get_internal_path()
        with open(output, "rb") as file:  # noqa: PTH123
            accelerated = file.read()
        status = plain()
        if status:
            return status
        self._node.attributes.offload_pch = None
        with open(output, "rb") as file:  # noqa: PTH123
            if file.read() == accelerated:
                return 0
        raise SCons.Errors.BuildError(
            node=self._node,
            errstr=f"'{output}': with a precompiled header it has other bytes than without, which "
            "is an error of this tool; unset OFFLOAD_PCH, remove the outputs, and report it",
        )


def _check_each(env: Environment) -> int:
    given = env.subst(str(env["OFFLOAD_PCH_CHECK"] or 0))
    if not given.isdecimal():
        raise UsageError(f"OFFLOAD_PCH_CHECK: expected a number of compiles, found {given!r}")
    return int(given)
