"""Choose the compiler: a clang that can do the job, and the installations that it uses.

The first in this order that can do the job is chosen:

1. ``OFFLOAD_CLANG``: a command; ``embedded`` means the ``ziglang`` wheel
2. the clang of a ROCm installation: ``$ROCM_PATH``, TheRock's wheels, ``/opt/rocm``
3. the newest ``clang-NN`` or ``clang`` on PATH
4. the ``ziglang`` wheel

Each is tried (`Job.find_equipment`) with the machine's ROCm and CUDA installations
(`toolchain.installations`), unless the flags leave those out. A named compiler (1) that cannot do
the job is an error, or its failed trials are reported as doubts. The others are rejected, and the
reasons are reported: with the chosen compiler, or in the error if none is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.environment import INSTALLATIONS
from offload_tool.clang.response_file import check_quoting
from offload_tool.errors import CompilerError
from offload_tool.io.paths import names_in
from offload_tool.toolchain.identity import LIBRARY_PATH, quoting_advice, words_of
from offload_tool.toolchain.installations import rocm_compilers
from offload_tool.toolchain.probe import CLANG_NAME, OLDEST_CLANG, Toolchain, probe, version_of
from offload_tool.util.frozen import replaced
from offload_tool.util.memoize import memoized
from offload_tool.util.which import which

if TYPE_CHECKING:
    from offload_tool.passes.capability_check import Job

_GET_EMBEDDED = "pip install 'ziglang==0.17.*'"
ADVICE = {
    "hip": "for HIP's headers and device libraries, install ROCm, TheRock's wheels, or Debian's "
    "libamdhip64-dev and rocm-device-libs-NN with the clang-NN of that version, and set "
    "OFFLOAD_ROCM_PATH and OFFLOAD_DEVICE_LIB_PATH where they are in no usual place; sources "
    "that use neither are compiled with -nogpuinc and -nogpulib",
    "cuda": "for CUDA's headers and libdevice, install a CUDA toolkit, or the wheels "
    "nvidia-cuda-nvcc, nvidia-cuda-runtime, nvidia-cuda-cccl and nvidia-curand of CUDA 13, and "
    "set OFFLOAD_CUDA_PATH where it is in no usual place; sources that use neither are compiled "
    "with -nocudainc and -nocudalib",
    "openmp": "for OpenMP, install a clang with these targets, and for AMD GPUs ROCm's device "
    "libraries; sources that use none of them are compiled with -nogpulib",
}


def find_toolchain(
    environ: Mapping[str, str] | None = None,
    clang: str | None = None,
    jobs: tuple[Job, ...] = (),
    *,
    lenient: bool = False,
) -> Toolchain:
    """Find the compiler in the order above, once per process; raise CompilerError.

    `environ` is the OS environment (default: this process's); `clang` is a command that precedes
    all others. The compiler can do all `jobs`; without any, it is a clang with lld and the AMDGPU
    target. With `lenient`, a named compiler is used even if a trial fails, and its `doubts` list
    the failures. Raise UsageError if one of our variables names a folder that is no installation.
    """
    environ = os.environ if environ is None else environ
    names = ("PATH", LIBRARY_PATH, *INSTALLATIONS)
    variables = tuple((name, environ[name]) for name in names if name in environ)
    named = clang or environ.get("OFFLOAD_CLANG", "")
    return _find(named, variables, tuple(dict.fromkeys(jobs)), lenient)


@memoized(64)
def _find(
    named: str, variables: tuple[tuple[str, str], ...], jobs: tuple[Job, ...], lenient: bool
) -> Toolchain:
    environ = dict(variables)
    path = environ.setdefault("PATH", os.defpath)
    libraries = environ.get(LIBRARY_PATH, "")
    if named:
        return _named(named, jobs, environ, lenient=lenient)
    reasons: list[str] = []
    for command, origin in _candidates(environ):
        try:
            found = probe(command, origin, path, libraries, amdgpu=not jobs)
            return replaced(_equipped(found, jobs, environ), passed_over=tuple(reasons))
        except CompilerError as error:
            reasons.append(str(error))
    from offload_tool.toolchain.ziglang import probe_embedded  # slow to load

    try:
        found = _equipped(probe_embedded(), jobs, environ)
    except CompilerError as error:
        reasons.append(str(error))
    else:
        return replaced(found, passed_over=tuple(reasons) if jobs else ())
    wanted = f" for {' and '.join(map(str, jobs))}" if jobs else ""
    listed = "".join(f"\n  {reason}" for reason in reasons)
    raise CompilerError(f"no usable compiler{wanted}:{listed}\n{_advice(jobs)}")


def _advice(jobs: tuple[Job, ...]) -> str:
    needed = dict.fromkeys(
        ADVICE[job.kind]
        for job in jobs
        if job.needs_headers or job.needs_libraries or job.kind == "openmp"
    )
    if needed:
        text = "; ".join(needed)
        return text[0].upper() + text[1:]
    return (
        f"Install a clang >= {OLDEST_CLANG} with lld and put it on PATH, set OFFLOAD_CLANG to one, "
        f"or: {_GET_EMBEDDED}"
    )


def _equipped(
    toolchain: Toolchain,
    jobs: tuple[Job, ...],
    environ: Mapping[str, str],
    doubts: list[str] | None = None,
) -> Toolchain:
    name = f"clang {toolchain.version} ({toolchain.origin})"
    variables = {**os.environ, **environ, **dict(toolchain.environment)}
    equipped = toolchain
    descriptions, identities = [], [toolchain.identity]
    installed: list[str] = []
    for job in jobs:
        if toolchain.is_embedded and job.needs_headers:
            raise CompilerError(
                f"{toolchain.origin}: has none of clang's wrapper headers, without which those of "
                f"{job.kind.upper()} do not compile"
            )
        try:
            found = job.find_equipment(toolchain, variables, doubts)
        except CompilerError as error:
            raise CompilerError(f"{name}: {error}") from None
        equipped = found.given_to(equipped, job.kind)
        descriptions.append(found.description)
        installed += found.files(job.targets)
        identities.append(f"{job.kind} {found.identity}" if found.identity else "")
    return replaced(
        equipped,
        doubts=tuple(f"{name}: {doubt}" for doubt in doubts or ()),
        installed=tuple(dict.fromkeys(installed)),
        own_identity=toolchain.identity,
        installations=", ".join(dict.fromkeys(filter(None, descriptions))),
        identity="; ".join(filter(None, identities)),
    )


def _named(
    named: str, jobs: tuple[Job, ...], environ: Mapping[str, str], *, lenient: bool
) -> Toolchain:
    path = environ["PATH"]
    command = words_of("OFFLOAD_CLANG", named)
    check_quoting(command)
    hint = f"set OFFLOAD_CLANG to a clang >= {OLDEST_CLANG}, or unset it to let one be found"
    embedded = command == ("embedded",) or command[-2:] == ("ziglang", "clang")
    if not embedded and (not command or which(command[0], path) is None):
        hint = quoting_advice("OFFLOAD_CLANG", named) or hint
        raise CompilerError(
            f"OFFLOAD_CLANG names '{named}', which is not an executable file or on PATH; {hint}"
        )
    try:
        if embedded:
            from offload_tool.toolchain.ziglang import probe_embedded

            found = probe_embedded()
        else:
            libraries = environ.get(LIBRARY_PATH, "")
            found = probe(command, named, path, libraries, amdgpu=not jobs)
    except CompilerError as error:
        if embedded:
            hint = _GET_EMBEDDED
        raise CompilerError(f"{error}; {hint}") from error
    try:
        return _equipped(found, jobs, environ, [] if lenient else None)
    except CompilerError as error:
        advice = _advice(jobs)
        raise CompilerError(f"{error}. {advice}; or {hint}") from error


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the (command, origin) pairs to try, best first, without duplicate programs."""
    tried: set[str] = set()
    for file, origin in (*rocm_compilers(environ), *_on_path(environ["PATH"])):
        real = os.path.realpath(file)
        program = real if CLANG_NAME.fullmatch(Path(real).name) else file  # ccache has many names
        if program not in tried:
            tried.add(program)
            yield (file,), origin


def _on_path(path: str) -> Iterator[tuple[str, str]]:
    found = [
        (int(match["major"] or 0), file)
        for folder in path.split(os.pathsep)
        if folder
        for name in sorted(filter(CLANG_NAME.fullmatch, names_in(folder)))
        if (match := CLANG_NAME.fullmatch(name)) and os.access(file := Path(folder, name), os.X_OK)
    ]
    plain = [(_plain_major(file), file) for major, file in found if not major]
    numbered = [(major, file) for major, file in found if major]
    for _, file in sorted(plain + numbered, key=lambda item: -item[0]):
        yield str(file), str(file)


def _plain_major(file: Path) -> int:
    try:
        return int(version_of((str(file),))["version"].split(".")[0])
    except CompilerError:
        return 0
