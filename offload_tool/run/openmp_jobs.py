"""The driver's jobs for OpenMP: the pass of a device, and the link of a device's image.

::

    clang --offload-device-only a.c            the plan:   cc1 host IR -> cc1 device [-> ptxas]
    a device's pass                                                       cc1 device [-> ptxas]

    clang++ a.package -o program               the plan:   linker-wrapper
    a device's image            linker-wrapper: links the image, wraps it, starts the host linker;
                                a script in the linker's place keeps the wrapped image

Both commands are for one target. Their jobs run as the driver prints them (``-###``), with names of
files replaced. A plan with anything else is refused. `job_cache` has the jobs of a device's pass.

Source: clang 19, 21, 22 and 23, observed: clang 19's wrapper optimises AMD's bitcode itself, and
others run clang for it, so only a run of the wrapper gives its image in all versions.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from offload_tool.clang.driver import (
    QueryResult,
    jobs_of,
    llvm_temporary_folder,
    option_values,
    query_plan,
    with_terminal_args,
)
from offload_tool.clang.job_plan import kind_of_job, messages_in
from offload_tool.clang.options import HOST_IR
from offload_tool.errors import CodeObjectError, CompilerError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.io import InputFile, replace_file
from offload_tool.io.temporary_directory import temporary_folder
from offload_tool.run.job_cache import JobCache, Jobs, Language, Names
from offload_tool.toolchain.driver_cache import is_program
from offload_tool.util.which import which

Run = Callable[[list[str], Mapping[str, str]], int]

_OUTPUTS = ("-o", "--output-file")
_OF_A_PASS = ("cc1", "cc1as", "ptxas")
_BEFORE_VALUES = ("", "-o", "-Xlinker", "-Xoffload-linker", "-Xclang", "-mllvm", "-z", "-T")
"""Arguments after which one is no input: at the beginning, the program."""
_RPATH = re.compile(r"^(-Wl,--?rpath)=")
"""The wrapper would give clang an option that it does not have."""
_SAVE_TEMPS = re.compile(r"(^-|=)-save-temps(=\w+)?$")
"""Links of other programs, which may run now, would write to the same files."""
_LINKER = "--linker-path="
_RANDOM = re.compile(r"-[0-9a-f]{6}(?=\.\w+$)")
_DEPFILE = "-dependency-file"
_MARKS = ("\0source", "\0output", "\0host IR", "\0depfile")
_OTHERS = (os.devnull, "offload-other.o", "offload-other.bc", "offload-other.d")
_FOLDER, _STEM = "\0folder", "\0stem"
"""The directory of a pass's temporary files, and the beginning of their names."""
_KEPT = "wrapped.o"
_KEEPER = """\
#!/bin/sh
for arg in "$@"; do
  case $arg in "$TMPDIR"/*.wrapper*.o) exec cp "$arg" "$TMPDIR/wrapped.o";; esac
done
echo "offload: clang-linker-wrapper gives the linker no wrapped image: $*" >&2
exit 1
"""
"""The host linker's place in a link of one image."""


def run_device_pass(
    command: Sequence[str], environment: Mapping[str, str], run: Run, cache: JobCache | None = None
) -> int:
    """Run a pass ending in ``-o OUTPUT SOURCE``; return the status. Raise CompilerError."""
    names = _names_in(command)
    found = (cache or _of_this_process()).jobs(command, names, environment)
    if found is None:
        found = _query_jobs(command, names, environment)
    if not found:
        return run([*command], environment)  # a script may do more; the driver prints its errors
    messages, *jobs = found
    _print(messages)
    stem = _stem(names[0])
    with temporary_folder("offload-openmp-", llvm_temporary_folder(environment)) as folder:
        for job in jobs:
            args = [arg.replace(_FOLDER, str(folder)).replace(_STEM, stem) for arg in job]
            status = run(args, environment)
            if status:
                return status
    return 0


def link_image(
    command: Sequence[str],
    inputs: Sequence[str],
    target: tuple[CompileTarget, str],
    environment: Mapping[str, str],
    run: Run,
) -> int:
    """Link device code to the image of one target; return the exit status.

    `command` is the driver's link ``CXX FLAGS... -o OUTPUT INPUTS... LIBRARIES...``; the device
    code of `inputs` replaces them. `target` is the device, and the processor in packages. Raise
    CompilerError for an unknown plan, CodeObjectError or FormatError for the inputs, FileError.
    """
    output = command[command.index("-o") + 1]
    with temporary_folder("offload-openmp-", llvm_temporary_folder(environment)) as folder:
        package = str(folder / "device.package")
        _write_package(package, inputs, target, output)
        at = command.index(inputs[0], command.index("-o") + 2)
        args = [
            *(*_without_device_code(command[:at]), package),
            *_without_device_code(command[at + len(inputs) :], command[: at + len(inputs)]),
        ]
        plan = _query(args, environment)
        if plan.status:
            return run([*command], environment)  # the driver prints its errors
        _print(messages_in(plan.errors))
        wrapper = [
            _keeping(arg, folder)
            for arg in _wrapper(plan, output, environment)
            if not _SAVE_TEMPS.search(arg)
        ]
        status = run(wrapper, {**environment, "TMPDIR": str(folder)})
        return status or _write_image(folder / _KEPT, output)


def job_cache() -> JobCache:
    """Return an empty cache of the jobs of device passes."""
    return JobCache(_DEVICE_PASSES)


_of_this_process = functools.cache(job_cache)


def _names_in(command: Sequence[str]) -> Names:
    host_ir = command[command.index(HOST_IR) + 2]
    depfile = command[command.index(_DEPFILE) + 2] if _DEPFILE in command else ""
    return command[-1], command[-2], host_ir, depfile


def _query_jobs(
    command: Sequence[str], names: Names, environment: Mapping[str, str]
) -> Jobs | None:
    """Return the driver's messages and jobs: () for a script, None if it refuses."""
    plan = _query(command, environment)
    if plan.status:
        return None
    jobs = _device_jobs(plan, names)
    if not is_program(jobs[0][0], command[0], environment):
        return ()
    before = f"{plan.folder}/{_stem(names[0])}-"
    marked = (tuple(_marked(arg, plan.folder, before) for arg in job) for job in jobs)
    return (tuple(messages_in(plan.errors)), *marked)


_DEVICE_PASSES = Language("openmp", _MARKS, _OTHERS, _query_jobs)


def _stem(source: str) -> str:
    """Return the part of a source's name that the driver's temporary files have."""
    return os.path.basename(source).partition(".")[0]


def _marked(arg: str, folder: str, before: str) -> str:
    """Return an argument with marks for a temporary name, which ptxas puts into cubins (``-g``)."""
    if folder not in arg:
        return arg
    marked = arg.replace(before, f"{_FOLDER}/{_STEM}-").replace(folder, _FOLDER)
    return _RANDOM.sub("", marked)


def _query(command: Sequence[str], environment: Mapping[str, str]) -> QueryResult:
    return query_plan(with_terminal_args(command, environment), environment)


def _print(messages: Sequence[str]) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in messages))
    sys.stderr.flush()


def _device_jobs(plan: QueryResult, names: Names) -> list[list[str]]:
    """Return the jobs for the device, with the host IR of the command."""
    jobs = jobs_of(plan)
    _, output, host_ir, _ = names
    outputs = {value for job in jobs for value in _outputs_of(job)}
    # With -save-temps, the last job has the given option alone.
    made = [value for job in jobs for value in option_values(job, HOST_IR) if value in outputs][-1:]
    chosen: list[list[str]] = []
    needed = {output}
    for job in reversed(jobs):
        written = _outputs_of(job)
        if written == made and chosen:
            return [[host_ir if arg in made else arg for arg in job] for job in chosen]
        if kind_of_job(job) not in _OF_A_PASS or needed.isdisjoint(written):
            break
        chosen.insert(0, job)
        needed |= {*job}
    programs = ", ".join(f"'{kind_of_job(job)}'" for job in jobs)
    raise CompilerError(
        f"'{output}': expected a plan (-###) of a front end for the host and jobs for the device, "
        f"found {programs}; remove the flags that change the driver's jobs"
    )


def _outputs_of(job: Sequence[str]) -> list[str]:
    return [value for option in _OUTPUTS for value in option_values(job, option)]


def _wrapper(plan: QueryResult, output: str, environment: Mapping[str, str]) -> list[str]:
    jobs = jobs_of(plan)
    programs = [kind_of_job(job) for job in jobs]
    has_linker = any(arg.startswith(_LINKER) for job in jobs for arg in job)
    if programs != ["linker-wrapper"] or not has_linker:
        found = ", ".join(f"'{name}'" for name in programs)
        raise CompilerError(
            f"'{output}': expected the plan (-###) of a link with clang-linker-wrapper alone, "
            f"found {found or 'nothing'}; remove the flags that change the driver's jobs"
        )
    if which(jobs[0][0], environment.get("PATH", os.defpath)) is None:
        raise CompilerError(
            f"'{output}': the driver links device code of OpenMP with '{jobs[0][0]}', which is not "
            "there; install it (Debian: clang-tools-NN of the compiler's version)"
        )
    return jobs[0]


def _without_device_code(args: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    from offload_tool.clang.argument_files import linked_files
    from offload_tool.containers.relocatable import relocatable_kinds

    def find(path: str) -> str | None:
        return path if os.path.isfile(path) else None

    folders = [arg for arg in (*others, *args) if arg.startswith("-L")]
    kept = []
    begin = others[-1:] or [""]
    for before, arg in itertools.pairwise((*begin, *args)):
        is_input = arg.startswith("-l") or not (arg.startswith("-") or before in _BEFORE_VALUES)
        files = linked_files([*folders, arg], find) if is_input else ()
        if not any("openmp" in relocatable_kinds(file) for file in files):
            kept.append(_RPATH.sub(r"\1,", arg))
    return kept


def _keeping(arg: str, folder: Path) -> str:
    if not arg.startswith(_LINKER):
        return arg
    keeper = folder / "keep"
    keeper.write_text(_KEEPER)
    keeper.chmod(0o700)
    return f"{_LINKER}{keeper}"


def _write_package(
    package: str, inputs: Sequence[str], target: tuple[CompileTarget, str], output: str
) -> None:
    from offload_tool.containers.walk import open_file_or_members
    from offload_tool.formats.bitcode.module import is_bitcode
    from offload_tool.formats.offload_binary import ImageKind, plan_offload_binary

    device, arch = target
    strings = {"triple": device.packaged_triple, "arch": arch}
    is_empty = True
    with replace_file(package) as out:
        for file in (file for path in inputs for file in open_file_or_members(path)):
            kind = ImageKind.BITCODE if is_bitcode(file.source.data) else ImageKind.OBJECT
            plan_offload_binary(
                file.source, image_kind=kind, offload_kind=1, strings=strings
            ).write_to(out)
            is_empty = False
    if is_empty:
        raise CodeObjectError(
            f"'{output}': there is nothing to link: all archives are empty; "
            "build them for this target"
        )


def _write_image(wrapped: Path, output: str) -> int:
    from offload_tool.containers.offload_binaries import find_offload_binaries

    with InputFile(wrapped) as source, find_offload_binaries(source) as found:
        images = [image.content(each.source.data) for each in found for image in each.binary.images]
        if len(images) != 1:
            raise CodeObjectError(f"'{output}': expected one image, found {len(images)}")
        with replace_file(output) as out:
            out.write(images[0])
    return 0
