"""The passes over a HIP source: device (once per target ID) and host.

Each pass is one job of the compiler with one output, so that each can be a node of a build graph:
nothing of one target is an input of another.

Clang has two offload drivers (see `offload_tool.formats.host_symbols`). With relocatable device
code, the user's flags and the compiler's default select one, and the result suits that driver's
links. Without, both compile the same host code, and a flag selects the old one where the new one's
result differs, observed with

    clang 19, 20   the CUID reaches host code alone, with relocatable device code, too
    clang 21       host code has entries, as with relocatable device code
    clang 22       a device pass writes a bundle, despite --no-gpu-bundle-output
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.clang.driver import front_end_jobs
from offload_tool.io import StrPath

if TYPE_CHECKING:
    from offload_tool.formats.target.target_id import TargetID
    from offload_tool.passes.compile_pass import CompilePass
    from offload_tool.toolchain.probe import Toolchain

_NEW_DRIVER = "--offload-new-driver"
_OLD_DRIVER = "--no-offload-new-driver"
_NEW_DRIVER_SINCE = 23
"""The first clang whose new driver does everything needed here."""
_NEW_DRIVER_RELOCATABLE_SINCE = 21


class Hip:
    """The `Language` of HIP sources."""

    suffix, relocatable_suffix = ".co", ".bc"
    has_host_ir = lists_targets = False
    has_headers = is_direct = is_distributed = True

    def flags(self, job: CompilePass, toolchain: Toolchain, host_ir: str, source: str) -> list[str]:
        """See `Language.flags`."""
        del toolchain, host_ir, source
        if job.device is None:
            return [*host_flags(job.cuid, rdc=job.rdc), "-c"]
        return [*device_flags(job.target_id, job.cuid, rdc=job.rdc), "-c"]

    def last_flags(self, job: CompilePass, toolchain: Toolchain, archive_format: str) -> list[str]:
        """See `Language.last_flags`; for `archive_format` see `driver_flags`."""
        return driver_flags(toolchain.major, rdc=job.rdc, archive_format=archive_format)

    def local_flags(self, job: CompilePass, toolchain: Toolchain, source: str) -> list[str]:
        """See `Language.local_flags`."""
        del job, source
        return [*toolchain.local_flags, *toolchain.rocm_flags]

    def check(self, job: CompilePass, output: StrPath, host_ir: StrPath | None) -> None:
        """See `Language.check`; a bundle around a code object is removed."""
        from offload_tool.passes import verify_output  # slow to import

        del host_ir
        if job.device is None:
            verify_output.check_host_object(output, job.cuid, rdc=job.rdc)
        elif job.rdc:
            verify_output.check_bitcode(output, job.device, job.cuid)
        else:
            unwrap_code_object(output, job.target_id)
            verify_output.check_code_object(output, job.target_id, job.cuid)


def device_flags(target_id: TargetID, cuid: str, *, rdc: bool = False) -> list[str]:
    """Return the flags for the bare code object of `target_id`, linked by the driver.

    With `rdc` (relocatable device code) it is bitcode, to be linked per target later. Without
    ``--no-gpu-bundle-output`` the driver would wrap it in a bundle.
    """
    return [
        *("-x", "hip", "--cuda-device-only", f"--offload-arch={target_id}"),
        *("--no-gpu-bundle-output", f"-cuid={cuid}", *_relocatable(rdc)),
    ]


def host_flags(cuid: str, *, rdc: bool = False) -> list[str]:
    """Return the flags for the host object without device code.

    The front end gets the CUID a second time because the driver of clang 19 does not pass it on in
    a host-only pass.
    """
    flags = ["-x", "hip", "--offload-host-only", f"-cuid={cuid}", "-Xclang", f"-cuid={cuid}"]
    return [*flags, *_relocatable(rdc)]


def driver_flags(major: int, *, rdc: bool = False, archive_format: str = "") -> list[str]:
    """Return the flags that choose the offload driver; they follow the user's.

    `major` is clang's version. `archive_format` is the format of libraries with relocatable device
    code: ``object-bundle`` or ``offload-binary``, or empty for the driver's own.
    """
    if major < (_NEW_DRIVER_RELOCATABLE_SINCE if rdc else _NEW_DRIVER_SINCE):
        return [_OLD_DRIVER]
    if rdc and archive_format:
        return [_NEW_DRIVER if archive_format == "offload-binary" else _OLD_DRIVER]
    return []


def uses_new_driver(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a host pass, `command` without its input, uses the new offload driver.

    Clang is queried (``-###``): its default and the user's flags decide.
    """
    jobs = front_end_jobs(command, environment)
    return any(_NEW_DRIVER in job for job in jobs)


def unwrap_code_object(path: StrPath, target_id: TargetID) -> None:
    """Extract the code object from the bundle in which a device pass may have wrapped it.

    Clang 22 does so under ``--offload-new-driver``, if a wrapper script adds that flag behind all
    others. A file without such an entry stays unchanged.
    """
    from offload_tool.formats.bundle.binary import is_bundle, read_bundle
    from offload_tool.io import InputFile, replace_file

    with InputFile(path) as source:
        if not is_bundle(source.data):
            return
        for entry in read_bundle(source.data, path=path).entries:
            if entry.id.endswith(f"--{target_id}"):
                with replace_file(path) as out:
                    out.copy(source, entry.offset, entry.size)
                return


def _relocatable(rdc: bool) -> list[str]:
    return ["-fgpu-rdc"] if rdc else []
