"""What a device pass compiles for: a GPU's target ID, or a CPU that OpenMP offloads to.

OpenMP can run its target regions on the CPU of the host, as a device of its own. Such a
device has a triple and no target ID: ``x86_64-unknown-linux-gnu``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offload_tool.errors import TargetIDError
from offload_tool.formats.target.bundle_entry_id import BundleEntryID
from offload_tool.formats.target.target_id import TargetID, parse_target_ids, split_list
from offload_tool.formats.target.triple import is_known_arch, meaning

_TRIPLE_DASHES = 2
"""At least; target IDs such as ``gfx9-4-generic`` begin with no architecture."""
_KINDS = {"hip": ("amdgcn", "spirv64"), "cuda": ("nvptx64",), "openmp": ("amdgcn", "nvptx64")}
_GPUS = frozenset(arch for arches in _KINDS.values() for arch in arches)
_NAMES = {"hip": "HIP", "cuda": "CUDA", "openmp": "OpenMP"}
_BUNDLE_KINDS = {"amdgcn": "hipv4", "spirv64": "hip"}


@dataclass(frozen=True, order=True, slots=True)
class CompileTarget:
    """One of OFFLOAD_ARCH: its name in messages and variables, and its triple."""

    name: str
    """The canonical target ID, or the triple of a CPU."""
    triple: str
    """As in a bundle entry ID, with four fields."""
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
        """The triple as offload binaries have it: without an empty or unknown environment."""
        return self.triple.rstrip("-").removesuffix("-unknown")

    def entry_id(self, kind: str) -> BundleEntryID:
        """Return the bundle entry ID of this device's image for an offload kind.

        A fat binary of HIP calls AMD GPUs ``hipv4`` and SPIR-V ``hip``, as the driver does.
        """
        if kind == "hip":
            kind = _BUNDLE_KINDS[self.arch]
        return BundleEntryID(kind, self.triple, str(self.target_id or ""))


def parse_target(text: str, *, allow_unknown: bool = False) -> CompileTarget:
    """Read one target ID, or the triple of a CPU.

    :raises TargetIDError: it is neither.
    """
    if _is_triple(text):
        triple = BundleEntryID.parse(f"openmp-{text}-").triple
        if meaning(triple).arch in _GPUS:
            message = f"'{text}' is a GPU's triple; give its target ID, such as gfx90a or sm_90"
            raise TargetIDError([message])
        return CompileTarget(triple.removesuffix("-"), triple)
    target_id = TargetID.parse(text, allow_unknown=allow_unknown)
    return CompileTarget(str(target_id), target_id.triple, target_id)


def parse_targets(
    items: Iterable[str], kind: str, *, allow_unknown: bool = False
) -> tuple[CompileTarget, ...]:
    """Read a list of devices, each item one or several, as `split_list` reads them.

    They come back sorted, so that the order in which they were given means nothing.

    :raises TargetIDError: invalid or conflicting ones, or some that `kind` cannot serve;
        all problems are told.
    """
    words = [word for item in items for word in split_list(item)]
    ids = parse_target_ids([w for w in words if not _is_triple(w)], allow_unknown=allow_unknown)
    found = {CompileTarget(str(target), target.triple, target) for target in ids}
    found |= {parse_target(word) for word in words if _is_triple(word)}
    problems = [
        f"{device.name} cannot be compiled from {_NAMES[kind]} sources"
        for device in sorted(found)
        if not _serves(device, kind)
    ]
    if problems:
        raise TargetIDError(problems)
    return tuple(sorted(found))


def _serves(device: CompileTarget, kind: str) -> bool:
    return device.arch in _KINDS[kind] or (kind == "openmp" and device.target_id is None)


def _is_triple(text: str) -> bool:
    return text.count("-") >= _TRIPLE_DASHES and is_known_arch(text.split("-", 1)[0])
