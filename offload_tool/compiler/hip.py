"""The passes over a HIP source: device (once per target ID) and host.

Each pass is one job of the compiler with one output, so that each can be a node of a
build graph: nothing of one target is an input of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload_tool.formats.target_id import TargetID

__all__ = ["device_flags", "host_flags"]


def device_flags(target_id: TargetID, cuid: str, *, rdc: bool = False) -> list[str]:
    """Give the flags for the bare code object of `target_id`, linked by the driver.

    With `rdc` (relocatable device code) it is bitcode, to be linked per target later.
    Without ``--no-gpu-bundle-output`` the driver would wrap it in a bundle of its own.
    """
    return [
        *("-x", "hip", "--cuda-device-only", f"--offload-arch={target_id}"),
        *("--no-gpu-bundle-output", f"-cuid={cuid}", *_relocatable(rdc)),
    ]


def host_flags(cuid: str, *, rdc: bool = False) -> list[str]:
    """Give the flags for the host object without device code.

    The front end is given the CUID a second time because the driver of clang 19 does
    not hand it on for a host pass alone.
    """
    flags = ["-x", "hip", "--offload-host-only", f"-cuid={cuid}", "-Xclang", f"-cuid={cuid}"]
    return [*flags, *_relocatable(rdc)]


def _relocatable(rdc: bool) -> list[str]:
    return ["-fgpu-rdc"] if rdc else []
