"""Which compiles may be split, told by their words alone: most commands of a build are others.

What is refused here is run by the compiler as it was given, after a millisecond. What is not is
only possible: the driver is asked then, and what it answers decides (`job_plan`). So a word
that is taken for something else costs time, and nothing else.

Little is imported: this is all that a command that passes through needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from offload_tool.clang.options import OTHER_JOB, SIDE, TALK, does

_LANGUAGES = ("hip", "cuda")
_SUFFIXES = (".hip", ".cu")
_HIPCC = "hipcc"
"""A wrapper of ROCm's, for which C++ sources are HIP sources."""

_OTHER_JOBS = ("--genco", "--short", "--hipcc-func-supp")
"""Words of hipcc for other jobs than compiles."""
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/self/fd/")
"""Names of what this process has open: jobs have other files there, and some can be read once."""
_OTHER_VARIABLES = ("CC_PRINT_", "CC_LOG_", "CCC_", "FORCE_CLANG_", "RC_DEBUG_")
"""Beginnings of the names of variables that make the driver itself do or say something."""


def reason_to_pass(compiler: str, words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return why a compiler's command is not to be split; "" where the driver must be asked."""
    if "-c" not in words and "--compile" not in words:
        return "no '-c': it is no compile of one source"
    reason = reason_in_words(words)
    if reason:
        return reason
    for name in environ:
        if name.startswith(_OTHER_VARIABLES):
            return f"the variable {name} speaks to the driver"
    if not _is_hipcc(compiler) and not _has_device_code(words):
        return "no HIP or CUDA source, by its suffix or -x"
    return ""


def reason_in_words(words: Sequence[str]) -> str:
    """Return which word is not one of a compile that can be split; "" where all may be."""
    for word in words:
        if word in _OTHER_JOBS or does(word, OTHER_JOB | SIDE | TALK):
            return f"'{word}' asks for something else than objects of all targets"
        for name in _OPEN_FILES:
            if name in word:
                return f"'{word}' is a file that is open already"
    return "a source or an output is standard input or output" if "-" in words else ""


def _is_hipcc(compiler: str) -> bool:
    return compiler.rpartition("/")[2].startswith(_HIPCC)


def _has_device_code(words: Iterable[str]) -> bool:
    before = ""
    for word in words:
        language = word if before == "-x" else word[2:] if word.startswith("-x") else ""
        if language in _LANGUAGES or (word.endswith(_SUFFIXES) and not word.startswith("-")):
            return True
        before = word
    return False
