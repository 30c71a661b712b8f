"""The objects embedded in an LLVM bitcode module, found without decoding the module.

clang puts offload binaries into host bitcode as constants, which become a section of the
object file. They are listed in named metadata::

    @llvm.embedded.object = private constant [272 x i8] c"...", section ".llvm.offloading"
    !llvm.embedded.objects = !{!7}
    !7 = !{ptr @llvm.embedded.object, !".llvm.offloading"}

In the bitstream (see `offload_tool.formats.bitcode.bitstream` for its items)::

    MODULE (8)
      VERSION (1)          2: global variables begin with their name, two operands
      GLOBALVAR (7)        type, constant?, initializer (value number + 1, 0: none), ...
      FUNCTION (8), alias (9, 14), IFUNC (15)
      CONSTANTS (11)       SETTYPE (1); STRING (8), an array of fixed numbers of 8 bits,
                           CSTRING (9), which has a NUL more; others
      METADATA (15)        STRINGS (35); VALUE (2): type, value number; NODE (3):
                           metadata numbers + 1; NAME (4), then NAMED_NODE (10): metadata
                           numbers
    other blocks           functions, types, ...: skipped by their size

Global variables, functions and aliases have value numbers in their order, constants go
on after them. Strings and nodes have metadata numbers in their order.

A string of 8-bit numbers begins at any bit, so it is not a range of the file; it is given in
pieces, so that memory does not grow with its size. Source: the LLVM Bitcode File Format
document; numbers as clang 22.1.8 and 15.0.6 write them, observed with llvm-bcanalyzer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from offload_tool.errors import FormatError
from offload_tool.formats.bitcode.bitstream import (
    Bits,
    Block,
    Reader,
    Record,
    packed_bytes,
    top_blocks,
)
from offload_tool.formats.bitcode.symbol_table import unwrap_bitcode
from offload_tool.formats.magic import BITCODE as MAGIC
from offload_tool.io import StrPath
from offload_tool.util.frozen import frozen

_LIST = b"llvm.embedded.objects"

_MODULE, _CONSTANTS, _METADATA, _STRTAB = 8, 11, 15, 23
_WITH_STRTAB = 2
"""The version from which on names are in a block behind the module; LLVM reads none without."""
_VERSION, _GLOBALVAR = 1, 7
_VALUES = frozenset({_GLOBALVAR, 8, 9, 14, 15})
_SETTYPE, _STRING, _CSTRING = 1, 8, 9
_STRINGS, _VALUE, _NODE, _NAME, _NAMED_NODE = 35, 2, 3, 4, 10
_NOT_NUMBERED = frozenset({_NAME, 6, _NAMED_NODE, 36, 38, 39})
"""Records of METADATA that are not metadata: names, kinds, attachments, indexes."""
_SEARCHED = 32 << 20


@frozen
class EmbeddedObject:
    """An object of a module; `size` bytes."""

    data: memoryview
    bit: int
    """Where it begins in `data`, in bits."""
    size: int
    is_ended: bool
    """The last byte is a NUL that is not stored."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces."""
        yield from packed_bytes(self.data, self.bit, self.size - self.is_ended)
        if self.is_ended:
            yield b"\0"


def find_embedded_objects(
    data: memoryview,
    section: str,
    *,
    path: StrPath | None = None,
    forget: Callable[[], object] = lambda: None,
) -> list[EmbeddedObject]:
    """Return the objects that the bitcode in `data` embeds for the section of that name.

    `forget` is called from time to time, and can give back what was mapped of the file.

    :raises FormatError: the bitcode is broken or cut short.
    """
    name = section.encode()
    try:
        data = unwrap_bitcode(data)
        modules = _modules(data)
        if not _contains(data, name, forget):  # what is embedded is rare
            return []
        found: list[EmbeddedObject] = []
        for module in modules:
            found += _ModuleScan(data, module, name).find()
    except FormatError as error:
        raise FormatError(f"broken bitcode: {error.message}", path=path) from error
    return found


def _modules(data: memoryview) -> list[Block]:
    blocks = list(top_blocks(Bits(data, 8 * len(MAGIC), 8 * len(data))))
    modules = [block for block in blocks if block.number == _MODULE]
    if not modules:
        raise FormatError("expected a module, found none; the file may be cut short")
    last = max((b.header_at for b in blocks if b.number == _STRTAB), default=-1)
    for module in modules:
        if module.header_at > last and _version(data, module) >= _WITH_STRTAB:
            message = "expected the strings of a module behind it, found none"
            raise FormatError(f"{message}; the file may be cut short")
    return modules


def _version(data: memoryview, module: Block) -> int:
    """Read which version a module is of; 0 where it does not say."""
    for item in Reader(data).items(module):
        if isinstance(item, Record) and item.code == _VERSION and item.operands:
            return item.operands[0]
    return 0


def _contains(data: memoryview, name: bytes, forget: Callable[[], object]) -> bool:
    """Return whether a module can have `name` in its metadata, whose strings stand as they are."""
    pattern = re.compile(re.escape(name))
    for start in range(0, len(data), _SEARCHED):
        if pattern.search(data, start, start + _SEARCHED + len(name)):
            return True
        forget()
    return False


class _ModuleScan:
    """What of a module tells about its embedded objects."""

    def __init__(self, data: memoryview, block: Block, section: bytes) -> None:
        self.data = data
        self.section = section
        self.initializers: dict[int, int] = {}
        """Of global variables, by value number: value number + 1."""
        self.contents: dict[int, EmbeddedObject] = {}
        """Strings among the constants, by value number."""
        self.sections: set[int] = set()
        """Metadata numbers of the section's name."""
        self.variables: dict[int, int] = {}
        """Value numbers, by metadata number; likewise the operands of nodes."""
        self.nodes: dict[int, tuple[int, int]] = {}
        self.listed: list[int] = []
        self._count = 0
        self._version = 0
        self._read(block)

    def find(self) -> Iterator[EmbeddedObject]:
        """Yield the objects for the section, in the order in which they are listed."""
        for node in self.listed:
            variable, section = self.nodes.get(node, (0, 0))
            if section - 1 not in self.sections:
                continue
            value = self.variables.get(variable - 1, -1)
            found = self.contents.get(self.initializers.get(value, 0) - 1)
            if found is not None:
                yield found

    def _read(self, block: Block) -> None:
        reader = Reader(self.data)
        for item in reader.items(block):
            if isinstance(item, Record):
                self._read_record(item)
            elif isinstance(item, Block) and item.number == _CONSTANTS:
                self._read_constants(reader, item)
            elif isinstance(item, Block) and item.number == _METADATA:
                self._read_metadata(reader, item)

    def _read_record(self, record: Record) -> None:
        if record.code == _VERSION and record.operands:
            self._version = record.operands[0]
        elif record.code in _VALUES:
            at = 4 if self._version >= _WITH_STRTAB else 2
            if record.code == _GLOBALVAR and len(record.operands) > at:
                self.initializers[self._count] = record.operands[at]
            self._count += 1

    def _read_constants(self, reader: Reader, block: Block) -> None:
        for item in reader.items(block):
            if not isinstance(item, Record) or item.code == _SETTYPE:
                continue
            if item.code in (_STRING, _CSTRING):
                self.contents[self._count] = self._content(item, ended=item.code == _CSTRING)
            self._count += 1

    def _content(self, record: Record, *, ended: bool) -> EmbeddedObject:
        if record.operands:  # not as numbers of 8 bits
            raw = bytes(number & 0xFF for number in record.operands)
            return EmbeddedObject(memoryview(raw), 0, len(raw) + ended, ended)
        return EmbeddedObject(self.data, record.bit, record.count + ended, ended)

    def _read_metadata(self, reader: Reader, block: Block) -> None:
        number = 0
        name = b""
        for item in reader.items(block):
            if not isinstance(item, Record):
                continue
            operands = item.operands
            if item.code == _NAME:
                name = b"".join(self._content(item, ended=False).chunks())
            elif item.code == _NAMED_NODE and name == _LIST:
                self.listed += operands
            elif item.code == _STRINGS and len(operands) == 2:
                self._read_strings(number, operands[0], memoryview(item.blob or b""), operands[1])
                number += operands[0]
            elif item.code == _VALUE and len(operands) == 2:
                self.variables[number] = operands[1]
            elif item.code == _NODE and len(operands) == 2:
                self.nodes[number] = operands[0], operands[1]
            if item.code not in _NOT_NUMBERED and item.code != _STRINGS:
                number += 1

    def _read_strings(self, number: int, count: int, blob: memoryview, offset: int) -> None:
        """Read strings: their lengths (vbr6), and from `offset` on their characters."""
        if offset > len(blob):
            raise FormatError("the strings of metadata are cut short")
        lengths = Bits(blob, 0, 8 * offset)
        for index in range(count):
            size = lengths.vbr(6)
            if offset + size > len(blob):
                raise FormatError("the strings of metadata are cut short")
            if blob[offset : offset + size] == self.section:
                self.sections.add(number + index)
            offset += size
