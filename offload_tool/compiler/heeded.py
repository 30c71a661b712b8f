"""What a compile heeds beside its command and its files: variables, and the working folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HEEDED_VARIABLES", "tells_folder"]

HEEDED_VARIABLES = (
    *("CCC_OVERRIDE_OPTIONS", "CLANG_CONFIG_PATH", "CLANG_NO_DEFAULT_CONFIG"),
    *("COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("CUDA_PATH", "HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH"),
    *("LLD_VERSION", "LLVM_OVERRIDE_PRODUCER", "SOURCE_DATE_EPOCH"),
)
"""Variables of a compile's environment that change what clang makes of a source.

Source: clang and lld 22.1.8, whose calls of ``getenv`` were observed in passes of HIP, CUDA and
OpenMP. What else they ask for changes messages, temporary files or Objective-C. CUDA_PATH is
this package's, and CLANG_CONFIG_PATH is read where z/OS is the target. ``LLVM_OVERRIDE_PRODUCER``
stands in bitcode, ``LLD_VERSION`` in the ``.comment`` of code objects.
"""

_TELLING = ("-g", "--coverage", "-fprofile-arcs", "-ftest-coverage", "-fcoverage-mapping")
"""Options that put the name of the working folder into the output."""
_NOT_TELLING = ("-g0", "-gcc-", "-gpu")


def tells_folder(words: Iterable[str]) -> bool:
    """Tell whether flags put the name of the working folder into the output."""
    return any(word.startswith(_TELLING) and not word.startswith(_NOT_TELLING) for word in words)
