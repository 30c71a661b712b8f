"""Answers that are kept on disk: when they are believed, those of compilers, too."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from offload_tool.clang import driver
from offload_tool.toolchain.disk_cache import cache_folder, cached_result, package_state
from offload_tool.toolchain.driver_cache import device_libraries
from offload_tool.toolchain.probe import Toolchain, version_of
from tests.conftest import Tool, run_tool
from tests.toolchain.installed import write_device_libraries

_STEPS = 0.05
"""Seconds: the kernel's clock for files has steps."""


class _Oracle:
    """Has another answer each time, which depends on a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.asked = 0
        self.changes_meanwhile = False

    def find(self) -> int:
        self.asked += 1
        if self.changes_meanwhile:
            time.sleep(_STEPS)
            self.file.write_text("new")
        return self.asked

    def answer(self) -> object:
        time.sleep(_STEPS)  # what has just changed may change again, unseen
        return cached_result(["what?"], self.find, lambda _: [str(self.file)])


@pytest.fixture
def oracle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Oracle:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    (tmp_path / "witness").write_text("old")
    return _Oracle(tmp_path / "witness")


def test_kept_until_a_witness_changes(oracle: _Oracle) -> None:
    """Writing to it is seen, also where its size is the same and its time is put back."""
    assert [oracle.answer(), oracle.answer()] == [1, 1]
    before = oracle.file.stat()
    oracle.file.write_text("new")
    os.utime(oracle.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [oracle.answer(), oracle.answer()] == [2, 2]
    oracle.file.unlink()
    assert [oracle.answer(), oracle.answer()] == [3, 3]


def test_not_kept_when_found_while_a_witness_changed(oracle: _Oracle) -> None:
    """Whether it is about the old file or the new one, nobody knows."""
    oracle.changes_meanwhile = True
    assert oracle.answer() == 1
    oracle.changes_meanwhile = False
    assert [oracle.answer(), oracle.answer()] == [2, 2]


_LENGTHS = """
import sys
from offload_tool.toolchain.disk_cache import kept_by_stat

@kept_by_stat
def length(path, factor):
    print(path.rpartition("/")[2])
    return len(open(path).read()) * factor

print(*[length(name, 2) for name in sys.argv[1:]])
"""


def lengths(*names: str | Path) -> str:
    """Return which files a new process reads for a kept result, and the results."""
    time.sleep(_STEPS)
    return run_tool(sys.executable, "-c", _LENGTHS, *names).replace("\n", " ").strip()


def test_results_of_headers(oracle: _Oracle, tmp_path: Path) -> None:
    """A later process reads a file only if it has changed, or has no absolute name."""
    here = os.path.relpath(oracle.file)
    other = tmp_path / "other"
    other.write_text("four")
    assert lengths(oracle.file, oracle.file) == "witness 6 6"
    assert lengths(oracle.file, other, here) == "other witness 6 8 6"
    before = oracle.file.stat()
    oracle.file.write_text("new")
    os.utime(oracle.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert lengths(oracle.file, other) == "witness 6 8"
    (stored,) = Path(cache_folder(), "answers").rglob("*.json")
    stored.write_text(stored.read_text().replace('": 6}', '": 7}'))
    assert lengths(oracle.file) == "witness 6"
    stored.chmod(0o666)  # somebody else may have written it
    assert lengths(oracle.file) == "witness 6"


def test_every_module_counts(tmp_path: Path) -> None:
    """A module that is changed, renamed or added is another state; bytecode is not."""
    (tmp_path / "part").mkdir()
    module = tmp_path / "part/asking.py"
    module.write_text("a = 1")
    states = [package_state(str(tmp_path))]

    def state() -> str:
        package_state.cache_clear()
        states.append(package_state(str(tmp_path)))
        return states[-1]

    (tmp_path / "part/__pycache__").mkdir()
    (tmp_path / "part/__pycache__/asking.py").write_text("")
    assert state() == states[0]
    module.write_text("a = 23")
    state()
    module.rename(tmp_path / "part/querying.py")
    state()
    (tmp_path / "part/more.py").write_text("")
    state()
    assert len(set(states)) == len(states) - 1
    package_state.cache_clear()


def test_package_in_a_zip_file(tmp_path: Path) -> None:
    """Of a package that Python imports from an archive, the archive counts."""
    archive = tmp_path / "tool.pyz"
    states = set()
    for content in (b"PK", b"PK, longer"):
        archive.write_bytes(content)
        package_state.cache_clear()
        states.add(package_state(str(archive / "offload_tool")))
    package_state.cache_clear()
    assert len(states) == 2


def test_bounded(oracle: _Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many results, those used longest ago go; what is used again stays."""
    monkeypatch.setattr("offload_tool.toolchain.disk_cache._MOST_RESULTS", 4)
    folder = Path(cache_folder(), "answers")

    def store(number: int) -> int:
        key = [f"number {number}"]
        found = cached_result(key, lambda: oracle.asked, lambda _: [])
        assert isinstance(found, int)
        return found

    store(0)
    (first,) = folder.rglob("*.json")
    for number in range(1, 1000):
        store(number)
        counts = [len([*each.iterdir()]) for each in folder.iterdir()]
        if first.exists():
            os.utime(first, (1, 1))  # long ago
            oracle.asked = number
            assert store(0) == 0
    assert max(counts) <= 4
    assert sum(counts) > 500
    assert first.exists()
    assert first.stat().st_mtime > 1


def test_not_kept_for_another_package(oracle: _Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that another state of the package wrote is found again."""
    assert [oracle.answer(), oracle.answer()] == [1, 1]
    monkeypatch.setattr("offload_tool.toolchain.disk_cache.package_state", lambda: "another")
    assert [oracle.answer(), oracle.answer()] == [2, 2]


@pytest.mark.llvm
def test_version_that_somebody_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm: Tool
) -> None:
    """An answer that was changed by hand is none: the compiler is not passed over for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder.cache_clear()
    command = (llvm("clang"),)
    expected = version_of(command)["line"]
    answers = Path(cache_folder(), "answers").rglob("*.json")
    (kept,) = (file for file in answers if '["version"' in file.read_text())
    kept.write_text(kept.read_text().replace("clang version", "gcc version"))
    driver.output_of.cache_clear()
    assert version_of(command)["line"] == expected
    cache_folder.cache_clear()


DEVICE = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-c"]


@pytest.fixture
def clang(compiler: Toolchain) -> list[str]:
    return [*compiler.clang, *compiler.local_flags, *DEVICE]


def test_libraries_of_a_processor(tmp_path: Path, compiler: Toolchain, clang: list[str]) -> None:
    """The answer holds the processor's own library, found by a flag or by a variable."""
    folder = write_device_libraries(tmp_path / "rocm device libraries", compiler.clang)
    command = [*clang, "--offload-arch=gfx90a:xnack+"]
    found = device_libraries([*command, f"--rocm-device-lib-path={folder}"], os.environ)
    assert str(folder / "ocml.bc") in found
    assert str(folder / "oclc_isa_version_90a.bc") in found
    assert str(folder / "oclc_isa_version_906.bc") not in found
    variables = {**os.environ, "HIP_DEVICE_LIB_PATH": str(folder)}
    assert device_libraries(command, variables) == found


def test_no_libraries(tmp_path: Path, compiler: Toolchain, clang: list[str]) -> None:
    """There are none where a flag leaves them out, where none are found, or without a compiler."""
    folder = write_device_libraries(tmp_path / "libraries", compiler.clang)
    command = [*clang, "--offload-arch=gfx906"]
    given = [*command, f"--rocm-device-lib-path={folder}", "-nogpulib"]
    assert device_libraries(given, os.environ) == ()
    assert device_libraries([*command, f"--rocm-path={tmp_path / 'none'}"], os.environ) == ()
    assert device_libraries([str(tmp_path / "no-clang"), *DEVICE], os.environ) == ()


def test_variables_of_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Toolchain, clang: list[str]
) -> None:
    """Another login queries nothing again; any unknown variable, or one that clang reads, does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    folder = write_device_libraries(tmp_path / "libraries", compiler.clang)
    time.sleep(_STEPS)
    asked: list[object] = []
    query = driver.query
    monkeypatch.setattr(driver, "query", lambda *args: asked.append(args) or query(*args))
    command = [*clang, "--offload-arch=gfx906", f"--rocm-device-lib-path={folder}"]
    queries = []
    for name in ("SSH_CONNECTION", "SSH_CONNECTION", "TMUX_PANE", "CPATH", "UNKNOWN"):
        asked.clear()
        driver.query_front_end.cache_clear()
        device_libraries(command, {**os.environ, name: "x"})
        queries.append(len(asked))
    cache_folder.cache_clear()
    assert [bool(each) for each in queries] == [True, False, False, True, True]
