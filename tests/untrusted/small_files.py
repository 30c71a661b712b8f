"""Small files that cause much work: their tables refer to the same bytes repeatedly."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from msgpack import packb

from offload_tool.formats.kpack.marker import KpackMarker
from tests.formats.marked_programs import marked_program
from tests.formats.object_files import member_header
from tests.fuzz.seeds import GFX906, bundle, zipped

_SECTION, _HEADER = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_NAMES = b"\0.hip_fatbin\0.names\0.hipFatBinSegment\0"
_NUMBERS = (
    ".group_segment_fixed_size", ".max_flat_workgroup_size", ".private_segment_fixed_size",
    ".sgpr_count", ".vgpr_count", ".wavefront_size",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_AMDGPU, _OS_HSA, _V5 = 224, 64, 3


def elf(
    body: bytes, sections: Sequence[tuple[int, int]], segments: int = 0, machine: int = 62
) -> bytes:
    """Return an ELF file whose sections, given by name and type, all share `body`."""
    begin = _HEADER.size + segments * _SEGMENT.size
    names = begin + len(body)
    rows = [(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    rows += [(name, kind, 2, 0, begin, len(body), 0, 0, 1, 0) for name, kind in sections]
    rows.append((13, 3, 0, 0, names, len(_NAMES), 0, 0, 1, 0))
    table = names + len(_NAMES)
    ident = b"\x7fELF\x02\x01\x01" + bytes([_OS_HSA if machine == _AMDGPU else 0, _V5])
    header = _HEADER.pack(
        *(ident, 3, machine, 1, 0, _HEADER.size if segments else 0, table, 0x53F),
        *(64, 56, segments, 64, len(rows), len(rows) - 1),
    )
    notes = _SEGMENT.pack(4, 4, begin, 0, 0, len(body), len(body), 4) * segments
    return header + notes + body + _NAMES + b"".join(_SECTION.pack(*row) for row in rows)


def note(size: int) -> bytes:
    """Return an AMD metadata note of about that many bytes."""
    kernel = packb({".name": "k", ".symbol": "k.kd"} | dict.fromkeys(_NUMBERS, 0))
    count = size // len(kernel)
    kernels = b"\xdd" + count.to_bytes(4, "big") + kernel * count
    metadata = b"\x82" + packb("amdhsa.version") + packb([1, 2])
    metadata += packb("amdhsa.kernels") + kernels
    return struct.pack("<III", 7, len(metadata), 32) + b"AMDGPU\0\0" + metadata + bytes(-size % 4)


def zip_directory(rows: int) -> bytes:
    """Return a zip file whose directory lists one member repeatedly."""
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 10, 0, 0, 0, 33, 0, 4, 4, 1, 0) + b"a" + b"\x7fELF"
    row = b"PK\1\2" + struct.pack("<6H3I5H2I", 20, 10, 0, 0, 0, 33, 0, 4, 4, 1, 0, 0, 0, 0, 0, 0)
    directory = (row + b"a") * rows
    big = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, rows, rows, len(directory), 35)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(local) + len(directory), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 65535, 65535, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return local + directory + big + locator + end


def kpack(keys: int, code: bytes = b"image") -> bytes:
    """Return an archive with one code object under many keys."""
    row = packb({"gfx906": {"type": "hsaco", "ordinal": 0, "original_size": len(code)}})
    rows = b"".join(packb(f"{key}#0") + row for key in range(keys))
    head = {"group_name": "g", "gfx_arch_family": "gfx906", "gfx_arches": ["gfx906"]}
    blobs = packb([{"offset": 64, "size": len(code)}])
    table = b"\x86" + b"".join(packb(key) + packb(value) for key, value in head.items())
    table += packb("compression_scheme") + packb("none") + packb("blobs") + blobs
    table += packb("toc") + b"\xdf" + keys.to_bytes(4, "big") + rows
    return struct.pack("<4sIQ", b"KPAK", 1, 64 + len(code)).ljust(64, b"\0") + code + table


def _archive(magic: bytes, names: bytes, content: bytes, members: int) -> bytes:
    """Return an archive with a table of `names`, whose members all have the first one."""
    names += b"/\n"
    names += b"\n" * (len(names) % 2)
    rows = (member_header(b"/0", len(content)) + content) * members
    return magic + member_header(b"//", len(names)) + names + rows


def archive_of_one_name(length: int, members: int) -> bytes:
    """Return an archive whose members all share one name of that length."""
    return _archive(b"!<arch>\n", b"a" * length, b"\x7fELF", members)


def thin(name: str, members: int) -> bytes:
    """Return a thin archive that names one file repeatedly."""
    return _archive(b"!<thin>\n", name.encode(), b"", members)


def shared_bundle(entries: int, code: bytes) -> bytes:
    """Return a bundle whose entries share one code object."""
    names = [GFX906 + b":%d" % number for number in range(entries)]
    start = 32 + sum(24 + len(name) for name in names)
    rows = (struct.pack("<QQQ", start, len(code), len(name)) + name for name in names)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", entries)
    return head + b"".join(rows) + code


class Case(NamedTuple):
    """A command, and the files that it reads."""

    args: str
    make: Callable[[], dict[str, bytes]]
    refused: str = ""
    """The message, if a limit ends the command."""


def _marked(paths: Sequence[str], files: int, wrappers: int = 1) -> dict[str, bytes]:
    marker = KpackMarker("k", tuple(paths))
    rows = [(marker, number) for number in range(wrappers)]
    return {"in": marked_program(*rows)} | {f"gfx{n}": b"" for n in range(files)}


def _words(count: int) -> list[str]:
    return ["".join(letters) for letters in product(LETTERS, repeat=3)][:count]


def _noted() -> bytes:
    return elf(note(1 << 19), [(0, 7)], machine=_AMDGPU)


_TOGETHER, _MEMBERS, _REREAD = (
    "far longer than the file",
    "OFFLOAD_MAX_MEMBERS",
    "OFFLOAD_MAX_REREAD",
)
_MAGIC = b"\x50\xed\x55\xba\1\0\x10\0\xff" + bytes(7)
_KERNELS = "list --kernels in"
_WHEEL = "a-1-py3-none-any.whl"
CASES = {
    "notes in sections": Case(
        _KERNELS, lambda: {"in": elf(note(1 << 19), [(0, 7)] * 200, machine=_AMDGPU)}, _TOGETHER
    ),
    "notes in segments": Case(
        _KERNELS, lambda: {"in": elf(note(1 << 19), [], 200, machine=_AMDGPU)}, _TOGETHER
    ),
    "data sections": Case(
        "list in", lambda: {"in": elf(bytes(1 << 20), [(0, 1)] * 5000)}, _TOGETHER
    ),
    "bundle sections": Case(
        "list in",
        lambda: {
            "in": elf(bundle({GFX906 + b"%d" % n: b"" for n in range(2000)}), [(1, 1)] * 5000)
        },
        _TOGETHER,
    ),
    "magics in sections": Case("list in", lambda: {"in": elf(_MAGIC * 60_000, [(0, 1)] * 3)}),
    "nested zip": Case(
        "list in", lambda: {"in": zipped({"a.zip": zip_directory(1_000_000)})}, _MEMBERS
    ),
    "wheel with a long directory": Case(
        f"thin {_WHEEL} -o out --keep gfx906", lambda: {_WHEEL: zip_directory(100_000)}, _MEMBERS
    ),
    "marker patterns": Case(
        "list in", lambda: _marked([f"@GFXARCH@{word}" for word in _words(4600)], 2000), _MEMBERS
    ),
    "marker paths": Case("list in", lambda: _marked(_words(15_000), 2000)),
    "wrappers of one marker": Case("list in", lambda: _marked(_words(400), 10, wrappers=400)),
    "archive of one long name": Case("list in", lambda: {"in": archive_of_one_name(4000, 15_000)}),
    "thin archive of one file": Case(
        _KERNELS, lambda: {"in": thin("other", 5000), "other": _noted()}, _MEMBERS
    ),
    "bundle of one code object": Case(
        _KERNELS, lambda: {"in": shared_bundle(2000, _noted())}, _MEMBERS
    ),
    "kpack keys": Case("list in", lambda: {"in": kpack(100_000)}, _MEMBERS),
    "kpack keys in a zip": Case(
        "list in", lambda: {"in": zipped({"a.kpack": kpack(100_000)})}, _MEMBERS
    ),
    "kpack keys of one code object": Case(
        _KERNELS, lambda: {"in": kpack(2000, _noted())}, _MEMBERS
    ),
    "kpack keys of one empty code object": Case(
        _KERNELS,
        lambda: {"in": kpack(2000, elf(bytes(1 << 16), [(0, 1)], machine=_AMDGPU))},
        _REREAD,
    ),
    "response files": Case(
        "bundler @a", lambda: {"a": b"@b " * 1000, "b": b"@c " * 1000, "c": b"aa " * 1000}, _REREAD
    ),
    "response file of short arguments": Case("bundler @a", lambda: {"a": b"aa " * 300_000}),
}
