"""Hints that follow a message of the compiler or linker: what to write in the build."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
