"""Processes that have imported SCons and the tool, and fork to run SCons.

Most of the time of a short run is that of imports. What `run_scons` starts has the given
environment, folder and arguments, and nothing of a run before. Where a new Python would import
other code, or start otherwise, the fork becomes one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_TOOLS = (
    *("ar", "as", "default", "dmd", "dvipdf", "dvips", "f77", "f90", "f95", "filesystem", "g++"),
    *("g77", "gas", "gcc", "gdc", "gfortran", "gnulink", "gs", "ifl", "ifort", "install", "jar"),
    *("javac", "javah", "latex", "ldc", "lex", "m4", "pdf", "pdflatex", "pdftex", "rmic", "rpcgen"),
    *("rpm", "swig", "tar", "tex", "textfile", "yacc", "zip"),
)
_MODULES = (
    *("SCons.Script", "SCons.Taskmaster.Job", *(f"SCons.Tool.{tool}" for tool in _TOOLS)),
    *("offload_tool.scons.offload", "offload_tool.scons.spawn"),
)
_READ_AT_START = ("PYTHON", "SCONS", "COV", "LC_", "LANG", "TZ", "GLIBC", "MALLOC", "LD_")
"""What variables begin with that Python, the C library or an import of SCons reads."""
_LONGEST = 1 << 16


def run_scons(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] = os.environ,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m SCons`` without input: a fork of a zygote that is idle, or a new Python."""
    request = json.dumps([arguments, str(cwd), dict(env)]).encode()
    with _idle_zygote() if len(request) < _LONGEST else contextlib.nullcontext() as zygote:
        if zygote is None:
            return subprocess.run(
                [sys.executable, "-m", "SCons", *arguments],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout,
            )
        status, *printed = zygote.run(request, timeout)
    output, messages = (io.TextIOWrapper(io.BytesIO(it), errors="replace").read() for it in printed)
    return subprocess.CompletedProcess(["scons", *arguments], status, output, messages)


def killed_scons(
    arguments: Sequence[str], reached: Path, *, cwd: Path, env: Mapping[str, str]
) -> tuple[int, str]:
    """Run SCons until a file is there, and kill all of it; return its status and output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "SCons", *arguments],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    end = time.monotonic() + 300
    while process.poll() is None and not reached.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    output, _ = process.communicate()
    return process.returncode, output


class _Zygote:
    """One process that forks, for one run of SCons at a time."""

    def __init__(self) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                pass_fds=[other.fileno()],
            )
        atexit.register(self._close)

    def _close(self) -> None:
        self._channel.close()
        self._process.wait()

    def run(self, request: bytes, timeout: float) -> tuple[int, bytes, bytes]:
        """Return the exit status, negative for a signal, the output and the errors."""
        end = time.monotonic() + timeout
        pipes = [os.pipe(), os.pipe()]
        socket.send_fds(self._channel, [request], [written for _, written in pipes])
        process = int(self._channel.recv(_LONGEST))
        for _, written in pipes:
            os.close(written)
        found = {reader: b"" for reader, _ in pipes}
        with selectors.DefaultSelector() as selector:
            for reader in found:
                selector.register(reader, selectors.EVENT_READ)
            while selector.get_map() and time.monotonic() < end:
                for key, _ in selector.select(end - time.monotonic()):
                    data = os.read(key.fd, _LONGEST)
                    found[key.fd] += data
                    if not data:
                        selector.unregister(key.fd)
            if is_late := bool(selector.get_map()):
                os.kill(process, signal.SIGKILL)
        for reader in found:
            os.close(reader)
        status = int(self._channel.recv(_LONGEST))
        if is_late:
            raise subprocess.TimeoutExpired(request.decode(), timeout)
        return status, *found.values()


_idle: deque[_Zygote] = deque()
_started: list[_Zygote] = []
_MOST = 2
"""In turn, so that the seed of Python's hashes differs from that of the run before."""


@contextlib.contextmanager
def _idle_zygote() -> Iterator[_Zygote | None]:
    """Choose the zygote that has been idle longest; None if all are at work."""
    if len(_started) < _MOST:
        _started.append(zygote := _Zygote())
    elif _idle:
        zygote = _idle.popleft()
    else:
        yield None
        return
    try:
        yield zygote
    except subprocess.TimeoutExpired:  # raised after the end of the run
        _idle.append(zygote)
        raise
    _idle.append(zygote)


def _serve(channel: socket.socket) -> list[Any]:
    """Fork for each request, and report the process and its status; return it in the fork."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, files, _, _ = socket.recv_fds(channel, _LONGEST, 2)
        if not data:
            os._exit(0)
        process = os.fork()
        if not process:
            break
        for file in files:
            os.close(file)
        channel.send(b"%d" % process)
        _, status = os.waitpid(process, 0)
        channel.send(b"%d" % os.waitstatus_to_exitcode(status))
    channel.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(files[number - 1], number)
        os.close(files[number - 1])
        old = getattr(sys, name)
        stream = open(number, "w", encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=old.line_buffering)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    found: list[Any] = json.loads(data)
    return found


def _starts_the_same(arguments: Sequence[str], before: Mapping[str, str]) -> bool:
    """Return True if a new Python, here and in this environment, imports what is imported."""
    read = [
        {name: value for name, value in variables.items() if name.startswith(_READ_AT_START)}
        for variables in (os.environ, before)
    ]
    here = Path.cwd()
    names = set() if here == ROOT else {path.name.partition(".")[0] for path in here.iterdir()}
    return (
        read[0] == read[1]
        and names.isdisjoint(sys.modules)
        and not any(word.startswith("--debug") and word != "--debug=explain" for word in arguments)
    )


def main() -> None:
    """Run SCons in each fork, as ``python -m`` does."""
    before, path = dict(os.environ), sys.path[1:]
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    arguments, folder, environment = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if not _starts_the_same(arguments, before):
        command = [sys.executable, "-m", "SCons", *arguments]
        os.execve(sys.executable, command, environment)
    sys.path[:] = [str(Path.cwd()), *path]
    sys.argv[1:] = arguments
    runpy.run_module("SCons", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
