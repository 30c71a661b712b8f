"""Select the code object that a runtime loads for a device.

The order among code objects of one offload kind::

    exact       gfx942:sramecc+:xnack-    the device's own target ID
    compatible  gfx942:xnack-, gfx942     its processor; features that are set match the device
    generic     gfx9-4-generic            covers the processor; features as above
    spirv       amdgcnspirv               compiled at load time; only HIP

`Processor.covers` lists the coverage of generic processors. Features of the device that the generic
processor lacks (sramecc of gfx906) are not compared.

Sources: ROCm's clr (hipamd/src/hip_fatbin.cpp) for the order, and for empty code objects, which it
treats as missing; AMDGPUUsage (Generic Processors) and ROCr (isa.cpp), which agree on the coverage.
ROCr rejects a generic code object whose ELF header has a lower generic version than its own for the
processor (1 for all). It does so after the selection, so nothing is loaded then. LLVM's plugin for
OpenMP queries ROCr for all ISAs of a device, including the generic one, and never loads SPIR-V. Its
runtime takes the first image of a program that fits; each image is its own container. Observed with
comgr 3.0: clr looks up gfx9-generic with the sramecc of a gfx906, and finds nothing; the HIP
runtime 6.4 tries with and without.

NVIDIA's devices load code of CUDA and OpenMP by other rules. The names of cubins identify a device:
``sm_90`` (or ``sm_90a``: the same device) has compute capability 9.0. Best first::

    exact        sm_90a, sm_90           cubins of its number, the most specific first
    compatible   sm_86, sm_80 for sm_89  cubins of the same major and a lower minor number, the
                 sm_100f for sm_103      highest first; of a family for its later members
    ptx          compute_80 for sm_90    the driver compiles it; any lower number, the highest
                                         first; compute_90a for sm_90, compute_100f for its family

``sm_90a`` runs on that number alone. A family shares the major number, but each Tegra processor is
a family of its own. NVIDIA guarantees compatibility of lower minor numbers for desktop and server
GPUs, but not for Tegra or between the two, so such a fit is uncertain. NVVM code is for a linker,
not for a device.

Sources: NVIDIA's CUDA C++ Programming Guide (Binary Compatibility, PTX Compatibility) and its
compatibility guides. The rules of PTX and the families are those of ptxas 12.9 and 13.5, observed:
each ``.target`` with each ``--gpu-name``. Not observed, for lack of a device: which of several
cubins of its own number a driver takes.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from offload_tool.formats.targets import triple as triples
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    any_target_id,
    incompatibility,
)
from offload_tool.formats.targets.processors import PROCESSORS, find_processor
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.util.frozen import frozen, replaced

EXACT, COMPATIBLE, GENERIC, SPIRV, PTX = RULES = "exact", "compatible", "generic", "spirv", "ptx"
"""The rules by which a device can load a code object, best first."""

_CUDA = "cuda"  # an offload kind that bundles do not use
SPIRV_PROCESSOR = "amdgcnspirv"
_CUDA_NAME = re.compile(r"(sm|compute|lto|tile)_(\d{1,9})([af]?)")
_TEGRA = frozenset({32, 53, 62, 72, 87, 88, 101, 110})
_SUFFIX_RANKS = {"a": 0, "f": 1, "": 2}
_UNSURE = 1 << 20


@frozen
class Fit:
    """Why a device can load a code object: one of `RULES`, and a reason to be printed after it."""

    rule: str
    reason: str
    is_sure: bool = True
    """False if some runtimes would skip it."""
    rank: int = 0
    """Order within one rule if no other comparison applies; the lowest is loaded."""


GENERIC_OF = {name: row for row in PROCESSORS.values() for name in row.covers}
"""The generic processor that covers the processor with a primary name."""


def is_amd(entry: BundleEntryID) -> bool:
    """Return whether an entry's triple is that of AMD GPU code: their ISA, or SPIR-V."""
    return triples.meaning(entry.triple).system == "amdhsa"


def is_cuda(entry: BundleEntryID) -> bool:
    """Return whether an entry is code for NVIDIA's GPUs, of CUDA or OpenMP."""
    arch = triples.meaning(entry.triple).arch
    return entry.kind in (_CUDA, OffloadKind.OPENMP) and arch == "nvptx64"


def completions(target: TargetID) -> Iterator[TargetID]:
    """Yield the full target IDs that `target` may denote: each open feature is on or off."""
    processor = find_processor(target.processor)
    fixed = dict(target.features)
    names = [] if processor is None else [n for n in processor.features if n not in fixed]
    for settings in itertools.product((True, False), repeat=len(names)):
        features = fixed | dict(zip(names, settings, strict=True))
        yield TargetID(target.processor, tuple(features.items()))


@functools.lru_cache(maxsize=1 << 12)  # a library repeats a few IDs in every bundle
def find_fit(code: BundleEntryID, device: BundleEntryID) -> Fit | str:
    """Return how a device with the code's kind and triple loads it, or briefly why it cannot."""
    if is_cuda(code) and is_cuda(device) and code.kind == device.kind:
        return _find_cuda_fit(code.target_id, device.target_id)
    reason = incompatibility(code, device)
    if reason is None:
        return _native_fit(code, device)
    gpu, kinds = _amd_gpu(device), {code.kind, device.kind}
    if gpu is None or not is_amd(code) or not (len(kinds) == 1 or kinds <= OffloadKind.ANY_HIP):
        return reason
    # Not even its own code serves a device of a GPU's name and SPIR-V's triple.
    own_code = replaced(code, triple=device.triple, target_id=device.target_id)
    if code.target_id == SPIRV_PROCESSOR:
        if kinds <= OffloadKind.ANY_HIP:
            why = f"the runtime compiles it for {gpu.processor}, for which nothing else serves"
            return Fit(SPIRV, why)
        return f"SPIR-V is loaded by HIP's runtime, not for {device.kind}"
    processor = find_processor(code.target_id.partition(":")[0])
    if processor is None or not processor.covers or incompatibility(own_code, device) is not None:
        return reason
    if gpu.processor not in processor.covers:
        covered = ", ".join(processor.covers)
        return f"processor {processor.name} covers {covered}, not {gpu.processor}"
    # The ID under which a device looks up generic code.
    features = tuple(f for f in gpu.features if f[0] in processor.features)
    generic = replaced(device, target_id=str(TargetID(processor.name, features)))
    if (reason := incompatibility(code, generic)) is not None:
        return reason
    own = find_processor(gpu.processor)
    lost = [f for f in (own.features if own else ()) if f not in processor.features]
    reason = f"{processor.name} covers {gpu.processor}, of which no image serves"
    if lost:
        reason += f"; runtimes that ask {processor.name} for {' and '.join(lost)} pass it over"
    return Fit(GENERIC, reason, is_sure=not lost)


def _amd_gpu(device: BundleEntryID) -> TargetID | None:
    """Return the target ID of an AMD GPU; a newer one may have any ``gfx`` name."""
    gpu = any_target_id(device.target_id)
    if gpu is None or not is_amd(device):
        return None
    processor = find_processor(gpu.processor)
    known = processor is not None and processor.family == "amdgcn"
    return gpu if known or gpu.processor.startswith("gfx") else None


def _native_fit(code: BundleEntryID, device: BundleEntryID) -> Fit:
    if code.target_id == device.target_id:
        return Fit(EXACT, "its very target ID" if code.target_id else "no target ID is asked for")
    ours, theirs = any_target_id(code.target_id), any_target_id(device.target_id)
    if ours is None or theirs is None:
        return Fit(COMPATIBLE, "of the same processor")
    set_names = {name for name, _ in ours.features}
    names = " and ".join(name for name, _ in theirs.features if name not in set_names)
    return Fit(COMPATIBLE, f"code for any setting of {names}")


class CudaTarget(NamedTuple):
    """A name's parts: ``sm``, ``compute``, ``lto`` or ``tile``; number; ``a``, ``f`` or none."""

    form: str
    number: int
    suffix: str

    @classmethod
    def parse(cls, text: str) -> CudaTarget | None:
        """Parse a name; return None if it is not one."""
        found = _CUDA_NAME.fullmatch(text)
        return cls(found[1], int(found[2]), found[3]) if found else None

    @property
    def family(self) -> int:
        """A number that identifies the family."""
        return -self.number if self.number in _TEGRA else self.number // 10


def _find_cuda_fit(code: str, device: str) -> Fit | str:
    image, target = CudaTarget.parse(code), CudaTarget.parse(device)
    if target is None or target.form != "sm":
        if target is not None and image == target:  # not a device, but a name of images
            return Fit(EXACT, "its very name")
        return f"'{device}' names no NVIDIA device, such as sm_90"
    if image is None:
        return f"'{code}' is not known"
    if image.form not in ("sm", "compute"):
        return f"{code} is for a linker or compiler, not for a device"
    major, minor = divmod(image.number, 10)
    if _can_run(image, target):
        return _cuda_fit(image, target)
    if image.suffix == "a":
        return f"{code} runs on sm_{image.number} alone"
    if image.suffix == "f" and major == target.number // 10:
        return f"{code} runs on sm_{image.number} and later ones of its family"
    if image.form == "compute":
        return f"{code} is PTX for sm_{image.number} and later ones"
    return f"{code} runs on {major}.{minor} and later {major}.x, not on sm_{target.number}"


def _can_run(image: CudaTarget, target: CudaTarget) -> bool:
    if image.suffix == "a":
        return image.number == target.number
    if image.number > target.number or (image.suffix == "f" and image.family != target.family):
        return False
    return image.form == "compute" or image.number // 10 == target.number // 10


def _cuda_fit(image: CudaTarget, target: CudaTarget) -> Fit:
    rank = (target.number - image.number) * len(_SUFFIX_RANKS) + _SUFFIX_RANKS[image.suffix]
    if image.form == "compute":
        return Fit(PTX, f"PTX, which the driver compiles for sm_{target.number}", rank=rank)
    if image.number == target.number:
        what = {"a": "all that it has", "f": "all that its family has", "": "its very processor"}
        return Fit(EXACT, what[image.suffix], rank=rank)
    reason = f"of the same major number as sm_{target.number}"
    if image.family == target.family:
        return Fit(COMPATIBLE, reason, rank=rank)
    return Fit(COMPATIBLE, f"{reason}; not promised for Tegra", is_sure=False, rank=rank + _UNSURE)
