"""Which code object a runtime loads for a device.

In this order, of the code objects for one offload kind::

    exact       gfx942:sramecc+:xnack-    the device's own target ID
    compatible  gfx942:xnack-, gfx942     its processor; what is set is set so on the device
    generic     gfx9-4-generic            covers the processor; features as above
    spirv       amdgcnspirv               compiled when it is loaded; HIP alone

NVIDIA's devices load code of CUDA by other rules, see `cuda_compatibility`::

    exact, compatible    cubins of its number, of the same major number
    ptx                  compute_80, compiled when it is loaded

The coverage of generic processors is `Processor.covers`. A device's features that the
generic processor does not have (sramecc of gfx906) are not compared.

Sources: ROCm's clr (hipamd/src/hip_fatbin.cpp) for the order, and for empty code objects, which
it takes for missing; AMDGPUUsage (Generic Processors) and ROCr (isa.cpp), which have the same
coverage. ROCr refuses a generic code object whose ELF header gives a lower generic version than
it knows for the processor, 1 for all of them. That is after the choice, so nothing else is loaded
then. LLVM's plugin for OpenMP asks ROCr for all ISAs of a device, the generic one among them, and
never loads SPIR-V. Its runtime takes the first image of a program that fits, which are containers
of their own. Observed with comgr 3.0: clr asks for gfx9-generic with the sramecc of a gfx906, and
finds nothing; the HIP runtime 6.4 asks with and without.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from offload_tool.errors import TargetIDError
from offload_tool.formats.target import triple as triples
from offload_tool.formats.target.bundle_entry_id import BundleEntryID, OffloadKind, incompatibility
from offload_tool.formats.target.cuda_compatibility import PTX, cuda_fit, why_no_cuda_fit
from offload_tool.formats.target.processors import PROCESSORS, Processor, find_processor
from offload_tool.formats.target.target_id import TargetID
from offload_tool.util.frozen import frozen, replaced

EXACT, COMPATIBLE, GENERIC, SPIRV, _ = RULES = ("exact", "compatible", "generic", "spirv", PTX)
"""The rules by which a code object serves a device, best first."""

_CUDA = "cuda"  # an offload kind that no bundle has
SPIRV_PROCESSOR = "amdgcnspirv"


@frozen
class Fit:
    """How a code object serves a device."""

    rule: str
    """One of `RULES`."""
    reason: str
    """In a few words, to stand behind the rule's name."""
    is_sure: bool = True
    """False where some runtimes would pass it over."""
    rank: int = 0
    """Among those of one rule that are not compared otherwise; the lowest is loaded."""


_GENERIC_OF = {name: row for row in PROCESSORS.values() for name in row.covers}


def generic_processor(name: str) -> Processor | None:
    """Find the generic processor that covers the processor with this primary name."""
    return _GENERIC_OF.get(name)


def is_amd(entry: BundleEntryID) -> bool:
    """Return whether an entry is code for AMD GPUs, by its triple: their ISA, or SPIR-V."""
    return triples.meaning(entry.triple).system == "amdhsa"


def is_cuda(entry: BundleEntryID) -> bool:
    """Return whether an entry is code of CUDA for NVIDIA's GPUs."""
    return entry.kind == _CUDA and triples.meaning(entry.triple).arch == "nvptx64"


@functools.lru_cache(maxsize=1 << 12)  # a library has the same few IDs in every bundle
def find_fit(code: BundleEntryID, device: BundleEntryID) -> Fit | None:
    """Return the rule by which `code` serves `device`; None if there is none.

    `device` has the kind and triple of the code objects that it asks for.
    """
    if is_cuda(code) and is_cuda(device):
        fit = cuda_fit(code.target_id, device.target_id)
        return fit and Fit(fit.rule, fit.reason, fit.is_sure, fit.rank)
    if incompatibility(code, device) is None:
        return _native_fit(code, device)
    asked = _amd_gpu(device)
    if asked is None or not is_amd(code):
        return None
    generic = _generic_device(device, asked)
    if generic is not None and incompatibility(code, generic) is None:
        processor = code.target_id.partition(":")[0]
        reason = f"{processor} covers {asked.processor}, of which no image serves"
        lost = _features_lost(asked)
        if lost:
            reason += f"; runtimes that ask {processor} for {' and '.join(lost)} pass it over"
        return Fit(GENERIC, reason, is_sure=not lost)
    if _is_spirv(code) and {code.kind, device.kind} <= OffloadKind.ANY_HIP:
        reason = f"the runtime compiles it for {asked.processor}, for which nothing else serves"
        return Fit(SPIRV, reason)
    return None


def why_not(code: BundleEntryID, device: BundleEntryID) -> str:
    """Return in a few words why `code` does not serve `device`."""
    if is_cuda(code) and is_cuda(device):
        return why_no_cuda_fit(code.target_id, device.target_id)
    reason = incompatibility(code, device) or ""
    asked = _amd_gpu(device)
    same_code = replaced(code, triple=device.triple, target_id=device.target_id)
    if asked is None or not is_amd(code) or incompatibility(same_code, device) is not None:
        return reason
    processor = find_processor(code.target_id.partition(":")[0])
    if _is_spirv(code):
        return f"SPIR-V is loaded by HIP's runtime, not for {device.kind}"
    if processor is None or not processor.covers:
        return reason
    generic = _generic_device(device, asked)
    if generic is None or processor.name != generic.target_id.partition(":")[0]:
        covered = ", ".join(processor.covers)
        return f"processor {processor.name} covers {covered}, not {asked.processor}"
    return incompatibility(code, generic) or reason


def completions(target: TargetID) -> Iterator[TargetID]:
    """Yield the target IDs that a device may have that `target` names.

    A device has all features of its processor set, one way or the other.
    """
    processor = find_processor(target.processor)
    given = dict(target.features)
    names = [] if processor is None else [n for n in processor.features if n not in given]
    for settings in itertools.product((True, False), repeat=len(names)):
        features = given | dict(zip(names, settings, strict=True))
        yield TargetID(target.processor, tuple(features.items()))


def _parsed(entry: BundleEntryID) -> TargetID | None:
    if not entry.target_id:
        return None
    try:
        return TargetID.parse(entry.target_id, allow_unknown=True)
    except TargetIDError:
        return None


def _amd_gpu(device: BundleEntryID) -> TargetID | None:
    """Return the target ID of an AMD GPU; a newer one may have any ``gfx`` name."""
    asked = _parsed(device)
    if asked is None or not is_amd(device):
        return None
    processor = find_processor(asked.processor)
    known = processor is not None and processor.family == "amdgcn"
    return asked if known or asked.processor.startswith("gfx") else None


def _is_spirv(entry: BundleEntryID) -> bool:
    return entry.target_id == SPIRV_PROCESSOR


def _native_fit(code: BundleEntryID, device: BundleEntryID) -> Fit:
    if code.target_id == device.target_id:
        return Fit(EXACT, "its very target ID" if code.target_id else "no target ID is asked for")
    ours, theirs = _parsed(code), _parsed(device)
    if ours is None or theirs is None:
        return Fit(COMPATIBLE, "of the same processor")
    set_names = {name for name, _ in ours.features}
    names = " and ".join(name for name, _ in theirs.features if name not in set_names)
    return Fit(COMPATIBLE, f"code for any setting of {names}")


def _generic_device(device: BundleEntryID, asked: TargetID) -> BundleEntryID | None:
    """Return the ID under which a device asks for generic code."""
    generic = generic_processor(asked.processor)
    if generic is None:
        return None
    features = tuple(f for f in asked.features if f[0] in generic.features)
    return replaced(device, target_id=str(TargetID(generic.name, features)))


def _features_lost(asked: TargetID) -> list[str]:
    """Return the features of a processor that its generic processor does not have."""
    processor, generic = find_processor(asked.processor), generic_processor(asked.processor)
    if processor is None or generic is None:
        return []
    return [name for name in processor.features if name not in generic.features]
