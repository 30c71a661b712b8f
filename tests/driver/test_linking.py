"""Links of random projects: what is on the disk is what a state says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.driver.linking import change_links
from tests.driver.projects import project
from tests.driver.running import Bench
from tests.driver.state import State
from tests.driver.surroundings import encoded


@pytest.mark.parametrize("seed", range(12))
def test_links_on_disk(tmp_path: Path, seed: int) -> None:
    """Whatever becomes a link, a copy or a folder, and back: files are as the state says."""
    bench, rng = Bench(tmp_path, Path("/bin/true")), random.Random(seed)
    states = [project(100 + seed)]
    states[0].compiler = "clang"  # a script: there is none to make another one with
    (tmp_path / "one").mkdir()
    bench.write("one", states[0])
    for _ in range(40):
        state = states[-1].copy() if rng.random() < 0.8 else rng.choice(states).copy()
        change_links(rng, state)
        for name in sorted(state.files):
            if state.has_value(name) and rng.random() < 0.1:
                state = state.with_new_value(name, rng.randint(1, 99))
        bench.write("one", state, replace=rng.random() < 0.4)
        assert_as_said(tmp_path / "one", state, bench.compiler)
        states.append(state)


def assert_as_said(here: Path, state: State, compiler: str) -> None:
    """Compare what is there with a state."""
    for name, text in state.all_files(compiler).items():
        assert (here / name).read_bytes() == encoded(name, text), name
        assert not (here / name).is_symlink(), name
    for name, target in state.links.items():
        assert (here / name).is_symlink(), name
        assert (here / name).resolve() == (here / target).resolve(), name
    for name, target in state.hard.items():
        assert (here / name).samefile(here / target), name
    assert bench_names(here) <= state.names(compiler)


def bench_names(here: Path) -> set[str]:
    """Name all files and links in a checkout."""
    found = (path for path in here.rglob("*") if path.is_symlink() or path.is_file())
    return {str(path.relative_to(here)) for path in found}


def test_links_of_all_sorts() -> None:
    """Headers and folders become links, hard links and copies; headers are included under both."""
    said = set()
    for seed in range(60):
        rng, state = random.Random(seed), project(seed)
        for _ in range(12):
            words = change_links(rng, state)
            folder = "folder " if words and words.startswith("the folder") else ""
            said |= {f"{folder}{words.split(' becomes a ')[1].split()[0]}"} if words else set()
    assert said == {"link", "hard", "copy", "folder link", "folder copy"}
