"""CUDA's fat binary inside a host object: the section ``.nv_fatbin``, or ``__nv_relfatbin``.

clang embeds the fat binary from its command line while it compiles the host code::

    .nvFatBinSegment                         .nv_fatbin   (read-only)
      __cuda_fatbin_wrapper:
        magic, version,
        pointer to .nv_fatbin + 0   ------->   the fat binary's bytes
        0

With a placeholder, the object does not depend on device code. Later, this module replaces the
placeholder: the fat binary is appended to a copy of the object, and the section's header points to
it. Nothing else changes::

    object as it was, with another offset and size | zeros | fat binary
    in the header of section .nv_fatbin

With relocatable device code, the section is ``__nv_relfatbin``: see `formats.host_symbols`.
Source: clang 22.1.8 and 19.1.7, observed.
"""

from __future__ import annotations

from offload_tool.errors import CodeObjectError, FormatError, UnsupportedError
from offload_tool.formats.objects.elf.reader import ELF64_LITTLE, is_elf, read_elf_tables
from offload_tool.io import StrPath
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Range, content, join

PLACEHOLDER = b"offload_tool: the fat binary goes here"
SECTION = ".nv_fatbin"
RELOCATABLE_SECTION = "__nv_relfatbin"
SECTIONS = (SECTION, RELOCATABLE_SECTION)
"""Full names; linked PE files have the first 8 characters."""
ALIGNMENT = 16
"""Alignment of the fat binary in the file, in bytes; the section requires 8."""


def find_placeholder(data: memoryview, *, path: StrPath | None = None) -> int | None:
    """Return the number of a host object's section that holds the placeholder; None without one.

    Clang creates none for a source without kernels and device variables.

    :raises CodeObjectError, FormatError, UnsupportedError: other content, or no usable ELF file.
    """
    expected = "expected a 64-bit little-endian ELF object"
    if not is_elf(data):
        raise FormatError(expected, path=path, offset=0)
    tables = read_elf_tables(data, path=path)
    if tables.elf_class is not ELF64_LITTLE:
        raise UnsupportedError(expected, path=path, offset=0)
    for index, (name, section) in enumerate(zip(tables.names, tables.sections, strict=True)):
        if name.decode("latin-1") in SECTIONS:
            found = data[section.sh_offset : section.sh_offset + section.sh_size]
            if found == PLACEHOLDER:
                return index
            raise CodeObjectError(
                f"'{path}': expected the placeholder of a fat binary in {name.decode()}, "
                f"found {bytes(found[:8])!r}"
            )
    return None


def plan_embedding(data: memoryview, size: int, *, path: StrPath | None = None) -> FilePlan:
    """Return a plan of the host object `data` with a fat binary; errors of `find_placeholder`."""
    index = find_placeholder(data, path=path)
    if index is None:
        raise CodeObjectError(
            f"'{path}': expected a section {SECTION} for the fat binary, found none: it was not "
            "compiled with the placeholder; compile it with `offload-tool compile --host`"
        )
    tables = read_elf_tables(data, path=path)
    layout = tables.elf_class.section
    offset = len(data) + -len(data) % ALIGNMENT
    header = tables.sections[index]._replace(sh_offset=offset, sh_size=size)
    at = tables.header.e_shoff + index * layout.size
    end = at + layout.size
    pieces = (
        Range(0, HOST, 0, at),
        Literal(at, layout.pack(*header)),
        Range(end, HOST, end, len(data) - end),
        content(offset, 0, size),
    )
    return FilePlan(join(pieces), offset + size)
