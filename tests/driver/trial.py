"""One trial: a random project, random changes, and what must hold after each of them."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.driver.changes import Event, History, choose, is_source
from tests.driver.oracle import BY_TIME, Oracle, difference, inputs_of
from tests.driver.projects import project, with_shared_beginning
from tests.driver.running import ROOT, Bench, CleanBuild, Run
from tests.driver.state import State

_FOLLOWS = re.compile(
    r"(ARCHIVE|BUNDLE|EMBED|EXTRACT|FATBIN|LINK|MERGE|PACKAGE|UNBUNDLE|WRAP) |\S+ --driver-mode="
)


class FailureError(Exception):
    """What a build did is not what it had to do."""


@dataclass
class Trial:
    """Runs one seed; what happened is told in `story`."""

    seed: int
    folder: Path
    clang: Path
    package: Path = ROOT
    only: frozenset[int] | None = None
    """The numbers of the changes that are made; None: all."""
    without: frozenset[str] = frozenset()
    """Kinds of change that are left out."""
    pch: bool = False
    """Builds have precompiled headers."""
    story: list[str] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.bench = Bench(self.folder, self.clang, self.package)
        self.oracle = Oracle(self.folder)
        state = with_shared_beginning(project(self.seed)) if self.pch else project(self.seed)
        names = ["one"]
        if state.caches and state.layout != "repository":
            names.append("two")
        self.history = History({name: [state] for name in names}, {}, {})
        self.history.passes = {name: {} for name in names}
        self.history.outputs = {name: [] for name in names}
        self._clean: dict[tuple[str, str], CleanBuild] = {}
        self._settled: dict[str, tuple[str, dict[str, str]]] = {}

    def run(self, changes: int) -> None:
        """Build, then change and build that many times.

        :raises FailureError: something was stale, or compiled without need.
        """
        self.step(Event(["the first build"], "one", self.history.states["one"][0]))
        if self.history.states["one"][-1].broken:
            raise FailureError("the project does not build")
        rng = random.Random(f"checkouts {self.seed}")
        began = {"one"}
        for number in range(changes):
            others = [name for name in self.history.states if name != "one"]
            checkout = rng.choice(others) if others and rng.random() < 0.35 else "one"
            if self.only is not None and number not in self.only:
                continue
            if checkout not in began:
                began.add(checkout)
                first = self.history.states["one"][-1]
                if first.broken:
                    began.discard(checkout)
                    continue
                self.history.states[checkout] = [first.copy()]
                event = Event(["another checkout of the same"], checkout, first.copy())
            else:
                event = choose(f"{self.seed} {number}", checkout, self.history, self.without)
            event.words.insert(0, f"change {number}:")
            self.step(event)

    def step(self, event: Event) -> None:
        """Let a change happen, build, and judge.

        :raises FailureError: something was stale, or compiled without need.
        """
        self.steps += 1
        checkout = event.checkout
        self._say(f"\n# {' '.join(event.words)}")
        self.bench.write(checkout, event.state, replace=event.replace)
        self._harm(event)
        if event.mode == "clean":
            self._clean_up(event)
        state, uncertain = event.state, set[str]()
        if event.mode in ("kill", "die", "save"):
            uncertain = self._interrupted(event)
            state = event.then or event.state
            self.bench.write(checkout, state, replace=event.replace)
        damaged = self.oracle.damaged(checkout)
        self.oracle.forget(checkout, uncertain)
        wanted = [event.target] if event.mode == "subset" else []
        keep = ["-k"] if state.broken else []
        run = self._scons(checkout, f"-j{event.jobs}", *keep, *wanted)
        clean = self._clean_build(checkout, state)
        state.broken = clean.status != 0
        if state.broken and not event.may_break:
            raise FailureError(f"the build fails, and nothing has broken it:\n{clean.text}")
        if clean.status and not keep and not run.status:
            raise FailureError(f"the build succeeds, and a clean one does not:\n{clean.text}")
        if clean.status and not keep:  # it stopped at the first error
            run2 = self._scons(checkout, "-k", *wanted)
            run = Run(run2.status, run.text + run2.text, run.compiles + run2.compiles)
        self.history.states[checkout].append(state)
        self.history.passes[checkout] = clean.passes
        self.history.outputs[checkout] = sorted(clean.outputs)
        self._judge(event, state, run, clean, damaged)
        self._again(checkout, state, clean, wanted)

    def _clean_up(self, event: Event) -> None:
        """Let ``scons -c`` remove what was made, and look whether it is gone."""
        checkout = event.checkout
        self._scons(checkout, "-c")
        here = self.folder / checkout
        made = [name for name in self.history.outputs[checkout] if not is_source(name)]
        made += [str(Path(name).with_name(f".{Path(name).name}.manifest")) for name in made]
        left = [name for name in made if (here / name).exists()]
        if left:
            raise FailureError(f"scons -c leaves {', '.join(left)}")

    def _judge(
        self, event: Event, state: State, run: Run, clean: CleanBuild, damaged: set[str]
    ) -> None:
        checkout = event.checkout
        if bool(run.status) != bool(clean.status):
            raise FailureError(
                f"status {run.status}, of a clean build {clean.status}:\n{run.text}\n"
                f"--- the clean build:\n{clean.text if clean.status else ''}"
            )
        made = self.bench.outputs(checkout, state)
        partly = event.mode == "subset"
        expected = {name: value for name, value in clean.outputs.items() if not partly}
        compiled = set(run.compiled)
        if partly:
            asked = {
                n for n in clean.passes if n == event.target or f".{_file(event.target)}." in n
            }
            expected = {n: clean.outputs[n] for n in (asked | compiled) & set(clean.outputs)}
        wrong = sorted(name for name in expected if made.get(name) != expected[name])
        allowed = self.oracle.judge(checkout, state, clean.passes, damaged)
        failing = set(clean.passes) - set(clean.outputs) if clean.status else set()
        if wrong:
            raise FailureError(
                "not as a clean build makes it: " + self._why(checkout, wrong, clean)
            )
        unneeded = sorted(compiled - allowed - failing)
        if unneeded:
            raise FailureError("compiled without need: " + self._why(checkout, unneeded, clean))
        twice = sorted(name for name in compiled - failing if run.compiled.count(name) > 1)
        # With a precompiled header, what warns is compiled again; behind a launcher, what it told.
        if twice and not state.pch and not state.launcher:
            raise FailureError(f"compiled more than once: {', '.join(twice)}")
        self._judge_what_follows(event, state, run, clean)
        current = compiled - failing if partly else set(clean.passes) - failing
        self.oracle.remember(checkout, state, clean.passes, current)
        self.oracle.forget(checkout, failing)

    def _judge_what_follows(self, event: Event, state: State, run: Run, clean: CleanBuild) -> None:
        """Judge whether anything ran after compiles that all gave the same bytes as before."""
        before = self._settled.pop(event.checkout, None)
        if event.mode == "build" and not clean.status and state.decider not in BY_TIME:
            settings = state.copy()
            settings.files = {}
            now = (repr(settings), clean.outputs)
            ran = [line for line in run.text.splitlines() if _FOLLOWS.match(line)]
            if ran and before == now and not event.disk:
                raise FailureError(f"all compiles gave the same bytes, and yet: {ran}")
            self._settled[event.checkout] = now

    def _why(self, checkout: str, names: list[str], clean: CleanBuild) -> str:
        """Name outputs with what has changed since they were made, for people."""
        known, lines = self.oracle.made(checkout), [""]
        for name in names:
            made = known.get(name)
            what = "cut short before" if name in known else "not compiled before"
            if made and name in clean.passes:
                changed = difference(made.inputs, inputs_of(clean.passes[name]))
                what = f"of its inputs, these have changed: {changed}"
            lines.append(f"{name} ({what})" if name in clean.passes else name)
        return "\n  ".join(lines)

    def _again(self, checkout: str, state: State, clean: CleanBuild, wanted: list[str]) -> None:
        again = self._scons(checkout, *(["-k"] if clean.status else []), *wanted)
        if not clean.status and not again.did_nothing:
            explained = self.bench.scons(checkout, "--debug=explain", *wanted)
            raise FailureError(
                f"a second run does something:\n{again.text}\nand again:\n{explained.text}"
            )
        more = set(again.compiled) & set(clean.outputs)
        if more:
            raise FailureError(
                f"a second run compiles again: {', '.join(sorted(more))}\n{again.text}"
            )

    def _interrupted(self, event: Event) -> set[str]:
        """Let happen in mid-build what the event says; name the compiles that had begun."""
        act = {"kill": "wait", "die": "die", "save": "save"}[event.mode]
        extra: dict[str, str] = {}
        then = event.then or event.state
        if event.mode == "save":
            names = [n for n in then.files if then.files[n] != event.state.files.get(n)]
            if not names:
                return set()
            extra = {"file": names[0], "text": then.files[names[0]]}
        self.bench.control(match=event.target, act=act, **extra)
        try:
            if event.mode == "kill":
                run = self.bench.killed(event.checkout, f"-j{event.jobs}")
            else:
                run = self.bench.scons(event.checkout, f"-j{event.jobs}")
        finally:
            self.bench.control()
        self._say(f"  scons -j{event.jobs}   # {event.mode} at {event.target}; {run.compiled}")
        return set(run.compiled)

    def _scons(self, checkout: str, *arguments: str) -> Run:
        run = self.bench.scons(checkout, *arguments)
        done = f"status {run.status}; compiled: {' '.join(run.compiled) or 'nothing'}"
        self._say(f"  (cd {checkout}; scons {' '.join(arguments)})   # {done}")
        return run

    def _clean_build(self, checkout: str, state: State) -> CleanBuild:
        key = (checkout, self._key(checkout, state))
        if key not in self._clean:
            self._clean[key] = self.bench.clean_build(checkout, state)
        return self._clean[key]

    def _key(self, checkout: str, state: State) -> str:
        here = self.folder / checkout
        named = {**state.all_files(self.bench.compiler), **state.links, **state.hard}
        files = sorted(named.items())
        inodes = [(here / name).samefile(here / target) for name, target in state.hard.items()]
        if state.kind == "openmp":
            inodes = [(here / n).stat().st_ino for n, _ in files if (here / n).exists()]
        return repr((files, inodes, state.compiler))

    def _harm(self, event: Event) -> None:
        for how, name in event.disk:
            self._say(f"  # {how} {event.checkout}/{name}")
            file = self.folder / event.checkout / name
            if file.exists():  # another change of the same step may have removed it
                _HARM[how](file)

    def _say(self, text: str) -> None:
        self.story.append(text)


def _file(name: str) -> str:
    return name.replace(":", "_")


def _foreign(file: Path) -> None:
    file.chmod(0o644)
    file.write_bytes(b"\x7fELF" + b"\0" * (file.stat().st_size - 4))


def _extend(file: Path) -> None:
    file.chmod(0o644)
    with file.open("ab") as end:
        end.write(b"more")


def _rewrite(file: Path) -> None:
    other = file.with_name(f"{file.name}~")
    shutil.copyfile(file, other)
    other.replace(file)


_HARM = {
    "touch": os.utime,
    "rewrite": _rewrite,
    "delete": Path.unlink,
    "truncate": lambda file: os.truncate(file, file.stat().st_size // 2),
    "replace": _foreign,
    "extend": _extend,
    "protect": lambda file: file.chmod(0o444),
}


@dataclass
class Outcome:
    """What became of a seed."""

    seed: int
    steps: int
    scons_runs: int
    seconds: float
    failure: str
    """Empty where all held."""
    story: str


def run_trial(
    seed: int,
    changes: int,
    folder: Path,
    clang: Path,
    *,
    package: Path = ROOT,
    only: frozenset[int] | None = None,
    without: frozenset[str] = frozenset(),
    pch: bool = False,
) -> Outcome:
    """Run a seed in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    start = time.monotonic()
    trial = Trial(seed, folder, clang, package, only, without, pch)
    failure = ""
    try:
        trial.run(changes)
    except FailureError as error:
        failure = str(error)
    seconds = time.monotonic() - start
    story = "\n".join(trial.story)
    return Outcome(seed, trial.steps, trial.bench.scons_runs, seconds, failure, story)
