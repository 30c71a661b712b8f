"""HIP device passes on a cluster (``OFFLOAD_DIST``), as commands of the driver for sccache.

::

    a pass as a command --> its form for any machine --> sccache --> checked as after any launcher
        | must stay here                                    | fails
        v                                                   v
    the jobs of the plan, on this machine <-----------------+  once, with a message

sccache-dist reports its own failures like errors in the source, so failed passes run again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from offload_tool.clang.driver import option_values
from offload_tool.clang.job_plan import HOST, DriverJob
from offload_tool.io.file_digests import content_of
from offload_tool.launch.scheduler import Step, merge_steps
from offload_tool.run.launcher import launcher_args
from offload_tool.sccache_dist.cluster import load_cluster, why_local
from offload_tool.sccache_dist.fallback import Finished, retry_message
from offload_tool.toolchain.identity import LIBRARY_PATH
from offload_tool.toolchain.probe import probe

_LANGUAGE = "-x"


class OnCluster:
    """The passes of one compile that a cluster runs."""

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        """Read the folder that OFFLOAD_DIST names.

        :raises UsageError: it is not usable, or OFFLOAD_LAUNCHER is set, too.
        :raises CompilerError: sccache is not installed.
        """
        launcher_args(environ.get("OFFLOAD_LAUNCHER", ""), folder)
        self._cluster = load_cluster(folder)
        self._environ = environ
        self._sent: list[tuple[str, Sequence[Step], list[Sequence[str]]]] = []
        """The target, the steps and their original commands of each pass."""
        self._failed: list[tuple[str, Sequence[Step], Finished]] = []
        self._warnings: list[str] = []

    @staticmethod
    def may_run(job: DriverJob) -> bool:
        """Return True if a pass with this front end is HIP device code."""
        return job.target != HOST and "hip" in option_values(job.args, _LANGUAGE)

    @staticmethod
    def with_language(args: Sequence[str]) -> list[str]:
        """Return a HIP compile's arguments with ``-x hip``: sccache does not know all suffixes.

        The driver query checks that they still define the same compile.
        """
        if any(arg.startswith(_LANGUAGE) for arg in args[1:]):
            return list(args)
        return [args[0], _LANGUAGE, "hip", *args[1:]]

    def send(self, target: str, command: Sequence[str], steps: Sequence[Step]) -> str:
        """Run the command on the cluster in a pass's first step, and nothing in the others.

        :returns: "", or why the pass stays on this machine; then nothing is changed.
        :raises CompilerError: the compiler is not the packed one, or sccache does not start.
        """
        reason = why_local(command)
        if reason:
            return reason
        if not self._sent:
            paths = (self._environ.get(name, "") for name in ("PATH", LIBRARY_PATH))
            self._cluster.check_compiler(probe((command[0],), command[0], *paths))
            self._warnings += self._cluster.begin()
        args, environment = self._cluster.remote_command(command, self._environ)
        self._sent.append((target, steps, [step.args for step in steps]))
        steps[0].environment = environment
        merge_steps(steps, args)
        return ""

    def restore_failed(self) -> bool:
        """Restore the commands of passes that failed on the cluster; return True if any did."""
        failed = [sent for sent in self._sent if sent[1][0].status]
        for target, steps, original in failed:
            messages_file = steps[0].messages_file
            finished = Finished(steps[0].status or 0, content_of(messages_file))
            self._failed.append((target, steps, finished))
            with suppress(OSError):
                os.unlink(messages_file)
            for step, args in zip(steps, original, strict=True):
                step.args, step.environment, step.status = args, None, None
        self._sent = [sent for sent in self._sent if sent not in failed]
        return bool(failed)

    def messages(self, output: str) -> list[str]:
        """Return the cluster's warnings, and a line for each failed pass that ran here."""
        return self._warnings + [
            retry_message(f"{output} for {target}", self._cluster.sccache, finished)
            for target, steps, finished in self._failed
            if all(step.status == 0 for step in steps)
        ]
