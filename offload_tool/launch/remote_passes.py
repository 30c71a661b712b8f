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
from offload_tool.launch.launcher import launcher_args
from offload_tool.launch.scheduler import Step, merge_steps
from offload_tool.sccache_dist.config import load_distribution
from offload_tool.sccache_dist.eligibility import why_local
from offload_tool.sccache_dist.fallback import Finished
from offload_tool.sccache_dist.session import Session, retry_message

_LANGUAGE = "-x"


class _RemotePass:
    """A pass that the cluster runs, and its original commands."""

    def __init__(self, target: str, steps: Sequence[Step]) -> None:
        self.target = target
        self.steps = steps
        self._args = [step.args for step in steps]

    def restore(self) -> None:
        """Restore the original commands, to run on this machine."""
        for step, args in zip(self.steps, self._args, strict=True):
            step.args, step.environment, step.status = args, None, None


class OnCluster:
    """The passes of one compile that a cluster runs."""

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        """Read the folder that OFFLOAD_DIST names.

        :raises UsageError: it is not usable, or OFFLOAD_LAUNCHER is set, too.
        :raises CompilerError: sccache is not installed.
        """
        launcher_args(environ.get("OFFLOAD_LAUNCHER", ""), folder)
        self._session = Session(load_distribution(folder))
        self._environ = environ
        self._sent: list[_RemotePass] = []
        self._failed: list[tuple[_RemotePass, Finished]] = []
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
        :raises UsageError: the cluster refuses the token.
        """
        reason = why_local(command)
        if reason:
            return reason
        args, environment = self._session.remote_command(command, self._environ)
        if not self._sent:
            self._warnings += self._session.begin_quickly()
        self._sent.append(_RemotePass(target, steps))
        steps[0].environment = environment
        merge_steps(steps, args)
        return ""

    def restore_failed(self) -> bool:
        """Prepare passes that failed on the cluster to run here; return True if there are any."""
        before = len(self._failed)
        for sent in [*self._sent]:
            first = sent.steps[0]
            if first.status:
                self._sent.remove(sent)
                self._failed.append((sent, Finished(first.status, content_of(first.messages_file))))
                with suppress(OSError):
                    os.unlink(first.messages_file)
                sent.restore()
        return len(self._failed) > before

    def messages(self, output: str) -> list[str]:
        """Return the cluster's warnings, and a line for each failed pass that ran here."""
        return self._warnings + [
            retry_message(f"{output} for {sent.target}", finished)
            for sent, finished in self._failed
            if all(step.status == 0 for step in sent.steps)
        ]
