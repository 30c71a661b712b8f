"""The two passes over a HIP source: device (once per target ID) and host.

Each pass is one job of the compiler with one output, so that each can be a node of a
build graph: nothing of one target is an input of another.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload_tool.formats.target_id import TargetID

__all__ = ["dependency_flags", "derive_cuid", "device_flags", "host_flags"]


def derive_cuid(source: str, output_stem: str = "") -> str:
    """Derive a compilation unit ID from a source's name relative to the project's top.

    `output_stem` sets apart several objects of one source. Absolute paths and flags stay
    out, so that two checkouts agree and a changed flag does not reach other passes.
    """
    text = source if not output_stem else f"{source}\0{output_stem}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def device_flags(target_id: TargetID, cuid: str) -> list[str]:
    """Give the flags for the bare code object of `target_id`, linked by the driver.

    Without ``--no-gpu-bundle-output`` the driver would wrap it in a bundle of its own.
    """
    return [
        *("-x", "hip", "--cuda-device-only", f"--offload-arch={target_id}"),
        *("--no-gpu-bundle-output", f"-cuid={cuid}"),
    ]


def host_flags(cuid: str) -> list[str]:
    """Give the flags for the host object without device code.

    The front end is given the CUID a second time because the driver of clang 19 does
    not hand it on for a host pass alone.
    """
    return ["-x", "hip", "--offload-host-only", f"-cuid={cuid}", "-Xclang", f"-cuid={cuid}"]


def dependency_flags(depfile: str) -> list[str]:
    """Give the flags that write a Makefile depfile for one pass.

    The driver ignores ``-MD -MF`` in device-only HIP jobs, so the front end is told.
    """
    words = ["-dependency-file", depfile, "-MT", "object"]
    return [flag for word in words for flag in ("-Xclang", word)]
