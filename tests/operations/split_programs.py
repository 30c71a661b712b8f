"""Small HIP programs to split, and a runtime that prints their registrations."""

from __future__ import annotations

import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgpack
import zstandard

from offload_tool.containers.find import find_containers
from tests.conftest import run_tool
from tests.operations.fatbins import MAIN, SOURCE, UNASKED, started

# Prints, for each wrapper: its magic, index, the file that contains it (as the loader finds it),
# and the bytes at its pointer.
RUNTIME = (
    r"""
#include <stdint.h>
#include <stdio.h>
struct wrapper { uint32_t magic, version; const unsigned char *binary; uint64_t index; };
void **__hipRegisterFatBinary(const struct wrapper *w) {
  static void *handle;
  char line[4096], path[4096];
  unsigned long first, last, place = (unsigned long)w;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) {
    path[0] = 0;
    sscanf(line, "%lx-%lx %*s %*s %*s %*s %s", &first, &last, path);
    if (first <= place && place < last) break;
  }
  fclose(maps);
  printf("wrapper %.4s %lu %s ", (const char *)&w->magic, (unsigned long)w->index, path);
  for (int i = 0; i < 256; i++) printf("%02x", w->binary[i]);
  puts("");
  fflush(stdout);
  return &handle;
}
"""
    + UNASKED
)
TARGETS = {1: ("gfx942",), 2: ("gfx942", "gfx1100", "gfx90a:xnack+"), 3: ("gfx1100",)}
"""By source; all differ, so that an index counted per target is detected as wrong."""


class Registered(NamedTuple):
    """The values that a wrapper printed when its program started."""

    magic: str
    index: int
    path: Path
    payload: bytes

    def code(self, target_id: str) -> bytes | None:
        """Return the code object that the loader's documented steps find; None if there is none."""
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.payload)
        marker = unpacker.unpack()
        key = f"{marker['kernel_name']}#{self.index}"
        for pattern in marker["kpack_search_paths"]:
            path = self.path.parent / pattern.replace("@GFXARCH@", target_id, 1)
            if path.exists() and (found := code_object(path.read_bytes(), key, target_id)):
                return found
        return None


def code_object(archive: bytes, key: str, target_id: str) -> bytes | None:
    """Read an archive by its documented layout only."""
    table = msgpack.unpackb(archive[int.from_bytes(archive[8:16], "little") :])
    if target_id not in table["gfx_arches"]:
        return None
    entry = table["toc"].get(key, {}).get(target_id)
    if entry is None:
        return None
    if table["compression_scheme"] == "none":
        blob = table["blobs"][entry["ordinal"]]
        return archive[blob["offset"] :][: blob["size"]]
    at = table["zstd_offset"] + 4
    for _ in range(entry["ordinal"]):
        at += 4 + int.from_bytes(archive[at : at + 4], "little")
    size = int.from_bytes(archive[at : at + 4], "little")
    return zstandard.ZstdDecompressor().decompress(archive[at + 4 :][:size])


def build_objects(
    folder: Path, clang: str, targets: Mapping[int, Sequence[str]], runtime: str
) -> Path:
    """Compile three sources, also with compressed bundles, a program's main and the runtime."""
    flags = ["-x", "hip", "-nogpuinc", "-nogpulib", "-O1", "-fPIC", "-c"]
    for number, names in targets.items():
        source = folder / f"k{number}.hip"
        source.write_text(SOURCE.format(n=number))
        arch = [f"--offload-arch={name}" for name in names]
        run_tool(clang, *flags, *arch, source, "-o", folder / f"k{number}.o")
        arch.append("--offload-compress")
        run_tool(clang, *flags, *arch, source, "-o", folder / f"z{number}.o")
    for name, text in (("main", MAIN), ("runtime", runtime)):
        (folder / f"{name}.c").write_text(text)
        run_tool(clang, "-w", "-fPIC", "-c", folder / f"{name}.c", "-o", folder / f"{name}.o")
    return folder


LINKS = {
    "library-lld": ["-shared", "-fuse-ld=lld"],
    "library-bfd": ["-shared", "-fuse-ld=bfd"],
    "library-relr": ["-shared", "-fuse-ld=lld", "-Wl,-z,pack-relative-relocs"],
    "library-huge-pages": [
        *("-shared", "-fuse-ld=bfd", "-Wl,-z,max-page-size=0x200000", "-Wl,-z,noseparate-code")
    ],
    "library-stripped": ["-shared", "-fuse-ld=lld", "-s"],
    "library-relro": ["-shared", "-fuse-ld=bfd", "-Wl,-z,now", "-Wl,-z,relro", "-g"],
    "program-lld": ["-fuse-ld=lld"],
    "program-bfd": ["-fuse-ld=bfd"],
    "program-fixed": ["-fuse-ld=bfd", "-no-pie"],
    "program-static": ["-fuse-ld=bfd", "-static"],
}


def link(
    build: Path, clang: str, out: Path, how: str, prefix: str = "k", objects: Sequence[Path] = ()
) -> Path:
    """Link the objects of `build_objects` by a row of `LINKS`, or others in their place."""
    objects = objects or [build / f"{prefix}{number}.o" for number in TARGETS]
    main = [] if how.startswith("library") else [build / "main.o"]
    run_tool(clang, *LINKS[how], *main, *objects, build / "runtime.o", "-o", out)
    return out


def registered(path: Path) -> list[Registered]:
    """Run a program, or load a library; return what its wrappers print, in order."""
    rows = [line.split(" ") for line in started(path)]
    return [Registered(row[1], int(row[2]), Path(row[3]), bytes.fromhex(row[4])) for row in rows]


def bundles_of(path: Path) -> list[dict[str, bytes]]:
    """Return the images of each bundle of an unsplit file, by entry ID."""
    return [
        {image.id: bytes(image.content.view()) for image in found.images}
        for found in find_containers(path)
    ]


def make_wheel(path: Path, files: Mapping[str, bytes], *, metadata: bytes | None = None) -> Path:
    """Write a wheel of `files` as build backends do."""
    name, version = path.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    if metadata is None:
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nText\n".encode()
    tags = path.name.split("-", 2)[2].removesuffix(".whl")
    wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tags}\n"
    whole = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel.encode()}
    record = "".join(f"{name},{hashed(data)},{len(data)}\n" for name, data in whole.items())
    whole[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(path, "w") as out:
        for member, data in whole.items():
            row = zipfile.ZipInfo(member, (2024, 5, 6, 7, 8, 10))
            row.external_attr = (0o100755 if member.endswith(".so") else 0o100644) << 16
            row.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(row, data)
    return path


def hashed(data: bytes) -> str:
    return "sha256=" + urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()


def record_faults(path: Path) -> list[str]:
    """Compare a wheel's RECORD with its files; return the differences."""
    with zipfile.ZipFile(path) as wheel:
        assert wheel.testzip() is None
        files = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    (record,) = [name for name in files if name.endswith(".dist-info/RECORD")]
    rows = dict(line.rsplit(",", 2)[:1] + [line] for line in files[record].decode().splitlines())
    expected = {n: f"{n},{hashed(data)},{len(data)}" for n, data in files.items() if n != record}
    expected[record] = f"{record},,"
    return [name for name in rows.keys() | expected if rows.get(name) != expected.get(name)]
