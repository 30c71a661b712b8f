"""The installations with which a compiler can do a job, and the interface of such a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.frozen import frozen, replaced

CUDA_PATH = "--cuda-path"
_UNLISTED_FILES = ("ocml.bc", "ockl.bc", "share/hip/version", "nvvm/libdevice/libdevice.10.bc")


@frozen
class Equipment:
    """The installations and flags with which a compiler can do a job."""

    flags: tuple[str, ...] = ()
    """Flags that name its path on this machine."""
    description: str = ""
    """For messages; empty if no installation was needed."""
    identity: str = ""
    """Identity of the installations, without paths."""
    used: tuple[str, ...] = ()
    """Directories of the installations."""

    def files(self, targets: Iterable[str]) -> list[str]:
        """Return the used files that no depfile lists: libraries, and files with versions."""
        numbers = (target.split(":", 1)[0].removeprefix("gfx") for target in targets)
        names = [*_UNLISTED_FILES, *(f"oclc_isa_version_{number}.bc" for number in numbers)]
        paths = (Path(folder, name) for folder in self.used for name in names)
        return [str(path) for path in paths if path.is_file()]

    def with_other(self, other: Equipment) -> Equipment:
        """Return this equipment and another together."""
        texts = (self.description, other.description), (self.identity, other.identity)
        description, identity = (", ".join(filter(None, pair)) for pair in texts)
        return Equipment(self.flags + other.flags, description, identity, self.used + other.used)

    def given_to(self, toolchain: Toolchain, kind: str) -> Toolchain:
        """Return the compiler whose passes of `kind` use this equipment."""
        if kind == "hip":
            return replaced(toolchain, rocm_flags=self.flags)
        if kind == "cuda":
            return replaced(toolchain, cuda_flags=self.flags, cuda="".join(self.used[:1]))
        return replaced(toolchain, openmp_flags=self.flags)


class NeededCompile(Protocol):
    """A kind of compile that a compiler is needed for; see `passes.capability_check`."""

    @property
    def kind(self) -> str:
        """The offload kind."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Target IDs, or triples of CPUs."""

    @property
    def needs_headers(self) -> bool:
        """Whether headers of HIP or CUDA are read."""

    @property
    def needs_libraries(self) -> bool:
        """Whether device libraries are linked."""

    def find_equipment(
        self, toolchain: Toolchain, environ: Mapping[str, str], doubts: list[str] | None
    ) -> Equipment:
        """Find the installations with which a compiler can do this."""
