"""Names that the backend makes unique by a number, which tell two stages of a pass from one.

LLVM gives a second symbol of one name a number (``str.21``), from a counter of the module.
Compiling a source, the backend continues to count where the front end has stopped; compiling
bitcode, it begins with 1. Bitcode does not contain the counter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from offload_tool.errors import ContentError
from offload_tool.formats.bitcode.module import bitcode_names
from offload_tool.formats.objects.elf.reader import SHT_SYMTAB, STT_FILE, ElfTables

_NUMBERED = re.compile(rb"\.[0-9]+(?![^.])")


def backend_numbers_names(bitcode: bytes, output: bytes) -> bool:
    """Return whether an object of `bitcode` has numbered names that are not the bitcode's."""
    if not output:
        return False
    try:
        numbered = {*_numbered_names(ElfTables(memoryview(output)))}
        return bool(numbered) and not numbered <= bitcode_names(memoryview(bitcode))
    except ContentError:
        return True  # not ELF: nothing is known of its names


def _numbered_names(tables: ElfTables) -> Iterator[bytes]:
    for index in tables.of_type(SHT_SYMTAB):
        strings = tables.strings(tables.linked(index))
        for symbol in tables.symbols(index):
            name = strings[symbol.st_name]
            if symbol.type != STT_FILE and _NUMBERED.search(name):
                yield name
