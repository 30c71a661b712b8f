"""Read the metadata note of AMD GPU code objects, version 3 to 6: the resources of kernels.

::

    a note                   name "AMDGPU", type 32 (NT_AMDGPU_METADATA), in a section of type
                             SHT_NOTE or a segment PT_NOTE; its description is MessagePack:
    map
      amdhsa.version         [1, 0] code object 3; [1, 1] 4; [1, 2] 5 and 6
      amdhsa.kernels         array of maps
        .name, .symbol       strings: "k", of its code, and "k.kd", of its descriptor
        .vgpr_count, ...     integers, see `_FIELDS`
        .args                array of maps: .offset, .size (bytes), .value_kind
        ...                  ignored, at any depth
      amdhsa.target, ...     ignored

    the symbol table         .name is the name of a function; st_size is its code size

Code objects of version 2 have YAML in a note "AMD" of type 10; the reader rejects that version.
The note is untrusted, and read as a stream (see `formats.msgpack_stream`).

Source: AMDGPUUsage, "Code Object V3 Metadata" to "V5"; checked with llvm-readelf 22.1.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.kernel import NUMBER_LIMIT, Kernel
from offload_tool.formats.msgpack_stream import MessagePackReader, reading
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.io import StrPath

_NOTE, _METADATA = b"AMDGPU\0", 32
_OLD_NOTE, _OLD_METADATA = b"AMD\0", 10
_DESCRIPTOR = b".kd"
_HIDDEN = " hidden_"
_FIELDS = {
    ".vgpr_count": "vgprs",
    ".agpr_count": "agprs",
    ".sgpr_count": "sgprs",
    ".group_segment_fixed_size": "lds",
    ".private_segment_fixed_size": "scratch",
    ".vgpr_spill_count": "vgpr_spills",
    ".sgpr_spill_count": "sgpr_spills",
    ".wavefront_size": "wavefront_size",
    ".max_flat_workgroup_size": "max_workgroup_size",
}
_REQUIRED = frozenset(_FIELDS) - {".agpr_count", ".vgpr_spill_count", ".sgpr_spill_count"}


def read_amdgpu_kernels(data: memoryview, *, path: StrPath | None = None) -> list[Kernel]:
    """Read the kernels of a code object, in metadata order; raise ContentError or UsageError."""
    tables = ElfTables(data, path)
    sizes, descriptors = _symbols(tables)
    notes = list(_notes(tables))
    if not notes and descriptors:
        message = f"expected a metadata note for {len(descriptors)} kernels, found none"
        raise FormatError(message, path=path, field="NT_AMDGPU_METADATA")
    kernels = [kernel for note in notes for kernel in _Metadata(note, path).kernels()]
    return [
        kernel._replace(code_size=sizes.get(kernel.name.encode("utf-8", "surrogateescape")))
        for kernel in kernels
    ]


def read_amdgpu_arguments(
    data: memoryview, *, path: StrPath | None = None
) -> dict[str, tuple[str, ...]]:
    """Return kernels' arguments: offset and size in bytes, and kind; without ``hidden_`` ones."""
    tables = ElfTables(data, path)
    notes = [_Metadata(note, path) for note in _notes(tables)]
    return {name: found for note in notes for name, found in note.arguments().items()}


def _symbols(tables: ElfTables) -> tuple[dict[bytes, int], set[bytes]]:
    sizes: dict[bytes, int] = {}
    descriptors: set[bytes] = set()
    # Runtimes look up kernels in .dynsym; only unlinked code objects lack it.
    for index in tables.of_type(elf.SHT_DYNSYM) or tables.of_type(elf.SHT_SYMTAB):
        names = tables.strings(tables.linked(index))
        for symbol in tables.symbols(index):
            if not symbol.st_shndx:
                continue
            if symbol.type == elf.STT_FUNC:
                if symbol.st_size > len(tables.data):
                    message = f"expected the size of a function, found {symbol.st_size}"
                    raise tables.error(index, "st_size", message)
                sizes[names[symbol.st_name]] = symbol.st_size
            elif (name := names[symbol.st_name]).endswith(_DESCRIPTOR):
                descriptors.add(name)
    return sizes, descriptors


def _notes(tables: ElfTables) -> Iterator[memoryview]:
    found = False
    note_sections = (tables.content(index) for index in tables.of_type(elf.SHT_NOTE))
    for areas in (note_sections, _note_segments(tables)):
        for area in areas:
            for name, number, description in tables.elf_class.unpack_notes(area):
                if (name, number) == (_NOTE, _METADATA):
                    found = True
                    yield description
                elif (name, number) == (_OLD_NOTE, _OLD_METADATA):
                    message = "the metadata of code object version 2 (YAML) is not read; 3 to 6 are"
                    raise UnsupportedError(message, path=tables.path, field="NT_AMD_HSA_METADATA")
        if found:  # the segments contain the same notes
            return


def _note_segments(tables: ElfTables) -> Iterator[memoryview]:
    for row in tables.segments:  # read only without notes in sections; it may be broken
        if row.p_type == elf.PT_NOTE:
            yield tables.data[row.p_offset : row.p_offset + row.p_filesz]


class _Metadata:
    def __init__(self, note: memoryview, path: StrPath | None) -> None:
        self.note = note
        self.path = path

    def kernels(self) -> list[Kernel]:
        found: list[Kernel] | None = None
        version = False
        with reading(self.note, self._refusal) as reader:
            for key in reader.map_keys():
                if key == "amdhsa.version":
                    version = self._check_version(reader)
                elif key == "amdhsa.kernels" and found is None:
                    found = [self._kernel(reader) for _ in range(reader.array_size())]
                else:
                    reader.skip()
        if not version:
            raise self._refusal("'amdhsa.version' is missing")
        return found or []

    def arguments(self) -> dict[str, tuple[str, ...]]:
        """Read the arguments of all kernels; raises the errors of `kernels`."""
        found: dict[str, tuple[str, ...]] = {}
        with reading(self.note, self._refusal) as reader:
            for key in reader.map_keys():
                if key == "amdhsa.kernels":
                    found.update(self._arguments(reader) for _ in range(reader.array_size()))
                else:
                    reader.skip()
        return found

    def _arguments(self, reader: MessagePackReader) -> tuple[str, tuple[str, ...]]:
        name, rows = "", []
        for key in reader.map_keys():
            if key == ".name":
                name = reader.string()
            elif key == ".args":
                rows = [self._argument(reader) for _ in range(reader.array_size())]
            else:
                reader.skip()
        return name, tuple(row for row in rows if _HIDDEN not in row)

    def _argument(self, reader: MessagePackReader) -> str:
        numbers, kind = {".offset": 0, ".size": 0}, ""
        for key in reader.map_keys():
            if key in numbers:
                numbers[key] = reader.number(key, NUMBER_LIMIT - 1)
            elif key == ".value_kind":
                kind = reader.string()
            else:
                reader.skip()
        return f"{numbers['.offset']} {numbers['.size']} {kind}"

    def _check_version(self, reader: MessagePackReader) -> bool:
        count = reader.array_size()
        numbers = [reader.number("amdhsa.version", NUMBER_LIMIT - 1) for _ in range(min(count, 2))]
        if count != 2 or numbers[0] != 1:
            message = f"expected version 1 of the metadata, found {numbers}"
            raise UnsupportedError(message, path=self.path, field="amdhsa.version")
        return True

    def _kernel(self, reader: MessagePackReader) -> Kernel:
        at = reader.position
        name = ""
        numbers: dict[str, int] = {}
        for key in reader.map_keys():
            if key == ".name":
                name = reader.string()
            elif field := _FIELDS.get(key):
                numbers[field] = reader.number(key, NUMBER_LIMIT - 1)
            else:
                reader.skip()
        missing = sorted(key for key in _REQUIRED if _FIELDS[key] not in numbers)
        if missing or not name:
            message = f"a kernel at byte {at} of it has no {', '.join(missing) or '.name'}"
            raise self._refusal(message)
        return Kernel(name, **numbers)

    def _refusal(self, message: str) -> FormatError:
        return FormatError(
            f"expected AMDGPU's metadata in MessagePack: {message}",
            path=self.path,
            field="NT_AMDGPU_METADATA",
        )
