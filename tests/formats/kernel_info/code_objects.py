"""Code objects of AMD GPUs with any metadata, made by hand, and by clang."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import msgpack

from tests.conftest import run_tool

KERNEL = {
    ".name": "k",
    ".symbol": "k.kd",
    ".vgpr_count": 12,
    ".sgpr_count": 20,
    ".group_segment_fixed_size": 64,
    ".private_segment_fixed_size": 16,
    ".kernarg_segment_size": 8,
    ".wavefront_size": 64,
    ".max_flat_workgroup_size": 256,
    ".args": [{".name": "p", ".size": 8, ".offset": 0}],
}
"""The metadata of a kernel, with all that has to be there."""

SOURCE = """
#define KERNEL extern "C" __attribute__((global)) void
__attribute__((shared)) int room[1000];
__attribute__((amdgpu_flat_work_group_size(1, 128))) KERNEL simple(int *p) { *p = 1; }
KERNEL shared(int *p) { room[p[0]] = 1; p[1] = room[p[2]]; }
__attribute__((amdgpu_num_vgpr(16))) KERNEL spilling(float *p, int n) {
  float a[40];
  for (int i = 0; i < 40; i++) a[i] = p[i * n];
  for (int i = 0; i < 40; i++) for (int j = 0; j < 40; j++) p[i * 40 + j] = a[i] * a[j];
}
KERNEL stacked(int *p) { volatile int a[50]; a[p[0]] = 1; p[1] = a[p[2]]; }
"""
"""Kernels that need something of everything."""


def metadata(kernels: Sequence[object], version: Sequence[int] = (1, 1), **more: object) -> bytes:
    """Return the note's description."""
    whole = {"amdhsa.version": list(version), "amdhsa.kernels": kernels, **more}
    return bytes(msgpack.packb(whole, use_bin_type=False))


def code_object(description: bytes, name: bytes = b"AMDGPU\0", number: int = 32) -> bytes:
    """Return a code object that is nothing but a header and a segment with one note."""
    header, segment = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
    note = struct.pack("<III", len(name), len(description), number)
    note += name + bytes(-len(name) % 4) + description + bytes(-len(description) % 4)
    start = header.size + segment.size
    ident = b"\x7fELF\2\1\1\x40\2" + bytes(7)
    fields = (ident, 3, 224, 1, 0, header.size, 0, 0x53F, header.size, segment.size, 1, 0, 0, 0)
    rows = segment.pack(4, 4, start, start, start, len(note), len(note), 4)
    return header.pack(*fields) + rows + note


def compiled(clang: str, folder: Path, target: str, *flags: str, source: str = SOURCE) -> Path:
    """Return the code object that clang makes of `source`; with ``-S``, its assembly."""
    path, output = folder / "source.hip", folder / f"{target.replace(':', '_')}.co"
    path.write_text(source)
    options = [
        "-x",
        "hip",
        "--cuda-device-only",
        "--no-gpu-bundle-output",
        "-nogpuinc",
        "-nogpulib",
    ]
    command = [clang, *options, "-w", "-O2", f"--offload-arch={target}", "-c", *flags]
    run_tool(*command, str(path), "-o", str(output))
    return output
