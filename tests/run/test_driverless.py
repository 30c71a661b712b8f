"""Device passes without the driver: the judge is the driver, for what is written and said."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offload_tool.clang.driver import query_plan
from offload_tool.manifest.cut_off import Stages
from offload_tool.run import driverless
from offload_tool.run.driverless import DirectPasses
from offload_tool.toolchain.disk_cache import cache_folder
from tests.conftest import Tool, missing, program
from tests.run.driverless_trials import Runs, trial
from tests.scripts import script

CLANG = "/usr/lib/llvm-22/bin/clang"
KERNEL = """\
#include "a header.h"
__attribute__((global)) void k{name}(float *p) {{ *p = VALUE; __builtin_trap(); }}
{more}
"""
NAMES = ("a", "b", "c", "with space$'")
OPTIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "definitions": (
        *("-DA", "-UB", '-DTEXT="a b\\"c$d"', "-Isub", "-isystem", "sub", "-include", "x.h"),
    ),
    "not-utf-8": ('-DTEXT="\udce9"', "-Isub\udce9", "-include", "raw.h"),
    "optimizer-remarks": ("-O2", "-Rpass=.*"),
    "bad-code": ("-DVALUE=nothing",),
}
"""Of the others, `driverless_trials` has many."""
DRIVER_ONLY = {
    "temporaries": "-save-temps",
    "trace": "-ftime-trace",
    "response-file": "@options",
    "recorded-command": "-frecord-command-line",
    "recorded-in-debug": "-g -grecord-command-line",
    "unused": "-lm -fuse-ld=lld",
    "unused-error": "-Werror -Wl,-z,now",
    "bad-option": "-no-such-option",
    "relocatable": "-fgpu-rdc",
    "link-time": "-foffload-lto",
    "bad-link": "-Xoffload-linker --no-such-option",
    "its-own-report": "-v",
    "name-of-a-temporary-in-a-file": "-Xoffload-linker -Map=map",
    "database": "-MJ o.json",
    "part-of-a-database": "-gen-cdb-fragment-path sub",
}
"""What only the driver does, and everything that fails."""
VARIABLES = {"CCC_OVERRIDE_OPTIONS": "# O0", "CC_PRINT_OPTIONS": "1", "CC_LOG_DIAGNOSTICS": "1"}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with sources, in which compilers are run."""
    if not Path(CLANG).exists():
        missing("clang 22")
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        text = KERNEL.format(name=NAMES.index(name), more="" if name != "c" else "static int u;")
        Path(f"{name}.hip").write_text(text)
    Path("a header.h").write_text("#ifndef VALUE\n#define VALUE 2\n#endif\n")
    Path("sub").mkdir()
    Path("sub/x.h").write_text("#define X 1\n")
    Path("sub\udce9").mkdir()
    Path("sub\udce9/raw.h").write_text("__attribute__((device)) char text[] = TEXT;\n")
    Path("options").write_text("-O1\n")
    return tmp_path


def _command(name: str, options: tuple[str, ...], target: str = "gfx90a") -> list[str]:
    depfile = f"{name}.{target}.co.d"
    args = ["-dependency-file", depfile, "-MT", "object"]
    return [
        *(CLANG, "-x", "hip", "--cuda-device-only", f"--offload-arch={target}"),
        *("--no-gpu-bundle-output", f"-cuid={name.encode().hex()}", "-c"),
        *("-nogpuinc", "-nogpulib", *options, "--no-offload-new-driver"),
        *(word for each in args for word in ("-Xclang", each)),
        *("-Xclang=-sys-header-deps", "-o", f"{name}.{target}.co", f"{name}.hip"),
    ]


def _both(passes: DirectPasses, command: list[str], *, at_terminal: bool = False) -> bool:
    """Run a command in both ways, as a build does; tell whether the direct way did it."""
    runs = Runs(Path.cwd(), dict(os.environ), at_terminal=at_terminal)
    expected = runs.by_driver(command)
    found, direct = runs.directly(passes, command)
    assert found == expected
    return direct


@pytest.fixture(autouse=True)
def _no_answers_yet(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let each test begin with a compiler that was asked nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("answers")))
    cache_folder.cache_clear()
    yield
    cache_folder.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the commands that the driver has been asked for."""
    found: list[object] = []

    def counted(command: object, environment: object) -> object:
        found.append(command)
        return query_plan(command, environment)  # type: ignore[arg-type]

    monkeypatch.setattr(driverless, "query_plan", counted)
    return found


@pytest.mark.llvm
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_same_files_and_messages(
    sources: Path, asked: list[object], options: tuple[str, ...]
) -> None:
    """Code object, depfile, what is beside them, and messages are the driver's, for any name."""
    if options and options[0].startswith("-DA"):
        Path("x.h").write_text("")
    passes = DirectPasses()
    for name in NAMES:
        assert _both(passes, _command(name, options))
    assert len(asked) == 2


@pytest.mark.llvm
@pytest.mark.usefixtures("sources")
def test_kept_answers(tmp_path_factory: pytest.TempPathFactory, asked: list[object]) -> None:
    """The next build asks nothing, unless there is another compiler or another variable."""
    compiler = tmp_path_factory.mktemp("compiler") / "clang"
    compiler.symlink_to(shutil.which(_command("a", ())[0]) or "")
    command = [str(compiler), *_command("a", ())[1:]]
    environment = dict(os.environ)
    counts = []
    for change in ("nothing", "nothing", "variable", "compiler", "compiler, with its old time"):
        if change == "variable":
            environment["CPATH"] = "sub"
        if change == "compiler":
            target = compiler.readlink()
            compiler.unlink()
            shutil.copy(target, compiler)
        if change == "compiler, with its old time":
            before = compiler.stat()
            compiler.write_bytes(compiler.read_bytes())
            os.utime(compiler, ns=(before.st_atime_ns, before.st_mtime_ns))
        time.sleep(0.05)  # what has just changed may change again, unseen
        done = DirectPasses().run(command, environment)
        assert done == 0 or change != "nothing"
        counts.append(len(asked))
        asked.clear()
    assert counts[:3] == [1, 0, 1]
    assert counts[3]
    assert counts[4]


@pytest.mark.llvm
@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize("in_stages", [False, True])
def test_quiet_run_ends_with_a_message(monkeypatch: pytest.MonkeyPatch, in_stages: bool) -> None:
    """No backend and no linker run for a result that would be thrown away for its messages."""
    run, jobs = driverless.process.run, []

    def counted(job: Any, *args: Any, **keywords: Any) -> int:
        jobs.extend([job] if {"-cc1", "-shared"} & {*job} else [])
        return run(job, *args, **keywords)

    monkeypatch.setattr(driverless.process, "run", counted)
    of_backend = ("-Rpass-analysis=kernel-resource-usage",)
    for options, count in ((("-Wall",), 1), (of_backend, 1 + in_stages), ((), 2 + in_stages)):
        stages = Stages()
        stages.begin(None, (), is_unchanged=False)
        jobs.clear()
        given = stages if in_stages else None
        command = _command("c", ("-O2", *options))
        assert DirectPasses().run_quietly(command, dict(os.environ), given) is not bool(options)
        assert len(jobs) == count
        assert Path("c.gfx90a.co").exists() is not bool(options)


@pytest.mark.llvm
@pytest.mark.usefixtures("sources")
def test_variables_are_not_kept() -> None:
    """What is on disk for later builds does not tell what the variables were: tokens, say."""
    environment = {**os.environ, "CI_TOKEN": "very secret"}
    assert DirectPasses().run(_command("a", ()), environment) == 0
    kept = [*Path(cache_folder(), "answers").rglob("*.json")]
    assert kept
    assert not any("very secret" in file.read_text() for file in kept)


@pytest.mark.llvm
@pytest.mark.parametrize("way", ["COMPILER_PATH", "-B", "-B beginning", "--prefix", "PATH"])
def test_linker_that_appears(sources: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Where the driver would look for programs first, another linker is found, and run."""
    folder = sources / "tools"
    folder.mkdir()
    given: tuple[str, ...] = ()
    if way == "COMPILER_PATH":
        monkeypatch.setenv("COMPILER_PATH", str(folder))
    elif way == "--prefix":
        given = ("--prefix", str(folder))
    elif way.startswith("-B"):
        given = (f"-B{folder}{'/my-' * way.endswith('beginning')}",)
    command = _command("a", given)
    if way == "PATH":  # where the compiler has none beside it
        command[0] = str(shutil.copy(command[0], sources / "sub/clang"))
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{Path(CLANG).parent}")
    time.sleep(0.03)  # what has just changed is no witness
    assert DirectPasses().run(command, dict(os.environ)) == 0
    linker = folder / ("my-lld" if way == "-B beginning" else "lld")
    script(linker, f'/usr/bin/touch used\nexec {Path(CLANG).parent}/lld "$@"')
    assert DirectPasses().run(command, dict(os.environ)) == 0
    assert Path("used").exists()


@pytest.mark.llvm
@pytest.mark.parametrize("options", DRIVER_ONLY.values(), ids=DRIVER_ONLY.keys())
def test_what_is_for_the_driver(sources: Path, options: str) -> None:
    """Words that are about the driver's own doing, and all that fails, are for the driver."""
    passes = DirectPasses()
    for name in NAMES[:3]:
        assert passes.run(_command(name, tuple(options.split())), dict(os.environ)) is None


@pytest.mark.llvm
@pytest.mark.usefixtures("sources")
def test_variables_for_the_driver() -> None:
    """So are variables."""
    for name, value in VARIABLES.items():
        assert DirectPasses().run(_command("a", ()), {**os.environ, name: value}) is None, name


@pytest.mark.llvm
def test_files_named_after_others(sources: Path) -> None:
    """Where the driver makes another name of the output's, it is asked and no name replaced."""
    passes = DirectPasses()
    options = ("-O2", "-fsave-optimization-record")
    ways = [_both(passes, _command(name, options)) for name in ("a", "b", "a", "c")]
    assert ways == [True, False, True, False]


@pytest.mark.llvm
def test_edit_after_a_success(sources: Path) -> None:
    """A source that becomes wrong, goes, or crashes the compiler, gives the driver's messages."""
    passes = DirectPasses()
    for name in NAMES[:3]:
        assert _both(passes, _command(name, ()))
    Path("a.hip").write_text("no code\n")
    assert _both(passes, _command("a", ()))
    Path("a.hip").write_text("#pragma clang __debug crash\n")
    assert passes.run(_command("a", ()), dict(os.environ)) is None
    Path("a.hip").unlink()
    assert not _both(passes, _command("a", ()))


@pytest.mark.llvm
def test_more_passes_than_files(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few files to be opened, as many passes are run directly, and others by the driver."""
    monkeypatch.setattr(os, "sysconf", {"SC_OPEN_MAX": 20}.__getitem__)
    driverless._turns.cache_clear()
    passes = DirectPasses()
    with driverless._files_left() as first:
        assert passes.run(_command("a", ()), dict(os.environ)) == 0
        with driverless._files_left() as second:
            assert passes.run(_command("a", ()), dict(os.environ)) is None
    assert (first, second) == (True, True)
    assert passes.run(_command("a", ()), dict(os.environ)) == 0
    driverless._turns.cache_clear()


@pytest.mark.llvm
def test_programs_in_place_of_the_compiler(sources: Path) -> None:
    """A script, or a cache that has a compiler's name, may do more than compile: it is called."""
    Path("bin").mkdir()
    Path("bin/clang").symlink_to(program("ccache"))
    cache = {"CCACHE_DIR": str(sources / "cache"), "CCACHE_COMPILER": CLANG}
    for name in (script(sources / "clang", f'exec {CLANG} "$@"'), str(sources / "bin/clang")):
        command = [name, *_command("a", ())[1:]]
        assert DirectPasses().run(command, {**os.environ, **cache}) is None


@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(500, 510))
def test_random_passes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm: Tool
) -> None:
    """Of random passes, at a terminal too, status, messages and files are the driver's."""
    differences, _, _ = trial(llvm("clang"), seed, tmp_path / "trial")
    assert differences == []


@pytest.mark.llvm
def test_some_random_passes_are_direct(tmp_path: Path, llvm: Tool) -> None:
    """The random passes are not all for the driver: a test of them would say nothing."""
    _, count, directly = trial(llvm("clang"), 5003, tmp_path / "trial")
    assert directly >= count / 2


@pytest.mark.llvm
@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_of_messages(no_color: str, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal messages have colours, unless ``NO_COLOR`` is set and not empty."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    (sources / "a.hip").write_text("#warning seen\n")
    assert _both(DirectPasses(), _command("a", ()), at_terminal=True)


@pytest.mark.llvm
def test_no_temporary_stays(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file between front end and linker is removed, whatever becomes of them."""
    folder = sources / "temporaries"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert DirectPasses().run(_command("a", ()), dict(os.environ)) == 0
    assert DirectPasses().run(_command("b", ("-DVALUE=nothing",)), dict(os.environ)) == 1
    assert list(folder.iterdir()) == []


@pytest.mark.llvm
def test_nothing_stays_of_a_killed_build(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a build is killed, its front end ends with the pass, and leaves no temporary."""
    folder = sources / "temporaries"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    passes = DirectPasses()
    assert passes.run(_command("a", ("-O3",)), dict(os.environ)) == 0  # so that its jobs are known
    child = os.fork()
    if child == 0:
        start = os.posix_spawn

        def start_and_die(*given: Any, **options: Any) -> int:
            process = start(*given, **options)
            Path("front-end").write_text(str(process))
            os.kill(os.getpid(), signal.SIGKILL)
            return process

        os.posix_spawn = start_and_die
        passes.run(_command("a", ("-O3",)), dict(os.environ))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    front_end = Path("/proc", Path("front-end").read_text())
    while front_end.exists():
        time.sleep(0.01)
    assert list(folder.iterdir()) == []


@pytest.mark.llvm
def test_stopped_by_the_user(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end that Ctrl-C ends is not a failure that the driver has to explain."""
    monkeypatch.setattr(driverless, "process", SimpleNamespace(run=lambda *_: -signal.SIGINT))
    assert DirectPasses().run(_command("a", ()), dict(os.environ)) == -signal.SIGINT


def test_first_passes_of_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass gives back the turn that it took, whatever other threads have made meanwhile."""
    monkeypatch.setattr(driverless, "_turns", lambda: threading.BoundedSemaphore(1))
    with driverless._files_left() as taken:
        assert taken
