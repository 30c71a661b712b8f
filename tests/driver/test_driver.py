"""Random projects and changes: a fixed set of seeds, and whether the judges see what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.scons.pch import PCH_FOLDER
from tests.driver.changes import Event, History
from tests.driver.projects import project
from tests.driver.running import ROOT, Bench, Run
from tests.driver.state import State
from tests.driver.trial import FailureError, Trial, run_trial

SEEDS = (109, 285, 540, 688, 691)
"""Among their changes, scons and clang are killed, files are saved during a compile, outputs are
damaged, files and folders become links, headers appear, and checkouts take what others have made.
"""
WITH_PCH = (12,)
CHANGES = 6


@pytest.mark.parametrize("seed", SEEDS)
def test_random_project(tmp_path: Path, clang: Path, seed: int) -> None:
    """After each change all is as a clean build makes it, by the least number of compiles."""
    outcome = run_trial(seed, CHANGES, tmp_path / "trial", clang)
    if outcome.failure:
        pytest.fail(
            f"{outcome.story}\n\n{outcome.failure}\n\nOnce more: python -m tests.driver "
            f"--seed {seed} --changes {CHANGES} --shrink",
            pytrace=False,
        )


@pytest.mark.parametrize("seed", WITH_PCH)
def test_random_project_with_precompiled_headers(tmp_path: Path, clang: Path, seed: int) -> None:
    """With precompiled headers, all is as a clean build without makes it, by as many compiles."""
    outcome = run_trial(seed, 4, tmp_path / "trial", clang, pch=True)
    if outcome.failure:
        pytest.fail(f"{outcome.story}\n\n{outcome.failure}", pytrace=False)
    assert list((tmp_path / "trial/one" / PCH_FOLDER).glob("*.pch"))


def test_seeds_cover_what_there_is() -> None:
    """The fixed seeds are of each kind, layout, decider and compiler, with all else and without."""
    states = [project(seed) for seed in SEEDS]
    assert {state.kind for state in states} == {"hip", "rdc", "openmp", "cuda"}
    for name in ("caches", "launcher", "old"):
        assert {getattr(state, name) for state in states} == {True, False}
    assert {"clang", "clang++", "1"} <= {state.compiler for state in states}
    assert len({state.layout for state in states}) == 4
    assert len({state.decider for state in states}) == 4
    made = [target.split("/")[-1] for state in states for target, _ in state.generated]
    texts = "".join(text for state in states for text in state.files.values())
    assert any(f'#include "{name}"' in texts for name in made)
    assert any(name.startswith("flags") for state in states for name in state.files)
    assert any("given.co" in call for state in states for call in state.calls)


# What follows shows that the judges can fail: a tool that is faultless is made to look wrong.

SMALL = State(
    "hip", "plain", "content", False, ["gfx906"], ["k0"], ["env.OffloadBundle(SOURCES[0])"]
)
SMALL.path = ["inc"]
SMALL.flags = {"OFFLOAD_FLAGS": ["-nogpuinc", "-nogpulib"]}
SMALL.files = {
    "k0.hip": "#include <h0.h>\n__attribute__((global)) void kernel(int* p) { *p = F0; }\n",
    "inc/h0.h": "#define F0 1\n",
}


class _Tampered(Bench):
    """A bench on which something else happens after each run of scons that compiles."""

    after: Callable[[_Tampered, str, Run], None]

    def scons(self, checkout: str, *arguments: str) -> Run:
        run = super().scons(checkout, *arguments)
        if "--cache-disable" not in arguments:
            self.after(checkout, run)
        return run


@pytest.fixture
def small(tmp_path: Path, clang: Path) -> Trial:
    """Return a trial of one source, which has been built."""
    (tmp_path / "one").mkdir()
    trial = Trial(0, tmp_path, clang)
    trial.bench = _Tampered(tmp_path, clang)
    trial.bench.after = lambda *_: None
    trial.history = History({"one": [SMALL]}, {"one": {}}, {"one": []})
    trial.step(Event(["the first build"], "one", SMALL.copy()))
    return trial


def _event(what: str) -> Event:
    state = SMALL.copy()
    if what == "edit":
        state = state.with_new_value("inc/h0.h", 2)
    elif what == "comment":
        state.files["k0.hip"] += "// a comment\n"
    return Event([what], "one", state, mode="clean" if what == "clean" else "build")


def test_project_that_does_not_build_is_seen(tmp_path: Path, clang: Path) -> None:
    """A project fails that does not build, clean or not: none is broken from the beginning."""
    package = tmp_path / "package"
    shutil.copytree(ROOT / "offload_tool", package / "offload_tool")
    broken = package / "offload_tool/scons/state/scanner.py"
    text = broken.read_text()
    assert "    if generated:\n" in text
    broken.write_text(text.replace("    if generated:\n", "    if not generated:\n"))
    outcome = run_trial(34, 0, tmp_path / "trial", clang, package=package)
    assert "nothing has broken it" in outcome.failure


def _keep_old(bench: Bench, run: Run) -> None:
    shutil.copy(bench.folder / "old", bench.folder / "one/k0.gfx906.co")


def _write_more(bench: Bench, run: Run) -> None:
    run.text += "BUNDLE k0.hipfb\n"


WRONG: dict[str, tuple[str, Callable[[Bench, Run], None], str]] = {
    "a stale output": (
        *("edit", _keep_old),
        r"(?s)not as a clean build.*k0\.gfx906\.co.*inc/h0\.h",
    ),
    "a needless compile": (
        *("nothing", lambda _, run: run.compiles.append({"output": "k0.gfx906.co"})),
        "compiled without need",
    ),
    "a second compile": (
        *("edit", lambda _, run: run.compiles.extend([*run.compiles])),
        "more than once",
    ),
    "a restless build": ("edit", _write_more, "second run does something"),
    "a needless bundle": (
        *("comment", lambda bench, run: _write_more(bench, run) if run.compiles else None),
        r"the same bytes, and yet.*BUNDLE",
    ),
    "a leftover": (
        *("clean", lambda bench, _: (bench.folder / "one/k0.hipfb").touch()),
        r"leaves k0\.hipfb",
    ),
}


@pytest.mark.parametrize(("what", "after", "match"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_seen(
    small: Trial, what: str, after: Callable[[Bench, Run], None], match: str
) -> None:
    """A build that does what it must not is a failure, by names."""
    shutil.copy(small.folder / "one/k0.gfx906.co", small.folder / "old")
    small.bench.after = lambda _, run: after(small.bench, run)
    with pytest.raises(FailureError, match=match):
        small.step(_event(what))


def test_clean_build_leaves_no_trace(small: Trial, tmp_path: Path) -> None:
    """After a clean build in the same place, all files are as before, with their times."""
    here = tmp_path / "one"

    def seen() -> dict[str, tuple[int, int]]:
        files = [file for file in here.rglob("*") if file.is_file()]
        return {str(f): (f.stat().st_mtime_ns, f.stat().st_ino) for f in files}

    before = seen()
    clean = small.bench.clean_build("one", SMALL)
    assert seen() == before
    assert sorted(clean.outputs) == ["k0.gfx906.co", "k0.hipfb"]
    assert sorted(clean.passes["k0.gfx906.co"]["files"]) == ["inc/h0.h", "k0.hip"]
