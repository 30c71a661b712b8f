"""Kernels of cubins: attributes in sections ``.nv.info``, and section sizes.

::

    .symtab                  a function (STT_FUNC) with bit 4 of st_other is a kernel; its code,
                             all of section .text.KERNEL, is of st_size
    .nv.info                 attributes of all functions
    .nv.info.KERNEL          attributes of one kernel
    .nv.shared.KERNEL        its size is that of the shared memory; no bits in the file
    .nv.local.KERNEL         its size is that of the local memory, for code without a stack
    .nv.merc.*, .nv.capmerc* from sm_100 on, the same for unfinished code; not read

    an attribute             1 byte   format: 1 no value, 2 one byte, 3 two bytes, 4 bytes
                             1 byte   attribute number
                             2 bytes  the value, for formats 1 to 3; its size in bytes, for 4
                             4: the value; in .nv.info it begins with 4 bytes, a symbol's number

    attribute number         0x2f     REGCOUNT: 4 bytes behind the symbol, registers
                             0x12     MIN_STACK_SIZE: 4 bytes behind the symbol, stack of a
                                      thread including all calls; only in linked code
                             0x05     MAX_THREADS: 3 numbers, of __launch_bounds__
                             0x10     REQNTID: 3 numbers, of .reqntid

Source: cubins of ptxas 12.9 to 13.5, and the output of cuobjdump 13.5 with ``-elf`` and with
``--dump-resource-usage``, whose sizes this module reads.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping

from offload_tool.errors import FormatError
from offload_tool.formats.kernel import NUMBER_LIMIT, WARP, Kernel
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables, Symbol, read_elf_tables
from offload_tool.io import StrPath

_INFO = b".nv.info"
_SHARED, _LOCAL = b".nv.shared.", b".nv.local."
_ENTRY = 0x10  # bit in st_other
_HEAD = struct.Struct("<BBH")
_SYMBOL_VALUE, _THREADS = struct.Struct("<II"), struct.Struct("<III")
_BYTES = 4  # the format with a size
_REGCOUNT, _MIN_STACK_SIZE, _MAX_THREADS, _REQNTID = 0x2F, 0x12, 0x05, 0x10


def read_cubin_kernels(data: memoryview, *, path: StrPath | None = None) -> list[Kernel]:
    """Read a cubin's kernels, in symbol table order; raise FormatError if it is broken."""
    tables = read_elf_tables(data, path=path)
    if not (numbers := tables.of_type(elf.SHT_SYMTAB)):
        message = "expected a symbol table, without which no kernel has a name; found none"
        raise FormatError(message, path=path, field=".symtab")
    table = numbers[0]
    symbols, names = tables.symbols(table), tables.strings(tables.linked(table))
    sections = {name: index for index, name in enumerate(tables.names)}
    registers, stacks = _function_attributes(tables, sections, len(symbols))
    return [
        Kernel(
            name=(name := names[symbol.st_name]).decode("utf-8", "surrogateescape"),
            code_size=_code_size(tables, table, symbol),
            vgprs=registers.get(number),
            lds=_section_size(tables, sections, _SHARED + name),
            scratch=stacks.get(number, 0) + _section_size(tables, sections, _LOCAL + name),
            wavefront_size=WARP,
            max_workgroup_size=_max_workgroup_size(tables, sections.get(_INFO + b"." + name, 0)),
        )
        for number, symbol in enumerate(symbols)
        if symbol.type == elf.STT_FUNC and symbol.st_other & _ENTRY and symbol.st_shndx
    ]


def _code_size(tables: ElfTables, table: int, symbol: Symbol) -> int:
    if symbol.st_size > len(tables.data):
        message = f"expected the size of a kernel in {len(tables.data)} bytes, found "
        raise tables.error(table, "st_size", f"{message}{symbol.st_size}")
    return symbol.st_size


def _section_size(tables: ElfTables, sections: Mapping[bytes, int], name: bytes) -> int:
    index = sections.get(name, 0)  # section 0 has no size or content
    size = tables.sections[index].sh_size
    if size >= NUMBER_LIMIT:
        message = f"expected the size of a kernel's memory, found {size}"
        raise tables.error(index, "sh_size", message)
    return size


def _function_attributes(
    tables: ElfTables, sections: Mapping[bytes, int], count: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return registers and stack size of functions, by symbol number."""
    found: dict[int, dict[int, int]] = {_REGCOUNT: {}, _MIN_STACK_SIZE: {}}
    index = sections.get(_INFO, 0)
    for attribute, value in _attributes(tables, index):
        if attribute not in found:
            continue
        if len(value) != _SYMBOL_VALUE.size or _SYMBOL_VALUE.unpack(value)[0] >= count:
            message = f"expected a symbol's number below {count} and a size, found {value.hex()}"
            raise tables.error(index, "content", message)
        number, size = _SYMBOL_VALUE.unpack(value)
        found[attribute][number] = size
    return found[_REGCOUNT], found[_MIN_STACK_SIZE]


def _max_workgroup_size(tables: ElfTables, index: int) -> int | None:
    """Return the largest workgroup of a kernel; None if there is no limit."""
    for attribute, value in _attributes(tables, index):
        if attribute not in (_MAX_THREADS, _REQNTID):
            continue
        threads = math.prod(_THREADS.unpack(value)) if len(value) == _THREADS.size else 0
        if not 0 < threads < NUMBER_LIMIT:
            message = f"expected three numbers of threads, found {value.hex():.40}"
            raise tables.error(index, "content", message)
        return threads
    return None


def _attributes(tables: ElfTables, index: int) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of a section's attributes; raise FormatError for other content."""
    data, at = tables.content(index), 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise tables.error(index, "sh_size", f"an attribute at byte {at} of it is cut short")
        form, attribute, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if form != _BYTES:
            if not 0 < form < _BYTES:
                message = f"expected a format of 1 to 4 at byte {at - _HEAD.size}, found {form}"
                raise tables.error(index, "content", message)
            continue
        if at + size > len(data):
            message = f"an attribute of {size} bytes at byte {at} of it is cut short"
            raise tables.error(index, "sh_size", message)
        yield attribute, bytes(data[at : at + size])
        at += size
