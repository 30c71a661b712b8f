"""Passes through a compiler launcher (``OFFLOAD_LAUNCHER``), each as a command of the driver.

Compiler caches know the driver's commands, not those of its jobs. Therefore this module rewrites
the command for one pass. It drops options of other targets, and strips ``-Xarch_...`` from its
own::

    clang++ -c s.hip -o s.o --offload-arch=gfx906,gfx942 -Xarch_gfx942 -O1 -MD
    clang++ -c s.hip -o OUT -O1 --offload-arch=gfx942 --offload-device-only ...

A query of the driver verifies the rewritten command: the launcher gets it only if it runs exactly
the job of the plan. Otherwise the job runs directly, except with ccache.

The new offload driver links all targets in one job, so none of its commands writes one target's
code object. A shell script in the temporary folder of this run replaces the compiler::

    ccache FOLDER/NUMBER/offload-pass -x hip -c SOURCE -o RESULT -MD -MF DEPFILE
                |
                +-- the front end, which writes DEPFILE; the linker, which writes RESULT

ccache's key has three parts: the source, the files in the depfile, and ``CCACHE_COMPILERCHECK``.
The last one is a digest of the script, the compiler and the linker with their libraries, the
environment variables that they read, and the files that options name. With ``CCACHE_NODIRECT=1``,
ccache runs the script for the preprocessed source (``-E``) each time.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from offload_tool.clang.argument_files import possible_files, unlisted_in_link
from offload_tool.clang.depfile import read_depfile
from offload_tool.clang.driver import option_values
from offload_tool.clang.environment import RESULT_VARIABLES, has_time_macro
from offload_tool.clang.job_plan import (
    EMBEDDING,
    EMBEDDING_ATTACHED,
    HOST,
    DriverJob,
    UnknownPlanError,
    read_jobs,
)
from offload_tool.clang.options import (
    COMPILE_FOLDER,
    DEPFILE,
    EMBEDS,
    HEADERS,
    JOB_DEPFILE,
    READS,
    TARGETS,
    does,
    takes_next,
    without_values,
)
from offload_tool.errors import OffloadError
from offload_tool.io.file_digests import digest_of, is_system_path
from offload_tool.launch.write_result import PLACEHOLDER_FILE

_OUTPUT = ("-o", "--output")
_UNUSED = "-Qunused-arguments"
"""No warning of arguments that this pass does not use: the driver's plan has those of all."""
_XARCH = "-Xarch_"
_ACTIONS = ("-emit-obj", "-emit-llvm-bc", "-S")

_FILES = JOB_DEPFILE | EMBEDS
"""Options for depfile and embedded files, whose positions vary."""
_LISTED_LIBRARY = "-mlink-builtin-bitcode"
_HEADER_MAP = ".hmap"
_ROOT = str(Path(__file__).parents[2])
_SCRIPT_NAME = "offload-pass"
_LINK_FAILED = 3
"""The script's status if the linker fails: the driver reports that in more detail."""
_SCRIPT = """#!/bin/sh
only= out= dep=
while [ $# -gt 0 ]; do
  case $1 in -o) out=$2; shift ;; -MF) dep=$2; shift ;; -E) only=1 ;; esac
  shift
done
if [ "$only" ]; then
  [ -z "$out" ] || exec >"$out"
  {preprocess} || exit
  {is_listed} || echo "// $0"
else
  {run}
  {is_listed} || echo "result: $0" >>{depfile}
  [ "$out" = {result} ] || cat {result} >"$out" || exit
fi
case $dep in '' | {depfile}) ;; *) cat {depfile} >"$dep" ;; esac
"""
"""If the depfile is not complete, the script itself becomes a dependency: a later run has another
script name, so it misses the cache."""
_IS_LISTED = (
    "import sys; sys.path[0] = sys.argv[1]; "
    "from offload_tool.launch.launcher_commands import is_all_listed; "
    "sys.exit(not is_all_listed(sys.argv[2]))"
)
_NOT_FOR_CCACHE = frozenset(
    {"CCACHE_DEPEND", "CCACHE_NODEPEND", "CCACHE_COMPILER", "CCACHE_PREFIX", "CCACHE_PREFIX_CPP"}
)
"""Variables by which ccache would run another program, or in another mode."""


def command_of_pass(args: Sequence[str], first: DriverJob, output: str) -> list[str]:
    """Return the driver's command for one pass of the compile `args`.

    It has no arguments of other targets. `first` is the pass's front end.
    """
    target = first.target
    kept = [args[0], _UNUSED, *_args_for(args[1:], target)]
    if target == HOST:
        kept.append("--offload-host-only")
        if EMBEDDING in first.args:
            kept += ["-Xclang", EMBEDDING, "-Xclang", PLACEHOLDER_FILE]
        kept += [arg for arg in first.args if arg == f"{EMBEDDING_ATTACHED}{PLACEHOLDER_FILE}"]
    else:
        kept += [f"--offload-arch={target}", "--offload-device-only", "--no-gpu-bundle-output"]
        kept += [] if "-c" in kept else ["-c"]  # without it, caches expect a link
    return [*kept, "-o", output]


def _args_for(args: Iterable[str], target: str) -> Iterator[str]:
    names = ("host",) if target == HOST else ("device", target)
    own = {f"{_XARCH}{name}" for name in names}
    rest = iter(args)
    for arg in rest:
        if arg.startswith(_XARCH):
            value = next(rest, "")
            if arg in own:
                yield value
        elif arg in _OUTPUT or (does(arg, DEPFILE) and takes_next(arg)):
            next(rest, "")
        elif not (
            does(arg, DEPFILE | TARGETS)
            or (arg.startswith(_OUTPUT) and not arg.startswith(("-object", "-openmp")))
        ):
            yield arg


def why_not_launched(jobs: Sequence[DriverJob]) -> str:
    """Return why a cache would miss inputs or outputs of a pass; "" if it would not."""
    for job in jobs:
        if job.side_files():
            return f"it also writes '{job.side_files()[0]}'"
        for arg in {*job.embedded()} - {PLACEHOLDER_FILE}:
            return f"it embeds '{arg}', which no depfile lists"
        if job.kind == "lld" and (arg := unlisted_in_link(job.args[1:])):
            return f"no depfile lists what it reads for '{arg}'"
        for arg in job.args[1:]:
            unseen = does(arg, READS | HEADERS) and arg != _LISTED_LIBRARY
            if unseen or arg.endswith(_HEADER_MAP):
                return f"no depfile lists what it reads for '{arg}'"
            if has_time_macro(os.fsencode(arg)):
                return f"'{arg}' is of the time"
    return ""


def runs_exactly(output: str, jobs: Sequence[DriverJob]) -> bool:
    """Return True if the driver's output lists exactly these jobs, whatever their file names."""
    try:
        _, found = read_jobs(output)
    except UnknownPlanError:
        return False
    return len(found) == len(jobs) and _forms(found) == _forms(jobs)


def _forms(jobs: Sequence[DriverJob]) -> list[tuple[list[str], list[str]]]:
    """Return the arguments that define each job, and separately the files that it embeds."""
    marks = {job.output: f"\0{number}" for number, job in enumerate(jobs)}
    forms = []
    for job in jobs:
        args = [marks.get(arg, arg) for arg in without_values(job.args, _FILES)]
        forms.append((args, job.embedded()))
    return forms


def check_result(jobs: Sequence[DriverJob]) -> None:
    """Check that a launcher's result belongs to the pass.

    :raises CodeObjectError: it does not.
    """
    from offload_tool.formats.targets.compile_target import parse_target
    from offload_tool.passes.verify_output import blaming_launcher, check_bitcode, check_code_object

    first, last = jobs[0], jobs[-1]
    if not first.target.startswith("gfx"):
        return  # the placeholder check covers the host, and NVIDIA's programs read CUDA's
    device = parse_target(first.target, allow_unknown=True)
    cuid = next((arg.partition("=")[2] for arg in first.args if arg.startswith("-cuid=")), "")
    with blaming_launcher():
        if last.kind == "lld" and device.target_id is not None:
            check_code_object(last.output, device.target_id, cuid or None)
        elif "-emit-llvm-bc" in last.args and cuid:
            check_bitcode(last.output, device, cuid)


def dependency_command(
    job: DriverJob, action: str = "-Eonly", output: str = os.devnull
) -> list[str]:
    """Return the command by which a front end only writes its depfile, as a launcher may not."""
    args = [action if arg in _ACTIONS else arg for arg in job.args]
    args[args.index("-o") + 1] = output
    return args


def is_ccache(launcher: str) -> bool:
    """Return True if a launcher is ccache, possibly after other arguments."""
    return any(os.path.basename(arg) == "ccache" for arg in shlex.split(launcher))


def is_all_listed(depfile: str) -> bool:
    """Return True if no statement of a pass with this depfile lets the assembler read files.

    System headers are not checked.
    """
    from offload_tool.manifest.source_text import has_assembler_include

    try:
        names = [name for name in read_depfile(depfile) if not is_system_path(name)]
        return not any(has_assembler_include(Path(name).read_bytes()) for name in names)
    except (OSError, OffloadError):
        return False


def without_script(depfile: str, text: bytes) -> bytes:
    """Return the text of a depfile without the rule that its script may have added."""
    return text.removesuffix(os.fsencode(f"result: {_script_file(depfile)}\n"))


def _script_file(depfile: str) -> str:
    return f"{depfile}.compiler/{_SCRIPT_NAME}"


def relative_to_build(arg: str, environ: Mapping[str, str]) -> str:
    """Return an option with names below ``CCACHE_BASEDIR`` made relative, as ccache does."""
    base = environ.get("CCACHE_BASEDIR", "").rstrip("/")
    if not base:
        return arg
    name = rf"{re.escape(base)}(?![^/,=:\s'])[^,=:\s']*"
    return re.sub(name, lambda found: os.path.relpath(found[0]), arg)


def command_for_ccache(
    jobs: Sequence[DriverJob], depfile: str, version: str, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Write the script for a pass next to its depfile; return its command and ccache's variables.

    `version` is the compiler's version output.

    :raises OSError: it cannot be written, or that folder allows no executables.
    """
    first, result = jobs[0], jobs[-1].output
    list_all = ["-dependency-file", depfile, "-sys-header-deps"]
    first.args[2:2] = list_all if "-MT" in first.args else [*list_all, "-MT", "result"]
    text = _script(jobs, depfile, environ)
    script = Path(_script_file(depfile))
    script.parent.mkdir()
    script.write_bytes(os.fsencode(text))
    script.chmod(0o700)
    if not os.access(script, os.X_OK):
        raise PermissionError(errno.EACCES, "no program can be run there", str(script.parent))
    environment = {name: text for name, text in environ.items() if name not in _NOT_FOR_CCACHE}
    environment["CCACHE_COMPILERTYPE"] = "clang"
    environment["CCACHE_COMPILERCHECK"] = f"string:{_digest(text, jobs, depfile, version, environ)}"
    if "CCACHE_NODIRECT" not in environ:  # ccache finds nothing with only one of the two
        environment |= {"CCACHE_DEPEND": "1", "CCACHE_DIRECT": "1"}
    language = [arg for name in list(option_values(first.args, "-x"))[-1:] for arg in ("-x", name)]
    files = ["-c", first.source, "-o", result, "-MD", "-MF", depfile]
    return [str(script), *language, *files], environment


def _script(jobs: Sequence[DriverJob], depfile: str, environ: Mapping[str, str]) -> str:
    folder = os.path.dirname(depfile)

    def line(args: Sequence[str]) -> str:
        return shlex.join(
            arg if does(arg, COMPILE_FOLDER) or folder in arg else relative_to_build(arg, environ)
            for arg in args
        )

    first, *rest = jobs
    lines = [f"{line(first.args)} || exit"]
    lines += [f"{line(job.args)} || exit {_LINK_FAILED}" for job in rest]
    return _SCRIPT.format(
        preprocess=line(dependency_command(first, "-E", "-")),
        run="\n  ".join(lines),
        is_listed=shlex.join([sys.executable, "-c", _IS_LISTED, _ROOT, depfile]),
        result=shlex.quote(jobs[-1].output),
        depfile=shlex.quote(depfile),
    )


def _digest(
    text: str, jobs: Sequence[DriverJob], depfile: str, version: str, environ: Mapping[str, str]
) -> str:
    from offload_tool.toolchain.identity import LIBRARY_PATH, file_digest, program_identity

    outputs = [depfile, *(job.output for job in jobs)]
    for number, name in enumerate(outputs):
        text = text.replace(name, f"\0{number}")
    if "CCACHE_NOHASHDIR" in environ:
        text = relative_to_build(text, environ)
    options = [
        arg for job in jobs for arg in without_values(job.args[1:], _FILES) if arg not in outputs
    ]
    parts = [text, version, *(environ.get(name, "") for name in RESULT_VARIABLES)]
    path = environ.get(LIBRARY_PATH, "")
    parts += [program_identity(job.args[0], path) for job in jobs]
    parts += [file_digest(name) for name in possible_files(options) if os.path.isfile(name)]
    return digest_of("\0".join(parts).encode(errors="surrogateescape"))
