"""Check whether a compiler can do a job, with one small trial of the needed kind.

There are three trials; a flag (``-nogpulib``, ``-nogpuinc``) may make one unnecessary:

=========  ============================================================================
targets    ``-###`` for all target IDs, and one empty compile: it knows the processors
libraries  the same with each directory of device libraries, until one works: it has the
           processors' files, and no newer LLVM has written them
headers    an empty source with each installation's headers, until they compile
=========  ============================================================================

``-###`` alone is not enough: clang 23 finds HIP 6.4, and cannot compile its headers; CUDA 13
without cuRAND's headers is a toolkit, and no source compiles with it.

A trial takes seconds, so a success is cached until the compiler, the installation or the flags
change. A failure is not cached: its possible remedies are not all known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from offload_tool.clang.driver import QueryResult, jobs_of, query, query_plan
from offload_tool.clang.environment import OWN_INSTALLATIONS, folder_key
from offload_tool.clang.options import NO_HEADERS, NO_LIBRARIES, does
from offload_tool.errors import CompilerError
from offload_tool.toolchain.disk_cache import cached_result
from offload_tool.toolchain.installations import (
    Installation,
    cuda_installations,
    device_library_folders,
    rocm_installations,
    unusable_variables,
)
from offload_tool.util.frozen import frozen, replaced
from offload_tool.util.memoize import memoized

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

    @property
    def needs_headers(self) -> bool:
        """Return whether headers of HIP or CUDA are read."""
        return self.kind != "openmp" and not any(does(x, NO_HEADERS) for x in self.flags)

    @property
    def needs_libraries(self) -> bool:
        """Return whether device libraries are linked."""
        return self.kind != "openmp" and not any(does(x, NO_LIBRARIES) for x in self.flags)

    def __str__(self) -> str:
        kind = {"hip": "HIP", "cuda": "CUDA", "openmp": "OpenMP"}[self.kind]
        return f"{kind} code for {', '.join(self.targets)}" if self.targets else f"{kind} code"


@frozen
class Equipment:
    """The installations and flags with which a compiler can do a job."""

    flags: tuple[str, ...] = ()
    """Flags that name its path on this machine."""
    description: str = ""
    """For messages; empty if no installation was needed."""
    identity: str = ""
    """Identity of the installations, without paths."""
    used: tuple[str, ...] = ()
    """Directories of the installations."""

    def files(self, targets: Iterable[str]) -> list[str]:
        """Return the used files that no depfile lists: libraries, and files with versions."""
        numbers = (target.split(":", 1)[0].removeprefix("gfx") for target in targets)
        names = [*_UNLISTED_FILES, *(f"oclc_isa_version_{number}.bc" for number in numbers)]
        paths = (Path(folder, name) for folder in self.used for name in names)
        return [str(path) for path in paths if path.is_file()]


@frozen
class _Request:
    """A job, and a compiler: the command prefix of its calls and its identity."""

    command: tuple[str, ...]
    identity: str
    job: Job
    environ: Mapping[str, str]
    doubts: list[str] | None = None
    """If given, failures are appended to it instead of raised."""

    def has_option(self, *options: str) -> bool:
        """Return whether the job's flags have one of these options with a value."""
        return any(
            flag.startswith(tuple(f"{name}=" for name in options)) for flag in self.job.flags
        )


def find_equipment(
    command: Sequence[str],
    identity: str,
    job: Job,
    environ: Mapping[str, str],
    doubts: list[str] | None = None,
) -> Equipment:
    """Find the installations with which a compiler can do a job.

    `command` is the prefix of the compiler's calls, and `identity` its identity. `environ` is the
    environment of its programs. If `doubts` is given, failures are appended to it, and the result
    has the first installations.

    :raises CompilerError: it cannot do the job with any; the message names what is missing.
    """
    request = _Request(tuple(command), identity, job, environ, doubts)
    find = {"hip": _find_rocm, "cuda": _find_cuda}.get(job.kind)
    return find(request) if find is not None else _first_working(request, [])


def _find_rocm(request: _Request) -> Equipment:
    job = request.job
    _first_working(request, [], ("-nogpulib", "-nogpuinc"))
    headers = libraries = Equipment()
    if job.needs_headers:
        is_named = request.has_option("--rocm-path", "--hip-path")
        candidates = [
            Equipment((f"--rocm-path={root.path}",), f"HIP {root}", root.identity, (root.path,))
            for root in ([] if is_named else rocm_installations(request.environ))
        ]
        flags = ("-nogpulib", "-include", "hip/hip_runtime.h")
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
    return Equipment(
        headers.flags + libraries.flags,
        ", ".join(filter(None, (headers.description, libraries.description))),
        headers.identity,
        headers.used + libraries.used,
    )


def _find_cuda(request: _Request) -> Equipment:
    job = request.job
    _first_working(request, [], ("-nogpulib", "-nogpuinc"))
    named = request.environ.get("OFFLOAD_CUDA_PATH")
    if request.has_option("--cuda-path") or not (job.needs_headers or job.needs_libraries or named):
        return Equipment()
    toolkits = map(_toolkit, cuda_installations(request.environ))
    return _first_working(request, [*toolkits], (), unusable_variables(request.environ, "cuda"))


def _toolkit(found: Installation) -> Equipment:
    flags = [f"--cuda-path={found.path}", "-Wno-unknown-cuda-version"]
    cccl = f"{found.path}/include/cccl"  # Thrust and CUB of CUDA 13, as nvcc knows
    flags += ["-isystem", cccl] if Path(cccl).is_dir() else []
    return Equipment(tuple(flags), f"CUDA {found}", found.identity, (found.path,))


def _first_working(
    request: _Request,
    candidates: Sequence[Equipment],
    flags: Sequence[str] = (),
    lacking: Sequence[str] = (),
) -> Equipment:
    """Return the first candidate with which the compiler can do the job.

    Without candidates, the compiler is tried alone. `flags` leave out the rest of the job, and
    `lacking` names candidates that were not tried.

    :raises CompilerError: there is none; the message has the reason for each.
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
    """Try the job with some equipment; a success is cached.

    :raises CompilerError: the trial fails; the message is the compiler's.
    """
    job = request.job
    args = [
        *request.command,
        *found.flags,
        *_pass_flags(job),
        *(job.all_flags or job.flags),
        *flags,
    ]

    def find() -> bool:
        variables = {name: text for name, text in request.environ.items() if name not in _HIDDEN}
        reason = _reason(args, job.targets, variables)
        if reason:
            raise CompilerError(reason)
        return True

    dependencies = [f"{path}/{part}" for path in found.used for part in _DEPENDENCIES]
    key = ["trial", request.identity, found.identity, *args, "", *job.targets, *folder_key(args)]
    cached_result(key, find, lambda _: dependencies, lambda _: request.command, request.environ)


@memoized(256)
def _reason(args: Sequence[str], targets: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return why a compiler cannot do a job; "" if it can. Each trial runs once per process."""
    devices = [f"--offload-arch={target}" for target in targets]
    last = "-S" if "cuda" in args else "-c"  # CUDA's passes end with PTX, before ptxas
    one = [*devices[:1], "-emit-llvm", "-c", "-w", "-ferror-limit=1", "-o", os.devnull, os.devnull]
    try:
        result = query_plan([*args, *devices, last, os.devnull], environ)
        _check_result(result)
        _check_programs(result, environ)
        _check_result(query([*args, *one], environ))
    except CompilerError as error:
        return str(error) or "the compiler says nothing"
    return ""


def _pass_flags(job: Job) -> list[str]:
    if job.kind == "openmp":
        return ["-x", "c", "-fopenmp", "-nogpulib", "--offload-device-only"]
    return ["-x", job.kind, "--cuda-device-only", "--no-gpu-bundle-output"]


def _check_programs(result: QueryResult, environ: Mapping[str, str]) -> None:
    import shutil

    for job in jobs_of(result):
        if shutil.which(job[0], path=environ.get("PATH", os.defpath)) is None:
            raise CompilerError(f"runs '{job[0]}', which is not there; install it")


def _check_result(result: QueryResult) -> None:
    if result.status:
        match = _ERROR.search(result.errors)
        raise CompilerError(_ADVICE.sub("", match["text"]) if match else result.reason)


def _resources(request: _Request) -> str:
    def find() -> str:
        result = query([*request.command, "-print-resource-dir"], request.environ)
        return result.output.strip() if result.status == 0 else ""

    key = ["resources", request.identity, *request.command, *folder_key(request.command)]
    folder: str = cached_result(
        key, find, lambda folder: [folder], lambda _: request.command, request.environ
    )
    return folder
