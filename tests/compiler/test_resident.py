"""Resident programs: the judge is the same program, started anew."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple

import pytest

from offload_tool.compiler import resident
from offload_tool.compiler.answer_cache import cache_folder
from offload_tool.compiler.resident import ResidentPrograms
from tests.conftest import missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLANG = "/usr/lib/llvm-22/bin/clang"
FRONT_END = (CLANG, "-cc1", "-triple", "amdgcn-amd-amdhsa", "-target-cpu", "gfx90a")
PROBE = r"""
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
extern char **environ;
static char at_start[99];
__attribute__((constructor)) static void start(void) { MORE; strcpy(at_start, "started"); }
static void leave(void) { puts("left"); }
static void show(const char *file, const char *names) {
    char line[4096], name[99];
    FILE *opened = fopen(file, "r");
    while (fgets(line, sizeof line, opened))
        if (sscanf(line, "%98[^:]:", name) == 1 && strstr(names, name)) fputs(line, stdout);
    fclose(opened);
}
int main(int count, char **words, char **environment) {
    atexit(leave);
    if (count > 1 && !strcmp(words[1], "sleep")) {
        close(open(words[2], 0101, 0600)); sleep(atoi(words[3])); }
    for (int at = 0; at < count; at++) puts(words[at]);
    puts(at_start);
    for (char **entry = environment; *entry; entry++) puts(*entry);
    printf("%d %s\n", environ == environment, getcwd(0, 0));
    show("/proc/self/status", "Umask Uid Gid Groups SigBlk SigIgn SigCgt SigPnd ShdPnd Threads "
         "CapEff NoNewPrivs Seccomp Cpus_allowed");
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        struct rlimit limit;
        getrlimit(which, &limit);
        printf("%ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
    }
    printf("%d %d %d\n", getpgrp(), getsid(0), getpriority(PRIO_PROCESS, 0));
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) puts(entry->d_name);
    char text[9];
    printf("read %zd\n", read(0, text, 9));
    fprintf(stderr, "%d messages\n", count);
    if (count > 1 && !strcmp(words[1], "abort")) abort();
    return count;
}
"""


@pytest.fixture(autouse=True)
def _cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let each module of tests compile the library once, in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "resident"))
    cache_folder.cache_clear()
    yield
    cache_folder.cache_clear()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ResidentPrograms]:
    """Give resident programs; jobs are run in a folder of the test's own."""
    if not Path(CLANG).exists():
        missing("clang 22")
    monkeypatch.chdir(tmp_path)
    programs = ResidentPrograms(CLANG)
    yield programs
    programs.close()


def _build(name: str, *flags: str, more: str = "") -> str:
    """Compile the program that tells what it is given; give its name once it is old enough."""
    program = Path(name).resolve()
    source = program.with_suffix(".c")
    source.write_text("#include <fcntl.h>\n#include <pthread.h>\n" + PROBE)
    words = [CLANG, "-O1", f"-DMORE={more}", "-o", str(program), str(source), *flags]
    subprocess.run(words, check=True)
    time.sleep(0.1)  # what is younger than the resident program may be another file
    return str(program)


@pytest.fixture
def probe(programs: ResidentPrograms) -> str:
    """Give a program that tells what it is given."""
    return _build("probe")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LD_")}


class _Done(NamedTuple):
    """What a job has said; its status is None if it was run as usual."""

    status: int | None
    output: bytes
    errors: bytes


def _run(
    programs: ResidentPrograms, words: list[str], environment: dict[str, str] | None = None
) -> _Done:
    variables = _environment() if environment is None else environment
    with TemporaryFile() as output, TemporaryFile() as errors:
        files = [output.fileno(), errors.fileno()]
        status = programs.run(words, variables, files)
        said = [os.pread(file, 1 << 24, 0) for file in files]
    return _Done(status, *said)


def _as_usual(words: list[str], environment: dict[str, str] | None = None) -> _Done:
    variables = _environment() if environment is None else environment
    with TemporaryFile() as output, TemporaryFile() as errors:
        status = subprocess.call(words, env=variables, stdout=output, stderr=errors)
        said = [os.pread(file.fileno(), 1 << 24, 0) for file in (output, errors)]
    return _Done(status, *said)


def _same(
    programs: ResidentPrograms, words: list[str], environment: dict[str, str] | None = None
) -> None:
    assert _run(programs, words, environment) == _as_usual(words, environment)


@pytest.mark.llvm
def test_what_a_job_is_given(
    programs: ResidentPrograms, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words, variables, folder, streams, limits, signals, umask: all as when started anew."""
    _same(programs, [probe, "", "a b", "ä\udcff", *["x" * 9_999] * 90])
    Path("sub folder").mkdir()
    monkeypatch.chdir("sub folder")
    _same(programs, [probe, "other folder"])
    _same(programs, [probe], {"ONLY": "this", "OFFLOAD": "", "A": "=b="})
    old = os.umask(0o027)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        _same(programs, [probe, "other limits"])
        _same(programs, [probe, "abort"])
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
        signal.signal(signal.SIGUSR1, handler)
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        os.umask(old)
    assert programs.reasons == []
    assert programs.counts == "5 jobs of 3 resident programs"


CODE = {
    "good": "int f(int a) { return a; }",
    "warning": "int f() { int unused; return 1 ? 2 : *(int *)0; }",
    "error": "int f( { return no; }",
    "fatal": "#pragma clang __debug llvm_fatal_error",
    "crash": "#pragma clang __debug crash",
    "too deep": f"int i = {'(' * 300}1{')' * 300};",
    "deep": f"int i = {'1+' * 9000}1;",
}


@pytest.mark.llvm
def test_compiler(programs: ResidentPrograms) -> None:
    """Front end: objects, depfiles, coloured messages, crash reports and statuses are the same."""
    seen = set()
    for name, code in CODE.items():
        Path("a.c").write_text(code)
        results = []
        for is_resident in (True, False):
            command = [*FRONT_END, "-emit-obj", "-O2", "-Wall", "-fcolor-diagnostics", "-o", "a.o"]
            words = [*command, "-dependency-file", "a.d", "-MT", "a.o", "a.c"]
            done = _run(programs, words) if is_resident else _as_usual(words)
            said = re.sub(rb"0x[0-9a-f]{8,}|\(\S*\+ADDRESS\)", b"ADDRESS", done.errors)
            files = {file: file.read_bytes() for file in Path().iterdir() if file.suffix != ".c"}
            for file in files:
                file.unlink()
            results.append((done.status, done.output, said, files))
        assert results[0] == results[1], name
        seen.add(results[0][0])
    assert len(seen) >= 3
    assert programs.reasons == []


@pytest.mark.llvm
def test_many_at_a_time(programs: ResidentPrograms, probe: str) -> None:
    """Many threads have jobs run at once, and each gets what its own has said."""

    def job(number: int) -> None:
        text = f"{number}" * 1000
        done = _run(programs, [probe, "sleep", f"at-{number}", "0", text])
        assert done.status == 5
        assert text.encode() in done.output

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(job, range(64)))
    assert programs.reasons == []
    assert programs.counts.startswith("64 jobs of 1 ")


def _wait(is_so: Callable[[], object]) -> None:
    """Wait until something is so; fail after some seconds."""
    end = time.monotonic() + 15
    while not is_so():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.02)


def _running(program: str) -> list[int]:
    """Give the processes of a program."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str((entry / "exe").readlink()).startswith(program):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.llvm
def test_resident_program_is_killed(programs: ResidentPrograms, probe: str) -> None:
    """Its jobs have ended, and are to be run as usual; the reason is told once."""
    _same(programs, [probe])
    (server,) = _running(probe)
    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(_run, programs, [probe, "sleep", name, "60"]) for name in "ab"]
        _wait(lambda: Path("a").exists() and Path("b").exists())
        os.kill(server, signal.SIGKILL)
        assert [job.result().status for job in jobs] == [None, None]
        assert _running(probe) == []
    assert _run(programs, [probe]).status is None
    assert programs.reasons == [f"{probe}: the resident program has ended"]
    assert _running(probe) == []


@pytest.mark.llvm
def test_build_is_killed(programs: ResidentPrograms, probe: str) -> None:
    """With the build, its resident programs and their jobs go."""
    script = (
        "import os, sys; from offload_tool.compiler.resident import ResidentPrograms\n"
        f"programs = ResidentPrograms({CLANG!r})\n"
        f"environment = {_environment()!r}\n"
        f"programs.run([{probe!r}, 'sleep', 'begun', '100'], environment, [1, 2])\n"
    )
    root = Path(resident.__file__).parents[2]
    build = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(root)}
    )
    _wait(Path("begun").exists)
    assert len(_running(probe)) == 2
    build.kill()
    build.wait()
    _wait(lambda: not _running(probe))


@pytest.mark.llvm
def test_interrupted(
    programs: ResidentPrograms, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job for which nobody waits any more is ended, and others are run."""

    def interrupted(talk: object) -> int:
        _wait(Path("begun").exists)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resident, "_number", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _run(programs, [probe, "sleep", "begun", "100"])
    _wait(lambda: len(_running(probe)) == 1)
    _same(programs, [probe])
    assert programs.reasons == []


@pytest.mark.llvm
@pytest.mark.usefixtures("programs")
def test_program_is_replaced(programs: ResidentPrograms, probe: str) -> None:
    """A program, or a library of it, that is another one now is started anew."""
    other = _build("other", more='puts("other")')
    assert b"other" not in _run(programs, [probe]).output
    shutil.copy(other, f"{probe}.new")
    Path(f"{probe}.new").replace(probe)
    time.sleep(0.1)
    assert b"other" in _run(programs, [probe]).output
    assert programs.counts == "2 jobs of 2 resident programs"


@pytest.mark.llvm
def test_what_cannot_be_resident(programs: ResidentPrograms, probe: str) -> None:
    """Scripts, static programs, threads before main, the loader's variables: started as usual."""
    script = Path("script").resolve()
    script.write_text(f'#!/bin/sh\nexec {probe} "$@"\n')
    script.chmod(0o755)
    thread = "pthread_t t; pthread_create(&t, 0, (void *(*)(void *))pause, 0)"
    static = _build("static", "-static")
    threads = _build("threads", "-Wno-everything", more=thread)
    for program, environment, reason in (
        (str(script), _environment(), f"{script} is no program, or a script"),
        (static, _environment(), f"{static} is no program that glibc's dynamic linker loads"),
        (threads, _environment(), f"{threads} has 2 threads before its main function"),
        (
            probe,
            {**_environment(), "LD_BIND_NOW": "1"},
            "the variable LD_BIND_NOW is for the dynamic linker",
        ),
    ):
        assert _run(programs, [program], environment).status is None
        assert programs.reasons[-1] == reason
    assert len(programs.reasons) == 4
    assert programs.counts.startswith("0 jobs of 0 ")


@pytest.mark.llvm
def test_library_of_somebody_else(programs: ResidentPrograms, probe: str) -> None:
    """A library that others can write is not preloaded; one that is damaged is made again."""
    _same(programs, [probe])
    (library,) = Path(cache_folder()).glob("resident-*.so")
    library.chmod(0o777)
    others = ResidentPrograms(CLANG)
    assert _run(others, [probe]).status is None
    assert others.reasons == [f"{library} can be written by others; remove it"]
    others.close()
    library.chmod(0o700)
    library.write_bytes(library.read_bytes()[:9000])
    damaged = ResidentPrograms(CLANG)
    _same(damaged, [probe])
    assert damaged.reasons == []
    damaged.close()


@pytest.mark.llvm
def test_no_compiler_for_c(programs: ResidentPrograms, probe: str) -> None:
    """Where the library cannot be compiled, programs are started as usual."""
    others = ResidentPrograms(shutil.which("false") or "")
    assert _run(others, [probe]).status is None
    (reason,) = others.reasons
    assert "cannot compile resident.c: exit status 1" in reason
    others.close()
