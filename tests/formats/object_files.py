"""Small object files made by hand, in every class and byte order, and by LLVM."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from offload_tool.formats.objects.ar import NewMember, plan_archive
from offload_tool.io import InputFile
from offload_tool.io.write_plan import FilePlan
from tests.conftest import run_tool

HOST = "host-x86_64-unknown-linux-gnu-"
GFX906 = "hip-amdgcn-amd-amdhsa--gfx906"
GFX90A = "hip-amdgcn-amd-amdhsa--gfx90a:xnack+"
PREFIX = "__CLANG_OFFLOAD_BUNDLE__"
ADDED = [
    (f"{PREFIX}host-x86_64-unknown-linux-gnu-".encode(), b"\0"),
    (f"{PREFIX}hip-y".encode(), b"image" * 99),
]
"""Sections to add: name and content."""

C_SOURCE = """
int data = 5; static int zeros[1000]; const char *message = "hello, world";
static int helper(int x) { return x * zeros[x & 7]; }
int twice(int x) { return helper(x) + data; }
__attribute__((weak)) int weak_one(void) { return twice(2); }
extern int other(int);
static __thread int local_zeros[3]; __thread int local_data = 4;
int caller(int x) { return other(x) + local_data + local_zeros[x]++; }
"""
CPP_SOURCE = """
template <class T> struct Holder {
  virtual ~Holder() {}
  virtual T get() { static T v = 3; return v; }
};
inline int shared(int x) { static int counter; return counter += x; }
struct Derived : Holder<int> { int get() override { return shared(7); } };
int use(int a) {
  Derived d; Holder<long> h; Holder<int> *p = &d;
  try { if (a > 3) throw a; } catch (int) { return 1; }
  return p->get() + (int)h.get();
}
static struct Init { Init() { use(1); } } init;
"""

CLASSES = {"32le": (1, "<"), "32be": (1, ">"), "64le": (2, "<"), "64be": (2, ">")}


def assemble(plan: FilePlan, host: bytes, tmp_path: Path) -> bytes:
    """Write a plan to a file and give the bytes of that file."""
    plan.bound(host).write(tmp_path / "assembled")
    return (tmp_path / "assembled").read_bytes()


def write_file(path: Path, plan: FilePlan, host: Path) -> None:
    """Write a plan with the host as file, as the tools do."""
    with InputFile(host) as file:
        plan.bound(file).write(path)


def archive_bytes(members: Sequence[tuple[str, bytes]]) -> bytes:
    """Return an archive of these members, without a symbol index."""
    return b"".join(plan_archive([NewMember(name, data) for name, data in members]).chunks())


def member_header(name: bytes, size: int | bytes, **fields: bytes) -> bytes:
    """Return the header of an archive member: date, user, group, mode and terminator are fields."""
    text = b"%d" % size if isinstance(size, int) else size
    attributes = fields.get("date", b"0").ljust(12) + fields.get("user", b"0").ljust(6)
    attributes += fields.get("group", b"0").ljust(6) + fields.get("mode", b"644").ljust(8)
    return name.ljust(16) + attributes + text.ljust(10) + fields.get("terminator", b"`\n")


class Objcopy:
    """Does with llvm-objcopy what clang-offload-bundler does, and here the same by `plan`."""

    def __init__(self, tool: str, tmp_path: Path, plan: Callable[..., FilePlan]) -> None:
        self.tool = tool
        self.tmp_path = tmp_path
        self.plan = plan
        self.out = tmp_path / "objcopy.out"

    def check_added(self, host: Path) -> bytes:
        """Return the host with `ADDED`, which must be the same by both."""
        arguments = []
        for index, (name, content) in enumerate(ADDED):
            file = self.tmp_path / f"content{index}"
            file.write_bytes(content)
            arguments.append(f"--add-section={name.decode()}={file}")
            arguments.append(f"--set-section-flags={name.decode()}=readonly,exclude")
        run_tool(self.tool, *arguments, "--", host, self.out)
        data = host.read_bytes()
        ours = assemble(self.plan(memoryview(data), ADDED), data, self.tmp_path)
        assert ours == self.out.read_bytes()
        return ours

    def check_removed(self, host: bytes) -> bytes:
        """Return the host without sections of bundles, which must be the same by both."""
        (self.tmp_path / "bundled").write_bytes(host)
        command = ("--regex", f"--remove-section={PREFIX}.*", "--")
        run_tool(self.tool, *command, self.tmp_path / "bundled", self.out)
        plan = self.plan(memoryview(host), removed=is_bundle_section)
        ours = assemble(plan, host, self.tmp_path)
        assert ours == self.out.read_bytes()
        return ours


def is_bundle_section(name: bytes) -> bool:
    """Return whether a section of this name is one of an object bundle."""
    return name.startswith(PREFIX.encode())


class Part(NamedTuple):
    """A section to make."""

    name: bytes
    kind: int
    flags: int
    content: bytes
    link: int = 0
    info: int = 0
    alignment: int = 1
    entry: int = 0
    address: int = 0


def pack_elf(
    parts: Sequence[Part],
    *,
    name: str = "64le",
    kind: int = 1,
    machine: int = 62,
    base: int | None = None,
) -> bytes:
    """Pack an ELF file of these sections, of which the last has the names.

    With `base`, one segment loads all that is before the last section at that address.
    """
    size, order = CLASSES[name]
    ehdr = struct.Struct(order + ("16sHHIQQQIHHHHHH" if size == 2 else "16sHHIIIIIHHHHHH"))
    shdr = struct.Struct(order + ("IIQQQQIIQQ" if size == 2 else "10I"))
    segment = (ehdr.size, 56, 1) if base is not None else (0, 0, 0)
    out, table, end = bytearray(ehdr.size + segment[1]), bytes(shdr.size), 0
    for part in parts:
        out += bytes(-len(out) % part.alignment)
        end = len(out)
        table += shdr.pack(
            *(parts[-1].content.index(part.name + b"\0"), part.kind, part.flags, part.address),
            *(end, len(part.content), part.link, part.info, part.alignment, part.entry),
        )
        out += part.content
    out += bytes(-len(out) % (4 * size))
    ident, count = b"\x7fELF" + bytes([size, 1 if order == "<" else 2, 1]), len(parts) + 1
    out[: ehdr.size] = ehdr.pack(
        *(ident, kind, machine, 1, 0, segment[0], len(out), 0, ehdr.size, *segment[1:]),
        *(shdr.size, count, count - 1),
    )
    if base is not None:
        struct.pack_into("<IIQQQQQQ", out, ehdr.size, 1, 6, 0, base, base, end, end, 4096)
    return bytes(out + table)


def make_elf(
    name: str = "64le", extra: dict[bytes, bytes] | None = None, machine: int = 62
) -> bytes:
    """Make an ELF object with a COMDAT group, a relocation, and the sections in `extra`.

    Sections: .text, .group, .text.grp, .rel.text, `extra`..., .symtab, .strtab.
    """
    size, order = CLASSES[name]
    extra = extra or {}
    symtab, strtab = 5 + len(extra), 6 + len(extra)
    names = (b".text", b".group", b".text.grp", b".rel.text", *extra, b".symtab", b".strtab")
    strings = b"\0main\0local\0group_name\0outside\0" + b"".join(text + b"\0" for text in names)

    def symbol(text: bytes, info: int, section: int) -> bytes:
        at = strings.index(text + b"\0")
        if size == 2:
            return struct.pack(order + "IBBHQQ", at, info, 0, section, 0, 0)
        return struct.pack(order + "IIIBBH", at, 0, 0, info, 0, section)

    symbols = symbol(b"", 0, 0) + symbol(b"local", 0, 1) + symbol(b"main", 0x12, 1)
    symbols += symbol(b"group_name", 0x20, 3) + symbol(b"outside", 0x10, 0)
    word, form = 4 * size, "QQ" if size == 2 else "II"
    relocation = struct.pack(order + form, 4, 4 << (32 if size == 2 else 8) | 1)
    parts = [
        Part(b".text", 1, 6, b"code" * 4, alignment=16),
        Part(b".group", 17, 0, struct.pack(order + "2I", 1, 3), symtab, 3, 4, 4),
        Part(b".text.grp", 1, 0x206, b"more"),
        Part(b".rel.text", 9, 0x40, relocation, symtab, 1, word, 2 * word),
        *(Part(text, 1, 0x80000000, content) for text, content in extra.items()),
        Part(b".symtab", 2, 0, symbols, strtab, 2, word, len(symbols) // 5),
        Part(b".strtab", 3, 0, strings),
    ]
    return pack_elf(parts, name=name, machine=machine)


def make_coff(extra: dict[bytes, bytes] | None = None) -> bytes:
    """Make a COFF object: .text with a relocation, `extra`, and a long symbol name."""
    sections = {b".text": b"code", **(extra or {})}
    strings = b"".join(name + b"\0" for name in (b"a_symbol_with_long_name", *sections))
    position = 20 + 40 * len(sections)
    table = body = b""
    for name, content in sections.items():
        field = name if len(name) <= 8 else b"/%d" % (4 + strings.index(name + b"\0"))
        at = position + len(body)
        body += content
        relocations = struct.pack("<IIH", 0, 2, 4) if name == b".text" else b""
        table += struct.pack(
            *("<8sIIIIIIHHI", field, 0, 0, len(content), at),
            *(at + len(content), 0, len(relocations) // 10, 0, 0x60000020),
        )
        body += relocations
    symbols = struct.pack("<8sIHHBB", b".text", 0, 1, 0, 3, 1)
    symbols += struct.pack("<IHHIHBBH", 4, 1, 0, 0, 1, 0, 0, 0)
    symbols += struct.pack("<IIIHHBB", 0, 4, 0, 1, 0, 2, 0)
    header = struct.pack("<HHIIIHH", 0x8664, len(sections), 0, position + len(body), 3, 0, 0)
    return header + table + body + symbols + struct.pack("<I", 4 + len(strings)) + strings


def make_image(sections: dict[bytes, bytes]) -> bytes:
    """Make a PE library of these sections, without symbols."""
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, 240, 0x2022)
    head += struct.pack("<H", 0x20B).ljust(240, b"\0")
    table = body = b""
    for name, content in sections.items():
        at, size = len(head) + 40 * len(sections) + len(body), len(content)
        table += struct.pack("<8s6I2HI", name, size, 4096, size, at, 0, 0, 0, 0, 0x40000040)
        body += content
    return head + table + body


def elf_header(kind: int, machine: int, flags: int = 0, abi: bytes = b"\0\0") -> bytes:
    """Return the header of an ELF file without anything; `abi` is the OS ABI and its version."""
    ident = (b"\x7fELF\2\1\1" + abi).ljust(16, b"\0")
    return struct.pack(
        "<16sHHIQQQIHHHHHH", ident, kind, machine, 1, 0, 0, 0, flags, 64, 56, 0, 64, 0, 0
    )


def make_code_object(target: str) -> bytes:
    """Make the shortest code object for an AMD GPU: an ELF header."""
    flags = {"gfx906": 0x2F, "gfx942": 0x4C, "gfx90a:xnack+": 0x33F, "gfx90a:xnack-": 0x23F}
    return elf_header(3, 224, flags[target], b"\x40\3")


def make_cubin(number: int) -> bytes:
    """Make the shortest cubin for an NVIDIA GPU: an ELF header."""
    return elf_header(1, 190, number << 8, b"\0\x08")
