"""Precompiled headers (PCHs) of compiles: ``OFFLOAD_PCH``.

The first compile that needs a PCH makes it in the folder ``.offload-pch``, and others use it; see
`offload_tool.pch.pch`. It is not a node of the graph. Otherwise SCons would make it for compiles
that hit a ``CacheDir``, and compiles that do not use it would wait. Therefore SCons's decisions and
signatures ignore it.

Each target, side, language and set of flags has its own PCHs::

    a.hip --+                        .offload-pch/gfx906.hip.1c5e09a7b2d4f683.pch
    b.hip --+-- gfx906 ----------->
    c.hip --+-- gfx90a ----------->  .offload-pch/gfx90a.hip.77e02b91c35d4fa8.pch
            +-- host ------------->  .offload-pch/host.hip.e5d0c4b3a2918f67.pch

The number is a digest of the PCH's key: the headers, the arguments, the compiler, and the
environment variables that it reads.

The passes of a group have equal commands except for source and output. Their sources' leading
includes decide which of them share a PCH (`include_prefix`). Among the possible PCHs, the one that
saves the most reading is made: the users beyond break-even, times the bytes of its headers. A
source that shares none, or that a build compiles alone, gets one when it is compiled again and
again (`marks`).
"""

from __future__ import annotations

import glob
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import SCons.Errors
import SCons.Node
import SCons.Util

from offload_tool.errors import FileError, OffloadError, UsageError
from offload_tool.io.file_digests import digest_of, file_stat
from offload_tool.manifest.inputs import general_args
from offload_tool.manifest.key import Cause, Reason
from offload_tool.passes.command import Command
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.pch import pch
from offload_tool.pch.eligibility import reason_of_flags
from offload_tool.pch.include_prefix import Candidate, Headers, SearchPath, bytes_read
from offload_tool.pch.marks import Marks
from offload_tool.pch.recipe import PchRecipe
from offload_tool.scons import compat, found_tools, settings
from offload_tool.scons.graph.call_cache import cached
from offload_tool.scons.spawn import DirectRunner, Runner
from offload_tool.scons.state.build_log import declared_passes
from offload_tool.scons.state.node_info import records_of
from offload_tool.scons.state.node_resolver import DIGESTS, command_of, variables_of
from offload_tool.scons.types import Environment, Node
from offload_tool.toolchain.driver_cache import cached_front_end

FEWEST_USERS = 3
"""With fewer users, making a PCH takes longer than it saves."""
_SETS_OF_FLAGS = 4
"""Sets of flags whose PCHs are kept, for example of debug and release builds."""
_UNDECIDED = (SCons.Node.no_state, SCons.Node.pending, SCons.Node.executing)


class PchStatistics:
    """Counts a build's compiles with a PCH, and the reasons of those without."""

    def __init__(self) -> None:
        self.used = 0
        self.reasons: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self.used or self.reasons)

    def __str__(self) -> str:
        without = sum(self.reasons.values())
        alike: dict[str, Counter[str]] = {}
        for reason, count in self.reasons.items():
            alike.setdefault(re.sub("'[^']*'", "", reason), Counter())[reason] += count
        counts = {
            each.most_common(1)[0][0] + " (for instance)" * (len(each) > 1): sum(each.values())
            for each in alike.values()
        }
        reasons = "; ".join(f"{count}: {reason}" for reason, count in Counter(counts).most_common())
        return f"{self.used} compiles with, {without} without" + (
            f" ({reasons})" if without else ""
        )


Wanted = tuple[str, ...] | bool
"""``OFFLOAD_PCH``: the headers of one PCH; True for those that save most."""


class PchKey(NamedTuple):
    """Identifies passes that may share PCHs: their commands and the requested headers."""

    target: str
    kind: str
    wanted: Wanted
    args: tuple[str, ...]
    """All arguments but source, output and depfile, and the compiler's other dependencies."""


class Group:
    """Passes with one key."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.nodes: list[Node] = []
        self._shares: dict[str, Candidate] = {}

    def shares(self, path: SearchPath) -> dict[str, Candidate]:
        """Return the PCH that each source should use, if enough sources share it."""
        if not self._shares or compat.is_interactive():
            sources = dict.fromkeys(map(_source_file, self.nodes))
            found = {name: path.candidates(name).all for name in sources}
            self._shares = shared_headers(found, self.wanted, partial(bytes_read, path=path))
        return self._shares

    def candidate(self, source: str, path: SearchPath) -> Candidate | None:
        """Return the PCH that a source should use, if necessary alone; None if it can use none."""
        if shared := self.shares(path).get(source):
            return shared
        alone = (each for each in path.candidates(source).all if _is_wanted(each, self.wanted))
        return next(alone, None)

    def has_users(self, headers: Headers, why: Reason | None) -> bool:
        """Return True if enough compiles of this build may use a PCH of these headers.

        `why` is the reason of one of them. If the key has changed, it has for all.
        """
        users = {name for name, each in self._shares.items() if each.headers == headers}
        nodes = (node for node in self.nodes if _source_file(node) in users)
        is_key = why is not None and why.cause is Cause.KEY
        running = (node for node in nodes if _may_run(node, is_certain=is_key))
        return sum(1 for _ in islice(running, FEWEST_USERS)) == FEWEST_USERS


class Pchs:
    """The PCHs of a build."""

    def __init__(self) -> None:
        self.statistics = PchStatistics()
        self.lock = threading.Lock()
        self._declared: dict[Node, Callable[[], PchKey]] = {}
        self._keys: dict[Node, PchKey] = {}
        self._groups: dict[PchKey, Group] = {}
        self.locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """For checking and making each file."""
        self.failed: set[str] = set()
        self.small: set[tuple[str, Headers]] = set()
        """Kinds with headers that turned out to be small for one target."""
        self.used: set[str] = set()
        """The files used by passes of this build."""

    def declare(self, node: Node, find_key: Callable[[], PchKey]) -> None:
        """Add a pass; the first run computes its key, since SConscripts may change flags."""
        self._declared[node] = find_key

    def groups_of(self, node: Node) -> tuple[Group, Group]:
        """Return the passes with a node's key, and those that differ at most in arguments."""
        with self.lock:
            if len(self._keys) != len(self._declared):
                self._keys = {each: find() for each, find in self._declared.items()}
                self._groups = {}
                for each, key in self._keys.items():
                    for like in {key, key._replace(args=())}:
                        self._groups.setdefault(like, Group(key.wanted)).nodes.append(each)
            key = self._keys[node]
            return self._groups[key], self._groups[key._replace(args=())]

    def most_files(self, node: Node, path: SearchPath) -> int:
        """Return the maximum number of PCHs for a node's target and kind."""
        like = self._keys[node][:2]
        groups = [group for key, group in self._groups.items() if key[:2] == like and key.args]
        shares = ({each.headers for each in group.shares(path).values()} for group in groups)
        return _SETS_OF_FLAGS * max(1, sum(map(len, shares)))


def _may_run(node: Node, *, is_certain: bool) -> bool:
    """Return True if a compile runs, or will; if it is current, SCons may not know yet."""
    state = node.get_state()
    if state in _UNDECIDED and state != SCons.Node.executing and not is_certain:
        return records_of(node).has_other_files()
    return state in _UNDECIDED


def shared_headers(
    candidates: Mapping[str, Sequence[Candidate]],
    wanted: Wanted,
    weigh: Callable[[Headers], int],
) -> dict[str, Candidate]:
    """Return the PCH that each source shares with two others: as `wanted`, or by `weigh`."""
    shares: dict[str, Candidate] = {}
    while True:
        users: dict[Headers, dict[str, Candidate]] = {}
        for name, each in candidates.items():
            if name not in shares:
                for candidate in filter(lambda one: _is_wanted(one, wanted), each):
                    users.setdefault(candidate.headers, {})[name] = candidate
        users = {each: names for each, names in users.items() if len(names) >= FEWEST_USERS}
        if not users:
            return shares
        saved = {
            headers: (len(names) - FEWEST_USERS + 1) * weigh(headers)
            for headers, names in users.items()
            if len(users) > 1
        }
        shares.update(users[max(users, key=lambda each: saved.get(each, 0))])


def _is_wanted(candidate: Candidate, wanted: Wanted) -> bool:
    """Return True if a PCH is one that the user has requested, by names of headers."""
    names = tuple(each[1:-1] for each in candidate.headers if each[0] == "<")
    return wanted in (True, names) or (bool(candidate.spelling) and wanted == (candidate.spelling,))


def _source_file(node: Node) -> str:
    source = node.sources[0]
    file = str(source.rfile())
    return file if os.path.exists(file) else str(source.srcnode().rfile())


PCH_FOLDER = ".offload-pch"
SMALLEST = 256 << 10
"""Bytes of headers, measured: reading 120,000 takes as long as reading their PCH."""

ALONE = 4 << 20
"""Bytes of headers that one source alone must have for a PCH, by `bytes_read`. Measured: with
``hip_runtime.h``, of 9 MB, a front end takes 0.43 s, and 0.10 with its PCH, which takes 1.3."""
_TOO_FEW = f"fewer than {FEWEST_USERS} compiles to share it: it pays in larger builds"
_FAILED = "headers that do not compile by themselves: mend what they do not include"
_CUSTOM = "custom compile command: $OFFLOADDEVICECOM or $OFFLOADHOSTCOM is not this tool's own"


class _WithoutPchError(OffloadError):
    """Why a compile uses no PCH."""


def _wanted(env: Environment) -> Wanted:
    given = env["OFFLOAD_PCH"]
    if isinstance(given, bool):
        return given
    names = tuple(env.subst(str(name)) for name in SCons.Util.flatten([given]))
    for name in names:
        if not name or name[0] in "<\"'" or "\n" in name:
            raise UsageError(
                f"OFFLOAD_PCH: expected True, or names of headers as they stand between < and >, "
                f"found {name!r}"
            )
    return names


class PchRunner:
    """The runner of a compile: with a PCH if possible, otherwise by `run`.

    Passes of equal `like` differ in names alone. UsageError if OFFLOAD_PCH is invalid.
    """

    def __init__(
        self, env: Environment, node: Node, job: CompilePass, like: str, run: Runner
    ) -> None:
        self._toolchain = found_tools.toolchain(env)
        self._name = job.device.filename if job.device is not None else "host"
        self._job = job
        self._node: Any = node
        self._launcher = settings.launcher(env)
        self._is_distributed = bool(env["OFFLOAD_DIST"])
        self._quietly = run.run_quietly if isinstance(run, DirectRunner) else None
        self._run = run
        self._pchs = compat.of_build(env, Pchs)
        declared_passes(env).pch_statistics = self._pchs.statistics
        wanted = _wanted(env)
        args = cached(env, f"arguments of {like}", lambda: cache(self._declared_args))
        self._pchs.declare(node, lambda: PchKey(self._name, job.kind, wanted, args()))
        self._check_each = env["OFFLOAD_PCH_CHECK"]
        if not compat.is_build():
            env.Clean(node, env.Dir(f"#{PCH_FOLDER}"))

    def __call__(self, command: list[str], environment: dict[str, str]) -> int:
        """Run the command of the compile."""
        records_of(self._node).resolver.pch = None
        plain = partial(self._run, command, environment)
        try:
            read = self._read(command)
            found = self._find(read, environment)
            if reason := found.run(read, self._launcher, self._quietly):
                raise _WithoutPchError(reason)
        except OffloadError as error:
            with self._pchs.lock:
                self._pchs.statistics.reasons[str(error)] += 1
            return plain()
        with self._pchs.lock:
            self._pchs.statistics.used += 1
            is_checked = self._check_each and not self._pchs.statistics.used % self._check_each
        records_of(self._node).resolver.pch = found
        return self._checked(plain) if is_checked else 0

    def _read(self, command: list[str]) -> Command:
        """Return the parsed command; raise _WithoutPchError if it is not recognised."""
        if self._is_distributed:
            raise _WithoutPchError("OFFLOAD_DIST is set: other machines compile without")
        source, clang = str(self._node.sources[0].rfile()), self._toolchain.clang
        read = Command.read(command[len(self._launcher) :], len(clang), source)
        is_own = command[: len(self._launcher)] == [*self._launcher]
        if not is_own or read is None or read.program != clang:
            raise _WithoutPchError(_CUSTOM)
        return read

    def _refuses(self, command: Command, variables: Mapping[str, str]) -> str:
        """Return why the flags rule out a PCH; "" if they do not."""
        return reason_of_flags(self._job.kind, general_args(command.args, ()), variables)

    def _key_args(self, args: Iterable[str], variables: Mapping[str, str]) -> tuple[str, ...]:
        """Return the key of a PCH of given headers, from arguments without a source."""
        named = (f"{name}={text}" for name, text in settings.result_variables(variables).items())
        return (*pch.args_without_source(args), self._toolchain.identity, *named)

    def _declared_args(self) -> tuple[str, ...]:
        command = command_of(self._node, records_of(self._node).command)
        return self._key_args(command.args, variables_of(self._node))

    def _find(self, command: Command, variables: Mapping[str, str]) -> pch.UsablePch:
        """Return the PCH for a compile, made if necessary; raise _WithoutPchError."""
        source = command.source
        group, any_flags = self._pchs.groups_of(self._node)
        path = self._recipe(command, variables, (), group.wanted).search_path
        candidate = group.candidate(source, path)
        if candidate is None:
            refused = self._refuses(command, variables)
            raise _WithoutPchError(refused or _why_none(source, any_flags, path))
        recipe = self._recipe(command, variables, candidate.headers, group.wanted)
        with self._pchs.lock:
            self._pchs.used.update(each.file for each in pch.states(recipe))
            making = self._pchs.locks[recipe.file]
        found = pch.find_state(recipe, source)
        if found is None:
            # An existing PCH has already passed this check.
            if refused := self._refuses(command, variables):
                raise _WithoutPchError(refused)
            with making:
                found = self._make(recipe, group, candidate, source)
        if isinstance(found, str):
            raise _WithoutPchError(found or _why_none(source, any_flags, path))
        return found

    def _recipe(
        self, command: Command, variables: Mapping[str, str], headers: Headers, wanted: Wanted
    ) -> PchRecipe:
        own = command.args
        args = general_args(own, ())
        args_of_key = (*self._key_args(own, variables), str(wanted is True))
        text = "\0".join(["\n".join(headers), *args_of_key])
        number = digest_of(text.encode(errors="surrogateescape"))[:16]
        return PchRecipe(
            f"{PCH_FOLDER}/{self._name}.{self._job.kind}.{number}.pch",
            self._job.stage,
            pch.args_without_source(own),
            len(self._toolchain.clang),
            variables,
            self._toolchain.identity,
            cache(lambda: cached_front_end(args, variables)),
            digests=DIGESTS.with_current_listings,
        )

    def _make(
        self, recipe: PchRecipe, group: Group, candidate: Candidate, source: str
    ) -> pch.UsablePch | str:
        """Return the PCH, made if it pays; else why there is none, "" for a source alone."""
        if (found := pch.find_state(recipe, source)) is not None:
            return found
        small = (self._job.kind, candidate.headers)
        if small in self._pchs.small:
            return pch.SMALL
        if recipe.file in self._pchs.failed:
            return _FAILED
        why = records_of(self._node).reason
        is_alone = source not in group.shares(recipe.search_path)
        try:
            pays = group.has_users(candidate.headers, why)
            if not (pays or _is_repeated(recipe, group.wanted, candidate, source)):
                return "" if is_alone else _TOO_FEW
            os.makedirs(PCH_FOLDER, exist_ok=True)
        except OSError as error:
            return str(FileError(PCH_FOLDER, error))
        least = SMALLEST if group.wanted is True else 0  # the user's may be small
        state = pch.states(recipe)[0]
        if pch.make_pch(state, candidate, least=least):
            self._pchs.failed.add(recipe.file)
            return _FAILED
        self._make_room(recipe.file, recipe.search_path)
        found = pch.find_usable(state, source)
        if found == pch.SMALL:
            self._pchs.small.add(small)
        return found

    def _make_room(self, new: str, path: SearchPath) -> None:
        begin = new.rpartition(".pch")[0].rpartition(".")[0]
        with self._pchs.lock:
            used = {*self._pchs.used}
        files = [Path(name) for name in glob.glob(f"{glob.escape(begin)}.*.pch")]
        for file in sorted(files, key=_modified)[: -self._pchs.most_files(self._node, path)]:
            if str(file) not in used:
                for old in (file, *file.parent.glob(f".{glob.escape(file.name)}.*")):
                    old.unlink(missing_ok=True)

    def _checked(self, plain: Callable[[], int]) -> int:
        """Compile again without the PCH, and compare, after the check of the outputs.

        :raises BuildError, CodeObjectError: the outputs differ, or one is no such output.
        """
        output = self._node.get_internal_path()
        check = records_of(self._node).job.check
        check(output)
        accelerated = Path(output).read_bytes()
        if status := plain():
            return status
        records_of(self._node).resolver.pch = None
        check(output)
        if Path(output).read_bytes() == accelerated:
            return 0
        raise SCons.Errors.BuildError(
            node=self._node,
            errstr=f"'{output}': with a precompiled header it has other bytes than without, which "
            "is an error of this tool; unset OFFLOAD_PCH, remove the outputs, and report it",
        )


def _is_repeated(recipe: PchRecipe, wanted: Wanted, candidate: Candidate, source: str) -> bool:
    """Return True if a source is compiled again and again, with headers that take long to read.

    :raises OSError: no mark can be left.
    """
    if wanted is True and bytes_read(candidate.headers, recipe.search_path, ALONE) < ALONE:
        return False
    marks = Marks(recipe, candidate, recipe.digests())
    if marks.are_enough:
        return True
    marks.add(source)
    return False


def _modified(file: Path) -> int:
    found = file_stat(str(file))
    return found.modified if found is not None else 0


def _why_none(source: str, any_flags: Group, path: SearchPath) -> str:
    """Return why a source shares no header with enough others, and how to change that."""
    candidates = path.candidates(source)
    if not candidates.all:
        return (
            f"no leading includes up to '{candidates.stop}': begin the source with "
            "'#include <...>', or with a header that has '#pragma once' or an include guard"
        )
    if source in any_flags.shares(path):
        return f"different flags: fewer than {FEWEST_USERS} compiles have all in common"
    if any_flags.wanted is not True:
        return "different leading includes: begin the source with the headers of OFFLOAD_PCH"
    return f"different leading includes: begin {FEWEST_USERS} sources alike"
