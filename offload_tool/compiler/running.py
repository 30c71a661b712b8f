"""Run one compiler pass, or one device link: one output, checked, or none.

For every build tool that runs one command per output. While the compiler works, the old
output is aside under another name::

    OUT --> .OUT.<random>.old        compiler --> OUT --> check
                    |                                       |
                    +--------- equal bytes: back to OUT <---+

so the compiler is told the output's true name, which some outputs contain (``--coverage``,
``-gsplit-dwarf``), and a file whose bytes come out equal is the very file that it was. After
any error there is neither an output, nor a depfile, nor a stamp.

The depfile names, beside what the compiler has read, the compiler itself, so that another
one makes everything anew, as far as a build tool that compares times can tell.

What is needed only for the check is imported while the compiler works.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.compiler.remembered import pass_command
from offload_tool.errors import CodeObjectError, CompilerError, FileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload_tool.compiler.device import Device
    from offload_tool.compiler.remembered import WantedPass
    from offload_tool.compiler.toolchain import Toolchain

    Runner = Callable[[Sequence[str], Mapping[str, str]], int]
    """Runs a command in an environment; gives its exit status, 128 + N for signal N."""

__all__ = ["Outputs", "run_command", "run_device_link", "run_pass"]

_SIGNAL_BASE = 128
"""Added to a signal's number for the exit status, as shells do."""


class Outputs(NamedTuple):
    """The files that a job writes."""

    file: str
    """What it is for."""
    depfile: str | None = None
    """A Makefile rule: which files it depends on, as they are spelled."""
    stamp: str | None = None
    """An empty file, written each time, for build tools that compare times. The rule is then
    for the stamp, whose time is never older than the files it depends on."""


def run_pass(
    wanted: WantedPass,
    source: str,
    outputs: Outputs,
    *,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
    host_ir: str | None = None,
    runner: Runner | None = None,
) -> int:
    """Compile `source` to `outputs`; give the compiler's exit status, 0 when all is well.

    The compiler is the one of the OS environment `environ`, run by `runner`: here, if there
    is none. What it says goes to standard error. `flags` come after those of the pass. The
    host IR of an OpenMP source is an input of all its other passes.

    :raises TargetIDError, UsageError: no such pass, an input too many or too few, or an
        output that would replace an input.
    :raises FileError: an input cannot be read, or an output or depfile not be written.
    :raises CompilerError: no compiler, or one that cannot be run.
    :raises CodeObjectError: the compiler made something else than it was asked for.
    """
    inputs = [source] if host_ir is None else [source, host_ir]
    output, depfile = outputs.file, outputs.depfile
    _check_names(inputs, outputs)
    found = pass_command(wanted, source, environ=environ, host_ir=host_ir, depfile=depfile)
    if found.needs_host_ir and host_ir is None:
        raise UsageError("this pass of an OpenMP source reads its host IR: give --host-ir F")
    if host_ir is not None and not found.needs_host_ir:
        raise UsageError("--host-ir: only host and device passes of OpenMP sources read host IR")
    environment = {**environ, **found.environment}
    read = source if found.dependencies else inputs[-1]
    dependencies = found.dependencies if depfile is not None else []
    key = [] if runner is None else _cache_key(wanted, host_ir)
    command = [*found.words, *flags, *key, *dependencies, "-o", output, read]

    def finish() -> None:
        wanted.check(output, host_ir)
        if depfile is None:
            return
        names = [read]
        if dependencies:
            from offload_tool.compiler.depfile import depfile_command, read_depfile

            if not Path(depfile).exists():
                run_command(depfile_command(command), environment)
            names = read_depfile(Path(depfile))
        _write_depfile(outputs, [*names, read, *inputs[1:]], found.compiler)

    return _produce(command, environment, outputs, finish, runner)


def _cache_key(wanted: WantedPass, host_ir: str | None) -> list[str]:
    """Give an option without an effect, by which a cache tells compiles of OpenMP apart.

    Their results depend on inode numbers: of all files that the host IR is made of, which
    nobody knows beforehand, or of those in the host IR.
    """
    if host_ir is not None:
        import hashlib

        key = hashlib.sha256(Path(host_ir).read_bytes()).hexdigest()
    elif wanted.stage == "host-ir":
        key = os.urandom(16).hex()
    else:
        return []
    return ["-Xclang", f"-cuid={key}"]


def run_device_link(
    device: Device,
    kind: str,
    toolchain: Toolchain,
    inputs: Sequence[str],
    outputs: Outputs,
    *,
    flags: Sequence[str] = (),
) -> int:
    """Link relocatable device code and archives of it; give the linker's exit status.

    :raises: as `run_pass` does; UsageError also for a device without a linker.
    """
    from offload_tool.compiler.device_link import link_arguments, linker

    _check_names(inputs, outputs)
    tool = linker(device, toolchain)
    command = [*tool, *link_arguments(device, kind), *flags, "-o", outputs.file]
    command += _link_inputs(device, kind, toolchain, inputs)
    environment = {**os.environ, **dict(toolchain.environment)}

    def finish() -> None:
        if device.target_id is not None:
            from offload_tool.compiler.check import check_code_object

            check_code_object(outputs.file, device.target_id, None)
        _write_depfile(outputs, inputs, tool)

    return _produce(command, environment, outputs, finish)


def _link_inputs(
    device: Device, kind: str, toolchain: Toolchain, inputs: Sequence[str]
) -> list[str]:
    if device.target_id is None:
        return list(inputs)
    from offload_tool.compiler.openmp import device_runtimes

    # Nothing but the host code says which kernels of an archive are wanted.
    runtimes = device_runtimes(toolchain, device) if kind == "openmp" else ()
    return ["--whole-archive", *inputs, "--no-whole-archive", *runtimes]


def _check_names(inputs: Sequence[str], outputs: Outputs) -> None:
    """Find out before anything is run what could not be read or written."""
    for name in inputs:
        try:
            os.close(os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise FileError(name, error) from error
        if Path(name).is_dir():
            raise FileError(name, "Is a directory, expected a file")
    taken = {os.path.realpath(name): name for name in inputs}
    for name in filter(None, outputs):
        path = Path(name)
        if path.exists() and not path.is_file():
            raise UsageError(f"'{name}': expected the name of a regular file to write")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise FileError(
                name, f"cannot be written: no such folder, or not writable: '{path.parent}'"
            )
        real = os.path.realpath(name)
        if real in taken:
            raise UsageError(f"'{name}' would replace '{taken[real]}'; give it another name")
        taken[real] = name


def _produce(
    command: Sequence[str],
    environment: Mapping[str, str],
    outputs: Outputs,
    finish: Callable[[], None],
    runner: Runner | None = None,
) -> int:
    """Run the command that writes the output, then `finish`; undo all where one fails."""
    new, done = Path(outputs.file), False
    old = new.with_name(f".{new.name[:200]}.{os.urandom(6).hex()}.old")
    try:
        _put_aside(new, old)
        _remove(*outputs[1:])
        if runner is None:
            status = run_command(command, environment, meanwhile=_import_check)
        else:
            status = runner(command, environment)
        if status == 0:
            if not new.is_file():
                raise CodeObjectError(
                    f"'{outputs.file}': '{command[0]}' reported success but wrote no such file"
                )
            finish()
            if outputs.stamp is not None:
                _write_stamp(outputs.stamp)
            if _are_equal(old, new):
                old.replace(new)
            done = True
        return status
    finally:
        old.unlink(missing_ok=True)
        if not done:
            _remove(*outputs)


def _remove(*names: str | None) -> None:
    for name in filter(None, names):
        try:
            Path(name).unlink(missing_ok=True)
        except OSError as error:  # of another user, say, in a folder like /tmp
            raise FileError(name, error) from error


def _write_stamp(name: str) -> None:
    from offload_tool.files import replace_file

    with replace_file(name):
        pass


def _put_aside(new: Path, old: Path) -> None:
    try:
        new.rename(old)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise FileError(new, error) from error


def _import_check() -> None:
    from offload_tool.compiler import check, depfile  # noqa: F401 - for `finish`
    from offload_tool.formats import target_id  # noqa: F401


def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    meanwhile: Callable[[], None] = lambda: None,
) -> int:
    """Run a command without input; its messages go where ours go. Give its exit status.

    :raises CompilerError: it cannot be run.
    """
    # Not by subprocess, which takes longer to load than a small file to compile.
    no_input = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
    sys.stdout.flush()
    try:
        process = os.posix_spawnp(command[0], list(command), environment, file_actions=no_input)
    except OSError as error:
        raise CompilerError(f"'{command[0]}' cannot be run: {error.strerror}") from error
    try:
        meanwhile()
        _, status = os.waitpid(process, 0)
    except BaseException:
        import signal

        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
        raise
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        sys.stderr.write(f"'{command[0]}' was ended by signal {-code}\n")
        return _SIGNAL_BASE - code
    return code


def _are_equal(old: Path, new: Path) -> bool:
    try:
        if old.stat().st_size != new.stat().st_size:
            return False
    except FileNotFoundError:
        return False
    import filecmp

    return filecmp.cmp(old, new, shallow=False)


def _write_depfile(outputs: Outputs, names: Sequence[str], compiler: Sequence[str]) -> None:
    if outputs.depfile is None:
        return
    from offload_tool.compiler.depfile import depfile_text
    from offload_tool.files import replace_file

    target = outputs.stamp or outputs.file
    text = depfile_text(target, dict.fromkeys([*names, *_programs(compiler)]))
    with replace_file(outputs.depfile) as out:
        out.write(os.fsencode(text))


def _programs(command: Sequence[str]) -> list[str]:
    """Give the files of the programs that a command's words name: ``ccache clang`` are two."""
    found = []
    for word in command:
        folders = [""] if "/" in word else os.environ.get("PATH", os.defpath).split(os.pathsep)
        paths = (os.path.join(folder, word) for folder in folders)  # noqa: PTH118
        for path in paths:
            if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
                found.append(path)
                break
    return found
