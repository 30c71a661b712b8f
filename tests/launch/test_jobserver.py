"""Tokens: never more processes than there are, and none is lost, however a run ends."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from offload_tool.launch import jobserver
from offload_tool.launch.jobserver import slots_of
from offload_tool.util.cores import usable_cores
from tests.conftest import ROOT, Tool, program, run_tool, try_tool, wait_for
from tests.launch.compiles import HIP, LAUNCH, TARGETS, environment, make_project

MORE = ("--offload-arch=gfx942", "--offload-arch=gfx1100")


class Pool:
    """A jobserver's pipe with some tokens."""

    def __init__(self, reader: int, writer: int, auth: str, tokens: bytes) -> None:
        self.reader, self.writer, self.auth = reader, writer, auth
        os.write(writer, tokens)

    def left(self) -> bytes:
        """Take all tokens that are there."""
        found = b""
        while select.select([self.reader], [], [], 0)[0]:
            found += os.read(self.reader, 1)
        return found


@contextmanager
def pool(sort: str, folder: Path, tokens: bytes) -> Iterator[Pool]:
    """Make a jobserver of one of the two sorts."""
    if sort == "fifo":
        os.mkfifo(folder / "fifo")
        reader = writer = os.open(folder / "fifo", os.O_RDWR)
        auth = f"fifo:{folder / 'fifo'}"
    else:
        reader, writer = os.pipe()
        os.set_inheritable(reader, True)
        os.set_inheritable(writer, True)
        auth = f"{reader},{writer}"
    try:
        yield Pool(reader, writer, auth, tokens)
    finally:
        for descriptor in {reader, writer}:
            os.close(descriptor)


@pytest.mark.parametrize(
    ("flags", "more", "described"),
    [
        *(
            (flags, None, "cores")
            for flags in ("", "--jobserver-fds", "-j\u00b2", "\udcff -j\udcff")
        ),
        (" -j3", 2, "-j3 of MAKEFLAGS"),
        ("k -j 5 -- A=-j9", 4, "-j5 of MAKEFLAGS"),
        *(
            (f"-j8 --jobserver-auth={auth}", 0, "not to be had")
            for auth in (
                *("93,94", "0,1", "99999999999999999999,4", "-1,-1 --jobserver-auth=7"),
                *("fifo:/nowhere", "fifo:{file}", "fifo:", "nonsense"),
            )
        ),
        ("-j8 --jobserver-fds=-2,-2", 0, "not to be had"),
        ("-j8 --jobserver-auth=fifo:{stale}", 0, "fifo"),
    ],
)
def test_make_flags(
    flags: str, more: int | None, described: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MAKEFLAGS says how many; a jobserver that cannot be reached leaves one.

    Whatever it says, there is one place at least, and nothing is waited for.
    """
    monkeypatch.setattr(jobserver, "cache_folder", lambda: str(tmp_path))
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "stale")
    slots = slots_of({"MAKEFLAGS": flags.format(file=tmp_path / "file", stale=tmp_path / "stale")})
    assert described in slots.origin
    taken = 0
    while slots.take():
        taken += 1
    assert taken == (usable_cores() if more is None else more + 1)
    slots.give_all()
    assert (tmp_path / "file").read_text() == "x"


@pytest.fixture
def cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have three cores, of which no other launches know."""
    monkeypatch.setattr(jobserver, "cache_folder", lambda: str(tmp_path))
    monkeypatch.setattr(jobserver, "usable_cores", lambda: 3)


def test_old_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: None) -> None:
    """The first launch of a machine removes the files of those that began long ago."""
    old = time.time() - 40 * 86_400
    for host in ("one", "two", "three"):
        monkeypatch.setattr(os, "uname", lambda host=host: SimpleNamespace(nodename=host))
        slots = slots_of({})
        assert slots.take()
        slots.give_all()
        if host == "one":
            os.utime(tmp_path / "cores/one-0", (old, old))
    assert {path.name for path in (tmp_path / "cores").iterdir()} == {"two-0", "three-0"}


@pytest.mark.usefixtures("cores")
def test_cores_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """All launches together take one slot for each core, but each has one at least, in the end."""
    monkeypatch.setattr(jobserver, "_PATIENCE", 0.1)
    first, second, third = (slots_of({}) for _ in range(3))
    assert [each.take() for each in (first, first, second, third)] == [True] * 4
    assert not any(each.take() for each in (first, second, third))
    first.give()
    assert not third.take()  # its first process has that core now
    second.give()  # its core stays its own
    assert not third.take()
    for each in (first, second, third):
        each.give_all()
    assert [third.take() for _ in range(4)] == [True, True, True, False]


@pytest.mark.usefixtures("cores")
def test_first_process_waits_for_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch without a core gets the next one, before others get a further one."""
    old, new = slots_of({}), slots_of({})
    assert all(old.take() for _ in range(3))
    tried = []

    def sleep(_: float) -> None:
        old.give()
        tried.append(old.take())

    monkeypatch.setattr(time, "sleep", sleep)
    assert new.take()
    assert tried == [False]
    new.give_all()
    assert old.take()


@pytest.mark.usefixtures("cores")
def test_machines_with_one_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine has its own cores."""
    monkeypatch.setattr(time, "sleep", pytest.fail)
    names = iter(("one", "one/two"))
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=next(names)))
    first, second = slots_of({}), slots_of({})
    assert [each.take() for each in [first, second] * 3] == [True] * 6


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize("name", ["OFFLOAD_LAUNCHER", "OFFLOAD_DIST"])
def test_passes_elsewhere_wait_for_no_core(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a launcher or with a cluster, each launch runs one process at once."""
    monkeypatch.setattr(time, "sleep", pytest.fail)
    assert all(slots_of({name: "ccache"}).take() for _ in range(5))


@pytest.mark.usefixtures("cores")
def test_locks_are_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be locked, each launch runs one process at once."""

    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(time, "sleep", pytest.fail)
    slots = slots_of({})
    assert [slots.take() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("sort", ["fifo", "descriptors"])
def test_tokens_are_taken_and_given(sort: str, tmp_path: Path) -> None:
    """The first place needs no token; each other one is a byte, which comes back as it was."""
    with pool(sort, tmp_path, b"abc") as server:
        slots = slots_of({"MAKEFLAGS": f"-j4 --jobserver-auth={server.auth}"})
        assert [slots.take() for _ in range(5)] == [True, True, True, True, False]
        assert server.left() == b""
        slots.give()
        assert server.left() == b"c"
        slots.give_all()
        assert sorted(server.left()) == sorted(b"ab")


def test_pipes_of_others(tmp_path: Path) -> None:
    """Where make has kept its pipe, pipes of others that have its numbers are not read."""
    with (
        pool("descriptors", tmp_path, b"abc") as first,
        pool("descriptors", tmp_path, b"") as other,
    ):
        slots = slots_of({"MAKEFLAGS": f"-j4 --jobserver-auth={first.reader},{other.writer}"})
        assert "not to be had" in slots.origin
        assert [slots.take(), slots.take()] == [True, False]
        assert first.left() == b"abc"


def write_source(folder: Path, ending: str) -> None:
    """Write a source that compiles, has an error, or takes long enough for a signal."""
    make_project(folder)
    source = folder / "s.hip"
    more = {"well": "", "error": "#error no\n"}.get(ending, SLOW)
    source.write_text(f"{source.read_text()}\n{more}")
    (folder / "tmp").mkdir()


def ended(args: list[str], ending: str, folder: Path, server: Pool) -> tuple[int, str]:
    """Run a command until it ends, if need be by a signal; return its status and messages.

    All tokens are there again, no process runs, and no temporary file is left.
    """
    temporaries = folder / "tmp"
    more = {"MAKEFLAGS": f" -j4 --jobserver-auth={server.auth}", "TMPDIR": str(temporaries)}
    process = subprocess.Popen(
        args,
        cwd=folder,
        env=environment({**more, "PYTHONPATH": str(ROOT)}),
        pass_fds={server.reader, server.writer},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if ending not in ("well", "error"):
        wait_for(lambda: len(running(temporaries)) >= 3)
        process.send_signal(getattr(signal, f"SIG{ending}"))
    messages, _ = process.communicate(timeout=60)
    if args[0].endswith("ninja"):  # which waits for shells, not for their children
        wait_for(lambda: not working_in(folder))
    assert sorted(server.left()) == sorted(b"xyz"), messages
    assert running(temporaries) == []
    assert list(temporaries.iterdir()) == []
    return process.returncode, messages


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("sort", "ending"),
    [
        *(("fifo", ending) for ending in ("well", "error", "TERM", "INT", "HUP")),
        *(("descriptors", ending) for ending in ("well", "error", "TERM", "INT", "HUP")),
        *(("fifo", ending) for ending in ("QUIT", "XCPU", "ALRM", "USR1", "USR2")),
    ],
)
def test_no_token_is_lost(sort: str, ending: str, tmp_path: Path, llvm: Tool) -> None:
    """However a run ends, all tokens are there again, no process runs, no file is left."""
    write_source(tmp_path, ending)
    before = {path.name for path in tmp_path.iterdir()}
    args = [*LAUNCH, llvm("clang++"), *HIP, *TARGETS, *MORE, "-c", "s.hip", "-o", "s.o"]
    with pool(sort, tmp_path, b"xyz") as server:
        status, _ = ended(args, ending, tmp_path, server)
    expected = before | ({"s.o", ".s.o.manifest"} if ending == "well" else set())
    assert {path.name for path in tmp_path.iterdir()} - {"fifo"} == expected
    statuses = {"well": 0, "error": 1}
    assert status == (
        statuses[ending] if ending in statuses else 128 + getattr(signal, f"SIG{ending}")
    )


SLOW = """
template <int N> struct Slow { static constexpr int value = Slow<N - 1>::value + Slow<N - 2>::value; };
template <> struct Slow<0> { static constexpr int value = 0; };
template <> struct Slow<1> { static constexpr int value = 1; };
constexpr unsigned long spin(unsigned long n) { unsigned long x = 1; for (unsigned long i = 0; i < n; ++i) x = x * 31 + i; return x; }
constexpr unsigned long result = spin(1000000000);
"""  # noqa: E501


def four_at_once(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run make with four jobs in a folder."""
    variables = environment({"PYTHONPATH": str(ROOT)})
    return try_tool(program("make"), "-j4", cwd=folder, env=variables, timeout=60)


def working_in(folder: Path) -> list[str]:
    """Return the numbers of processes whose folder is this one."""
    found = []
    for entry in os.scandir("/proc"):
        with suppress(OSError):
            if entry.name.isdigit() and Path(f"/proc/{entry.name}/cwd").readlink() == folder:
                found.append(entry.name)
    return found


def running(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder: passes write to it."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = Path(f"/proc/{entry.name}/cmdline").read_text(errors="replace")
            except OSError:
                continue
            if f"{folder}/" in text and "-cc1" in text:
                found.append(text)
    return found


@pytest.mark.llvm
@pytest.mark.parametrize("tokens", [0, 2])
def test_no_more_processes_than_tokens(tokens: int, tmp_path: Path, llvm: Tool) -> None:
    """At no moment there run more passes than tokens, and the one that needs none."""
    make_project(tmp_path)
    source = tmp_path / "s.hip"
    spin = SLOW.replace("1000000000", "200000") + "static_assert(result);\n"
    source.write_text(f"{source.read_text()}\n{spin}")
    args = [*LAUNCH, llvm("clang++"), *HIP, *TARGETS, *MORE, "-c", "s.hip", "-o", "s.o"]
    args += ["-fconstexpr-steps=100000000"]
    with pool("fifo", tmp_path, b"x" * tokens) as server:
        more = {"MAKEFLAGS": f" --jobserver-auth={server.auth}", "TMPDIR": str(tmp_path)}
        process = subprocess.Popen(args, cwd=tmp_path, env=environment(more))
        most = 0
        while process.poll() is None:
            most = max(most, len(running(tmp_path)))
        assert process.returncode == 0
        assert most == tokens + 1


def test_make(tmp_path: Path) -> None:
    """A run under make that is stopped leaves its tokens to the commands after it."""
    stopper = tmp_path / "stop.py"
    stopper.write_text(
        "import os, signal, sys\n"
        "from offload_tool.cli._main import guarded\n"
        "from offload_tool.launch.jobserver import slots_of\n"
        "def run():\n"
        "    slots = slots_of(os.environ)\n"
        "    try:\n"
        "        assert [slots.take() for _ in range(4)] == [True, True, True, True]\n"
        "        os.kill(os.getpid(), int(sys.argv[1]))\n"
        "    finally:\n"
        "        slots.give_all()\n"
        "    return 0\n"
        "guarded(run)\n"
    )
    (tmp_path / "Makefile").write_text(
        "all: after\n"
        f"stopped:\n\t+{sys.executable} stop.py 15; {sys.executable} stop.py 2\n"
        "after: stopped\n\t+$(MAKE) many\n"
        "many: 1 2 3 4\n"
        "1 2 3 4:\n\ttouch began$@; while ! test -e began1 -a -e began2 -a -e began3 -a -e began4;"
        " do sleep 0.05; done\n"
    )
    done = four_at_once(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ended by SIG") == 2


@pytest.mark.llvm
@pytest.mark.parametrize("ending", ["well", "error", "INT", "TERM"])
def test_ninja(ending: str, tmp_path: Path, llvm: Tool) -> None:
    """Under Ninja, which is a client of the jobserver itself, no token is lost either."""
    write_source(tmp_path, ending)
    command = " ".join([*LAUNCH, llvm("clang++"), *HIP, *TARGETS, *MORE, "-c", "s.hip", "-o $out"])
    (tmp_path / "build.ninja").write_text(
        f"rule compile\n  command = {command}\nbuild one.o: compile s.hip\n"
        "build two.o: compile s.hip\n"
    )
    with pool("fifo", tmp_path, b"xyz") as server:
        status, messages = ended([program("ninja")], ending, tmp_path, server)
    assert (status == 0) == (ending == "well"), messages
    assert f"at once: the jobserver fifo:{tmp_path}/fifo" in messages or ending in ("INT", "TERM")


def test_make_with_a_named_pipe(tmp_path: Path) -> None:
    """GNU make 4.4 and later lets every command have its tokens: no ``+`` is needed."""
    line = run_tool(program("make"), "--version").split("\n", 1)[0]
    version = line.removeprefix("GNU Make ").split(".")
    if [int(number) for number in version[:2]] < [4, 4]:
        pytest.skip("make is older than 4.4")
    code = (
        "import os; from offload_tool.launch.jobserver import slots_of; s = slots_of(os.environ); "
        "print(s.origin, [s.take() for _ in range(5)]); s.give_all()"
    )
    (tmp_path / "Makefile").write_text(
        f"all: second\nfirst:\n\t@{sys.executable} -c '{code}'\n"
        f"second: first\n\t@{sys.executable} -c '{code}'\n"
    )
    done = four_at_once(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("the jobserver fifo:")
        assert line.endswith(" [True, True, True, True, False]")
