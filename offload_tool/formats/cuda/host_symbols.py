"""What CUDA host code of relocatable device code says: who registers it, and under which name.

A compiler writes it in one of two ways::

    nvcc, clang's old offload driver           clang's new offload driver
    ----------------------------------------   -----------------------------------------------
    __nv_relfatbin    the source's own fat     section llvm_offload_entries: one entry per
                      binary, to be linked     kernel and variable, which an object that the
    __fatbinwrap<ID>  {magic, 1, pointer}      link adds registers (clang 19 and 20:
    __nv_module_id    the text "<ID>"          cuda_offloading_entries)
    a constructor calls
      __cudaRegisterLinkedBinary<ID>(          .llvm.offloading  relocatable cubins, where the
          function that registers the            object is one for others
          kernels, &__fatbinwrap<ID>, ...)

<ID> is the module ID, which begins with an underscore: ``_2bf473e7_6_one_cu_f0533aa0`` of nvcc,
``__nv_<hash of the CUID>`` of clang. The functions are in an object of the device link's making
(nvcc: ``crt/link.stub``), which waits for the last of them, registers the linked fat binary, and
calls the constructors' functions back with its handle.

The old driver of clang 23 gives all sources one module ID: it hashes the name of its own variable,
as earlier ones do with the name of the source before it. Two such objects cannot be linked.

Source: objects of nvcc 12.9 and 13.0 and of clang 19 to 23.1, observed, and ``crt/link.stub``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from offload_tool.formats import offload_entries
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.objects.elf.reader import ElfTables

REGISTER = "__cudaRegisterLinkedBinary"
"""Begins the name of the function that host code calls; the module ID follows."""
SHARED_MODULE_ID = "__nv_58a2749e7b33cb70"
"""Of all sources: the first 8 bytes of MD5("__cuda_fatbin_wrapper"), read little-endian."""
_STUB = "__device_stub__"
_REGISTERS = {"__cudaRegisterFatBinary", "__hipRegisterFatBinary"}  # HIP has the same stubs


@frozen
class CudaHostCode:
    """Host code of one object, or of several together."""

    asked: frozenset[str] = frozenset()
    """Module IDs whose registration is called."""
    served: frozenset[str] = frozenset()
    """Module IDs whose registration is defined: a device link was done already."""
    has_entries: bool = False
    """Whether it has entries of CUDA, which the link must register."""
    lost_kernels: tuple[str, ...] = ()
    """Kernels that neither this code registers, nor an entry names."""

    @property
    def wanted(self) -> list[str]:
        """The module IDs that a device link has to serve, sorted."""
        return sorted(self.asked - self.served)

    def __or__(self, other: CudaHostCode) -> CudaHostCode:
        """Return both together."""
        return CudaHostCode(
            self.asked | other.asked,
            self.served | other.served,
            self.has_entries or other.has_entries,
            self.lost_kernels + other.lost_kernels,
        )


def cuda_host_code(tables: ElfTables) -> CudaHostCode:
    """Read what an ELF object says, whose tables were read.

    :raises FormatError: its symbols contradict it.
    """
    symbols = list(tables.named_symbols())
    asked = _module_ids(symbol.name for symbol in symbols if not symbol.defined)
    defined = {symbol.name for symbol in symbols if symbol.defined}
    entries = offload_entries.has_entries(tables, "cuda")
    registers = any(symbol.name in _REGISTERS for symbol in symbols)
    lost: list[str] = []
    if not (asked or entries or registers):
        lost = sorted(name for name in defined if _STUB in name)
    return CudaHostCode(asked, _module_ids(defined), entries, tuple(lost))


def _module_ids(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.removeprefix(REGISTER) for name in names if name.startswith(REGISTER))
