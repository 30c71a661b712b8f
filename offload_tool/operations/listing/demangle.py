"""Names of C++ as people write them, by a demangler that is on the machine.

It is a process of its own: names come from strangers, and demanglers have died of some.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable

from offload_tool.errors import UsageError

_PROGRAMS = ("llvm-cxxfilt", "c++filt")
"""The compiler's own first: it knows the newest manglings. The other is in GNU's binutils."""
_MANGLED = re.compile(r"_{1,4}Z[\w$.]+", re.ASCII)
_LONGEST = 60
"""Seconds; a million names take two."""


def demangled_names(names: Iterable[str]) -> dict[str, str]:
    """Return what the names stand for; one that is not mangled, or not as is known, is itself.

    :raises UsageError: there is no demangler, or it does not answer.
    """
    known = dict.fromkeys(names)
    mangled = [name for name in known if _MANGLED.fullmatch(name)]
    answers = _asked(mangled) if mangled else []
    return {**{name: name for name in known}, **dict(zip(mangled, answers, strict=True))}


def _asked(mangled: list[str]) -> list[str]:
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise UsageError(
            f"names are demangled by {' or '.join(_PROGRAMS)}, and neither is on PATH; install "
            "binutils, or leave --demangle out"
        )
    lines = "".join(f"{name}\n" for name in mangled)
    try:
        done = subprocess.run(
            [program], input=lines, capture_output=True, text=True, check=False, timeout=_LONGEST
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"'{program}' did not demangle {len(mangled)} names: {error}; leave --demangle out"
        ) from error
    answers = done.stdout.splitlines()
    if done.returncode or len(answers) != len(mangled):
        raise UsageError(
            f"'{program}' ended with status {done.returncode} after {len(answers)} of "
            f"{len(mangled)} names; leave --demangle out"
        )
    return answers
