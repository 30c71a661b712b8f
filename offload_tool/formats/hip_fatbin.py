"""HIP's fat binary inside a host program: the section ``.hip_fatbin`` and its symbols.

Every translation unit has a compilation unit ID (CUID), a text that the build chooses
(``-cuid=X``). With H its hash, a host object compiled without device code refers to two symbols.
The object that embeds the bundle defines them::

    host object                               embedding object
    ---------------------------------------   --------------------------------------
    .hipFatBinSegment                         .hip_fatbin   (read-only, 4096-aligned)
      __hip_fatbin_wrapper:                     __hip_fatbin_H:         <- hidden
        magic, version,                           the bundle's bytes
        pointer to __hip_fatbin_H   ------->  .bss
        0                                       __hip_gpubin_handle_H:  <- hidden, weak
    (clang 19: __hip_gpubin_handle_H) ----->      8 bytes
    __hip_cuid_H  (defined in both host object and code objects)

With relocatable device code, all translation units of a program share one bundle. The embedding
object then defines the two symbols of each at the same address; the first unit to start registers
it. It also defines ``__hip_fatbin`` and ``__hip_gpubin_handle``, without a hash. The object that
registers host objects of the new offload driver (``passes/runtime/hip_registration.c``) needs them,
as do host objects of clang 18 and older.

H is the first 8 bytes of MD5(X), read little-endian, in lower-case hex without leading
zeros: X = ``13`` gives ``ea124c110e41cc5``. Source: clang 22.1.8 and 19.1.7, observed.

The wrapper, one for each translation unit, is the argument of the runtime's registration::

    0     u32 magic        "FPIH": the pointer leads to a bundle
                           "HIPK": it leads to a kpack marker, see `marker`
    4     u32 version, 1
    8     pointer
    16    u64              of "HIPK": index, which is part of the kernel key

The embedding object is an ELF64 relocatable file of 6 sections::

    ELF header (64 bytes) | zeros to 4096 | bundle | symbols | strings | section headers
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.magic import ELF, aligned
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.formats.targets import triple as triples
from offload_tool.io.write_plan import FilePlan, Part, part_size

try:  # fast to load, unlike hashlib with OpenSSL
    from _md5 import md5  # type: ignore[import-not-found]
except ImportError:  # an interpreter other than CPython
    from hashlib import md5

SECTION = ".hip_fatbin"
WRAPPER_SECTION = ".hipFatBinSegment"
EMBEDDED, KPACKED = b"FPIH", b"HIPK"
"""The magics of wrappers."""
FATBIN = "__hip_fatbin"
HANDLE = "__hip_gpubin_handle"
CUID_PREFIX = "__hip_cuid_"
ALIGNMENT = 4096

# Host architecture (first field of the triple) -> ELF e_machine, e_flags. The flags of riscv64 and
# loongarch64 are the double-float ABI of Linux; linkers reject a mixture.
_HOSTS = {
    "x86_64": (62, 0),
    "amd64": (62, 0),
    "aarch64": (183, 0),
    "powerpc64le": (21, 2),
    "ppc64le": (21, 2),
    "riscv64": (243, 0x5),
    "loongarch64": (258, 0x43),
}

_ELF = elf.ELF64_LITTLE
_SHF_WRITE, _SHF_GNU_RETAIN = 1, 0x200000
_ELFOSABI_GNU = 3
_STB_GLOBAL, _STB_WEAK = 1, 2
_STV_HIDDEN = 2
_HANDLE_SIZE = 8
_WRAPPER = struct.Struct("<4sI8xQ")  # without the pointer
WRAPPER_SIZE = _WRAPPER.size
_WRAPPER_VERSION = 1


class HipWrapper(NamedTuple):
    """A wrapper: section, offset in the file in bytes, magic, and index in the kernel key."""

    section: int
    offset: int
    magic: bytes
    number: int


def wrappers_of(tables: ElfTables) -> Iterator[HipWrapper]:
    """Yield the wrappers of an ELF file; raise FormatError if a section has other data."""
    for section in tables.named(WRAPPER_SECTION):
        row = tables.sections[section]
        if row.sh_size % WRAPPER_SIZE:
            message = f"expected wrappers of {WRAPPER_SIZE} bytes, found {row.sh_size} bytes"
            raise FormatError(
                message, path=tables.path, offset=row.sh_offset, field=WRAPPER_SECTION
            )
        for at in range(row.sh_offset, row.sh_offset + row.sh_size, WRAPPER_SIZE):
            magic, version, index = _WRAPPER.unpack_from(tables.data, at)
            if magic not in (EMBEDDED, KPACKED) or version != _WRAPPER_VERSION:
                message = f"expected a wrapper ({EMBEDDED!r} or {KPACKED!r}) of version "
                message += f"{_WRAPPER_VERSION}, found {magic!r} of version {version}"
                raise FormatError(message, path=tables.path, offset=at, field=WRAPPER_SECTION)
            # The runtime reads 32 bits of the index.
            yield HipWrapper(section, at, magic, index & 0xFFFFFFFF)


def cuid_hash(cuid: str) -> str:
    """Return the hash that clang puts into symbol names for ``-cuid=<cuid>``."""
    digest = md5(cuid.encode(), usedforsecurity=False).digest()
    return f"{int.from_bytes(digest[:8], 'little'):x}"


def fatbin_symbol(cuid: str) -> str:
    """Return the symbol of the bundle to which the host object refers."""
    return f"{FATBIN}_{cuid_hash(cuid)}"


def cuid_symbol(cuid: str) -> str:
    """Return the symbol that every object compiled with this CUID defines."""
    return CUID_PREFIX + cuid_hash(cuid)


class EmbeddingSection(NamedTuple):
    """The section for embedded content."""

    name: str
    alignment: int
    is_retained: bool = False
    """Whether the linker keeps the section although nothing refers to it."""


EMBEDDED_BUNDLE = EmbeddingSection(SECTION, ALIGNMENT)
EMBEDDED_MARKER = EmbeddingSection(".kpack_markers", 1)
"""For the marker of each source."""
TOOLS_MARKER = EmbeddingSection(".rocm_kpack_ref", 1, is_retained=True)
"""For the marker of a linked file, which AMD's tools look up; its loader follows wrappers."""

NOTHING_EMBEDDED = EmbeddingSection(".rodata", 1)
"""For the 0 bytes of an object that embeds nothing."""


def symbol_names(hashes: Sequence[str], *, for_all: bool = False) -> list[str]:
    """Return the names that the embedding object defines: for each bundle and handle."""
    suffixes = [*(f"_{name}" for name in hashes), *([""] if for_all else [])]
    return [name + suffix for suffix in suffixes for name in (FATBIN, HANDLE)]


def plan_embedding(
    hashes: Sequence[str],
    content: Part,
    host_triple: str,
    *,
    for_all: bool = False,
    into: EmbeddingSection = EMBEDDED_BUNDLE,
) -> FilePlan:
    """Return a plan of the object that embeds `content`, a bundle; raise UsageError.

    `hashes` are those of the host objects' CUIDs (see `cuid_hash`). The one bundle `for_all` of a
    program also has the symbols without a hash. The content goes `into` a section.
    """
    arch = host_triple.split("-", 1)[0]
    if arch not in _HOSTS:
        known = ", ".join(sorted(_HOSTS))
        raise UsageError(f"cannot embed for host '{host_triple}': expected one of {known}")
    if triples.meaning(triples.normalized(host_triple)).object_format != "elf":
        raise UsageError(
            f"cannot embed for host '{host_triple}': embed makes ELF objects; give the triple of a "
            "host such as x86_64-unknown-linux-gnu"
        )
    machine, flags = _HOSTS[arch]
    start, size = aligned(_ELF.header.size, into.alignment), part_size(content)

    flags_of_section = elf.SHF_ALLOC | (_SHF_GNU_RETAIN if into.is_retained else 0)
    writable = elf.SHF_ALLOC | _SHF_WRITE
    abi = _ELFOSABI_GNU if into.is_retained else 0  # otherwise GNU's linker does not know the flag

    defined = symbol_names(hashes, for_all=for_all)
    texts = [*defined, into.name, ".bss", ".note.GNU-stack", ".symtab", ".strtab"]
    strings = b"\0" + b"".join(text.encode() + b"\0" for text in texts)
    offsets = list(itertools.accumulate((len(text.encode()) + 1 for text in texts), initial=1))
    symbols = bytes(_ELF.symbol.size)
    for name, offset in zip(defined, offsets, strict=False):
        is_bundle = name.startswith(FATBIN)
        section, binding = (1, _STB_GLOBAL) if is_bundle else (2, _STB_WEAK)
        length = size if is_bundle else _HANDLE_SIZE
        row = (offset, binding << 4 | elf.STT_OBJECT, _STV_HIDDEN, section, 0, length)
        symbols += _ELF.symbol.pack(*row)

    symbols_at = aligned(start + size, 8)
    names = offsets[len(defined) :]
    strings_at = symbols_at + len(symbols)
    headers_at = aligned(strings_at + len(strings), 8)

    rows = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (names[0], elf.SHT_PROGBITS, flags_of_section, 0, start, size, 0, 0, into.alignment, 0),
        (names[1], elf.SHT_NOBITS, writable, 0, symbols_at, _HANDLE_SIZE, 0, 0, 8, 0),
        (names[2], elf.SHT_PROGBITS, 0, 0, symbols_at, 0, 0, 0, 1, 0),
        (names[3], elf.SHT_SYMTAB, 0, 0, symbols_at, len(symbols), 5, 1, 8, _ELF.symbol.size),
        (names[4], elf.SHT_STRTAB, 0, 0, strings_at, len(strings), 0, 0, 1, 0),
    ]
    head = _ELF.header.pack(
        (ELF + bytes((2, 1, 1, abi))).ljust(16, b"\0"),
        *(elf.ET_REL, machine, 1, 0, 0, headers_at, flags),
        *(_ELF.header.size, 0, 0, _ELF.section.size, len(rows), len(rows) - 1),
    )
    table = b"".join(_ELF.section.pack(*row) for row in rows)
    return FilePlan.of(
        [
            *(head, start - len(head)),
            *(content, symbols_at - start - size),
            *(symbols + strings, headers_at - strings_at - len(strings)),
            table,
        ]
    )
