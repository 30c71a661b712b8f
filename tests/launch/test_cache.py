"""OFFLOAD_LAUNCH_CACHE: a pass that is known is not run, and nothing stale is ever taken."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from offload_tool.launch.result_cache import PassFiles, ResultCache
from offload_tool.manifest.include_search import Lookups
from offload_tool.manifest.race_check import Start
from tests.launch.cached import trial
from tests.launch.cached_named import Named
from tests.launch.compiles import HIP, LAUNCH, TARGETS, make_project, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.llvm
@pytest.mark.parametrize("seed", [3, 11])
def test_random_changes(seed: int, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """After each change the object is that of a clean compile by the driver."""
    compiles, hits = trial(tmp_path, llvm("clang++"), seed, 14)
    assert compiles == 15
    assert hits > 0


def taken(
    folder: Path, clang: str, words: list[str], name: str = "s.o"
) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """Compile; return the targets whose passes were taken from the cache."""
    command = [*LAUNCH, clang, *HIP, *words, "-c", "s.hip", "-o", name]
    done = run(command, folder, {"OFFLOAD_LAUNCH_CACHE": "cache"})
    assert done.returncode == 0, done.stderr
    begin, end = "offload-tool launch: ", ": from the cache"
    lines = [line for line in done.stderr.splitlines() if line.endswith(end)]
    return {line.removeprefix(begin).removesuffix(end) for line in lines}, done


@pytest.mark.llvm
def test_random_changes_of_named_files(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Profiles, bitcode and configuration files are inputs, with and without words for them."""
    compiles, hits = trial(tmp_path, llvm("clang++"), 5, 14, Named)
    assert compiles == 15
    assert hits > 0


@pytest.mark.llvm
def test_target_added(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A target more compiles that target only; one less, or another order, nothing."""
    make_project(tmp_path)
    clang = llvm("clang++")
    assert taken(tmp_path, clang, ["--offload-arch=gfx906"])[0] == set()
    more = ["--offload-arch=gfx906,gfx942"]
    assert taken(tmp_path, clang, more)[0] == {"gfx906", "host"}
    less = ["--offload-arch=gfx942"]
    assert taken(tmp_path, clang, less)[0] == {"gfx942", "host"}


@pytest.mark.llvm
@pytest.mark.parametrize("flag", ["-O1", "-DOTHER=1"])
def test_flag_of_one_target(flag: str, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A flag of one target compiles that target only."""
    make_project(tmp_path)
    clang = llvm("clang++")
    words = ["--offload-arch=gfx906", "--offload-arch=gfx942"]
    taken(tmp_path, clang, words)
    changed = [*words, "-Xarch_gfx942", flag]
    assert taken(tmp_path, clang, changed)[0] == {"gfx906", "host"}


@pytest.mark.llvm
def test_messages_come_again(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """What a pass has said is kept with its result."""
    make_project(tmp_path)
    source = tmp_path / "s.hip"
    source.write_text(f"#warning hear me\n{source.read_text()}")
    first = taken(tmp_path, llvm("clang++"), [*TARGETS])[1].stderr
    hit, second = taken(tmp_path, llvm("clang++"), [*TARGETS])
    assert len(hit) == 3
    said = [line for line in second.stderr.splitlines() if "offload-tool launch: " not in line]
    assert said == [line for line in first.splitlines() if "offload-tool launch: " not in line]
    assert "hear me" in second.stderr


@pytest.mark.llvm
def test_time_is_not_kept(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A source that holds the time of its compile is compiled each time."""
    make_project(tmp_path)
    source = tmp_path / "s.hip"
    source.write_text(f"{source.read_text()}const char *when = __TIME__;\n")
    for _ in range(2):
        assert taken(tmp_path, llvm("clang++"), [*TARGETS])[0] == set()


@pytest.mark.llvm
def test_many_at_once(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Runs at the same time make the same object, and leave nothing half."""
    make_project(tmp_path)

    def one(number: int) -> bytes:
        name = f"{number}.o"
        # One ID for all: the results are the same ones.
        taken(tmp_path, llvm("clang++"), [*TARGETS], name)
        return (tmp_path / name).read_bytes()

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(one, range(6)))) == 1
    assert list((tmp_path / "cache/new").iterdir()) == []


def test_size_is_bounded(tmp_path: Path) -> None:
    """What was not used for longest goes, until the rest is smaller than the limit."""
    cache = ResultCache(str(tmp_path / "cache"), 100_000)
    source = tmp_path / "source"
    source.write_text("text")
    places = []
    for number in range(40):
        files = PassFiles(*(str(tmp_path / f"{number}{end}") for end in (".o", ".d", ".said")))
        for name in files.named().values():
            with open(name, "wb") as file:  # noqa: PTH123
                file.write(bytes(2000) + bytes([number]))
        start = Start.now(str(tmp_path / "now"), [str(source)])
        cache.store(f"{number:032x}", files, [str(source)], Lookups(), start)
        places.append(files)
    cache.shrink()
    found = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert 50_000 < sum(path.stat().st_size for path in found) <= 100_000
    kept = [cache.fetch(f"{number:032x}", files) for number, files in enumerate(places)]
    assert kept == sorted(kept)
    assert any(kept)


@pytest.mark.parametrize("how", ["cut", "flip", "remove"])
@pytest.mark.parametrize("which", ["manifest", "output", "depfile", "said"])
def test_damage(how: str, which: str, tmp_path: Path) -> None:
    """A file that is not what was written is not taken."""
    cache = ResultCache(str(tmp_path / "cache"), 1 << 30)
    files = PassFiles(*(str(tmp_path / name) for name in ("o", "d", "s")))
    source = tmp_path / "source"
    source.write_text("text")
    for name in files.named().values():
        with open(name, "wb") as file:  # noqa: PTH123
            file.write(b"content")
    start = Start.now(str(tmp_path / "now"), [str(source)])
    cache.store("0" * 32, files, [str(source)], Lookups(), start)
    assert cache.fetch("0" * 32, files)
    (path,) = (tmp_path / "cache").rglob(which)
    data = path.read_bytes()
    if how == "remove":
        path.unlink()
    else:
        middle = len(data) // 2
        other = bytes([data[middle] ^ 0x80])
        path.write_bytes(data[:middle] + (other + data[middle + 1 :] if how == "flip" else b""))
    assert not cache.fetch("0" * 32, files)
