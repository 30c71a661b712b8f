"""The driver's warnings of flags, which it gives for a compile as a whole.

A flag that only the host's pass uses is unused in a device's pass. The passes therefore run without
such warnings (`CompilePass.end_flags`), and one query of the whole compile has those that the
driver's one command would print. Source: clang 22.1.8, observed: ``-###`` prints them all; with
``-Werror`` they are errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from offload_tool.clang.driver import query_plan
from offload_tool.errors import CompilerError
from offload_tool.passes.source_kind import CXX_MODE, language_flags
from offload_tool.toolchain.driver_cache import cached_args

_WARNING = re.compile(
    r"^\S+: (?P<kind>warning|error): .*\[-W(?:error,-W)?"
    r"(?:unused-command-line-argument|option-ignored)\]$",
    re.MULTILINE,
)
_PER_TARGET = re.compile(r"-Xarch_((?:gfx|sm_)\w+)")


class Warnings(NamedTuple):
    """What the driver prints for a whole compile."""

    text: str
    is_error: bool


def command_of(
    begin: Sequence[str], kind: str, source: str, targets: Iterable[str], flags: Sequence[str]
) -> list[str]:
    """Return a whole compile's command, with `targets` and those that ``-Xarch_`` names."""
    named = (found[1] for found in map(_PER_TARGET.fullmatch, flags) if found)
    archs = [f"--offload-arch={name}" for name in dict.fromkeys((*targets, *named))]
    is_openmp = kind == "openmp"
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
