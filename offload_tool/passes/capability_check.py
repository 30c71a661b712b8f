"""Check whether a compiler can do a job, by the job's own passes over an empty source.

A trial is the command of a pass (`CompilePass.command`), and fails where the pass would. It adds
flags that leave out what it is not about, and an include.

=========  ============================================================================
targets    the pass of each target, without headers and libraries
libraries  the same with each directory of device libraries, until one works: it has the
           processors' files, and no newer LLVM has written them
headers    the first pass with each installation's headers, until they compile, and the
           plans of the others (``-###``)
=========  ============================================================================

Plans are not enough: clang 23 finds HIP 6.4, and cannot compile its headers; CUDA 13 without
cuRAND's headers is a toolkit, and no source compiles with it. A trial takes seconds, so a success
is cached until the compiler, the installation or the flags change; a failure is not, as its
possible remedies are not all known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from offload_tool.clang.driver import jobs_of, query, query_plan
from offload_tool.clang.environment import OWN_INSTALLATIONS, folder_key
from offload_tool.clang.options import NO_HEADERS, NO_LIBRARIES, does
from offload_tool.errors import CompilerError
from offload_tool.formats.targets.compile_target import parse_targets
from offload_tool.io.temporary_directory import temporary_folder
from offload_tool.passes.command import Command
from offload_tool.passes.languages import LANGUAGES
from offload_tool.toolchain.driver_cache import cached_compiler_result
from offload_tool.toolchain.installations import (
    Installation,
    cuda_installations,
    device_library_folders,
    rocm_installations,
    unusable_variables,
)
from offload_tool.toolchain.probe import CUDA_PATH, Toolchain
from offload_tool.util.frozen import frozen, replaced
from offload_tool.util.memoize import memoized
from offload_tool.util.which import which

_ERROR = re.compile(r"^.*?(?:fatal )?error: (?P<text>.+)$", re.MULTILINE)
_ADVICE = re.compile(r"; provide its path via .*|, or pass '-no.*")
"""Clang's advice in its messages; this package has its own."""
_HIDDEN = (*OWN_INSTALLATIONS, "ROCM_PATH", "HIP_PATH", "HIP_DEVICE_LIB_PATH", "CUDA_PATH")
"""Variables that would override the flags under trial, and this package's, which the flags follow.
A trial is the same whatever they hold."""
_DEPENDENCIES = (
    *("", "include", "include/hip", "include/hip/hip_runtime.h", "include/hip/hip_version.h"),
    *("include/hip/amd_detail", "share/hip/version", "ockl.bc", "ocml.bc"),
    *("include/cuda.h", "include/crt", "nvvm/libdevice", "nvvm/libdevice/libdevice.10.bc"),
)
"""Files of an installation that change with it."""
_UNLISTED_FILES = ("ocml.bc", "ockl.bc", "share/hip/version", "nvvm/libdevice/libdevice.10.bc")
_ANY_TARGET = {"hip": "gfx906", "cuda": "sm_75"}
"""The target of a trial for a GPU that is not known yet."""
_CUID = "trial"
_ALONE = ("-nogpulib", "-nogpuinc")
"""The flags of a trial of targets alone."""
_OUTPUT, _HOST_IR = "\0output", "\0host-ir"


@frozen
class Equipment:
    """The installations and flags with which a compiler can do a job."""

    flags: tuple[str, ...] = ()
    description: str = ""
    identity: str = ""
    """Identity of the installations, without paths."""
    used: tuple[str, ...] = ()

    def files(self, targets: Iterable[str]) -> list[str]:
        """Return the used files that no depfile lists: libraries, and files with versions."""
        numbers = (target.split(":", 1)[0].removeprefix("gfx") for target in targets)
        names = [*_UNLISTED_FILES, *(f"oclc_isa_version_{number}.bc" for number in numbers)]
        paths = (Path(folder, name) for folder in self.used for name in names)
        return [str(path) for path in paths if os.path.isfile(path)]

    def with_other(self, other: Equipment) -> Equipment:
        """Return this equipment and another together."""
        texts = (self.description, other.description), (self.identity, other.identity)
        description, identity = (", ".join(filter(None, pair)) for pair in texts)
        return Equipment(self.flags + other.flags, description, identity, self.used + other.used)

    def given_to(self, toolchain: Toolchain, kind: str) -> Toolchain:
        """Return the compiler whose passes of `kind` use this equipment."""
        if kind == "hip":
            return replaced(toolchain, rocm_flags=self.flags)
        if kind == "cuda":
            return replaced(toolchain, cuda_flags=self.flags, cuda="".join(self.used[:1]))
        return replaced(toolchain, openmp_flags=self.flags)


@frozen
class Job:
    """A kind of compile that a compiler is needed for."""

    kind: str
    """``hip``, ``cuda`` or ``openmp``."""
    targets: tuple[str, ...] = ()
    """Target IDs, or triples of CPUs."""
    flags: tuple[str, ...] = ()
    """The result of `options.relevant_flags`."""
    all_flags: tuple[str, ...] = ()
    """All flags of a compile, if `flags` are not enough: they may name a missing header."""
    source: str = "source.c"
    """A name like those of the sources: an OpenMP source's determines its language."""

    @property
    def needs_headers(self) -> bool:
        """Return whether headers of HIP or CUDA are read."""
        return self.kind != "openmp" and not any(does(x, NO_HEADERS) for x in self.flags)

    @property
    def needs_libraries(self) -> bool:
        """Return whether device libraries are linked."""
        return not any(does(x, NO_LIBRARIES) for x in self.flags)

    def __str__(self) -> str:
        kind = {"hip": "HIP", "cuda": "CUDA", "openmp": "OpenMP"}[self.kind]
        return f"{kind} code for {', '.join(self.targets)}" if self.targets else f"{kind} code"

    def find_equipment(
        self, toolchain: Toolchain, environ: Mapping[str, str], doubts: list[str] | None = None
    ) -> Equipment:
        """Find the installations for this, else append to `doubts` or raise CompilerError."""
        request = _Request(toolchain, self, environ, doubts)
        return {"hip": _find_rocm, "cuda": _find_cuda, "openmp": _find_both}[self.kind](request)

    def commands(self, toolchain: Toolchain) -> list[Command]:
        """Return its passes' commands over an empty source; the one of host IR is first."""
        language = LANGUAGES[self.kind]
        given = self.targets or tuple(filter(None, [_ANY_TARGET.get(self.kind)]))
        targets = parse_targets(given, self.kind, allow_unknown=True)
        make = partial(language, source=self.source, host_ir=_HOST_IR)
        passes = [(make("device", _CUID, target), _OUTPUT) for target in targets]
        if language.has_host_ir:
            passes.insert(0, (make("host-ir", _CUID), _HOST_IR))
        flags = self.all_flags or self.flags
        commands = ((each.command(toolchain, flags), output) for each, output in passes)
        return [each._replace(output=output, source=os.devnull) for each, output in commands]


@frozen
class _Request:
    toolchain: Toolchain
    job: Job
    environ: Mapping[str, str]
    doubts: list[str] | None = None
    """If given, failures are appended to it instead of raised."""

    def has_option(self, *options: str) -> bool:
        """Return whether the job's flags have one of these options with a value."""
        return any(
            flag.startswith(tuple(f"{name}=" for name in options)) for flag in self.job.flags
        )


def _find_both(request: _Request) -> Equipment:
    both = Equipment()
    for find, is_nvidia in ((_find_rocm, False), (_find_cuda, True)):
        names = tuple(x for x in request.job.targets if x.startswith("sm_") == is_nvidia)
        if names:
            found = find(replaced(request, job=replaced(request.job, targets=names)))
            both = both.with_other(found)
    return both


def _find_rocm(request: _Request) -> Equipment:
    job = request.job
    _first_working(request, [], _ALONE)
    headers = libraries = Equipment()
    if job.needs_headers:
        is_named = request.has_option("--rocm-path", "--hip-path")
        candidates = [
            Equipment((f"--rocm-path={root.path}",), f"HIP {root}", root.identity, (root.path,))
            for root in ([] if is_named else rocm_installations(request.environ))
        ]
        # Debian's HIP 6.4 defines functions that call the libraries, which a link would miss.
        flags = ("-nogpulib", "-include", "hip/hip_runtime.h", "-fsyntax-only")
        lacking = unusable_variables(request.environ, "hip")
        headers = _first_working(request, candidates, flags, lacking)
    if job.needs_libraries:
        folders = []
        if not request.has_option("--rocm-path", "--rocm-device-lib-path", "--hip-device-lib-path"):
            folders = device_library_folders(request.environ, headers.used, _resources(request))
        candidates = [
            Equipment(
                (f"--rocm-device-lib-path={path}",), f"device libraries in {path}", "", (path,)
            )
            for path in folders
        ]
        libraries = _first_working(request, candidates, ("-nogpuinc",))
    return headers.with_other(libraries)


def _find_cuda(request: _Request) -> Equipment:
    job = request.job
    _first_working(request, [], _ALONE)
    named = request.environ.get("OFFLOAD_CUDA_PATH")
    if request.has_option("--cuda-path") or not (job.needs_headers or job.needs_libraries or named):
        return Equipment()
    toolkits = [_toolkit(found, job.kind) for found in cuda_installations(request.environ)]
    return _first_working(request, toolkits, (), unusable_variables(request.environ, "cuda"))


def _toolkit(found: Installation, kind: str) -> Equipment:
    flags = [f"{CUDA_PATH}={found.path}", "-Wno-unknown-cuda-version"]
    cccl = f"{found.path}/include/cccl"  # Thrust and CUB of CUDA 13, as nvcc knows
    flags += ["-isystem", cccl] if kind == "cuda" and os.path.isdir(cccl) else []
    return Equipment(tuple(flags), f"CUDA {found}", found.identity, (found.path,))


def _first_working(
    request: _Request,
    candidates: Sequence[Equipment],
    flags: Sequence[str] = (),
    lacking: Sequence[str] = (),
) -> Equipment:
    """Return the first candidate that works with `flags`, or the compiler alone without any.

    `lacking` names candidates that were not tried. Raise CompilerError with all reasons.
    """
    reasons: dict[str, str] = {}
    tried = candidates or [Equipment()]
    for found in tried:
        try:
            _check_candidate(request, found, flags)
        except CompilerError as error:
            reasons.setdefault(str(error), found.description)
        else:
            description = "; ".join(filter(None, [found.description, *lacking]))
            return replaced(found, description=description)
    texts = [f"{name}: {reason}" if name else reason for reason, name in reasons.items()]
    text = "; ".join([*texts, *lacking])
    if request.doubts is None:
        raise CompilerError(text)
    if text not in request.doubts:
        request.doubts.append(text)
    return tried[0]


# -- trials ------------------------------------------------------------------------------


def _check_candidate(request: _Request, found: Equipment, flags: Sequence[str]) -> None:
    """Try the job with some equipment; cache a success. Raise CompilerError."""
    job = request.job
    toolchain = found.given_to(request.toolchain, job.kind)
    plans_suffice = job.needs_headers and not any(does(flag, NO_HEADERS) for flag in flags)

    def find() -> bool:
        variables = {name: text for name, text in request.environ.items() if name not in _HIDDEN}
        reason = _reason(commands, variables, plans_suffice=plans_suffice)
        if reason:
            raise CompilerError(reason)
        return True

    commands = _commands(job, toolchain, flags)
    args = [arg for command in commands for arg in ("", *command)]
    dependencies = [f"{path}/{part}" for path in found.used for part in _DEPENDENCIES]
    key = ["trial", toolchain.identity, found.identity, *args, *folder_key(args)]
    compiler = [*toolchain.clang, *toolchain.local_flags]
    cached_compiler_result(key, compiler, request.environ, find, lambda _: dependencies)


def _commands(job: Job, toolchain: Toolchain, flags: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    trial = (*flags, "-w", "-ferror-limit=1", "-fno-crash-diagnostics")
    return tuple(tuple(each.with_flags(*trial).argv()) for each in job.commands(toolchain))


def supported_targets(
    toolchain: Toolchain, kind: str, targets: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Return those of `targets` for which a compiler compiles an empty source."""

    def find() -> list[str]:
        jobs = {target: Job(kind, (target,)) for target in targets}
        return [
            target
            for target, job in jobs.items()
            if not _reason(_commands(job, toolchain, _ALONE), environ, plans_suffice=False)
        ]

    command = [*toolchain.clang, *toolchain.local_flags]
    key = ["targets", toolchain.identity, kind, *targets, *command, *folder_key(command)]
    key += (*toolchain.rocm_flags, *toolchain.cuda_flags)
    found: list[str] = cached_compiler_result(key, command, environ, find)
    return found


@memoized(256)
def _reason(
    commands: Sequence[Sequence[str]], environ: Mapping[str, str], *, plans_suffice: bool
) -> str:
    """Return why a compiler cannot do a job, or ""; each trial runs once per process."""
    with temporary_folder("offload-trial-") as folder:
        names = {_OUTPUT: str(folder / "output"), _HOST_IR: str(folder / "host.bc")}
        for at, command in enumerate(commands):
            args = [names.get(arg, arg) for arg in command]
            try:
                result = (query_plan if at and plans_suffice else query)(args, environ)
                if result.status:
                    _check_programs(args, environ)
                    match = _ERROR.search(result.errors)
                    return _ADVICE.sub("", match["text"]) if match else result.reason
            except CompilerError as error:
                return str(error) or "the compiler says nothing"
    return ""


def _check_programs(args: Sequence[str], environ: Mapping[str, str]) -> None:
    for job in jobs_of(query_plan(args, environ)):
        if which(job[0], environ.get("PATH", os.defpath)) is None:
            raise CompilerError(f"runs '{job[0]}', which is not there; install it")


def _resources(request: _Request) -> str:
    command = [*request.toolchain.clang, *request.toolchain.local_flags]

    def find() -> str:
        result = query([*command, "-print-resource-dir"], request.environ)
        return result.output.strip() if result.status == 0 else ""

    key = ["resources", request.toolchain.identity, *command, *folder_key(command)]
    environ = request.environ
    folder: str = cached_compiler_result(key, command, environ, find, lambda folder: [folder])
    return folder
