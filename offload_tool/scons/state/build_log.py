"""What a build prints about itself: texts once, its progress, and the summary of its passes."""

from __future__ import annotations

import atexit
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import SCons.Node
import SCons.Script
import SCons.Util

from offload_tool.errors import OffloadError
from offload_tool.io import replace_file
from offload_tool.scons import compat
from offload_tool.scons.state.node_info import info_of, records_of
from offload_tool.scons.types import Environment, Node

_STATES = {
    SCons.Node.up_to_date: "up to date",
    SCons.Node.executed: "compiled",
    SCons.Node.failed: "failed",
}
_COLUMNS = ("compiled", "front end only", "from cache", "up to date", "failed")
_SLOWEST = 10
_VERSION = 1


def announce(env: Environment, text: str, show: Callable[[str], None] = SCons.Util.display) -> None:
    """Show a text once in a build."""
    printed = compat.of_build(env, set[str])
    if text not in printed and compat.is_build():
        show(text)
    printed.add(text)


def warn(env: Environment, text: str) -> None:
    """Print a warning to standard error, once in a build."""
    announce(env, f"offload: warning: {text}", partial(print, file=sys.stderr))


@dataclass(slots=True)
class DeclaredPass:
    """The node of one compiler pass."""

    node: Node
    source: Any
    command: str
    """The variable with its command line, such as ``$OFFLOADDEVICECOM``."""
    target: str
    """The target ID, or ``host``."""
    number: int
    seconds: float | None = None
    """The time of its command; None if not measured."""


class DeclaredPasses(dict[Any, DeclaredPass]):
    """The passes of a build by node, in the order in which SConscripts declared them."""

    def __init__(self) -> None:
        super().__init__()
        self._folders: defaultdict[Any, set[Any]] = defaultdict(set)
        """The folders of the outputs of a source."""
        self._keeps_commands = False
        self.are_summed_up = False
        self.summary_file = ""
        self.pch_statistics: Any = None

    def add(self, node: Node, source: Any, command: str, target: str) -> DeclaredPass | None:
        """Add a node; return None if it was declared before."""
        if node in self:
            return None
        made = self[node] = DeclaredPass(node, source, command, target, len(self) + 1)
        self._folders[source.srcnode()].add(node.dir)
        if self._keeps_commands:
            compat.keep_command(node)
        return made

    def is_ambiguous(self, made: DeclaredPass) -> bool:
        """Return True if the source is compiled in several folders, such as those of variants."""
        return len(self._folders[made.source.srcnode()]) > 1

    def keep_commands(self) -> None:
        """Make SCons keep the command of each pass, which it drops when a node is done."""
        self._keeps_commands = True
        for node in self:
            compat.keep_command(node)


def declared_passes(env: Environment) -> DeclaredPasses:
    """Return the passes of an environment's build."""
    return compat.of_build(env, DeclaredPasses)


@dataclass(frozen=True)
class _Outcome:
    output: str
    source: str
    target: str
    outcome: str
    """One of `_COLUMNS`."""
    seconds: float
    front_end_seconds: float
    """0 if the front end and the backend were one job."""
    why: str


def request_summary(env: Environment) -> None:
    """Print the summary when SCons ends; write it to the file of ``OFFLOAD_SUMMARY``, if any."""
    passes = declared_passes(env)
    if env["OFFLOAD_SUMMARY"] is not True:
        passes.summary_file = env.File(env["OFFLOAD_SUMMARY"]).get_abspath()
    if not passes.are_summed_up:
        passes.are_summed_up = True
        atexit.register(_print, passes)


def _print(passes: DeclaredPasses) -> None:
    if SCons.Script.GetOption("clean") or SCons.Script.GetOption("silent"):
        return
    done = _passes_done(passes)
    lines = [*_rows(done), *_always_run(passes)] if done else []
    pchs = passes.pch_statistics
    if pchs is not None and (done or pchs):
        lines.append(f"precompiled headers: {pchs}")
    sys.stdout.writelines(f"offload: {line}\n" for line in lines)
    if passes.summary_file and not SCons.Script.GetOption("no_exec"):
        _write(passes.summary_file, done, _critical_path(passes))


def _rows(done: list[_Outcome]) -> Iterator[str]:
    targets = sorted({found.target for found in done}, key=lambda name: (name != "host", name))
    width = max(len("target ID"), *map(len, targets))
    yield f"{'target ID':{width}}  {'  '.join(_COLUMNS)}  seconds"
    for name in targets:
        mine = [found for found in done if found.target == name]
        counts = Counter(found.outcome for found in mine)
        cells = "  ".join(f"{counts[column]:{len(column)}}" for column in _COLUMNS)
        seconds = sum(found.seconds for found in mine)
        yield f"{name:{width}}  {cells}  {seconds:7.1f}"


def _write(path: str, done: list[_Outcome], critical: list[DeclaredPass]) -> None:
    targets: dict[str, Counter[str]] = defaultdict(Counter)
    for found in done:
        targets[found.target][found.outcome] += 1
    slowest = sorted(done, key=lambda found: -found.seconds)[:_SLOWEST]
    value = {
        "version": _VERSION,
        "targets": {
            name: {column.replace(" ", "_"): counts[column] for column in _COLUMNS}
            for name, counts in sorted(targets.items())
        },
        "seconds": sum(found.seconds for found in done),
        "slowest": [found.output for found in slowest if found.seconds],
        "critical_path": {
            "seconds": sum(declared.seconds or 0.0 for declared in critical),
            "outputs": [str(declared.node) for declared in critical],
        },
        "passes": [asdict(found) for found in done],
    }
    try:
        with replace_file(path) as out:
            out.write(f"{json.dumps(value, indent=1)}\n".encode())
    except OffloadError as error:
        sys.stderr.write(f"offload: warning: OFFLOAD_SUMMARY: {error}\n")


def _critical_path(passes: DeclaredPasses) -> list[DeclaredPass]:
    def chain(declared: DeclaredPass) -> list[DeclaredPass]:
        before = filter(None, map(passes.get, declared.node.sources))
        return [*longest(map(chain, before)), declared]

    def longest(chains: Iterable[list[DeclaredPass]]) -> list[DeclaredPass]:
        return max(chains, key=lambda found: sum(d.seconds or 0.0 for d in found), default=[])

    return longest(chain(declared) for declared in passes.values() if declared.seconds)


def _always_run(passes: DeclaredPasses) -> Iterator[str]:
    counts: dict[str, int] = defaultdict(int)
    for declared in passes.values():
        records = info_of(declared.node).records
        if declared.seconds is not None and records is not None:
            counts[records.unknown_input] += 1
    for name in sorted(filter(None, counts)):
        yield (
            f"passes that run in each build: {counts[name]}, for '{name}' has inline "
            "assembly that may read a file (.incbin, .include); embed the file with #embed, or "
            "move the assembly into a source of its own"
        )


def _passes_done(passes: DeclaredPasses) -> list[_Outcome]:
    found = []
    for declared in passes.values():
        outcome = _STATES.get(declared.node.get_state())
        if declared.seconds is None or outcome is None:
            continue
        records = records_of(declared.node)
        stages = records.stages
        if outcome == "compiled" and records.is_fetched:
            outcome = "from cache"
        elif outcome == "compiled" and stages is not None and stages.is_cut_off:
            outcome = "front end only"
        found.append(
            _Outcome(
                str(declared.node),
                str(declared.source),
                declared.target,
                outcome,
                declared.seconds,
                stages.front_end_seconds if stages is not None else 0.0,
                "" if outcome == "up to date" else str(records.reason or ""),
            )
        )
    return found


def offload_progress(env: Environment, node: Node) -> None:
    """Show on a terminal which pass SCons is at: ``Progress(env.OffloadProgress)``."""
    passes = declared_passes(env)
    declared = passes.get(node)
    if declared is None or not sys.stdout.isatty():
        return
    text = f"[{declared.number}/{len(passes)}] [{declared.target}] {node}"
    sys.stdout.write(f"{text[:79]:79}\r")
    sys.stdout.flush()
