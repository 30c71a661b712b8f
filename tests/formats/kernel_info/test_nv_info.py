"""The attributes of cubins' kernels, compared with cuobjdump's output, and broken."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.kernel_info.nv_info import read_cubin_kernels
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.conftest import run_tool
from tests.fuzz.seeds import HERE

SEED = (HERE / "seeds" / "sm_90a.cubin").read_bytes()
PROCESSORS = ("sm_75", "sm_86", "sm_90a", "sm_100", "sm_120")
PTX = """.version 8.8
.target {processor}
.address_size 64
.visible .entry most(.param .u64 p) .maxntid 128,2,1 {{
  .shared .align 4 .b8 room[400]; .local .align 8 .b8 own[256]; .reg .u64 a; .reg .u32 b;
  ld.param.u64 a, [p]; ld.global.u32 b, [a]; st.shared.u32 [room], b; bar.sync 0;
  ld.shared.u32 b, [room+4]; st.global.u32 [a], b; mov.u64 a, own; cvt.u32.u64 b, a;
  st.local.u32 [b], b; ret;
}}
.visible .entry exact(.param .u64 p) .reqntid 64 {{
  .reg .u64 a; ld.param.u64 a, [p]; st.global.u64 [a], a; ret;
}}
.visible .func (.param .u32 r) called(.param .u32 x) {{
  .reg .u32 a; ld.param.u32 a, [x]; add.u32 a, a, 1; st.param.u32 [r], a; ret;
}}
.visible .entry nothing() {{ ret; }}
"""
_ROW = re.compile(r"^ Function (\S+):\n +REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.M)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("flags", [(), ("-c",)], ids=["linked", "relocatable"])
def test_as_cuobjdump(
    processor: str, flags: tuple[str, ...], nvidia: Callable[[str], Path], tmp_path: Path
) -> None:
    """Registers, shared and private memory of each kernel are what cuobjdump prints."""
    source, cubin = tmp_path / "x.ptx", tmp_path / "x.cubin"
    source.write_text(PTX.format(processor=processor))
    run_tool(nvidia("ptxas"), *flags, f"--gpu-name={processor}", source, "-o", cubin)
    text = run_tool(nvidia("cuobjdump"), "--dump-resource-usage", cubin)
    rows = {name: tuple(map(int, numbers)) for name, *numbers in _ROW.findall(text)}
    rows.pop("called", None)  # no kernel
    kernels = read_cubin_kernels(memoryview(cubin.read_bytes()))
    assert {k.name: (k.vgprs, k.scratch, k.lds) for k in kernels} == {
        name: (registers, stack + local, shared)
        for name, (registers, stack, shared, local) in rows.items()
    }
    limits = {kernel.name: kernel.max_workgroup_size for kernel in kernels}
    assert limits == {"most": 256, "exact": 64, "nothing": None}
    assert all(kernel.code_size and kernel.wavefront_size == 32 for kernel in kernels)


def _info(content: bytes) -> bytes:
    """Return the seed with other attributes in its ``.nv.info``, which is long enough."""
    tables = read_elf_tables(memoryview(SEED))
    index = tables.names.index(b".nv.info")
    row = tables.sections[index]
    assert len(content) <= row.sh_size
    out = bytearray(SEED)
    out[row.sh_offset : row.sh_offset + len(content)] = content
    at = tables.header_offset(index) + 32  # sh_size
    out[at : at + 8] = struct.pack("<Q", len(content))
    return bytes(out)


BROKEN = {
    "cut short": b"\4\x2f",
    "value cut short": b"\4\x2f\x08\0\0\0",
    "no format": b"\0\x2f\0\0",
    "format 5": b"\5\x2f\0\0",
    "short registers": b"\4\x2f\x04\0\0\0\0\0",
    "no such symbol": b"\4\x2f\x08\0\xff\xff\0\0\1\0\0\0",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_broken(content: bytes) -> None:
    with pytest.raises(FormatError, match=r"^'x', offset 0x[0-9a-f]+, .* of section \d+: "):
        read_cubin_kernels(memoryview(_info(content)), path="x")
    assert read_cubin_kernels(memoryview(_info(b"\1\x2f\0\0\2\x99\0\0")))[0].vgprs is None


def test_no_symbols() -> None:
    out = bytearray(SEED)
    tables = read_elf_tables(memoryview(SEED))
    at = tables.header_offset(tables.names.index(b".symtab")) + 4
    out[at : at + 4] = struct.pack("<I", 1)
    with pytest.raises(FormatError, match=r"'x', \.symtab: expected a symbol table"):
        read_cubin_kernels(memoryview(bytes(out)), path="x")
