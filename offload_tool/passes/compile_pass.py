"""The passes over an offload source: for each its flags, its output, and its check.

The SCons tool and ``offload-tool compile`` share this list. `languages` has the class of each kind:

    kind     pass      output                            check
    -------  --------  --------------------------------  ------------------------------
    hip      host      object                            CUID, symbol of the fat binary
             device    code object                       machine, target ID, CUID
             with rdc  bitcode                           CUID
    cuda     host      object with a placeholder         the placeholder is there
             with rdc  the same, or with entries         one of them is there
             device    PTX                               its target
    openmp   host-ir   bitcode                           it is bitcode
             host      object, compiled from the IR      (none: the IR was checked)
             device    bitcode, or object (of a CPU)     its entries are the host IR's
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from offload_tool.errors import UsageError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.io import StrPath
from offload_tool.passes.command import Command
from offload_tool.passes.verify_output import check_output
from offload_tool.toolchain.probe import Toolchain

Stage: TypeAlias = "Literal['host-ir', 'host', 'device']"

_NO_WARNINGS_OF_PARTS = ("-Qunused-arguments", "-Wno-option-ignored")


@dataclass(frozen=True, slots=True)
class CompilePass(ABC):
    """One job of the compiler, for the host or one device; raise UsageError for no such pass."""

    stage: Stage
    cuid: str
    device: CompileTarget | None = None
    rdc: bool = False
    source: str = ""
    """The source's name, or one like it: an OpenMP source's decides the language."""
    host_ir: str = ""

    kind: ClassVar[str]
    usual_suffix: ClassVar[str]
    """The usual suffix of a device pass's output."""
    relocatable_suffix: ClassVar[str]
    """Its suffix with relocatable device code."""
    has_host_ir: ClassVar[bool] = False
    """A pass writes the host IR of a source, which all others read. Names in it contain inode
    numbers, so the results are valid for these very files."""
    can_bypass_driver: ClassVar[bool] = False
    """It is a front end, and for a device a linker, which can run without the driver."""
    is_distributed: ClassVar[bool] = False
    """A device pass may run on another machine: the engine supports its command."""
    lists_targets: ClassVar[bool] = False
    """The command of each pass lists all targets."""

    def __post_init__(self) -> None:
        if (self.device is None) == (self.stage == "device"):
            raise UsageError("a device pass needs a target ID, and only a device pass has one")
        if self.stage == "host-ir" and not self.has_host_ir:
            raise UsageError(f"only OpenMP sources are compiled to host IR, not {self.kind} ones")

    @property
    def suffix(self) -> str:
        """The usual suffix of the output of a device pass."""
        if self.device is not None and self.device.target_id is None:
            return ".o"
        return self.relocatable_suffix if self.rdc else self.usual_suffix

    @property
    def needs_host_ir(self) -> bool:
        """Return whether the host IR of the source is an input."""
        return self.has_host_ir and self.stage != "host-ir"

    @property
    def compiles_source(self) -> bool:
        """Return whether the pass reads the source itself, and can write a depfile."""
        return not (self.has_host_ir and self.stage == "host")

    @abstractmethod
    def flags(self, toolchain: Toolchain) -> list[str]:
        """Return the flags that determine the output."""

    def last_flags(self, toolchain: Toolchain, archive_format: str = "") -> list[str]:
        """Return the flags that must follow the user's, for libraries of this format (or "")."""
        del toolchain, archive_format
        return []

    @abstractmethod
    def local_flags(self, toolchain: Toolchain) -> list[str]:
        """Return the flags that name paths of this machine; not for signatures."""

    def end_flags(self, toolchain: Toolchain, archive_format: str = "") -> list[str]:
        """Return `last_flags`, and flags against warnings of what other passes need."""
        return [*self.last_flags(toolchain, archive_format), *_NO_WARNINGS_OF_PARTS]

    def command(self, toolchain: Toolchain, flags: Sequence[str]) -> Command:
        """Return the command of the pass with the user's flags, without an output."""
        own = (*self.local_flags(toolchain), *self.flags(toolchain))
        all_flags = (*own, *flags, *self.end_flags(toolchain))
        return Command(tuple(toolchain.clang), all_flags, "", self.source)

    def own_flags(self, flags: Sequence[Any]) -> list[Any]:
        """Return the user's flags for this pass alone, as the driver's command has them."""
        return [*flags]

    def check(self, output: StrPath, host_ir: StrPath | None = None) -> None:
        """Check the output as `check_output` does."""
        own = (self.kind, self.stage, output, self.cuid, self.device)
        check_output(*own, rdc=self.rdc, host_ir=host_ir)
