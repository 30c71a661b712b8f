"""The symbols of host code for its device code: fat binaries to link, and registration.

clang uses one of two forms, nvcc the old one. Only these make a kernel known to the runtime::

    old offload driver                       new offload driver (HIP's default since clang 23)
    --------------------------------------   ---------------------------------------------------
    HIP: a constructor registers the         section llvm_offload_entries: one entry per kernel
    bundle at the undefined symbol           and variable, which an object that the link adds
    __hip_fatbin_H                           registers (before LLVM 21, of one offload kind:
    (clang 18 and older: __hip_fatbin)       hip_offloading_entries, cuda_offloading_entries)

    CUDA, relocatable device code:           .llvm.offloading: relocatable cubins, where the
    __nv_relfatbin    the source's own fat   object is one for others
                      binary, to be linked
    __fatbinwrap<ID>  {magic, 1, pointer}
    __nv_module_id    the text "<ID>"
    a constructor calls
      __cudaRegisterLinkedBinary<ID>(
          function that registers the
          kernels, &__fatbinwrap<ID>, ...)

Each kernel is also a host function with ``__device_stub__`` in its name. A source with only device
functions has neither, and nothing to register. `offload_tool.formats.registration_ir` has the
struct of an entry.

<ID> is the module ID, which begins with an underscore: ``_2bf473e7_6_one_cu_f0533aa0`` for nvcc,
``__nv_<hash of the CUID>`` for clang. The device link creates an object with the functions (nvcc:
``crt/link.stub``). The last call registers the linked fat binary, then calls the constructors'
functions back with its handle. clang 23's old driver gives all sources the same module ID: it
hashes only the name of its own variable, which earlier versions prefix with the source's name. Two
such objects cannot be linked.

Source: objects of clang 17.0.6 to 23.1.4 and of nvcc 12.9 and 13.0, observed; ``crt/link.stub``;
``llvm/Frontend/Offloading/Utility.h`` of LLVM 22 for the entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeVar

from offload_tool.formats.hip_fatbin import CUID_PREFIX, FATBIN
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.util.frozen import frozen

ENTRY_SECTION = "llvm_offload_entries"
REGISTER_LINKED = "__cudaRegisterLinkedBinary"
"""Prefix of the function that CUDA's host code calls; the module ID follows."""
SHARED_MODULE_ID = "__nv_58a2749e7b33cb70"
"""Module ID of all sources: first 8 bytes of MD5("__cuda_fatbin_wrapper"), little-endian."""
_ENTRY = struct.Struct("<8xHH44x")  # reserved, version, kind, flags and five 64-bit fields
_KINDS = {"cuda": 2, "hip": 4}
_STUB = "__device_stub__"
_ENTRY_SYMBOL = ".offloading.entry."
_REGISTERS = {"__hipRegisterFatBinary", "__cudaRegisterFatBinary"}  # both have the same stubs
_Code = TypeVar("_Code", "HipHostCode", "CudaHostCode")


@frozen
class HipHostCode:
    """HIP host code of one object, or of several together."""

    has_entries: bool = False
    """Whether it has entries of its offload kind, which the link must register."""
    unregistered: frozenset[str] = frozenset()
    """Kernels that neither this code registers, nor an entry names."""
    hashes: frozenset[str] = frozenset()
    """Hashes of the CUIDs whose bundle is undefined (see `hip_fatbin.cuid_hash`)."""
    needs_program_bundle: bool = False
    """Whether the one bundle of a program is undefined, as clang 18 and older refer to it."""
    cuids: frozenset[str] = frozenset()
    """Hashes of the CUIDs it was compiled with; unknown for older clangs."""

    @property
    def needs_bundle(self) -> bool:
        """Return whether the code refers to any bundle."""
        return bool(self.hashes) or self.needs_program_bundle


@frozen
class CudaHostCode:
    """CUDA host code with relocatable device code, of one object, or of several together."""

    has_entries: bool = False
    unregistered: frozenset[str] = frozenset()
    called: frozenset[str] = frozenset()
    """Module IDs whose registration function is called."""
    defined: frozenset[str] = frozenset()
    """Module IDs whose registration function is defined: a device link was done already."""

    @property
    def unresolved(self) -> list[str]:
        """The module IDs that a device link must define, sorted."""
        return sorted(self.called - self.defined)


def union(one: _Code, other: _Code) -> _Code:
    """Return what two objects have together."""
    return type(one)(*(getattr(one, name) | getattr(other, name) for name in one.__match_args__))


def hip_host_code(tables: ElfTables) -> HipHostCode:
    """Read the HIP symbols of an ELF object; raise FormatError if its symbols contradict it."""
    undefined, defined = _symbols(tables)
    has_entries = _has_entries(tables, "hip")
    is_registered = has_entries or not _REGISTERS.isdisjoint(undefined)
    unregistered = frozenset() if is_registered else _stubs(defined)
    return _hip_host_code(undefined, defined, has_entries, unregistered)


def bitcode_host_code(data: memoryview) -> HipHostCode:
    """Read the symbols of a HIP host object that is bitcode; errors as of `bitcode_symbols`."""
    # Few host objects are bitcode, and reading them needs many modules.
    from offload_tool.formats.bitcode.module import bitcode_symbols

    undefined, defined = (
        set(names.decode("utf-8", "surrogateescape").split("\0"))
        for names in (bitcode_symbols(data, undefined=True), bitcode_symbols(data))
    )
    has_entries = any(name.startswith(_ENTRY_SYMBOL) for name in defined)
    return _hip_host_code(undefined, defined, has_entries, frozenset())


def _hip_host_code(
    undefined: set[str], defined: set[str], has_entries: bool, unregistered: frozenset[str]
) -> HipHostCode:
    hashes, cuids = _suffixes(f"{FATBIN}_", undefined), _suffixes(CUID_PREFIX, defined)
    return HipHostCode(has_entries, unregistered, hashes, FATBIN in undefined, cuids)


def cuda_host_code(tables: ElfTables) -> CudaHostCode:
    """Read the CUDA symbols of an ELF object; raise FormatError if its symbols contradict it."""
    undefined, defined = _symbols(tables)
    called, has_entries = _suffixes(REGISTER_LINKED, undefined), _has_entries(tables, "cuda")
    is_registered = called or has_entries or not _REGISTERS.isdisjoint(undefined | defined)
    unregistered = frozenset() if is_registered else _stubs(defined)
    return CudaHostCode(has_entries, unregistered, called, _suffixes(REGISTER_LINKED, defined))


def _symbols(tables: ElfTables) -> tuple[set[str], set[str]]:
    symbols = list(tables.named_symbols())
    undefined = {symbol.name for symbol in symbols if not symbol.defined}
    return undefined, {symbol.name for symbol in symbols if symbol.defined}


def _stubs(defined: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in defined if _STUB in name)


def _suffixes(prefix: str, names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _has_entries(tables: ElfTables, kind: str) -> bool:
    for index, name in enumerate(tables.names):
        content = tables.content(index)
        if name == f"{kind}_offloading_entries".encode() and len(content):
            return True
        if name == ENTRY_SECTION.encode():
            rows = content[: len(content) // _ENTRY.size * _ENTRY.size]
            if any(found == _KINDS[kind] for _, found in _ENTRY.iter_unpack(rows)):
                return True
    return False
