"""What all tests share: LLVM 22's own tools, required in CI and a clear skip elsewhere."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from tests.selection import chosen, without_tests

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

# Under nohup, or in a script's background, every child would ignore one of these signals, and tests
# that send it would wait for ever.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where no bytecode is to be written, each program that tests start would compile the package anew,
# a third of the time of a run of SCons, and each process of pytest all tests: 15 seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

ROOT = Path(__file__).resolve().parent.parent

Tool = Callable[[str], str]
"""Finds a program of LLVM by its plain name, as the fixtures `llvm` and `llvm23` do."""
NvidiaFile = Callable[[str], Path]
"""Finds a program or library of NVIDIA's wheels, as the fixture `nvidia` does."""
Capture = pytest.CaptureFixture[str]
"""What the command line says: the fixtures `capsys` and `capfd`."""

# Reproducible in CI: the same examples in every run, no deadline on a shared machine.
settings.register_profile(
    "full", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("default set", settings.get_profile("full"), max_examples=25)


SLOW_FIRST = (
    "scons/test_rebuild_table.py",
    "driver/",
    "test_examples.py",
    "test_meson.py",
    "toolchains/",
    "scons/",
    "cli/",
)
"""Files are given to workers whole and in this order: a slow one at the end would run alone."""


def _names_tests(config: pytest.Config) -> bool:
    """Return True if the command line names files or tests: all of these run."""
    on_worker: dict[str, bool] = getattr(config, "workerinput", {})
    return on_worker.get("names_tests", config.args_source is pytest.Config.ArgsSource.ARGS)


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer random examples in the default set than in the full one, by names and in CI."""
    is_full = config.option.markexpr == "full" or bool(os.environ.get("CI"))
    is_full = is_full or _names_tests(config)
    settings.load_profile("full" if is_full else "default set")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Say to a process of xdist what only the first one knows."""
    node.workerinput["names_tests"] = _names_tests(node.config)


@pytest.hookimpl(tryfirst=True)  # before pytest's own choice by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is not in the default set, and begin with the slow files."""
    everything = [item.nodeid for item in items]
    default = set(everything)
    if not _names_tests(config):
        default = chosen(everything)
        if os.environ.get("CI") and (gone := without_tests(everything)):
            raise pytest.UsageError(f"tests/selection.py names no test by {', '.join(gone)}")
    for item in items:
        if item.nodeid not in default:
            item.add_marker(pytest.mark.full)
    folder = f"{ROOT / 'tests'}/"

    def rank(item: pytest.Item) -> int:
        path = str(item.path).removeprefix(folder)
        ranks = (at for at, begin in enumerate(SLOW_FIRST) if path.startswith(begin))
        return next(ranks, len(SLOW_FIRST))

    items.sort(key=rank)


def identity(path: Path) -> tuple[int, ...]:
    """Return all of a file's metadata that stays when it is only read."""
    found = path.stat()
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def missing(what: str) -> NoReturn:
    """Fail in CI, where everything is installed; skip with a reason on a user's machine."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is not installed")


def program(name: str) -> str:
    """Return the path of a program of this Python's environment, or on PATH; `missing` if none."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        missing(name)
    return found


def needs_demangler() -> None:
    if shutil.which("llvm-cxxfilt") is None:
        program("c++filt")


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition is true, at the latest after a minute."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def try_tool(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that may fail, with options of `subprocess.run`; return what it prints."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, text=True, errors="replace", check=False, **(streams | options))


def run_tool(*command: str | Path, **options: Any) -> str:
    """Run a program that must succeed; return what it prints."""
    done = try_tool(*command, **options)
    assert done.returncode == 0, f"{shlex.join(map(str, command))}: {done.stderr or done.stdout}"
    return done.stdout


def as_ordinary_user(*command: str) -> list[str]:
    """Return the command that runs another one without root's right to read and write any file."""
    if os.getuid():
        return [*command]
    names = "-dac_override,-dac_read_search"
    return [program("setpriv"), "--bounding-set", names, "--inh-caps", names, *command]


def found_toolchain() -> Toolchain:
    """Return the compiler that builds find on this machine; it must be there in CI."""
    from offload_tool.errors import CompilerError
    from offload_tool.passes.choose_compiler import find_toolchain

    try:
        return find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
        raise


@pytest.fixture(scope="session", autouse=True)
def _first_link(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Link once with the embedded compiler, whose libc++ is built then: no test has to wait for it.

    All tests share its cache, whatever XDG_CACHE_HOME they have.
    """
    from offload_tool.errors import CompilerError
    from offload_tool.passes.choose_compiler import find_toolchain

    try:
        found = find_toolchain()
    except CompilerError:
        return
    if found.is_embedded:
        variables = dict(found.environment)
        os.environ["ZIG_GLOBAL_CACHE_DIR"] = variables["ZIG_GLOBAL_CACHE_DIR"]
        folder = tmp_path_factory.mktemp("first link")
        (folder / "main.cpp").write_text("int main() {}\n")
        run_tool(*found.cxx, "main.cpp", "-o", "main", cwd=folder, env={**os.environ, **variables})


def needs_clang(toolchain: Toolchain, why: str) -> None:
    """Skip the test if the compiler is the embedded one."""
    if toolchain.is_embedded:
        pytest.skip(f"not with the embedded compiler: {why}")


def needs_driver_programs(clang: str) -> None:
    """Skip the test without the programs that the driver of a clang joins images with.

    Debian packages them apart from it.
    """
    folder = Path(shutil.which(clang) or clang).resolve().parent
    for names in (("clang-offload-bundler",), ("llvm-offload-binary", "clang-offload-packager")):
        if not any((folder / name).exists() for name in names):
            missing(f"{names[-1]} of {clang}")


@pytest.fixture(scope="module")
def compiler() -> Toolchain:
    return found_toolchain()


@pytest.fixture(scope="session")
def clang() -> Path:
    """Return the clang of builds, before which a script may stand, with a runtime of OpenMP."""
    from offload_tool.passes.openmp import host_runtime

    found = found_toolchain()
    if found.is_embedded:
        missing("a clang that a script may stand before")
    if host_runtime(found) is None:
        missing("LLVM's offload runtime (liboffload-dev, libomp-dev)")
    return Path(found.clang[0])


@pytest.fixture(scope="session")
def llvm() -> Tool:
    """Return the path of an LLVM 22 tool by its plain name, e.g. ``clang-offload-bundler``.

    OFFLOAD_TEST_LLVM names a folder with tools of another LLVM to be used in their place. Clang's
    driver needs two of them for a bundle; Debian packages them apart from it.
    """

    def find(tool: str) -> str:
        if tool in {"clang", "clang++"}:
            for part in ("clang-offload-bundler", "llvm-offload-binary"):
                find(part)
        if folder := os.environ.get("OFFLOAD_TEST_LLVM"):
            other = shutil.which(f"{folder}/{tool}")
            if other is not None:
                return other
        # The folder first: there, the bundler finds the llvm-objcopy of the same version.
        found = shutil.which(f"/usr/lib/llvm-22/bin/{tool}") or shutil.which(f"{tool}-22")
        if found is None:
            missing(f"LLVM 22's {tool}")
        return found

    return find


@pytest.fixture(scope="session")
def llvm23() -> Tool:
    """Return the path of an LLVM 23 tool: of Debian's package, or in OFFLOAD_TEST_LLVM23.

    Few machines have any of them, and the wheel that CI installs has some, so what is missing
    is skipped; except for those that OFFLOAD_REQUIRE_LLVM23 lists.
    """

    def find(tool: str) -> str:
        for folder in (os.environ.get("OFFLOAD_TEST_LLVM23"), "/usr/lib/llvm-23/bin"):
            if folder and (found := shutil.which(f"{folder}/{tool}")):
                return found
        if tool in os.environ.get("OFFLOAD_REQUIRE_LLVM23", "").split():
            pytest.fail(f"LLVM 23's {tool} is missing, and OFFLOAD_REQUIRE_LLVM23 asks for it")
        pytest.skip(f"LLVM 23's {tool} is not installed")

    return find


@pytest.fixture(scope="session")
def nvidia() -> NvidiaFile:
    """Return a program or library of NVIDIA's wheels: ``fatbinary``, ``libnvfatbin.so.12``.

    They are in the folder ``nvidia`` of an environment's packages, of this one or the one that
    OFFLOAD_TEST_CUDA names; see CONTRIBUTING.md.
    """
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if named := os.environ.get("OFFLOAD_TEST_CUDA"):
        folders.insert(0, named)

    def find(name: str) -> Path:
        for folder in folders:
            for place in ("*/bin", "*/lib"):
                # The newest CUDA first, by which the folders of the wheels are named.
                for found in sorted(Path(folder).glob(f"{place}/{name}"), reverse=True):
                    return found
        missing(f"NVIDIA's {name}")

    return find
