"""What HIP, CUDA and OpenMP differ in, where a pass over a source is compiled.

`Language` is what is asked of each; `passes.hip`, `passes.cuda` and `passes.openmp` each have the
one object that answers. Who compiles a pass asks that object, and not which language it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from offload_tool.io import StrPath
    from offload_tool.passes.compile_pass import CompilePass
    from offload_tool.toolchain.probe import Toolchain


class Language(Protocol):
    """A language of sources with device code, named as the offload kind of its images."""

    suffix: str
    """The usual suffix of a device pass's output."""
    relocatable_suffix: str
    """The same with relocatable device code."""
    has_host_ir: bool
    """A pass makes the host IR of a source, which all others read. Names in it are made of inode
    numbers, so that results belong to these very files."""
    has_headers: bool
    """An installation of the vendor has headers and device libraries that each pass uses."""
    is_direct: bool
    """A device pass is a front end and a linker, which can be run without the driver."""
    is_distributed: bool
    """A device pass may run on another machine: the engine knows its command."""
    lists_targets: bool
    """Each pass is told of all targets."""

    def flags(self, job: CompilePass, toolchain: Toolchain, host_ir: str, source: str) -> list[str]:
        """Return the flags that make a pass; they decide what comes out."""

    def last_flags(self, job: CompilePass, toolchain: Toolchain, archive_format: str) -> list[str]:
        """Return those flags of a pass that must come after the user's."""

    def local_flags(self, job: CompilePass, toolchain: Toolchain, source: str) -> list[str]:
        """Return the flags that say where things are on this machine; not for signatures."""

    def check(self, job: CompilePass, output: StrPath, host_ir: StrPath | None) -> None:
        """Check what a pass has written.

        :raises CodeObjectError: it is something else; the message says what was found.
        """
