"""What is printed besides the compiler's own messages of a pass: hints, and the driver's warnings.

A flag that only the host's pass uses is unused in a device's pass. The passes therefore run without
the driver's warnings of flags (`CompilePass.end_flags`), and one query of the whole compile has
those that the driver's one command would print. Source: clang 22.1.8, observed: ``-###`` prints
them all; with ``-Werror`` they are errors.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from offload_tool.clang.driver import query_plan
from offload_tool.errors import CompilerError
from offload_tool.formats.targets.compile_target import is_triple
from offload_tool.passes.source_kind import CXX_MODE, language_flags
from offload_tool.toolchain.driver_cache import cached_args

_DEVICE_ONLY = ("--cuda-device-only", "--offload-device-only")
_UNDEFINED = re.compile(
    rb"error: undefined (?:\w+ )?symbol: (__o(?:ckl|cml)_)?|ptxas fatal +: Unresolved extern"
)
_NO_DEFINITION = (
    "device code calls what its own source does not define; if another source does, set "
    "OFFLOAD_RDC=True ('offload-tool compile': --rdc, then --link)"
)
_NO_DEVICE_LIBRARY = (
    "device code calls ROCm's device libraries, which -nogpulib leaves out; remove that flag"
)
_HEADER = re.compile(
    rb"error: .*(?:(?P<hip>__HIP_PLATFORM_AMD__|\bhip/\w+\.h\b)|(?P<cuda>\bcuda_runtime\w*\.h\b))"
)
_LIBRARY = re.compile(
    rb"(?:undefined reference to|undefined symbol:) [`']?"
    rb"(?:(?P<hip>__hip[A-Z]|hip[A-Z])|(?P<cuda>__cuda[A-Z]|cuda[A-Z]))"
    rb"|(?:cannot find|unable to find library) -l(?:(?P<hip_l>amdhip64)|(?P<cuda_l>cudart))\b"
)
_NAMES = {"hip": ("HIP", "amdhip64", "Rocm"), "cuda": ("CUDA", "cudart", "Cuda")}
_WARNING = re.compile(
    r"^\S+: (?P<kind>warning|error): .*\[-W(?:error,-W)?"
    r"(?:unused-command-line-argument|option-ignored)\]$",
    re.MULTILINE,
)
_PER_TARGET = re.compile(r"-Xarch_((?:gfx|sm_)\w+)")


def advice_for(command: Sequence[str], messages: bytes) -> str:
    """Return a hint about the messages of a failed command, as a line, or an empty text."""
    if not set(_DEVICE_ONLY).isdisjoint(command) or messages.startswith(b"ptxas "):
        text = device_advice(messages)
        return text and f"offload: {command[-1]}: {text}\n"
    is_link = "-c" not in command and "-o" in command
    found = (_LIBRARY if is_link else _HEADER).search(messages)
    if found is None:
        return ""
    kind = str(found.lastgroup).partition("_")[0]
    language, library, name = _NAMES[kind]
    if is_link and any(library in arg for arg in command) and found.lastgroup == kind:
        return ""  # linked, but it lacks the function: another version
    output = command[command.index("-o") + 1] if is_link else command[-1]
    lacking = f"{language}'s runtime library, {library}" if is_link else f"the flags of {language}"
    fix = f"env.MergeFlags(env.Offload{name}Flags()) adds what is needed"
    return f"offload: {output}: the command lacks {lacking}; {fix}\n"


def device_advice(messages: bytes) -> str:
    """Return a hint about the messages of a device pass, or an empty text."""
    if undefined := _UNDEFINED.search(messages):
        return _NO_DEVICE_LIBRARY if undefined[1] else _NO_DEFINITION
    return ""


class Warnings(NamedTuple):
    """What the driver prints for a whole compile."""

    text: str
    is_error: bool


def whole_command(
    begin: Sequence[str], kind: str, source: str, targets: Iterable[str], flags: Sequence[str]
) -> list[str]:
    """Return a whole compile's command, with `targets` and those that ``-Xarch_`` names.

    Without one, an OpenMP compile is for a CPU as device; HIP and CUDA have default GPUs.
    """
    named = (found[1] for found in map(_PER_TARGET.fullmatch, flags) if found)
    gpus = itertools.filterfalse(is_triple, dict.fromkeys((*targets, *named)))
    archs = [f"--offload-arch={name}" for name in gpus]
    is_openmp = kind == "openmp"
    if is_openmp and not archs:
        archs = [f"-fopenmp-targets={platform.machine()}-unknown-linux-gnu"]
    language = [*language_flags(source), "-fopenmp"] if is_openmp else [CXX_MODE, "-x", kind]
    return [*begin, *language, *archs, *flags, "-c"]


def warnings_of(command: Sequence[str], environment: Mapping[str, str]) -> Warnings:
    """Return the driver's warnings of the flags in the command of a whole compile, cached."""

    def find() -> list[str]:
        try:
            errors = query_plan([*command, os.devnull], environment).errors
        except CompilerError:  # the compile itself reports it
            return []
        return ["none", *dict.fromkeys(found[0] for found in _WARNING.finditer(errors))]

    lines = cached_args("warnings", command, environment, find)[1:]
    return Warnings("".join(f"{line}\n" for line in lines), any(": error: " in x for x in lines))
