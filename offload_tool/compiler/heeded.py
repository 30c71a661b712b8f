"""What a compile heeds beside its command and its files: variables, and the working folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HEEDED_VARIABLES", "tells_folder"]

HEEDED_VARIABLES = (
    *("CCC_OVERRIDE_OPTIONS", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("CUDA_PATH", "HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH", "SOURCE_DATE_EPOCH"),
)
"""Variables of a compile's environment that change what clang makes of a source."""

_TELLING = ("-g", "--coverage", "-fprofile-arcs", "-ftest-coverage", "-fcoverage-mapping")
"""Options that put the name of the working folder into the output."""
_NOT_TELLING = ("-g0", "-gcc-", "-gpu")


def tells_folder(words: Iterable[str]) -> bool:
    """Tell whether flags put the name of the working folder into the output."""
    return any(word.startswith(_TELLING) and not word.startswith(_NOT_TELLING) for word in words)
