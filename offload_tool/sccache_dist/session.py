"""One build that uses a cluster: begin, run compiles from any thread, and report the result."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offload_tool.clang.driver import option_values
from offload_tool.errors import CompilerError, OffloadError, UsageError
from offload_tool.sccache_dist.cluster import (
    Counters,
    Engine,
    SchedulerError,
    check_token,
    query_scheduler,
)
from offload_tool.sccache_dist.config import Distribution, packed_name
from offload_tool.sccache_dist.eligibility import remote_form, why_local
from offload_tool.sccache_dist.fallback import Finished, run_locally, run_once, was_stopped

_JOB_FAILED = b"Job failed on server"  # sccache's prefix of a remote compiler's messages


@dataclass(frozen=True, slots=True)
class Report:
    """Where the compiles of a build ran."""

    compiles: int
    """Compiles that were to be distributed."""
    distributed: int
    """Results from a server of the cluster."""
    again: int
    """Compiles that failed on the cluster, and ran here."""
    cache_hits: int
    failed: int
    """Compiles that failed here too: errors in the sources."""
    shared: bool
    """Another build used the directory at the same time, so the engine's numbers cover both."""

    @property
    def nothing_distributed(self) -> bool:
        """Return whether no compile was distributed, although some could have been."""
        return self.compiles - self.cache_hits - self.failed > 0 and self.distributed == 0

    def __str__(self) -> str:
        parts = [f"distributed {self.distributed} of {self.compiles}"]
        parts.append(f"{self.again} again locally")
        if self.cache_hits:
            parts.append(f"{self.cache_hits} from the cache")
        if self.failed:
            parts.append(f"{self.failed} failed")
        here = self.compiles - self.distributed - self.again - self.cache_hits - self.failed
        if here > 0 and not self.shared:
            parts.append(f"{here} only locally")
        return ", ".join(parts) + (" (together with another build)" if self.shared else "")


class Session:
    """A build's use of a cluster.

    Call `begin` once before the first compile, `run` for each, `report` at the end.
    """

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution
        self._engine = Engine(distribution)
        self._before = Counters(0, 0, 0, 0)
        self._problem = ""
        self._capacity = 0
        self._lock = threading.Lock()
        self._compiles = self._again = self._failed = self._failed_remotely = 0

    def begin(self) -> list[str]:
        """Start the local engine and check that the cluster answers; return warnings, one a line.

        Without a cluster the build continues on this machine alone, with a warning.

        :raises UsageError: the scheduler rejects the token.
        :raises CompilerError: sccache cannot be started.
        """
        self._problem = self.find_problem()
        self._engine.start(connect=not self._problem)
        if not self._problem and not self._engine.is_connected():
            self._problem = "the local sccache server does not reach the scheduler"
        self._before = self._engine.counters()
        return [self._warning(self._problem)] if self._problem else []

    def begin_quickly(self) -> list[str]:
        """Call `begin` unless a local engine runs with the directory's present configuration."""
        if self._engine.is_current():
            return []
        return self.begin()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[Finished, str]:
        """Run a compile on the cluster, or on this machine if it must, or after a failure there.

        `command` is the compiler and its options, without a launcher; `environment` is the
        compiler's.

        :returns: the result, and a message to print (empty, or one line).
        :raises CompilerError: it cannot be run, or its compiler is not the packed one.
        """
        if why_local(command):
            return run_once(command, environment), ""
        remote, variables = self.remote_command(command, environment)
        finished = run_once(remote, variables)
        if finished.status == 0 or was_stopped(finished.status):
            with self._lock:
                self._compiles += 1
            return finished, ""
        here = run_locally(command, environment)
        with self._lock:
            self._compiles += 1
            self._failed_remotely += _JOB_FAILED in finished.output
            self._failed += here.status != 0
            self._again += here.status == 0
        if here.status != 0:
            return here, ""  # an error in the source; one set of messages is enough
        return here, retry_message(next(option_values(command, "-o"), command[-1]), finished)

    def remote_command(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that runs a compile on the cluster, and its environment.

        `why_local` must allow the compile.

        :raises CompilerError: its compiler is not the packed one.
        """
        path = environment.get("PATH", os.defpath)
        compiler = packed_name(self.distribution.compilers, command[0], path)
        if compiler is None:
            raise CompilerError(
                f"OFFLOAD_DIST: '{self.distribution.folder}' holds "
                f"{self.distribution.compilers[0]}, but this compile runs '{command[0]}'; "
                "run 'offload-tool dist init' with --clang again"
            )
        remote, added = remote_form([compiler, *command[1:]], environment)
        return [self.distribution.sccache, *remote], self._engine.environment(environment) | added

    def report(self) -> Report:
        """Return where the compiles since `begin` ran, from the engine's counters.

        :raises CompilerError: the engine returns none.
        """
        counted = self._engine.counters().since(self._before)
        return Report(
            compiles=self._compiles,
            distributed=max(0, counted.distributed - self._failed_remotely),
            again=self._again + counted.dist_errors,
            cache_hits=counted.cache_hits,
            failed=self._failed,
            shared=counted.requests > self._compiles,
        )

    def summary(self) -> list[str]:
        """Return the lines to print at the end of a build; none if nothing was compiled."""
        if not self._compiles:
            return []
        try:
            report = self.report()
        except OffloadError as error:
            return [f"offload: warning: {error}; where the compiles ran is not known"]
        lines = [f"offload: {report}"]
        if report.nothing_distributed:
            lines.append(self._warning(self._problem or self._reason_now()))
        elif report.again > self._again:
            lines.append(
                f"offload: the cluster takes about {self._capacity} compiles at once; with more "
                "jobs (-j), or where a server is lost, the rest runs on this machine"
            )
        return lines

    def find_problem(self) -> str:
        """Return the cluster's problem; empty if it is ready.

        :raises UsageError: it rejects the token.
        """
        where = self.distribution
        try:
            status = query_scheduler(where.scheduler)
            if not check_token(where.scheduler, where.token()):
                raise UsageError(
                    f"OFFLOAD_DIST: the scheduler {where.scheduler} refuses the token in "
                    f"'{where.folder}'; run 'offload-tool dist init' with the right one"
                )
        except SchedulerError as error:
            return str(error)
        if status.servers == 0:
            return f"the scheduler {where.scheduler} has no servers"
        self._capacity = status.capacity
        return ""

    def _reason_now(self) -> str:
        try:
            return self.find_problem() or "the cluster was busy, or refused every compile"
        except OffloadError as error:
            return str(error)

    def _warning(self, reason: str) -> str:
        return (
            f"offload: warning: OFFLOAD_DIST={self.distribution.folder}: nothing is distributed, "
            f"everything is compiled on this machine: {reason}"
        )


def retry_message(output: str, finished: Finished) -> str:
    """Return a line that reports a compile that ran here after a failure on the cluster."""
    return (
        f"offload: {output}: the distributed compile failed ({finished.reason}); "
        "compiled again on this machine"
    )
