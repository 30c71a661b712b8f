"""What a compile heeds beside its command and its files.

These are variables, the working folder, and the processor that it runs on.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HEEDED_VARIABLES", "processor_of", "tells_folder"]

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


_OF_THIS_MACHINE = ("-march=native", "-mcpu=native", "-mtune=native")
_PROCESSORS = "/proc/cpuinfo"
_TELLING_PROCESSORS = (
    *("vendor_id", "cpu family", "model", "stepping", "flags", "Features"),
    *("CPU implementer", "CPU variant", "CPU part", "CPU revision", "cpu", "isa"),
)
"""The lines from which compilers take what ``native`` is; others have speeds and numbers."""


def processor_of(words: Iterable[str]) -> str:
    """Give what this machine's processor is where flags ask for it; "" where none does."""
    if not any(word in _OF_THIS_MACHINE for word in words):
        return ""
    try:
        with open(_PROCESSORS, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            lines = file.read().splitlines()
    except OSError:
        return "unknown"
    told = {line for line in lines if line.partition(":")[0].strip() in _TELLING_PROCESSORS}
    return "\n".join(sorted(told))
