"""When ``offload-tool compile`` compiles, and the files that a killed call leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offload_tool.clang import driver
from offload_tool.clang.depfile import read_depfile
from offload_tool.io import process
from offload_tool.manifest import cut_off
from offload_tool.passes import choose_compiler
from offload_tool.run import driverless, run_pass
from offload_tool.toolchain.probe import Toolchain
from tests.cli.conftest import KERNEL, names, run, state
from tests.cli.test_compile import BARE, CPU, FLAGS, GFX906, REGION, processor
from tests.conftest import Tool, run_tool, wait_for
from tests.scripts import script
from tests.toolchain.installed import write_device_libraries

WORDS = [*GFX906, "--depfile", "k.d", "--stamp", "k.stamp"]
FOLDERS = [*FLAGS, "-Ifirst", "-Isecond"]
SOURCE = '#include "value.h"\n' + KERNEL.replace("VALUE", "HERE")
SETTLED = 0.03
"""Seconds; less than the start of a command line, so files saved before it are older."""
ONE, TWO = "#define HERE 1\n", "#define HERE 2\n"


@pytest.fixture
def compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return a function that calls ``compile`` and returns whether the compiler has run."""
    log = folder.parent / "log"
    counting = script(folder.parent / "count", f'echo run >>"{log}"\nexec "$@"')
    monkeypatch.setenv("OFFLOAD_LAUNCHER", counting)

    def call(*args: str) -> bool:
        log.unlink(missing_ok=True)
        for memoized in (choose_compiler._find, driver.output_of, driver.query_front_end):
            memoized.cache_clear()  # as in a new process
        time.sleep(SETTLED)
        assert run(*args) == 0
        return log.exists()

    for name in ("first", "second"):
        (folder / name).mkdir()
    (folder / "second/value.h").write_text(ONE)
    (folder / "k.hip").write_text(SOURCE)
    return call


def test_current(compiles: Callable[..., bool]) -> None:
    """A current output is not compiled; depfile and stamp are written as after a compile."""
    assert compiles(*WORDS, *FOLDERS)
    before, stamp, depfile = state("k.co"), state("k.stamp"), Path("k.d").read_text()
    Path("k.d").unlink()
    assert not compiles(*WORDS, *FOLDERS)
    assert state("k.co") == before
    assert state("k.stamp")[1] > stamp[1]
    assert Path("k.d").read_text() == depfile
    assert read_depfile(Path("k.d"))[:2] == ["k.hip", "second/value.h"]


@dataclass(frozen=True)
class Change:
    """A change between two calls."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    before: Mapping[str, bytes] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


COMPILED = {
    "header": Change({"second/value.h": TWO.encode()}),
    "precompiled header (clang ignores what is none)": Change(
        {"pre.h.gch": b"none"}, {"pre.h": b""}, ("-include", "pre.h", "-Wno-everything")
    ),
    "response file in one": Change(
        {"in.rsp": b"-DA=22"}, {"in.rsp": b"-DA=11", "words": rb"'@in\.rsp'"}, ("@words",)
    ),
    "configuration": Change({"c.cfg": b"-DA=2"}, {"c.cfg": b"-DA=1"}, ("--config=./c.cfg",)),
    "variable": Change(environment={"CPATH": "third"}),
    "truncated": Change({"k.co": b"\x7fELF"}),
}


@pytest.mark.parametrize("change", COMPILED.values(), ids=COMPILED.keys())
def test_compiled_again(
    compiles: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """What the command names is known, in whatever way: `test_pass_run` has the other changes."""
    args = [*WORDS, *FOLDERS, *change.flags]
    for name, content in change.before.items():
        Path(name).write_bytes(content)
    assert compiles(*args)
    assert not compiles(*args)
    for name, content in change.files.items():
        Path(name).write_bytes(content)
    for name, value in change.environment.items():
        monkeypatch.setenv(name, value)
    assert compiles(*args)
    assert not compiles(*args)
    made = Path("k.co").read_bytes()
    for name in ("k.co", ".k.co.manifest"):
        Path(name).unlink()
    assert compiles(*args)
    assert Path("k.co").read_bytes() == made


def test_without_a_depfile(compiles: Callable[..., bool]) -> None:
    """Headers count even if no depfile is requested, and no depfile remains."""
    assert compiles(*GFX906, *FOLDERS)
    assert not compiles(*GFX906, *FOLDERS)
    Path("second/value.h").write_text(TWO)
    assert compiles(*GFX906, *FOLDERS)
    assert names() == {"k.hip", "k.co", ".k.co.manifest", "first", "second"}


FOLDER_TOLD = {
    "response file": ("@words", {}, True),
    "compiler": ("-O2", {"OFFLOAD_CLANG": "{} -g"}, True),
    "edited options": ("-O2", {"CCC_OVERRIDE_OPTIONS": "#+-g"}, True),
    "fixed": ("-fdebug-compilation-dir=.", {"CCC_OVERRIDE_OPTIONS": "#+-g"}, False),
}


@pytest.mark.parametrize(("flag", "variables", "told"), FOLDER_TOLD.values(), ids=[*FOLDER_TOLD])
def test_moved_folder(
    flag: str,
    variables: Mapping[str, str],
    told: bool,
    compiles: Callable[..., bool],
    compiler: Toolchain,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a move, a folder is compiled again only if its name is in the output."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(compiler.clang[0]))
    Path("words").write_text("-g")
    args = [*WORDS, *FOLDERS, flag]
    assert compiles(*args)
    assert not compiles(*args)
    moved = folder.rename(folder.parent / "moved")
    monkeypatch.chdir(moved)
    assert compiles(*args) == told
    assert not compiles(*args)
    assert str(folder).encode() not in Path("k.co").read_bytes()


@pytest.mark.parametrize("flag", ["--save-temps", "-save-temps=obj"])
def test_save_temps(compiles: Callable[..., bool], flag: str) -> None:
    """If each job writes a depfile, ours still lists the source and its headers."""
    assert compiles(*WORDS, *FOLDERS, flag)
    assert read_depfile(Path("k.d"))[:2] == ["k.hip", "second/value.h"]


def test_device_link(folder: Path) -> None:
    """With --rdc, a source becomes bitcode, and --link links several to a code object.

    The link is current until an input or argument changes.
    """
    declared = "__attribute__((device)) int twice(int);\n"
    Path("twice.hip").write_text("__attribute__((device)) int twice(int x) { return 2 * x; }\n")
    Path("k.hip").write_text(declared + KERNEL.replace("VALUE", "twice(VALUE)"))
    for name in ("twice", "k"):
        args = ["compile", f"{name}.hip", "-o", f"{name}.bc", "--target-id", "gfx906", "--rdc"]
        assert run(*args, *FLAGS) == 0
        assert Path(f"{name}.bc").read_bytes()[:2] == b"BC"
    link = ["compile", "--link", "k.bc", "twice.bc", "-o", "all.co", "--target-id", "gfx906"]
    link += ["--depfile", "all.d", "--stamp", "all.stamp", *BARE]
    assert run(*link) == 0
    depfile, made = Path("all.d").read_text(), Path("all.co").read_bytes()
    assert processor("all.co") == 0x2F
    assert read_depfile(Path("all.d"))[:2] == ["k.bc", "twice.bc"]
    Path("all.d").unlink()
    before = Path(".all.co.manifest").stat().st_mtime_ns
    assert run(*link) == 0
    assert Path(".all.co.manifest").stat().st_mtime_ns == before
    assert Path("all.d").read_text() == depfile
    Path("all.co").write_bytes(made[: len(made) // 2])
    assert run(*link) == 0
    assert Path("all.co").read_bytes() == made
    assert run(*args[:-3], "--target-id", "gfx906", "--rdc", *FLAGS, "-UVALUE", "-DVALUE=2") == 0
    assert run(*link) == 0
    assert Path("all.co").read_bytes() != made


def test_openmp(compiles: Callable[..., bool]) -> None:
    """OpenMP's passes are current until the host IR, or the inode of the source, changes."""
    Path("r.c").write_text(REGION)
    ir = ["compile", "r.c", "-o", "r.bc", "--emit-host-ir"]
    others = [
        ["compile", "r.c", "-o", "r.o", "--host", "--host-ir", "r.bc"],
        ["compile", "r.c", "-o", "r.dev.o", "--target-id", CPU, "--host-ir", "r.bc"],
    ]
    for _ in range(2):
        assert all(compiles(*args) for args in (ir, *others))
        assert not any(compiles(*args) for args in (ir, *others))
        Path("copy.c").write_text(REGION)
        Path("copy.c").replace("r.c")


# Stopped and killed.


def begin(*args: str, launcher: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OFFLOAD_LAUNCHER": launcher}
    return subprocess.Popen(
        [sys.executable, "-m", "offload_tool", *args],
        env=environment,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("number", "launched"), [(signal.SIGTERM, True), (signal.SIGINT, False), (signal.SIGHUP, True)]
)
def test_stopped(
    folder: Path, stand_in: Callable[[str], None], number: signal.Signals, launched: bool
) -> None:
    """An interrupted call leaves the old output, depfile and stamp, and nothing else."""
    stand_in('exec "$real" "$@"')
    assert run(*WORDS, *FLAGS) == 0
    before = {name: (state(name), Path(name).read_bytes()) for name in names()}
    slow = (
        'touch ../begun; for w; do f="$w"; done; printf half >k.tmp; mv k.tmp k.co; exec sleep 60'
    )
    launcher = script(folder.parent / "slow", slow) if launched else ""
    if not launched:
        stand_in(slow)
    started = begin(*WORDS, *FLAGS, "-DMORE", launcher=launcher)
    wait_for(lambda: Path("../begun").exists() and Path("k.co").exists()
             and Path("k.co").read_bytes() == b"half")  # fmt: skip
    started.send_signal(number)
    assert started.wait(timeout=60) == 128 + number
    assert {name: (state(name), Path(name).read_bytes()) for name in names()} == before


def test_stopped_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted call never leaves a new output with an old depfile."""
    assert run(*WORDS, *FLAGS) == 0
    before, write = state("k.co"), run_pass.write_depfile_and_stamp

    def stopped(*args: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        write(*args)

    monkeypatch.setattr(run_pass, "write_depfile_and_stamp", stopped)
    (folder / "value.h").touch()
    assert run(*WORDS, *FLAGS, "-include", "value.h", "-O1") == 128 + signal.SIGTERM
    assert (state("k.co") != before) == ("value.h" in Path("k.d").read_text())


def test_what_a_killed_call_left(compiles: Callable[..., bool]) -> None:
    assert compiles(*WORDS, *FOLDERS)
    before = state("k.co")
    Path("k.co").rename(".k.co.old")
    assert not compiles(*WORDS, *FOLDERS)
    assert state("k.co") == before
    Path(".k.co.old").write_text("half")
    assert compiles(*WORDS, *FOLDERS)
    assert not Path(".k.co.old").exists()


@pytest.mark.llvm
def test_device_library_that_was_missing(
    compiles: Callable[..., bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm: Tool
) -> None:
    """The libraries of a failed compile are not those of a later one, which depends on them."""
    monkeypatch.setenv("OFFLOAD_CLANG", llvm("clang"))
    monkeypatch.delenv("OFFLOAD_LAUNCHER")
    libraries = write_device_libraries(tmp_path / "bitcode", llvm("clang"))
    others = [flag for flag in FOLDERS if flag != "-nogpulib"]
    args = [*WORDS, *others, f"--rocm-device-lib-path={libraries}"]
    (libraries / "ocml.bc").rename(tmp_path / "ocml.bc")
    with pytest.raises(AssertionError):
        compiles(*args)
    (tmp_path / "ocml.bc").rename(libraries / "ocml.bc")
    compiles(*args)
    assert str(libraries / "ocml.bc") in Path(".k.co.manifest").read_text()


@pytest.mark.llvm
@pytest.mark.parametrize("by", ["flags", "variable"])
def test_device_library_in_an_earlier_folder(
    by: str,
    compiles: Callable[..., bool],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    llvm: Tool,
) -> None:
    """A library that appears in the first of several folders is linked instead."""
    monkeypatch.setenv("OFFLOAD_CLANG", llvm("clang"))
    Path("second/empty.c").touch()
    target = ["--target=amdgcn-amd-amdhsa", "-nogpulib", "-emit-llvm", "-c"]
    run_tool(llvm("clang"), *target, "second/empty.c", "-o", "second/l.bc")
    args = [*WORDS, *(flag for flag in FOLDERS if flag != "-nogpulib"), "--hip-device-lib=l.bc"]
    if by == "flags":
        args += ["--hip-device-lib-path=first", "--hip-device-lib-path=second"]
    else:
        monkeypatch.setenv("HIP_DEVICE_LIB_PATH", f"{folder}/first:{folder}/second")
    assert [compiles(*args), compiles(*args)] == [True, False]
    Path("first/l.bc").write_bytes(Path("second/l.bc").read_bytes())
    assert [compiles(*args), compiles(*args)] == [True, False]


# The cut-off, compared with a compile of one stage.

TEXT = """\
#include "h.h"
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(float* p, float x) { *p = *p * x + scaled(*p); }
int host_value() { return 1; }
"""
SCALED = "static inline __attribute__((device)) float scaled(float x) { return x * 3.5f; }\n"
OPTIONS = ("-nogpuinc", "-nogpulib", "-O2", "-I.")
FRONT_END, ONE_STAGE, TWO_STAGES = 1, 2, 3
"""Number of programs that run."""


@pytest.fixture
def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that compiles with flags, and returns the number of programs run."""
    monkeypatch.setattr(cut_off, "_TOO_SHORT", 0)
    jobs = []

    def counted(*arguments: Any) -> int:
        jobs.append(arguments)
        return process.run(*arguments)

    monkeypatch.setattr(driverless, "process", SimpleNamespace(run=counted))

    def call(*flags: str, words: tuple[str, ...] = ()) -> int:
        jobs.clear()
        assert run(*GFX906, *words, "--", *OPTIONS, *flags) == 0
        count = len(jobs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OFFLOAD_CUTOFF", "0")
            words = tuple("clean.co" if word == "k.co" else word for word in GFX906)
            Path("clean.co").unlink(missing_ok=True)
            assert run(*words, "--", *OPTIONS, *flags) == 0
        assert Path("k.co").read_bytes() == Path("clean.co").read_bytes()
        return count

    (folder / "h.h").write_text(SCALED)
    (folder / "k.hip").write_text(TEXT)
    assert call() == ONE_STAGE
    (folder / "k.hip").write_text(TEXT + "// the second compile is of two stages\n")
    assert call() == TWO_STAGES
    return call


def test_check(compiled: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """OFFLOAD_CUTOFF_CHECK=1 runs the backend, too; another output is an error."""
    monkeypatch.setenv("OFFLOAD_CUTOFF_CHECK", "1")
    Path("k.hip").write_text(TEXT + "// another comment\n")
    assert compiled() == TWO_STAGES
    monkeypatch.setattr(cut_off, "digest_of", lambda _: "equal")
    Path("k.hip").write_text(TEXT)
    assert compiled() == TWO_STAGES
    Path("k.hip").write_text(TEXT.replace("* x +", "* x -"))
    assert run(*GFX906, "--", *OPTIONS) == 1
    assert not Path("k.co").exists()


def test_edits(compiled: Callable[..., int]) -> None:
    """If device code does not change, only the front end runs, and the output stays untouched."""
    before = state("k.co")
    for name, text in (
        ("k.hip", TEXT + "// another comment\n"),
        ("k.hip", TEXT.replace("return 1", "return 2")),
        ("h.h", SCALED + "// a comment\n"),
        ("h.h", SCALED + "static inline __attribute__((device)) int unused() { return 9; }\n"),
    ):
        Path(name).write_text(text)
        assert compiled(words=("--depfile", "k.d", "--stamp", "k.stamp")) == FRONT_END
        assert state("k.co") == before
        assert "h.h" in Path("k.d").read_text()
        assert compiled() == 0
    Path("h.h").write_text(SCALED.replace("3.5", "4.5"))
    assert compiled() == TWO_STAGES
    assert state("k.co") != before
    Path("k.hip").write_text(TEXT.replace("* x +", "* x -"))
    assert compiled() == TWO_STAGES
    assert compiled("-O3") == TWO_STAGES
    assert compiled("-O3", "-DX=1") == TWO_STAGES
    for flag in ("-ffast-math", "-ffp-contract=fast", "-O0"):
        assert compiled(flag) == ONE_STAGE
