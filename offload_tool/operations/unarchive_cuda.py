"""Unbundle a library of relocatable CUDA code into one archive of device code per processor.

::

    library                                 archive for sm_86
    a.o   __nv_relfatbin of nvcc (or of     a.o.fatbin   a fat binary of the entry that the
          clang's old offload driver)                    device linker would take
    b.o   .llvm.offloading of clang's       b.o.cubin    the relocatable cubin that fits
          new offload driver

Members without compatible code are left out. Code is compatible if it was compiled for

    sm_NN, sm_NNf    the same major version, and no higher minor one
    compute_NN       no later processor
    compute_NNf      no later processor, of the same major version
    with an a        the processor itself

nvlink takes the compatible code with the highest number; among equal numbers, a cubin before PTX,
and among these the one with the letter. Code for link-time optimisation has its own rules: all that
is compatible stays. The archives are for `offload_tool.nvidia.nvlink`; NVIDIA's own tools expect
host objects in archives. Source: nvlink 13.0 and 13.5, observed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from offload_tool.containers.find import FoundContainer, find_containers
from offload_tool.containers.walk import OFFLOADING_SECTION
from offload_tool.errors import OffloadError
from offload_tool.formats.cuda.fatbin import plan_entries, read_cuda_fatbin
from offload_tool.formats.cuda.object_section import RELOCATABLE_SECTION
from offload_tool.formats.objects.ar import GrowingArchive
from offload_tool.io import StrPath, replace_file
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan

_PROCESSOR = re.compile(r"(sm|compute|lto)_(\d+)([af]?)")
_MINORS = 10  # ``sm_86`` is of major version 8 and minor version 6
_LETTERS = ("", "f", "a")


def unbundle_cuda_library(
    path: StrPath, output: StrPath, processor: str, *, allow_missing: bool = False
) -> None:
    """Write the archive of a library's code for `processor`; leave an equal one untouched.

    The library is an archive or one object. Raises OffloadError if no member has code for the
    processor, without `allow_missing`, or FormatError.
    """
    archive = GrowingArchive()
    with Spool() as spool:
        for name, plan in _plans(path, processor):
            content = spool.append(plan.write_to)
            archive.add(name.encode("utf-8", "surrogateescape"), *content, None)
        if not archive and not allow_missing:
            raise OffloadError(f"'{path}': no member has relocatable CUDA code for {processor}")
        with replace_file(output, keep_equal=True) as out:
            archive.write_to(out)


def _plans(path: StrPath, processor: str) -> Iterator[tuple[str, FilePlan]]:
    every = find_containers(path, confined=False)
    for member, containers in itertools.groupby(every, lambda each: each.member):
        name = (member or Path(path).name).replace("/", "_")
        cubins: list[tuple[str, bytes]] = []
        for found in containers:
            if found.section == RELOCATABLE_SECTION:
                thinned = _thinned(found, processor)
                if thinned is not None:
                    yield f"{name}.fatbin", thinned
            elif found.section == OFFLOADING_SECTION:
                images = (image for image in found.images if image.kind == "cuda")
                cubins += (
                    (image.target_id, bytes(image.content.range.data))
                    for image in images
                    if image.target_id.startswith("sm_")
                )
        # Clang writes an offload binary for each image, so that no single one of them shows what
        # else the member has. Several are for one processor where `ld -r` joined objects.
        taken = linked_entries([target for target, _ in cubins], processor)
        for target, data in cubins:
            if target in taken:
                yield f"{name}.cubin", FilePlan.of([data])


def _thinned(found: FoundContainer, processor: str) -> FilePlan | None:
    source = found.location.source
    entries = read_cuda_fatbin(source.data, found.offset, path=found.label).entries
    names = [image.processor for entry in entries for image in entry.images]
    taken = set(linked_entries(names, processor))
    kept = [
        source.range(entry.offset, entry.size)
        for entry in entries
        if any(image.processor in taken for image in entry.images)
    ]
    return plan_entries(kept) if kept else None


def linked_entries(names: Sequence[str], processor: str) -> list[str]:
    """Return the names of entries that a link takes: one, or all for link-time optimisation."""
    fitting = {name: rank for name in names if (rank := _rank(name, processor))}
    kept = [name for name in fitting if name.startswith("lto")]
    others = [name for name in fitting if name not in kept]
    return [*([max(others, key=lambda name: fitting[name])] if others else []), *kept]


def _rank(name: str, processor: str) -> tuple[int, ...]:
    """Return the rank of code for a processor: () if incompatible, greater is better."""
    given, wanted = _PROCESSOR.fullmatch(name), _PROCESSOR.fullmatch(processor)
    if given is None or wanted is None:
        return ()
    number, limit = int(given[2]), int(wanted[2])
    is_cubin = given[1] == "sm"
    same_major = number // _MINORS == limit // _MINORS
    if number > limit or (not same_major and (is_cubin or given[3])):
        return ()
    if given[3] == "a" and (number, "a") != (limit, wanted[3]):
        return ()
    return number, is_cubin, _LETTERS.index(given[3])
