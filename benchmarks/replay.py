"""``python -m benchmarks replay CHECKOUT``: real commits of a project, one after the other.

CHECKOUT is a clone of one of the `projects` with its history, bare or not, or of another one whose
sources and folders are given; nothing is written there. The copies that `project_copy` lists get
the last commits that touch its device code, in order, and are built after each one: files that a
commit leaves alone keep their times. The report has for each commit, and in total, the processor
seconds of all processes beside the compiler's alone, and of the passes (a source for one target, or
for the host):

- how many Ninja runs, since a file in the depfile has another time;
- with ``--tokens``, of how many of these the preprocessed tokens are others;
- how many have other bitcode before optimisation, and how many another result, as SCons has them:
  of devices and of the host.

After each commit, the objects of all copies are compared with those of the compiler alone;
``--clean`` builds these a second time, from nothing. `OFFLOAD_BENCHMARK_PLOT` names the file of a
picture.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.plot import draw, picture
from benchmarks.project_copy import TARGETS, Copy, differences, make_copies
from benchmarks.projects import find_project
from offload_tool.io.file_digests import digest_of

MODES = ("driver", "launch", "cut-off", "cut-off and PCH")
_TOKENS = ("-E", "-P", "-fminimize-whitespace")
_COLUMNS = ("depfile", "tokens", "bitcode", "of host", "images", "of host")


class History:
    """The trees of a project in a clone, which is read by git alone."""

    def __init__(self, clone: Path, options: argparse.Namespace) -> None:
        """`options` replace what is known of the project, by its fields."""
        self._clone = clone
        folders = self._git("ls-tree", "-r", "-d", "-z", "--name-only", "HEAD").decode().split("\0")
        known, self._prefix = find_project({*folders}.__contains__)
        given = {name: getattr(options, name, None) for name in known._fields}
        self.project = known._replace(**{name: value for name, value in given.items() if value})

    def commits(self, count: int) -> list[str]:
        """Return the last commits that touch the device code, and the one before, oldest first."""
        words = ["log", f"-{count}", "--format=%H", "--", f"{self._prefix}{self.project.code}"]
        last = self._git(*words).decode().split()[::-1]
        return [f"{last[0]}^", *last]

    def title(self, commit: str) -> str:
        """Return the begin of a commit's name, and of its message."""
        return self._git("log", "-1", "--format=%h %s", commit).decode().strip()

    def unpack(self, commit: str, folder: Path) -> None:
        """Write the files of a commit."""
        copied = self.project.copied
        archive = self._git("archive", "--format=zip", self._tree(commit), *copied)
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            files.extractall(folder)

    def changes(self, before: str, after: str) -> Iterator[tuple[str, bytes | None]]:
        """Yield the files that differ between two commits, with their new content, if any."""
        words = ["diff", "--no-renames", "--name-status", "-z"]
        fields = self._git(*words, self._tree(before), self._tree(after)).decode().split("\0")
        for status, name in zip(fields[::2], fields[1::2], strict=False):
            if name.startswith(tuple(f"{each}/" for each in self.project.copied)):
                text = self._git("show", f"{self._tree(after)}{name}") if status != "D" else None
                yield name, text

    def _tree(self, commit: str) -> str:
        return f"{commit}:{self._prefix}"

    def _git(self, *words: str) -> bytes:
        command = ["git", "-C", str(self._clone), *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


class _Passes:
    """What the passes of the copies are after a build."""

    def __init__(self, copies: Sequence[Copy], targets: Sequence[str], *, tokens: bool) -> None:
        self._driver = next(copy for copy in copies if copy.mode == "driver")
        self._scons = next(copy for copy in copies if copy.mode == "cut-off")
        self._targets = (*targets, "host")
        self._tokens: dict[tuple[str, str], str] = {}
        self._results: dict[str, str] = {}
        self._with_tokens = tokens

    def count(self) -> Counter[int]:
        """Return the numbers of passes since the last call, by column of the report."""
        counts: Counter[int] = Counter()
        for name in self._driver.rebuilt():
            counts[0] += len(self._targets)
            for target in self._targets if self._with_tokens else ():
                digest = self._driver.pass_digest(name, target, *_TOKENS)
                counts[1] += self._tokens.get((name, target)) != digest
                self._tokens[name, target] = digest
        for each in self._scons.passes():
            is_host = each["target"] == "host"
            digest = digest_of((self._scons.folder / each["output"]).read_bytes())
            counts[2 + is_host] += each["outcome"] == "compiled"
            counts[4 + is_host] += self._results.get(each["output"]) != digest
            self._results[each["output"]] = digest
        return counts


def _row(title: str, counts: Counter[int], figures: Sequence[float], digits: int = 1) -> str:
    cells = "".join(f"{counts[n]:{len(name) + 2}}" for n, name in enumerate(_COLUMNS))
    return f"{title[:50]:50}{cells}{''.join(f'{each:17.{digits}f}' for each in figures)}"


def _replay(folder: Path, history: History, options: argparse.Namespace) -> int:
    file = picture()
    before, *commits = history.commits(options.last)
    history.unpack(before, folder / "first")
    project, targets = history.project, options.targets
    sources = project.sources
    copies = make_copies(folder, folder / "first", project, sources, targets, MODES)
    passes = _Passes(copies, targets, tokens=options.tokens)
    titles = "".join(f"  {name}" for name in _COLUMNS)
    print(f"{'commit':50}{titles}{''.join(f'{mode:>17}' for mode in MODES)}")
    totals, lines = Counter[int](), {mode: [0.0] for mode in MODES}
    faults = 0
    for commit in (before, *commits):
        for name, text in history.changes(before, commit):
            for copy in copies:
                changed = copy.folder / name
                changed.parent.mkdir(parents=True, exist_ok=True)
                changed.unlink(missing_ok=True)
                if text is not None:
                    changed.write_bytes(text)
        seconds = [copy.build().cpu for copy in copies]
        counts = passes.count()
        print(_row(history.title(commit), counts, seconds), flush=True)
        if commit != before:
            totals += counts
            for each, value in zip(lines.values(), seconds, strict=True):
                each.append(each[-1] + value)
        before = commit
        if options.clean:
            seen = copies[0].digests()
            copies[0].clean()
            copies[0].build()
            assert copies[0].digests() == seen, "the compiler alone builds other objects anew"
        for fault in differences(copies):
            print(f"  not the driver's object: {fault}", flush=True)
            faults += 1
    seconds = [each[-1] for each in lines.values()]
    print(_row(f"all {len(commits)} commits", totals, seconds))
    print(_row("beside the driver's", Counter(), [each / seconds[0] for each in seconds], 2))
    print(f"objects unlike the driver's: {faults}")
    if file is not None:
        size = f"{len(sources)} sources x {len(targets)} targets"
        title = f"{len(commits)} commits of {project.name}, {size}"
        draw(file, title, [*range(len(commits) + 1)], lines, "commits")
    return 1 if faults else 0


def main(words: Sequence[str]) -> int:
    """Measure and print; return 1 if an object was not the driver's."""
    parser = argparse.ArgumentParser(prog="benchmarks replay")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--last", type=int, default=25, metavar="N")
    for name in ("sources", "copied", "folders", "defined"):
        parser.add_argument(f"--{name}", nargs="+")
    parser.add_argument("--code", help="the folder whose commits are replayed")
    parser.add_argument("--flags", type=shlex.split, help="in one argument: --flags='-O3 -w'")
    parser.add_argument("--targets", nargs="+", default=TARGETS[:2])
    parser.add_argument("--tokens", action="store_true")
    parser.add_argument("--clean", action="store_true")
    options = parser.parse_args(words)
    history = History(options.checkout.resolve(), options)
    if not all((history.project.sources, history.project.copied, history.project.code)):
        parser.error(
            "not ggml, llama.cpp or composable_kernel: give --sources, --copied and --code"
        )
    os.environ["PYTHONPATH"] = str(Path.cwd())
    # The build files and git run in other folders.
    with tempfile.TemporaryDirectory() as folder:
        return _replay(Path(folder), history, options)
