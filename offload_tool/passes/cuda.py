"""The passes over a CUDA source: device (PTX, once per target ID) and host.

clang embeds the fat binary while it compiles the host code, so the host object would depend on
every device image. It gets a placeholder instead, which the embedding later replaces in the
object's section ``.nv_fatbin``; all registration code is clang's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from offload_tool.clang.driver import jobs_of, query, query_plan
from offload_tool.errors import CompilerError
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.passes.source_kind import CXX_MODE
from offload_tool.toolchain.driver_cache import cached_args
from offload_tool.toolchain.identity import (
    find_program,
    identity_text,
    nvidia_packages,
    program_identity,
    words_of,
)
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.frozen import frozen
from offload_tool.util.memoize import memoized
from offload_tool.util.which import which

PLACEHOLDER_FILE = str(Path(__file__).with_name("runtime") / "placeholder.fatbin")
"""The placeholder of a fat binary (`formats.cuda.object_section.PLACEHOLDER`)."""


# Without a toolkit, and in device passes with -nocudalib, clang would assume one of 2012, which
# starts kernels in another way, and whose PTX knows no newer processor.
_SDK = ("-Xclang", "-target-sdk-version=11.8")
_PTX_VERSIONS = (
    *((75, 63), (80, 70), (86, 71), (87, 74), (88, 90), (89, 78), (90, 80)),
    *((101, 86), (103, 88), (110, 90), (120, 87), (999, 88)),
)
"""The first PTX version of processors up to a number. Source: clang 22.1.8, observed."""
_LATEST_PTX = 88
"""The latest PTX version that clang 22 uses by itself, whatever the toolkit's; it knows 9.0."""
ARCH_LIST = "__CUDA_ARCH_LIST__"
ARCH_LIST_SINCE = 22
"""The first clang that defines it."""
_OUTPUT, _PROCESSOR = "--output-file", "--gpu-name"
DEVICE_RUNTIME = "libcudadevrt.a"
"""NVIDIA's library of device functions that the CUDA driver lacks."""
ALL = ("all", "all-major")
"""CMake's names for lists of processors."""
_NO_PTXAS = ("none", "no", "false", "0")
ARCHIVE_FORMATS = {
    "offload-binary": "--offload-new-driver",
    "fat-binary": "--no-offload-new-driver",
}
"""Formats of relocatable code in libraries, and the flag that makes the driver write each."""


_TARGET = re.compile(
    r"(?:sm_)?(?P<number>\d+[af]?)(?P<form>-real|-virtual|\+ptx|)"
    r"|compute_(?P<virtual>\d+[af]?)"
    r"|(?P<major>\d+)\.(?P<minor>\d)(?P<suffix>[af]?)(?P<ptx>\+ptx|)",
    re.IGNORECASE,
)
CUBIN, PTX = "cubin", "ptx"
_FORMS = {"": (CUBIN, PTX), "+ptx": (CUBIN, PTX), "-real": (CUBIN,), "-virtual": (PTX,)}


def requested_images(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the processor of a target, and the images to embed for it: `CUBIN`, `PTX` or both.

    One meaning for each spelling::

        sm_90, 90 (CMake), sm_90+ptx, 9.0+PTX (PyTorch)    a cubin, and PTX for later devices
        90-real, sm_90-real (CMake), 9.0 (PyTorch)         a cubin
        90-virtual, sm_90-virtual (CMake), compute_90      PTX

    Other texts are returned unchanged, with both.
    """
    found = _TARGET.fullmatch(text)
    if found is None:
        return text, _FORMS[""]
    if found["virtual"]:
        return f"sm_{found['virtual']}", (PTX,)
    if found["major"]:
        name = f"sm_{found['major']}{found['minor']}{found['suffix']}"
        return name, (CUBIN, PTX) if found["ptx"] else (CUBIN,)
    return f"sm_{found['number']}", _FORMS[found["form"].lower()]


@frozen
class Ptxas:
    """NVIDIA's assembler, which makes cubins from PTX."""

    command: tuple[str, ...]
    identity: str
    """Its version text and the digest of its files; goes into signatures."""


class CudaPass(CompilePass):
    """A pass over a CUDA source: no device pass needs an NVIDIA program."""

    __slots__ = ()
    kind = "cuda"
    usual_suffix, relocatable_suffix = ".ptx", ".rdc.ptx"
    lists_targets = True

    def flags(self, toolchain: Toolchain) -> list[str]:
        """See `CompilePass.flags`; with a toolkit, clang uses its PTX and SDK version."""
        flags = [CXX_MODE, "-x", "cuda"]
        if self.device is None:
            flags += ["--offload-host-only"]
        else:
            flags += ["--cuda-device-only", f"--offload-arch={self.device.name}"]
        # Names of static variables contain the CUID in host and device code. The driver of clang 19
        # passes it to neither front end, so ``-Xclang`` does; newer drivers need ``-cuid``, or they
        # make up another.
        cuid = f"-cuid={self.cuid}"
        flags += ["-fgpu-rdc", cuid, "-Xclang", cuid] if self.rdc else [cuid]
        if self.device is not None or not toolchain.cuda:
            flags += _SDK
        if self.device is not None:
            is_late = _ptx_version(self.device.name) > _LATEST_PTX
            flags += [ptx_flag(self.device.name)] if is_late or not toolchain.cuda else []
        return [*flags, "-c" if self.device is None else "-S"]

    def last_flags(self, toolchain: Toolchain, archive_format: str = "") -> list[str]:
        """See `CompilePass.last_flags`; `archive_format` is one of `ARCHIVE_FORMATS`."""
        del toolchain
        return [ARCHIVE_FORMATS[archive_format]] if archive_format and self.rdc else []

    def local_flags(self, toolchain: Toolchain) -> list[str]:
        """See `CompilePass.local_flags`; a host object gets the placeholder."""
        flags = [*toolchain.local_flags, *toolchain.cuda_flags]
        if self.device is None:
            flags += ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", PLACEHOLDER_FILE]
        return flags


def ptx_flag(processor: str) -> str:
    """Return the flag for a processor's first PTX version; without a toolkit clang takes 4.2."""
    return f"--cuda-feature=+ptx{_ptx_version(processor)}"


def _ptx_version(processor: str) -> int:
    number = _number(processor)
    return next(version for limit, version in _PTX_VERSIONS if number <= limit)


def _number(processor: str) -> int:
    return int("".join(filter(str.isdigit, processor)) or "0")


def arch_list_flags(processors: Iterable[str]) -> list[str]:
    """Return the flags that pass all targets to each pass; they follow the user's.

    Thrust and CUB put the targets into the names of kernels, which host code uses. Clang's driver
    passes only a pass's own target, and sm_52 to a host pass, so that the names would differ.
    Source: clang 22.1.8, observed; older ones define no such macro.
    """
    listed = ",".join(str(number * 10) for number in sorted({*map(_number, processors)}))
    return [f"-U{ARCH_LIST}", f"-D{ARCH_LIST}={listed}"]


def cubin_arguments(processor: str, *, rdc: bool) -> list[str]:
    """Return the ``ptxas`` arguments that make a cubin from PTX; with `rdc` it is relocatable."""
    return ["-m64", f"--gpu-name={processor}", *(["--compile-only"] if rdc else [])]


@memoized(256)
def ptxas_flags(args: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the flags that clang's driver gives ``ptxas`` in a compile to a cubin.

    `args` are those of a device pass to PTX, without input and output: its options for
    optimization, debugging and ``-Xcuda-ptxas`` become ``-O2``, ``-lineinfo``, ... The driver's
    plan has the flags. The result is empty if the driver rejects the command, as the pass then
    fails. Source: clang 19.1.7 and 22.1.8, observed.
    """
    pairs = zip(("", *args), args, strict=False)
    command = [arg for before, arg in pairs if arg != "-S" or before.startswith("-X")]
    command += ["-c", os.devnull]

    def find() -> list[str]:
        for job in jobs_of(query_plan(command, environment)):
            if _OUTPUT in job and _PROCESSOR in job:
                return _own_flags(job)
        return []

    return tuple(cached_args("flags of ptxas", command, environment, find))


def _own_flags(job: Sequence[str]) -> list[str]:
    at, name = job.index(_OUTPUT), job.index(_PROCESSOR)
    before = [arg for arg in (*job[1:name], *job[name + 2 : at]) if arg != "-m64"]
    after = job[at + 3 :]  # the output, and the one input
    return [*before, *(after[:-1] if after[-1:] == ["-c"] else after)]


@memoized(8)
def find_ptxas(
    named: str = "", toolkit: str = "", environ: Mapping[str, str] = os.environ
) -> Ptxas | None:
    """Find ``ptxas``: the command `named`, in `toolkit`, on PATH, in a wheel; None if ``none``.

    PTX alone is then embedded, which the CUDA driver compiles when the program starts.

    :raises CompilerError: the one named cannot be run.
    """
    if named.lower() in _NO_PTXAS:
        return None
    commands = [words_of("OFFLOAD_PTXAS", named)] if named else _ptxas_candidates(toolkit, environ)
    advice = "unset it to let one be found, or set it to 'none'"
    found = find_program("OFFLOAD_PTXAS", named, commands, advice)
    if found is None:
        return None
    programs = map(program_identity, filter(None, map(which, found[0])))
    return Ptxas(found[0], identity_text([f"ptxas {found[1]}", *programs]))


@memoized(8)
def _processors_of(ptxas: Ptxas) -> frozenset[str]:
    """Return the processors that ``ptxas --help`` lists (12.9, 13.2); none if it is unknown."""
    try:
        text = query([*ptxas.command, "--help"]).output
    except CompilerError:
        return frozenset()
    return frozenset(re.findall(r"'(sm_\d+[af]?)'", text))


def all_processors(ptxas: Ptxas) -> list[str]:
    """Return the processors of a ptxas, except for those of a single GPU (``sm_90a``)."""
    numbers = (int(name[3:]) for name in _processors_of(ptxas) if name[3:].isdecimal())
    return [f"sm_{number}" for number in sorted(numbers)]


def first_of_majors(processors: Iterable[str]) -> list[str]:
    """Return the first processor of each major, as CMake's ``all-major``."""
    majors = {_number(name) // 10: name for name in sorted(processors, key=_number, reverse=True)}
    return sorted(majors.values(), key=_number)


def check_ptxas(ptxas: Ptxas, processor: str) -> None:
    """Raise CompilerError if `ptxas` does not know a processor, before any compile for it."""
    known = _processors_of(ptxas)
    if known and processor not in known:
        raise CompilerError(
            f"{processor}: '{ptxas.command[0]}' ({ptxas.identity}) makes no code for it, but for "
            f"{', '.join(sorted(known))}; name one of another CUDA version with OFFLOAD_PTXAS, or "
            "set OFFLOAD_PTXAS='none' to embed PTX alone"
        )


def _ptxas_candidates(toolkit: str, environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    usual = [environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    # Another version may not know the PTX that clang writes for the toolkit.
    found = [f"{toolkit}/bin/ptxas" if toolkit else None, which("ptxas", environ.get("PATH"))]
    found += (f"{folder}/bin/ptxas" for folder in usual if folder)
    for folder in nvidia_packages():
        for pattern in ("cu*/bin/ptxas", "cuda_nvcc/bin/ptxas"):
            found += sorted(map(str, folder.glob(pattern)))
    return [(name,) for name in found if name and os.access(name, os.X_OK)]
