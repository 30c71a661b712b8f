"""Targets of a device pass: a GPU's target ID, or a CPU for OpenMP offloading.

OpenMP can run target regions on the host's CPU as a device. Such a device has a triple and no
target ID: ``x86_64-unknown-linux-gnu``.
"""

from __future__ import annotations

from collections.abc import Iterable

from offload_tool.errors import TargetIDError
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
from offload_tool.formats.targets.target_id import TargetID, parse_target_ids, split_list
from offload_tool.formats.targets.triple import is_known_arch, meaning
from offload_tool.util.frozen import frozen

_TRIPLE_DASHES = 2
"""Minimum; target IDs such as ``gfx9-4-generic`` do not begin with an architecture."""
_KINDS = {"hip": ("amdgcn", "spirv64"), "cuda": ("nvptx64",), "openmp": ("amdgcn", "nvptx64")}
GPUS = frozenset(arch for arches in _KINDS.values() for arch in arches)
_NAMES = {"hip": "HIP", "cuda": "CUDA", "openmp": "OpenMP"}
_BUNDLE_KINDS = {"amdgcn": "hipv4", "spirv64": "hip"}


@frozen
class CompileTarget:
    """An item of OFFLOAD_ARCH: its name in messages and variables, and its triple."""

    name: str
    """The canonical target ID, or a CPU's triple."""
    triple: str
    """In the form of bundle entry IDs, with four fields."""
    target_id: TargetID | None = None

    @property
    def filename(self) -> str:
        """The name as part of a file name."""
        return self.name.replace(":", "_")

    @property
    def arch(self) -> str:
        """The first field of the triple: ``amdgcn``, ``nvptx64``, ``spirv64``, ``x86_64``."""
        return self.triple.split("-", 1)[0]

    @property
    def packaged_triple(self) -> str:
        """The triple in offload binaries: without an empty or unknown environment."""
        return self.triple.rstrip("-").removesuffix("-unknown")

    def entry_id(self, kind: str) -> BundleEntryID:
        """Return the bundle entry ID of this device's image for an offload kind.

        In HIP's fat binaries AMD GPUs have the kind ``hipv4`` and SPIR-V ``hip``, as in clang's.
        """
        if kind == "hip":
            kind = _BUNDLE_KINDS[self.arch]
        return BundleEntryID(kind, self.triple, str(self.target_id or ""))


def parse_target(text: str, *, allow_unknown: bool = False) -> CompileTarget:
    """Parse one target ID, or a CPU's triple; raise TargetIDError if `text` is neither."""
    if is_triple(text):
        triple = BundleEntryID.parse(f"openmp-{text}-").triple
        if meaning(triple).arch in GPUS:
            message = f"'{text}' is a GPU's triple; give its target ID, such as gfx90a or sm_90"
            raise TargetIDError([message])
        return CompileTarget(triple.removesuffix("-"), triple)
    target_id = TargetID.parse(text, allow_unknown=allow_unknown)
    return CompileTarget(str(target_id), target_id.triple, target_id)


def parse_targets(
    items: Iterable[str], kind: str, *, allow_unknown: bool = False
) -> tuple[CompileTarget, ...]:
    """Parse lists of devices, and sort them; raise TargetIDError with all problems."""
    names = [name for item in items for name in split_list(item)]
    ids = parse_target_ids([n for n in names if not is_triple(n)], allow_unknown=allow_unknown)
    found = {CompileTarget(str(target), target.triple, target) for target in ids}
    found |= {parse_target(name) for name in names if is_triple(name)}
    devices = tuple(sorted(found, key=lambda device: device.name))
    problems = [
        f"{device.name} cannot be compiled from {_NAMES[kind]} sources"
        for device in devices
        if device.arch not in _KINDS[kind] and not (kind == "openmp" and device.target_id is None)
    ]
    if problems:
        raise TargetIDError(problems)
    return devices


def is_triple(text: str) -> bool:
    """Return whether the name of a target is a triple, such as a CPU's."""
    return text.count("-") >= _TRIPLE_DASHES and is_known_arch(text.split("-", 1)[0])
