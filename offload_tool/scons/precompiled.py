"""Precompiled headers (PCHs) of passes: ``OFFLOAD_PCH``.

A PCH is made by the first pass that needs it, in the folder ``.offload-pch``, and used by the
others; see `offload_tool.compiler.pch`. It is no node of the graph. As one, it would be made for
passes that a ``CacheDir`` then gives, and the passes would have to wait for it where they do not
use it; so nothing that SCons decides or signs knows of it.

Passes that differ in their target, their side or their flags have different PCHs::

    a.hip --+                        .offload-pch/gfx906.hip.1.pch
    b.hip --+-- gfx906 ----------->
    c.hip --+-- gfx90a ----------->  .offload-pch/gfx90a.hip.1.pch
            +-- host ------------->  .offload-pch/host.hip.1.pch

One for fewer than three users would take longer to make than it saves. A source that is edited
again and again has its own, of all directives with which it begins: see `preambles`.
"""

from __future__ import annotations

import glob
import os
import threading
from collections import Counter, defaultdict
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import SCons.Errors
import SCons.Node
import SCons.Script
import SCons.Util

from offload_tool.compiler import pch
from offload_tool.compiler.beginning import beginning_of, includes_text
from offload_tool.compiler.fingerprints import digest_of, look_at
from offload_tool.compiler.passes import without_dependency_flags
from offload_tool.compiler.pch_rules import reason_of_flags
from offload_tool.compiler.preamble import preamble_of
from offload_tool.compiler.reading import folders_searched, general_words
from offload_tool.errors import OffloadError, UsageError
from offload_tool.scons import compat, settings
from offload_tool.scons.outputs import records_of
from offload_tool.scons.preambles import MOST_SOURCES, Edits, folder_of, make_room
from offload_tool.scons.recording import depfile_of, prints_now
from offload_tool.scons.running import split_words
from offload_tool.scons.spawning import DirectSpawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload_tool.compiler.pass_commands import Surroundings
    from offload_tool.compiler.passes import CompilePass
    from offload_tool.scons.protocols import Environment, Node

    Spawn = Callable[..., int]

__all__ = ["PCH_FOLDER", "PchStatistics", "pch_spawn", "pch_statistics"]

PCH_FOLDER = ".offload-pch"
_FEWEST_USERS = 3
SMALLEST = 256 << 10
"""Bytes of headers, measured: to read 120,000 takes as long as to read their PCH."""
_MOST_SHARED = 2 / 3
"""Of the bytes that a pass reads. Where a PCH that sources share has more of them, one of the
source's own saves too little."""
_UNDECIDED = (SCons.Node.no_state, SCons.Node.pending, SCons.Node.executing)


class PchStatistics:
    """How many passes of a build were compiled with a PCH, and why others were not."""

    def __init__(self) -> None:
        self.used = 0
        self.reasons: Counter[str] = Counter()

    def __str__(self) -> str:
        without = sum(self.reasons.values())
        reasons = "; ".join(f"{count}: {reason}" for reason, count in self.reasons.most_common())
        return f"{self.used} compiles with, {without} without" + (
            f" ({reasons})" if without else ""
        )


class _Key(NamedTuple):
    """What the passes have in common that may share a PCH."""

    target: str
    kind: str
    wanted: tuple[str, ...] | bool
    flags: tuple[str, ...]
    path: str


class _Group:
    """Passes that may share PCHs, as far as their flags tell."""

    def __init__(self, wanted: tuple[str, ...] | bool, number: int) -> None:
        self.number = number
        self.nodes: dict[Node, None] = {}
        self._wanted = wanted
        self._shares: dict[str, tuple[str, ...]] = {}

    @property
    def least(self) -> int:
        """How many bytes the headers of a PCH must have; those that a user names may be small."""
        return SMALLEST if self._wanted is True else 0

    def headers_for(self, source: str) -> tuple[str, ...]:
        """Give the headers of the PCH that a source is to use; none where it has too few users."""
        if source not in self._shares or compat.is_interactive():
            sources = [_source_file(node) for node in self.nodes]
            begins = {name: beginning_of(name).headers for name in sources}
            self._shares = shared_beginnings(begins, self._wanted)
        return self._shares.get(source, ())

    def users_of(self, headers: tuple[str, ...]) -> int:
        """Count the passes that may yet be compiled with a PCH of these headers."""
        return sum(
            self._shares.get(_source_file(node)) == headers and node.get_state() in _UNDECIDED
            for node in self.nodes
        )


class _Pchs:
    """The PCHs of a build."""

    def __init__(self) -> None:
        self.statistics = PchStatistics()
        self.lock = threading.Lock()
        self._groups: dict[_Key, _Group] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.failed: set[str] = set()
        self.small: set[tuple[str, ...]] = set()
        """Headers that were found to be small, for one target."""
        self.edited: set[str] = set()
        """The sources that get PCHs of their own."""

    def group(self, key: _Key) -> _Group:
        """Give the group of a key; numbers are those of groups of one target, as declared."""
        if key not in self._groups:
            same = [each for each in self._groups if each[:2] == key[:2]]
            self._groups[key] = _Group(key.wanted, len(same) + 1)
        return self._groups[key]

    def lock_of(self, file: str) -> threading.Lock:
        """Give the lock under which a PCH is looked at and made."""
        with self.lock:
            return self._locks[file]


def pch_statistics(env: Environment) -> PchStatistics:
    """Give the statistics of the build that an environment is part of."""
    return compat.of_build(env, _Pchs).statistics


def shared_beginnings(
    begins: Mapping[str, tuple[str, ...]], wanted: tuple[str, ...] | bool
) -> dict[str, tuple[str, ...]]:
    """Give for each source the headers of the PCH that it shares with at least two others.

    These are those of `wanted`; with True the longest common beginnings.
    """
    shares: dict[str, tuple[str, ...]] = dict.fromkeys(begins, ())
    longest = max(map(len, begins.values()), default=0)
    lengths = range(longest, 0, -1) if wanted is True else [len(wanted or ())]
    for length in lengths:
        alike = defaultdict(list)
        for name, headers in begins.items():
            if len(headers) >= length and not shares[name]:
                alike[headers[:length]].append(name)
        for headers, names in alike.items():
            if len(names) >= _FEWEST_USERS and wanted in (True, headers):
                shares.update(dict.fromkeys(names, headers))
    return shares


def pch_spawn(
    env: Environment, node: Node, job: CompilePass, flags: tuple[str, ...], spawn: Spawn
) -> Spawn:
    """Give the SPAWN function of a pass that may use a PCH; `spawn` compiles without.

    :raises UsageError: OFFLOAD_PCH or OFFLOAD_PCH_CHECK is not what it may be.
    """
    wanted = _wanted(env)
    if not wanted:
        return spawn
    target = job.device.name if job.device is not None else "host"
    path = str(env.get("CPPPATH", ""))
    group = compat.of_build(env, _Pchs).group(_Key(target, job.kind, wanted, flags, path))
    group.nodes[node] = None
    if SCons.Script.GetOption("clean"):
        env.Clean(node, env.Dir(f"#{PCH_FOLDER}"))
    return _PassSpawn(env, node, job, group, spawn).run


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


def _source_file(node: Node) -> str:
    source = node.sources[0]
    file = str(source.rfile())
    return file if os.path.exists(file) else str(source.srcnode().rfile())  # noqa: PTH110


class _PassSpawn:
    """Compiles one pass with a PCH where that does, and without where not."""

    def __init__(
        self, env: Environment, node: Node, job: CompilePass, group: _Group, spawn: Spawn
    ) -> None:
        self._node, self._job, self._group, self._spawn = node, job, group, spawn
        self._pchs = compat.of_build(env, _Pchs)
        self._is_distributed = bool(env["OFFLOAD_DIST"])
        self._launcher = settings.launcher(env)
        self._toolchain = settings.toolchain(env)
        self._check_each = _check_each(env)

    def run(
        self, shell: Any, escape: Any, name: str, words: list[str], variables: dict[str, str]
    ) -> int:
        """Run the command of the pass, as SCons's SPAWN."""
        self._node.attributes.offload_pch = None
        plain = partial(self._spawn, shell, escape, name, words, variables)
        command = split_words(words)
        try:
            found = self._find(command, variables)
            if isinstance(found, str):
                return self._without(found, plain)
            spawn = self._spawn
            quietly = spawn.run_quietly if isinstance(spawn, DirectSpawn) else None
            if not found.run(command[len(self._launcher) :], self._launcher, quietly):
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

    def _find(self, command: list[str], variables: Mapping[str, str]) -> pch.UsablePch | str:
        """Give the PCH for a command, which is made if need be; or say why there is none."""
        launcher, clang = [*self._launcher], [*self._toolchain.clang]
        output, source = self._node.get_internal_path(), str(self._node.sources[0].rfile())
        if self._is_distributed:
            return "OFFLOAD_DIST"
        if command[: len(launcher + clang)] != launcher + clang or command[-3:] != [
            *("-o", output, source)
        ]:
            return "a command of its own"
        made = without_dependency_flags(command[len(launcher) : -3], depfile_of(self._node))
        job = self._job
        # A PCH that is there was made after this question.
        refused = cache(
            lambda: reason_of_flags(job.kind, job.stage, general_words(made, ()), variables)
        )
        headers = self._group.headers_for(source)
        shared: tuple[pch.PchRecipe, pch.UsablePch | str] | None = None
        if headers:
            recipe = self._recipe(made, includes_text(headers), variables)
            shared = recipe, pch.find_usable(recipe, source)
        own = self._own(made, source, variables, shared and shared[1], headers, refused)
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
        made: Sequence[str],
        source: str,
        variables: Mapping[str, str],
        shared: pch.UsablePch | str | None,
        headers: tuple[str, ...],
        refused: Callable[[], str],
    ) -> pch.UsablePch | None:
        """Give the PCH of the source's own preamble, if there is one, or should be."""
        preamble = preamble_of(source)
        records = records_of(self._node)
        is_shared = not (shared is None or isinstance(shared, str))
        if not preamble.includes or (is_shared and preamble.includes <= len(headers)):
            return None
        recipe = self._recipe(made, preamble.text, variables, source)
        begin = recipe.file[: -len(".12345678.pch")]
        state = f"{begin}.edits"
        edits = Edits.read(state)
        if alone := records.only_source_changed():
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
        if isinstance(shared, str) and self._group.users_of(headers) >= _FEWEST_USERS:
            return None  # these will share one
        before = records.inputs_before()
        if refused() or pch.bytes_of(before) < SMALLEST or self._is_mostly_in(shared, before):
            return None
        for old in glob.glob(f"{glob.escape(begin)}.*.pch"):  # noqa: PTH207
            with suppress(OSError):
                os.unlink(old)  # noqa: PTH108
        failed = bool(pch.make_pch(recipe, preamble.text))
        edits.with_made(failed=failed).write(state)
        make_room(PCH_FOLDER, os.path.dirname(recipe.file))  # noqa: PTH120
        found = pch.find_usable(recipe, source)
        return None if isinstance(found, str) else found

    def _may_have_own(self, source: str) -> bool:
        with self._pchs.lock:
            if len(self._pchs.edited) < MOST_SOURCES:
                self._pchs.edited.add(source)
            return source in self._pchs.edited

    def _is_mostly_in(self, shared: pch.UsablePch | str | None, inputs: Iterable[str]) -> bool:
        """Tell whether a PCH has most of what a pass reads."""
        if shared is None or isinstance(shared, str):
            return False
        there = {*shared.inputs}
        sizes = {name: look.size for name in inputs if (look := look_at(name)) is not None}
        common = sum(size for name, size in sizes.items() if name in there)
        return common > _MOST_SHARED * sum(sizes.values())

    def _recipe(
        self, made: Sequence[str], text: bytes, variables: Mapping[str, str], source: str = ""
    ) -> pch.PchRecipe:
        """Describe a PCH of a text: that of one source, or lines that several share."""
        from offload_tool.compiler.pass_commands import Surroundings

        def surroundings() -> Surroundings:
            return Surroundings(folders_searched(made, (), variables))

        device = self._job.device
        name = device.filename if device is not None else "host"
        folder = folder_of(PCH_FOLDER, source) if source else PCH_FOLDER
        return pch.PchRecipe(
            f"{folder}/{name}.{self._job.kind}.{self._group.number}.{digest_of(text)[:8]}.pch",
            self._job.stage,
            pch.words_without_source(made),
            len(self._toolchain.clang),
            variables,
            self._toolchain.identity,
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
        if headers in self._pchs.small:
            return pch.SMALL
        if recipe.file not in self._pchs.failed and self._group.users_of(headers) < _FEWEST_USERS:
            return "too few users"
        os.makedirs(PCH_FOLDER, exist_ok=True)  # noqa: PTH103
        if recipe.file in self._pchs.failed or pch.make_pch(
            recipe, includes_text(headers), least=self._group.least
        ):
            self._pchs.failed.add(recipe.file)
            return "its headers do not compile"
        found = pch.find_usable(recipe, source)
        if found == pch.SMALL:
            self._pchs.small.add(headers)
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
