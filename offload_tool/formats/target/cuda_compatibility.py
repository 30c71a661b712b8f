"""Which code in a CUDA fat binary an NVIDIA device loads.

A device is named by the cubins that are made for it: ``sm_90`` (or ``sm_90a``: the same device)
has compute capability 9.0. Best first::

    exact        sm_90a, sm_90           cubins of its number, the most special ones first
    compatible   sm_86, sm_80 for sm_89  cubins of the same major and a lower minor number, the
                 sm_100f for sm_103      highest first; of a family for its later members
    ptx          compute_80 for sm_90    the driver compiles it; any lower number, the highest
                                         first; compute_90a for sm_90, compute_100f for its family

``sm_90a`` runs on that number alone. A family is what has the same major number, but each
Tegra processor is one by itself. NVIDIA promises cubins of lower minor numbers for its desktop
and server GPUs, neither for Tegra nor from one to the other: such a fit is not sure. NVVM code is
for a linker, not for a device.

Sources: NVIDIA's CUDA C++ Programming Guide (Binary Compatibility, PTX Compatibility) and its
compatibility guides. The rules of PTX and the families are those of ptxas 12.9 and 13.5,
observed: each ``.target`` with each ``--gpu-name``. Not observed, for want of a device: which of
several cubins of its own number a driver takes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

EXACT, COMPATIBLE, PTX = "exact", "compatible", "ptx"
_NAME = re.compile(r"(sm|compute|lto|tile)_(\d{1,9})([af]?)")
_TEGRA = frozenset({32, 53, 62, 72, 87, 88, 101, 110})
_SUFFIX_RANKS = {"a": 0, "f": 1, "": 2}
_UNSURE = 1 << 20


class CudaTarget(NamedTuple):
    """What is in names like ``sm_90a`` and ``compute_80``."""

    form: str
    """``sm``, ``compute``, ``lto`` or ``tile``."""
    number: int
    suffix: str
    """``a``, ``f`` or nothing."""

    @classmethod
    def parse(cls, text: str) -> CudaTarget | None:
        """Read a name; None if it is none."""
        found = _NAME.fullmatch(text)
        return cls(found[1], int(found[2]), found[3]) if found else None

    @property
    def family(self) -> int:
        """A number that is the same for all of a family."""
        return -self.number if self.number in _TEGRA else self.number // 10


class CudaFit(NamedTuple):
    """How an image serves a device."""

    rule: str
    """`EXACT`, `COMPATIBLE` or `PTX`."""
    rank: int
    """Among those of one rule; the lowest is loaded."""
    reason: str
    is_sure: bool = True


def cuda_fit(code: str, device: str) -> CudaFit | None:
    """Return the rule by which an image for `code` (``sm_80``, ``compute_80``) serves `device`."""
    image, asked = CudaTarget.parse(code), CudaTarget.parse(device)
    if image is None or asked is None:
        return None
    if asked.form != "sm":  # no device, but what images are called
        return CudaFit(EXACT, 0, "its very name") if image == asked else None
    if image.number > asked.number:
        return None
    if image.form == "compute":
        return _ptx_fit(image, asked)
    return _cubin_fit(image, asked) if image.form == "sm" else None


def _distance(image: CudaTarget, asked: CudaTarget) -> int:
    return (asked.number - image.number) * len(_SUFFIX_RANKS) + _SUFFIX_RANKS[image.suffix]


def _suffix_serves(image: CudaTarget, asked: CudaTarget) -> bool:
    if image.suffix == "a":
        return image.number == asked.number
    return image.suffix != "f" or image.family == asked.family


def _cubin_fit(image: CudaTarget, asked: CudaTarget) -> CudaFit | None:
    rank = _distance(image, asked)
    if image.number == asked.number:
        what = {"a": "all that it has", "f": "all that its family has", "": "its very processor"}
        return CudaFit(EXACT, rank, what[image.suffix])
    if image.number // 10 != asked.number // 10 or not _suffix_serves(image, asked):
        return None
    if image.family == asked.family:
        return CudaFit(COMPATIBLE, rank, f"of the same major number as sm_{asked.number}")
    reason = f"of the same major number as sm_{asked.number}; not promised for Tegra"
    return CudaFit(COMPATIBLE, rank + _UNSURE, reason, is_sure=False)


def _ptx_fit(image: CudaTarget, asked: CudaTarget) -> CudaFit | None:
    if not _suffix_serves(image, asked):
        return None
    reason = f"PTX, which the driver compiles for sm_{asked.number}"
    return CudaFit(PTX, _distance(image, asked), reason)


def why_no_cuda_fit(code: str, device: str) -> str:
    """Return in a few words why an image for `code` does not serve `device`."""
    image, asked = CudaTarget.parse(code), CudaTarget.parse(device)
    if asked is None or asked.form != "sm":
        return f"'{device}' names no NVIDIA device, such as sm_90"
    if image is None:
        return f"'{code}' is not known"
    if image.form not in ("sm", "compute"):
        return f"{code} is for a linker or compiler, not for a device"
    if image.suffix == "a":
        return f"{code} runs on sm_{image.number} alone"
    if image.suffix == "f" and image.number // 10 == asked.number // 10:
        return f"{code} runs on sm_{image.number} and later ones of its family"
    if image.form == "compute":
        return f"{code} is PTX for sm_{image.number} and later ones"
    major, minor = divmod(image.number, 10)
    return f"{code} runs on {major}.{minor} and later {major}.x, not on sm_{asked.number}"
