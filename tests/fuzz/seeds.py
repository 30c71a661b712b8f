"""A small file of each format, put together here field by field."""

from __future__ import annotations

import io
import struct
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

from offload_tool.cli import main
from offload_tool.formats.cuda.fatbin import NewCudaEntry, plan_cuda_fatbin
from offload_tool.formats.kpack.marker import KpackMarker
from tests.formats.compressed import compressed, compressed_offload_binary
from tests.formats.cuda_images import packed_fatbin, ptx
from tests.formats.kpack_archives import write_archive
from tests.formats.marked_programs import marked_program
from tests.formats.object_files import make_coff, make_elf

HERE = Path(__file__).parent
HOST = b"host-x86_64-unknown-linux-gnu-"
GFX906, GFX90A = b"hip-amdgcn-amd-amdhsa--gfx906", b"hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+"


def bundle(images: dict[bytes, bytes], alignment: int = 1) -> bytes:
    start = position = 32 + sum(24 + len(name) for name in images)
    rows, parts = [], []
    for name, content in images.items():
        gap = -position % alignment
        position += gap
        rows.append(struct.pack("<QQQ", position, len(content), len(name)) + name)
        parts.append(bytes(gap) + content)
        position += len(content)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(images)) + b"".join(rows)
    assert len(head) == start
    return head + b"".join(parts)


def text_bundle() -> bytes:
    parts = [
        b"\n// __CLANG_OFFLOAD_BUNDLE____START__ " + name + b"\n" + content
        + b"\n// __CLANG_OFFLOAD_BUNDLE____END__ " + name + b"\n"
        for name, content in ((HOST, b"int x;"), (GFX906, b"int y;"))
    ]  # fmt: skip
    return b"".join(parts)


def archive(members: dict[bytes, bytes], *, bsd: bool = False) -> bytes:
    """Return an archive with a symbol index; names in the long-name table, or BSD's."""
    names = b"".join(name + b"/\n" for name in members)
    names += b"\n" * (len(names) & 1)
    out = b"!<arch>\n"
    if not bsd:
        out += b"%-48s%-10d`\n" % (b"/", 4) + bytes(4)
        out += b"%-48s%-10d`\n" % (b"//", len(names)) + names
    offset = 0
    for name, content in members.items():
        field = b"#1/%d" % len(name) if bsd else b"/%d" % offset
        offset += len(name) + 2
        data = name + content if bsd else content
        out += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (field, 0, 0, 0, b"644", len(data)) + data
        out += b"\n" * (len(data) & 1)
    return out


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, content in members.items():
            made.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def hip_library() -> bytes:
    """Return a library of two wrappers, each with a bundle, that lld has linked."""
    return (HERE / "seeds" / "hip_library.so").read_bytes()


def wheel() -> bytes:
    """Return a wheel with that library."""
    files = {
        "in/a.so": hip_library(),
        "in-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: in\nVersion: 1\n\nText\n",
        "in-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "in-1.dist-info/RECORD": b"in/a.so,sha256=x,1\nin-1.dist-info/RECORD,,\n",
    }
    return zipped(files)


def cuda_fatbin() -> bytes:
    ptx = b".version 7.0\n.target sm_70\n\0\0\0\0"
    entry = struct.pack("<HHIQIIHHI16xQQ", 1, 0x101, 64, len(ptx), 0, 0, 0, 7, 70, 0x11, 0) + ptx
    cubin = (HERE / "seeds" / "sm_90a.cubin").read_bytes()
    entry += struct.pack("<HHIQIIHHI16xQQ", 2, 0x101, 64, len(cubin), 0, 0, 8, 1, 90, 0x1011, 0)
    entry += cubin
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry)) + entry


def compressed_fatbin(method: str) -> bytes:
    """Return a fat binary whose images are compressed."""
    cubin = (HERE / "seeds" / "sm_90a.cubin").read_bytes()
    entries = [NewCudaEntry("sm_90a", cubin), NewCudaEntry("sm_90", ptx("sm_90", kernels=3))]
    return packed_fatbin(b"".join(plan_cuda_fatbin(entries).chunks()), method)


def offload_binary(*options: str) -> bytes:
    """Return what our packager writes."""
    with tempfile.TemporaryDirectory() as folder:
        image, out = Path(folder, "i"), Path(folder, "o")
        image.write_bytes(b"an image")
        args = ["packager", *options, "-o", str(out)]
        for arch in ("gfx90a", "gfx906"):
            fields = f"file={image},triple=amdgcn-amd-amdhsa,arch={arch},kind=openmp"
            args.append(f"--image={fields}")
        assert main(args) == 0
        return out.read_bytes()


def kpack_archive(code: bytes, scheme: str) -> bytes:
    """Return a kpack archive of two keys and two targets."""
    rows = [
        ("a#0", "gfx90a:xnack+", code),
        ("a#0", "gfx906", b"image 1"),
        ("b#1", "gfx906", b"image 2"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        return write_archive(Path(folder, "out.kpack"), rows, scheme=scheme).read_bytes()


@lru_cache(maxsize=1)
def make_seeds() -> dict[str, bytes]:
    inner = bundle({HOST: b"", GFX906: b"image 1", GFX90A: b"image 2"}, 16)
    package, shared = offload_binary(), offload_binary("--llvm=23")
    fatbin = cuda_fatbin()
    code = (HERE / "seeds" / "gfx90a.co").read_bytes()
    section = b"__CLANG_OFFLOAD_BUNDLE__"
    host_elf = make_elf(extra={b".hip_fatbin": inner, b".llvm.offloading": package})
    return {
        "bundle": inner,
        "bundle of code": bundle({HOST: b"", GFX90A: code}, 4096),
        "bundles": inner + bytes(40) + inner,
        "text bundle": text_bundle(),
        "compressed 1": compressed(inner, 1),
        "compressed 2": compressed(inner, 2, 0),
        "compressed 3": compressed(inner, 3),
        "object bundle": make_elf(extra={section + HOST: b"\0", section + GFX906: b"image"}),
        "coff bundle": make_coff({section + HOST: b"\0", section + GFX906: b"image"}),
        "offload binary": package,
        "shared offload binary": shared,
        "compressed offload binary": compressed_offload_binary(shared),
        "cuda fat binary": fatbin,
        "lz4 cuda fat binary": compressed_fatbin("lz4"),
        "zstd cuda fat binary": compressed_fatbin("zstd"),
        "elf": host_elf,
        "elf 32be": make_elf("32be", {b".hip_fatbin": inner}),
        "elf of cuda": make_elf(extra={b".nv_fatbin": fatbin + compressed_fatbin("lz4")}),
        "coff": make_coff({b".hip_fat": inner}),
        "code object": code,
        "kpack": kpack_archive(code, "none"),
        "zstd kpack": kpack_archive(code, "zstd-per-kernel"),
        "marked program": marked_program(
            (KpackMarker("a", ("@GFXARCH@.kpack", "input")), 0),
            (KpackMarker("b", ("input",)), 1),
            relocated=True,
        ),
        "cubin": (HERE / "seeds" / "sm_90a.cubin").read_bytes(),
        "bitcode": (HERE / "seeds" / "module.bc").read_bytes(),
        "archive": archive({b"a.o": inner, b"b.o": host_elf, b"c.o": compressed(inner)}),
        "bsd archive": archive({b"a.o": inner, b"b.o": package}, bsd=True),
        "thin archive": archive({b"beside": b"", b"../beside": b""}).replace(
            b"!<arch>", b"!<thin>"
        ),
        "zip": zipped({"a/b.so": host_elf, "c": inner}),
        "wheel": wheel(),
        "hip library": hip_library(),
        "stored zip": zipped({"a/b.a": archive({b"a.o": inner}), "c": code}, zipfile.ZIP_STORED),
    }
