"""The object bundle: code objects in sections of the host's object file.

::

    host object                                    bundled object
    -----------                                    --------------
    .text, .data, ...                              .text, .data, ...
                                                   __CLANG_OFFLOAD_BUNDLE__host-...   NUL
                                                   __CLANG_OFFLOAD_BUNDLE__hip-...    code object
                                                   __CLANG_OFFLOAD_BUNDLE__hip-...    code object

A section's name is the magic and the bundle entry ID; its content is the code object. The linker
drops these sections. The host's section is one NUL byte, the *host marker*: it represents the whole
file without the bundle's sections.

`ld -r` joins sections of equal name, so it concatenates the code objects of several bundled
objects. Several NUL bytes in the host's section reveal that. Sections whose names differ remain
intact.

Source: clang-offload-bundler 22.1.8 ``-type=o``, observed: the same bytes for ELF and COFF hosts,
without llvm-objcopy (`edit_sections` and `coff` list the exceptions). LLVM takes any section of one
NUL byte for the host's; this module requires the host's ID, so a code object of one NUL byte is
returned. Like LLVM, it cannot add sections to Mach-O, Wasm, XCOFF, GOFF and DXContainer files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.magic import BUNDLE as MAGIC
from offload_tool.formats.magic import begins, next_content
from offload_tool.formats.objects.coff import is_coff, read_coff_sections
from offload_tool.formats.objects.elf.edit_sections import plan_elf
from offload_tool.formats.objects.elf.reader import is_elf_header, read_elf_tables
from offload_tool.io import StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.io.write_plan import FilePlan, Part
from offload_tool.util.frozen import frozen

HOST_MARKER = b"\0"
"""The content of the host's section."""
_HOST_KIND = "host-"
_MACH_O: dict[bytes, Literal["big", "little"]] = {
    b"\xfe\xed\xfa\xce": "big",
    b"\xfe\xed\xfa\xcf": "big",
    b"\xce\xfa\xed\xfe": "little",
    b"\xcf\xfa\xed\xfe": "little",
}
_MACH_O_TYPES = range(1, 13)
_OTHER_FORMATS = {
    b"\0asm\x01\0\0\0": "Wasm",
    b"\x01\xdf": "XCOFF",
    b"\x01\xf7": "XCOFF",
    b"\x03\xf0\0": "GOFF",
    b"DXBC": "DXContainer",
}


@frozen
class ObjectEntry:
    """A section of the bundle: ID as stored, and offset and size of its code object, in bytes."""

    id: str
    offset: int
    size: int
    host_markers: int = 0
    """Number of host objects that this represents; above 1 after `ld -r`."""


def is_object_file(data: memoryview) -> str | None:
    """Return an object file's format as LLVM 22 does; None for bitcode, archives and others."""
    if is_elf_header(data):
        return "ELF"
    if is_coff(data):
        return "COFF"
    if (order := _MACH_O.get(bytes(data[:4]))) and len(data) >= 28:
        macho_type = int.from_bytes(data[12:16], order)
        return "Mach-O" if macho_type in _MACH_O_TYPES else None
    names = (name for magic, name in _OTHER_FORMATS.items() if begins(data, magic))
    return next(names, None)


def read_object_bundle(data: memoryview, *, path: StrPath | None = None) -> tuple[ObjectEntry, ...]:
    """Read the entries of an object file's bundle, if any, in section order; raise FormatError."""
    sections: Iterable[tuple[bytes, int, int]]
    file_format = is_object_file(data)
    if file_format == "ELF":
        tables = read_elf_tables(data, path=path)
        rows = zip(tables.names, tables.sections, strict=True)
        sections = ((name, row.sh_offset, row.sh_size) for name, row in rows if row.has_content)
    elif file_format == "COFF":
        sections = read_coff_sections(data, path=path)
    elif file_format is None:
        found = bytes(data[:4])
        raise FormatError(f"expected an object file, found {found!r}", path=path, offset=0)
    else:
        return ()
    entries = []
    for name, offset, size in sections:
        if name.startswith(MAGIC):
            entry_id = name.removeprefix(MAGIC).decode("utf-8", "surrogateescape")
            is_host = entry_id.startswith(_HOST_KIND)
            markers = is_host and next_content(data[: offset + size], offset) is None
            entries.append(ObjectEntry(entry_id, offset, size, size if markers else 0))
    return tuple(entries)


def check_not_merged(entries: Sequence[ObjectEntry], *, path: StrPath | None = None) -> None:
    """Raise UnsupportedError for concatenated code objects, FormatError for a repeated ID."""
    for entry in entries:
        if entry.host_markers > 1:
            message = (
                f"`ld -r` made this of {entry.host_markers} bundled objects and glued their code "
                "objects together; unbundle these objects before they are linked"
            )
            field = MAGIC.decode() + entry.id
            raise UnsupportedError(message, path=path, offset=entry.offset, field=field)
    counts = Counter(entry.id for entry in entries)
    for name, count in counts.items():
        if count > 1:
            raise FormatError(f"{count} sections have the bundle entry ID '{name}'", path=path)


def plan_object_bundle(
    host: memoryview, items: Sequence[tuple[str, Part]], *, path: StrPath | None = None
) -> FilePlan:
    """Return a plan of `host` bundled with (bundle entry ID, content) items, in order.

    The content of the host's own item is `HOST_MARKER`. Raises UsageError or FormatError: no items,
    an ID twice, or a host that is not ELF, or broken.
    """
    if not items:
        raise UsageError("a bundle needs at least one entry")
    file_format = is_object_file(host)
    if file_format != "ELF":
        where = "the host object" if path is None else f"'{path}'"
        found = f"a {file_format} file" if file_format else "not an object file"
        raise UsageError(
            f"{where} is {found}; sections can be added to ELF only. "
            "Use a type of the binary layout (bc) for other files"
        )
    present = [entry.id for entry in read_object_bundle(host, path=path)]
    counts = Counter([*present, *(name for name, _ in items)])
    for name, _ in items:
        if counts[name] > 1:
            where = f"; '{path}' is a bundle already" if name in present and path else ""
            raise UsageError(
                f"{counts[name]} entries have the bundle entry ID '{name}'{where}; each must differ"
            )
    added = [(MAGIC + name.encode("utf-8", "surrogateescape"), part) for name, part in items]
    return plan_elf(host, added, path=path)


def plan_host(host: memoryview, *, path: StrPath | None = None) -> FilePlan:
    """Return a plan of an ELF file without bundle sections; raise ContentError."""
    if (file_format := is_object_file(host)) != "ELF":
        raise UnsupportedError(
            f"expected an ELF file, found {file_format or 'no object'}, from which no sections can "
            "be removed; use clang-offload-bundler for its host object",
            path=path,
        )
    plan = plan_elf(host, removed=lambda name: name.startswith(MAGIC), path=path)
    effective_budget(len(host)).reread(plan.size, path)
    return plan
