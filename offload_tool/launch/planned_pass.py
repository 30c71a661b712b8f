"""What one pass of the driver's plan is made of: the jobs for one target, or for the host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from offload_tool.clang.argument_files import possible_files
from offload_tool.clang.environment import embeds_folder, folders_of_job
from offload_tool.clang.job_plan import DriverJob, DriverPlan, renamed
from offload_tool.clang.options import JOB_DEPFILE, without_values
from offload_tool.io.file_digests import DigestCache
from offload_tool.io.process import capture
from offload_tool.manifest.key import Key, key_of_command
from offload_tool.manifest.manifest import PassRecord
from offload_tool.manifest.pass_run import Resolver

DEPFILE_OPTION = "-dependency-file"
_RULE = "-MT"
ALL_HEADERS = "-sys-header-deps"
_NO_EFFECT = frozenset({"-fcolor-diagnostics"})
"""Arguments that change no output."""


class PlannedPass(Resolver):
    """A pass of a plan: its result is part of the object, its record of the object's manifest."""

    args: tuple[str, ...] = ()
    kept_output = None
    may_write = False

    def __init__(
        self,
        plan: DriverPlan,
        numbers: Sequence[int],
        depfile: str,
        environ: Mapping[str, str],
        identity: Callable[[str], str],
        digests: DigestCache,
        make_folder: Callable[[], None],
    ) -> None:
        """`numbers` are those of its jobs; `depfile` is the name of the front end's.

        `identity` returns that of a program; `make_folder` creates the folder of the depfile.
        """
        self._make_folder = make_folder
        self._jobs = jobs = [plan.jobs[number] for number in numbers]
        self._depfile = depfile
        self._version = plan.version
        self._environ = environ
        self._identity = identity
        self._digests = digests
        self._source = jobs[0].source
        self.args = tuple(jobs[0].args)
        made = {plan.jobs[number].output for job in jobs for number in job.needs}
        self._command, self._files = _normalised(jobs, made), _named_files(jobs, made)
        folders = (os.getcwd(), environ.get("PWD", ""))
        self._embeds_folder = any(embeds_folder(job.args, folders) for job in jobs)

    @property
    def output(self) -> str:
        """The name of its result."""
        return self._jobs[-1].output

    def key(self, _record: PassRecord | None) -> Key:
        """Return what is known before the pass runs."""
        programs = dict.fromkeys(job.args[0] for job in self._jobs)
        return key_of_command(
            self._command,
            " ".join(map(self._identity, programs)),
            self._version,
            self._environ,
            {name: self._digests.digest(name) for name in self._files},
            embeds_folder=self._embeds_folder,
        )

    def inputs_before(self) -> list[str]:
        """Return the inputs that the command names."""
        return [self._source, *self._files]

    def files_read(self) -> list[str]:
        """Return the files that the pass has read: its depfile lists them, or the preprocessor."""
        job = self._jobs[0]
        read = None
        if DEPFILE_OPTION in job.args and ALL_HEADERS in job.args:
            read = self._listed(self._depfile)
        read = read or self.preprocess()
        if read is None:
            from offload_tool.manifest.inputs import not_listed

            raise not_listed(self._depfile, self._source)
        return read

    def preprocess(self) -> list[str] | None:
        """Return the files that the preprocessor reads now; None if it fails."""
        from offload_tool.launch.launcher_commands import dependency_command

        self._make_folder()
        depfile = f"{self._depfile}.now"
        job = DriverJob([*self._jobs[0].args], self._jobs[0].kind, self._jobs[0].output)
        job.args = [*without_values(job.args, JOB_DEPFILE)]
        add_depfile(job, depfile)
        status = capture(dependency_command(job), self._environ).status
        return self._listed(depfile) if status == 0 else None  # the compile itself reports errors

    def search_path(self) -> tuple[str, ...]:
        """Return the folders in which it searches for headers."""
        return tuple(dict.fromkeys(folders_of_job(self.args)))

    def _listed(self, depfile: str) -> list[str] | None:
        from offload_tool.manifest.inputs import files_in_depfile  # not if all is current

        return files_in_depfile(depfile, self._source, self.args)


def add_depfile(job: DriverJob, name: str) -> None:
    """Add the options that write a depfile: of all headers unless the command says which."""
    rule = [] if _RULE in job.args else [_RULE, "object", ALL_HEADERS]
    job.args[2:2] = [DEPFILE_OPTION, name, *rule]


def _normalised(jobs: Sequence[DriverJob], made: Iterable[str]) -> list[str]:
    """Return the arguments of jobs, without the names of temporary files; other jobs made some."""
    marks = dict.fromkeys(made, "\0embedded")
    marks |= {job.output: f"\0{number}" for number, job in enumerate(jobs)}
    args = (renamed(arg, marks) for job in jobs for arg in job.args)
    return [arg for arg in args if arg not in _NO_EFFECT]


def _named_files(jobs: Sequence[DriverJob], made: Iterable[str]) -> list[str]:
    """Return the files that flags name, except those that jobs have `made`."""
    own = {name for job in jobs for name in (job.output, job.source)}.union(made)
    found = (
        name for job in jobs for name in possible_files(without_values(job.args[1:], JOB_DEPFILE))
    )
    return [name for name in dict.fromkeys(found) if name not in own and os.path.isfile(name)]
