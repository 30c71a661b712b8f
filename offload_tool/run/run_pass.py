"""Run one compiler pass or one device link: write one checked output, or none.

For build tools that run one command per output::

    manifest: is OUT up to date? -- yes --> OUT stays, nothing is run
                     | no
    the compiler writes OUT --> check --> equal bytes: OUT stays the same file
                                 |
                        depfile, manifest, stamp

After an error, output, depfile and stamp are removed. A run that a signal interrupts leaves all of
them unchanged: see `output_backup`. For the manifest see `output_state`.

The depfile also lists the compiler, so that build tools that compare times rebuild after a
change.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from offload_tool.clang.depfile import depfile_text
from offload_tool.errors import CodeObjectError, CompilerError, FileError, UsageError
from offload_tool.io import process
from offload_tool.io.input_file import open_regular
from offload_tool.io.paths import is_standard_output, naming, remove, sibling
from offload_tool.io.signals import shielded
from offload_tool.manifest import manifest_path
from offload_tool.manifest.inputs import files_read, implicit_inputs_of, preprocess
from offload_tool.manifest.output_state import Work, pass_run
from offload_tool.manifest.pass_run import PassRun
from offload_tool.passes.command import Command
from offload_tool.run.output_backup import OutputBackup, remove_half_written
from offload_tool.run.pass_command import WantedPass, compiler_version, pass_command
from offload_tool.run.validate_flags import check_depfile_flags, check_flags
from offload_tool.util.which import which

if TYPE_CHECKING:
    from offload_tool.manifest.cut_off import Stages

    Runner = Callable[[Sequence[str], Mapping[str, str]], int]
    """Runs a command in an environment; returns its exit status, 128 + N for signal N."""

    CommandRunner = Callable[[Command, Mapping[str, str]], int]
    Accelerator = Callable[..., Any]
    """Returns a pass that may run in a faster way, as `pch.compile_command.PassWithPch`."""

_SIGNAL_BASE = 128
"""Added to a signal's number for the exit status, as shells do."""


class Outputs(NamedTuple):
    """The files that a job writes."""

    file: str
    depfile: str | None = None
    """A Makefile rule with the output's dependencies, spelled as the compiler does."""
    stamp: str | None = None
    """An empty file that each run writes, for build tools that compare times. It is then the target
    of the rule, and never older than a dependency."""


def run_pass(
    wanted: WantedPass,
    outputs: Outputs,
    *,
    runner: CommandRunner | None = None,
    accelerator: Accelerator | None = None,
) -> int:
    """Compile a source to `outputs`; return the compiler's exit status, 0 on success.

    The `runner` runs the compiler, or this process if None. Its messages go to standard error. An
    `accelerator` may run the pass in a faster way.

    Raise TargetIDError or UsageError for what was asked, FileError for an input or output,
    CompilerError for the compiler, and CodeObjectError for what it has written.
    """
    source, environ, flags, host_ir = wanted.source, wanted.environ, wanted.flags, wanted.host_ir
    inputs = [source] if host_ir is None else [source, host_ir]
    output, depfile = outputs.file, compiler_depfile(outputs.file)
    check_names(inputs, outputs)
    check_flags(flags, rdc=wanted.rdc)
    check_depfile_flags(flags, outputs.depfile)
    parts = pass_command(wanted)
    if parts.needs_host_ir and host_ir is None:
        raise UsageError("this pass of an OpenMP source reads its host IR; give --host-ir F")
    if host_ir is not None and not parts.needs_host_ir:
        raise UsageError(
            "--host-ir: only host and device passes of OpenMP sources read host IR; leave it out"
        )
    environment = {**environ, **parts.environment}
    read = source if parts.writes_depfile else inputs[-1]
    own = (*parts.args[len(parts.compiler) :], *flags, *parts.last)
    plain = Command(tuple(parts.compiler), own, output, read)
    key = [] if runner is None else _cache_key(wanted)
    command = plain._replace(depfile=depfile if parts.writes_depfile else "").with_flags(*key)
    stages = None
    if parts.can_bypass_driver and runner is None:
        from offload_tool.manifest.cut_off import Stages

        stages = Stages.of(environ)
    faster = None
    if accelerator is not None:
        faster = accelerator(wanted=wanted, parts=parts, command=command, stages=stages)

    def listed() -> list[str]:
        listed = files_read(command, environment)
        return listed if faster is None else [*faster.files_read(listed)]

    work = Work(
        output,
        plain.argv(),
        environment,
        parts.identity,
        tuple(dict.fromkeys([read, *inputs[1:]])),
        functools.cache(lambda: implicit_inputs_of(plain.args, environment)),
        listed if command.depfile else lambda: [read],
        (lambda: preprocess(command, environment)) if command.depfile else None,
        by_inode=wanted.kind == "openmp" and read == source,
        version=lambda: compiler_version(parts),
    )

    def check() -> None:
        from offload_tool.passes.verify_output import blaming_launcher

        with blaming_launcher(is_launched=runner is not None):
            wanted.check(output)

    def accepts_flags() -> bool:
        from offload_tool.run.diagnostics import warnings_of, whole_command

        begin = [*parts.compiler, *parts.toolchain["local_flags"]]
        targets = [wanted.target] if wanted.target is not None else []
        found = warnings_of(whole_command(begin, wanted.kind, source, targets, flags), environment)
        sys.stderr.write(found.text)
        return not found.is_error

    job = OutputJob(
        work,
        command=command.argv(),
        outputs=outputs,
        tool=parts.compiler,
        check=check,
        installed=parts.installed,
        faster=None if faster is None else faster.run,
        stages=stages,
        accepts_flags=accepts_flags,
    )
    if runner is None and parts.needs_host_ir and wanted.stage == "device":
        from offload_tool.run.openmp_jobs import run_device_pass

        return produce_output(job, functools.partial(run_device_pass, run=run_command))
    return produce_output(job, runner and (lambda _, variables: runner(command, variables)))


def _cache_key(wanted: WantedPass) -> list[str]:
    """Return an option that separates OpenMP compiles, whose outputs depend on inode numbers."""
    if wanted.host_ir is not None:
        import hashlib

        with open(wanted.host_ir, "rb") as file:
            key = hashlib.sha256(file.read()).hexdigest()
    elif wanted.stage == "host-ir":
        key = os.urandom(16).hex()
    else:
        return []
    return ["-Xclang", f"-cuid={key}"]


def check_names(inputs: Sequence[str], outputs: Outputs) -> None:
    """Raise UsageError or FileError unless all inputs can be read and all outputs written."""
    for name in (*inputs, *filter(None, outputs)):
        if "\n" in name or "\r" in name:
            raise UsageError(f"{name!r} holds a line break, which a depfile cannot; rename it")
    for name in inputs:
        os.close(open_regular(name)[0])
    taken = {os.path.realpath(name): name for name in inputs}
    for name in filter(None, outputs):
        if is_standard_output(name) or (os.path.exists(name) and not os.path.isfile(name)):
            raise UsageError(f"'{name}': expected the name of a regular file to write")
        folder = os.path.dirname(name) or "."
        if not os.access(folder, os.W_OK | os.X_OK):
            raise FileError(
                name,
                f"cannot be written: no such folder, or not writable: '{folder}'; "
                "make the folder, or its permission",
            )
        real = os.path.realpath(name)
        if real in taken:
            raise UsageError(f"'{name}' would replace '{taken[real]}'; give it another name")
        taken[real] = name


class OutputJob(NamedTuple):
    """The command that writes an output, and its checks."""

    work: Work
    command: Sequence[str]
    """That of `work`, with a launcher's arguments and flags that write a depfile."""
    outputs: Outputs
    tool: Sequence[str]
    check: Callable[[], None]
    installed: Sequence[str] = ()
    """Files that the compiler uses without listing them; they also identify it."""
    faster: Callable[[], bool] | None = None
    """Runs the pass in a faster way and returns True; if False, the command runs."""
    stages: Stages | None = None
    """Set if the pass can run without the compiler's driver."""
    accepts_flags: Callable[[], bool] = lambda: True
    """Prints the driver's warnings of the flags, and returns False if one is an error."""


def compiler_depfile(output: str) -> str:
    """Return the name of the compiler's depfile, from which the requested one is made."""
    return sibling(output, ".d")


def produce_output(job: OutputJob, runner: Runner | None = None) -> int:
    """Run the command unless the output is current; remove all outputs if it fails."""
    outputs, depfile = job.outputs, compiler_depfile(job.outputs.file)
    backup = OutputBackup(outputs.file)
    backup.restore()
    run = pass_run(job.work)
    if run.is_current():
        _remove(depfile)  # left behind by a killed run
        write_depfile_and_stamp(outputs, [*run.inputs(), *job.installed], job.tool)
        return 0
    status, ended, start = 1, False, None
    try:
        start = run.begin(depfile)
        if job.stages is not None:
            run.begin_stages(job.stages)
        backup.save()
        status = _execute(job, runner)
        if status == 0:
            if job.stages is not None and job.stages.is_cut_off:
                backup.restore()
            _complete(job, run, backup)
        ended = status == 0
    except (KeyboardInterrupt, SystemExit):  # interrupted: restore the state before the run
        backup.restore()
        ended = True
        raise
    finally:
        with shielded():
            if not ended:
                _remove(*outputs, manifest_path(outputs.file))
            if status and start is not None:
                remove_half_written(outputs.file, start.moment)
            backup.drop()
            _remove(depfile)
    return status


def _complete(job: OutputJob, run: PassRun, backup: OutputBackup) -> None:
    outputs = job.outputs
    if not os.path.isfile(outputs.file):
        raise CodeObjectError(
            f"'{outputs.file}': '{job.command[0]}' reported success but wrote no such file; "
            "run it by hand, without its launcher"
        )
    job.check()
    backup.restore_if_equal()
    record = run.finish()
    try:
        run.save(record)
    except FileError:  # such as a full disk: the output is still right
        _remove(manifest_path(outputs.file))
    names = [*record.inputs, *record.key.files, *job.installed]
    with shielded():  # an interrupted call leaves all outputs as they were, or new
        backup.drop()
        write_depfile_and_stamp(outputs, names, job.tool)


def _remove(*names: str | None) -> None:
    for name in filter(None, names):
        with naming(name):  # e.g. of another user in /tmp
            remove(name)


def _execute(job: OutputJob, runner: Runner | None) -> int:
    if not job.accepts_flags():
        return 1
    if job.faster is not None and job.faster():
        return 0
    environment = job.work.environment
    if runner is not None or job.stages is None:
        return (runner or run_command)(job.command, environment)
    from offload_tool.run.driverless import DirectPasses

    sys.stdout.flush()
    passes = DirectPasses()
    status = passes.run(job.command, environment, job.stages)
    if status is not None:
        return status if status >= 0 else _SIGNAL_BASE - status
    job.stages.reset()
    status = run_command(job.command, environment)
    if status:
        passes.advise(job.command)
    return status


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command with our standard streams, without input; return its exit status."""
    sys.stdout.flush()
    try:
        code = process.run(command, environment)
    except OSError as error:
        raise CompilerError(
            f"'{command[0]}' cannot be run: {error.strerror}; "
            "install it, or set OFFLOAD_CLANG or OFFLOAD_LAUNCHER to another program"
        ) from error
    if code < 0:
        sys.stderr.write(f"'{command[0]}' was ended by signal {-code}\n")
        return _SIGNAL_BASE - code
    return code


def write_depfile_and_stamp(outputs: Outputs, names: Sequence[str], tool: Sequence[str]) -> None:
    """Write depfile, with `names`, and stamp of an output; raise FileError."""
    if not (outputs.depfile or outputs.stamp):
        return
    from offload_tool.io import replace_file

    if outputs.depfile is not None:
        target = outputs.stamp or outputs.file
        text = depfile_text(target, dict.fromkeys([*names, *filter(None, map(which, tool))]))
        with replace_file(outputs.depfile) as out:
            out.write(os.fsencode(text))
    if outputs.stamp is not None:
        with replace_file(outputs.stamp):
            pass
