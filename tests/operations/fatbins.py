"""Files with device images, and a stand-in for the HIP runtime, for tests of this folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from offload_tool import BundleEntryID, PackagedImage, bundle_files, package_images
from tests.conftest import try_tool

HOST = "host-x86_64-unknown-linux-gnu-"

UNASKED = """
void __hipUnregisterFatBinary(void **handle) {}
int __hipRegisterFunction() { return 0; }
int __hipRegisterVar() { return 0; }
int hipLaunchKernel() { return 0; }
int __hipPopCallConfiguration() { return 0; }
int __hipPushCallConfiguration() { return 0; }
"""
"""Functions that a program needs besides `__hipRegisterFatBinary`; they do nothing here."""
SOURCE = """
#define __global__ __attribute__((global))
struct dim3 {{ unsigned x, y, z; }};
typedef struct ihipStream_t *hipStream_t;
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
extern "C" int __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, hipStream_t = nullptr);
extern "C" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, hipStream_t *);
__global__ void kernel{n}(float *p) {{ for (int i = 0; i < {n} * 5; i++) p[i] += {n}; }}
extern "C" int value{n}() {{ return {n}; }}
"""
"""HIP source number `n`."""
MAIN = """
#include <stdio.h>
int value1(void), value2(void), value3(void);
int main(void) { printf("values %d\\n", value1() + value2() + value3()); return 0; }
"""

# Reads registrations through the wrapper struct's pointer. Prints each entry's ID, size, and sum
# of bytes; for a compressed bundle, the size and sum.
RUNTIME = (
    r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>
struct wrapper { uint32_t magic, version; const char *binary; void *unused; };
static unsigned sum(const char *data, uint64_t size) {
  unsigned total = 0;
  for (uint64_t i = 0; i < size; i++) total += (unsigned char)data[i];
  return total;
}
void **__hipRegisterFatBinary(const struct wrapper *w) {
  static void *handle;
  const char *b = w->binary, *row = b + 32;
  uint64_t count, fields[3];
  if (w->magic == 0x48495046 && !memcmp(b, "CCOB", 4)) {
    memcpy(&count, b + 8, 8);
    printf("CCOB %lu %u\n", (unsigned long)count, sum(b, count));
  } else if (w->magic == 0x48495046 && !memcmp(b, "__CLANG_OFFLOAD_BUNDLE__", 24)) {
    memcpy(&count, b + 24, 8);
    for (; count; count--) {
      memcpy(fields, row, 24);
      printf("%.*s %lu %u;", (int)fields[2], row + 24, (unsigned long)fields[1],
             sum(b + fields[0], fields[1]));
      row += 24 + fields[2];
    }
    puts("");
  } else {
    puts("no bundle");
  }
  fflush(stdout);
  return &handle;
}
"""
    + UNASKED
)
RUNTIME_NAMES = frozenset(
    {
        *("__hipRegisterFatBinary", "__hipUnregisterFatBinary", "__hipRegisterFunction"),
        *("__hipRegisterVar", "hipLaunchKernel"),
        *("__hipPopCallConfiguration", "__hipPushCallConfiguration"),
    }
)
_LOAD = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], mode=os.RTLD_LAZY); print('loaded')"


def entry_id(target: str) -> str:
    """Return the bundle entry ID of a target ID, or a whole ID unchanged."""
    return target if target.count("-") >= 4 else f"hipv4-amdgcn-amd-amdhsa--{target}"


def make_bundle(
    path: Path, images: Mapping[str, bytes], *, alignment: int = 4096, **options: Any
) -> Path:
    """Write a bundle of {target ID or bundle entry ID: content} to `path`."""
    options.setdefault("file_type", "bc")
    with TemporaryDirectory() as folder:
        items = []
        for number, (target, content) in enumerate(images.items()):
            file = Path(folder, str(number))
            file.write_bytes(content)
            items.append((BundleEntryID.parse(entry_id(target)), file))
        bundle_files(items, path, alignment=alignment, **options)
    return path


def zip_of(path: Path, members: Mapping[str, bytes | Path], method: int = ZIP_DEFLATED) -> Path:
    """Write a zip file of contents, or of the contents of files, by name."""
    with ZipFile(path, "w", method) as made:
        for name, content in members.items():
            made.writestr(name, content if isinstance(content, bytes) else content.read_bytes())
    return path


def make_package(
    path: Path, images: Sequence[tuple[str, bytes]], kind: str = "hip", **options: Any
) -> Path:
    """Write offload binaries of (target ID, content) for AMD GPUs to `path`."""
    rows = []
    for number, (target, content) in enumerate(images):
        file = path.with_name(f"{path.name}.{number}.o")
        file.write_bytes(content)
        rows.append(PackagedImage(file, {"triple": "amdgcn-amd-amdhsa", "arch": target}, kind))
    package_images(rows, path, **options)
    return path


def code(target: str, size: int = 5000) -> bytes:
    """Return content that differs for each name."""
    return (f"<{target}>".encode() * size)[:size]


def load(library: Path, **environment: str) -> list[str]:
    """Load a library with dlopen in a separate process; return the lines that it prints."""
    return run([sys.executable, "-c", _LOAD, str(library)], **environment)


def run(command: list[str], **environment: str) -> list[str]:
    done = try_tool(*command, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def started(path: Path) -> list[str]:
    """Run a program of `MAIN`, or load a library; return what its runtime prints."""
    lines = run([str(path)]) if "program" in path.name else load(path)
    lines.remove("values 6" if "program" in path.name else "loaded")
    return lines
