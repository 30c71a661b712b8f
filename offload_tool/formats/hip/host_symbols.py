"""What HIP host code says of its device code: whose bundle it wants, and who registers it.

Clang writes it in one of two ways. Nothing else makes a kernel known to the runtime::

    old offload driver                       new offload driver (HIP's default since clang 23)
    --------------------------------------   ---------------------------------------------------
    a constructor registers the bundle at    section llvm_offload_entries: one entry per kernel
    the undefined symbol __hip_fatbin_H      and variable, which an object that the link adds
    (clang 18 and older: __hip_fatbin)       registers (clang 19: hip_offloading_entries)

A kernel is a function in host code, too, whose name has ``__device_stub__`` in it. A source of
functions for device code alone has neither, and nothing to register. Source: objects of clang
17.0.6 to 23.1.4, observed; ``llvm/Frontend/Offloading/Utility.h`` of LLVM 22 for the entries.
"""

from __future__ import annotations

from offload_tool.formats import offload_entries
from offload_tool.formats.hip.fatbin_section import CUID_PREFIX, FATBIN
from offload_tool.formats.objects.elf.reader import ElfTables, read_elf_tables
from offload_tool.io import StrPath
from offload_tool.util.frozen import frozen

ENTRY_SECTIONS = (offload_entries.SECTION, offload_entries.section_before("hip"))
"""Of all offload kinds, since LLVM 21; of HIP alone, before."""
_STUB = "__device_stub__"
_ENTRY = ".offloading.entry."
_REGISTERS = {"__hipRegisterFatBinary", "__cudaRegisterFatBinary"}  # CUDA has the same stubs


@frozen
class HipHostCode:
    """Host code of one object, or of several together."""

    hashes: frozenset[str] = frozenset()
    """Hashes of the CUIDs whose bundle is asked for (see `fatbin_section.cuid_hash`)."""
    asks_without_cuid: bool = False
    """Whether it asks for the one bundle of a program, as clang 18 and older have it."""
    has_entries: bool = False
    """Whether it has entries of HIP, which the link must register."""
    cuids: frozenset[str] = frozenset()
    """Hashes of the CUIDs with which it was compiled; not known of the older clangs."""
    lost_kernels: tuple[str, ...] = ()
    """Kernels that neither this code registers, nor an entry names."""

    @property
    def asks(self) -> bool:
        """Return whether any bundle is asked for by name."""
        return bool(self.hashes) or self.asks_without_cuid

    def __or__(self, other: HipHostCode) -> HipHostCode:
        """Return both together."""
        return HipHostCode(
            self.hashes | other.hashes,
            self.asks_without_cuid or other.asks_without_cuid,
            self.has_entries or other.has_entries,
            self.cuids | other.cuids,
            self.lost_kernels + other.lost_kernels,
        )


def read_hip_host_code(data: memoryview, *, path: StrPath | None = None) -> HipHostCode:
    """Read what an ELF object says of its HIP code.

    :raises FormatError: it is not an ELF file, or a broken one.
    """
    return hip_host_code(read_elf_tables(data, path=path))


def hip_host_code(tables: ElfTables) -> HipHostCode:
    """Return the same of an ELF object whose tables were read.

    :raises FormatError: its symbols contradict it.
    """
    symbols = list(tables.named_symbols())
    undefined = {symbol.name for symbol in symbols if not symbol.defined}
    defined = {symbol.name for symbol in symbols if symbol.defined}
    has_entries = offload_entries.has_entries(tables, "hip")
    lost: list[str] = []
    if not has_entries and _REGISTERS.isdisjoint(undefined):
        lost = sorted(name for name in defined if _STUB in name)
    return HipHostCode(
        _without_prefix(undefined, f"{FATBIN}_"),
        FATBIN in undefined,
        has_entries,
        _without_prefix(defined, CUID_PREFIX),
        tuple(lost),
    )


def bitcode_host_code(data: memoryview) -> HipHostCode:
    """Return the same of a host object of ``-flto``, whose entries are known by their symbols.

    :raises FormatError: as `bitcode_symbols`.
    """
    # Few host objects are bitcode, and it takes many modules to read.
    from offload_tool.formats.bitcode.symbol_table import bitcode_symbols, bitcode_undefined

    undefined, defined = (
        set(names.decode("utf-8", "surrogateescape").split("\0"))
        for names in (bitcode_undefined(data), bitcode_symbols(data))
    )
    return HipHostCode(
        _without_prefix(undefined, f"{FATBIN}_"),
        FATBIN in undefined,
        any(name.startswith(_ENTRY) for name in defined),
        _without_prefix(defined, CUID_PREFIX),
    )


def _without_prefix(names: set[str], prefix: str) -> frozenset[str]:
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))
