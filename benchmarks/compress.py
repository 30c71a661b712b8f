"""Compress and decompress 128 to 512 MB: rows of the table of aims.

The images are machine code from the shared libraries of LLVM on this machine. Ratios are ours to
LLVM's, for whole processes.
"""

from __future__ import annotations

import filecmp
import multiprocessing
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import BUNDLER, Figures, compare
from offload_tool.formats.bundle.binary import plan_bundle
from offload_tool.formats.bundle.compressed import compress_bundle
from offload_tool.formats.codec import Method
from offload_tool.io import replace_file

IDS = (
    "host-x86_64-unknown-linux-gnu-",
    "hipv4-amdgcn-amd-amdhsa--gfx906",
    "hipv4-amdgcn-amd-amdhsa--gfx90a",
    "hipv4-amdgcn-amd-amdhsa--gfx942",
)
SIZE = 64 << 20


def library_code() -> bytes:
    """Return code and tables: the shared libraries of the installed LLVM versions."""
    libraries = sorted(Path("/usr/lib").glob("*/libLLVM*.so*[0-9]"), reverse=True)
    libraries += sorted(Path("/usr/lib").glob("*/libclang-cpp*.so*[0-9]"), reverse=True)
    code = b"".join(path.read_bytes() for path in libraries if not path.is_symlink())
    if len(code) < 2 * SIZE:
        sys.exit("LLVM's shared libraries under /usr/lib are too few to make images of")
    return code


def changed(image: bytes, seed: int) -> bytes:
    """Return `image` with 1 % of it replaced, in blocks of 256 random bytes."""
    chance = random.Random(seed)
    copy = bytearray(image)
    for _ in range(len(copy) // 100 // 256):
        position = chance.randrange(len(copy) - 256)
        copy[position : position + 256] = chance.randbytes(256)
    return bytes(copy)


def related(code: bytes, size: int) -> Iterator[bytes]:
    """Yield images that differ in 1 % of their bytes."""
    return (changed(code[:size], seed) for seed in range(4))


def unrelated(code: bytes, size: int) -> Iterator[bytes]:
    """Yield images of different code."""
    step = (len(code) - size) // 3
    return (code[index * step :][:size] for index in range(4))


def noise(_code: bytes, size: int) -> Iterator[bytes]:
    """Yield incompressible images."""
    return (random.Random(seed).randbytes(size) for seed in range(4))


PACKED: tuple[tuple[Method, int], ...] = (
    ("zstd", 128),
    ("zstd", 512),
    ("zlib", 128),
    ("zlib", 512),
)
"""Cases for listing and unbundling: sizes in MB of bundles with four related images."""
CASES: dict[str, tuple[Callable[[bytes, int], Iterator[bytes]], int]] = {
    "related, 64 MiB each": (related, SIZE),
    "related, 60 MiB each": (related, 60 << 20),
    "unrelated": (unrelated, SIZE),
    "incompressible": (noise, SIZE),
}


def main(folder: Path, llvm: str) -> None:
    """Measure and print all cases; input files go to `folder`."""
    for method, megabytes in PACKED:
        _in_another_process(_make_packed, method, megabytes, folder)
        _measure_packed(method, megabytes, folder, llvm)
    for name in CASES:
        _in_another_process(_make, name, folder)
        _measure(name, folder, llvm)


def _in_another_process(make: Callable[..., None], *arguments: object) -> None:
    """Create files in another process: measured peaks begin with this process's memory."""
    maker = multiprocessing.get_context("spawn").Process(target=make, args=arguments)
    maker.start()
    maker.join()
    if maker.exitcode:
        sys.exit(1)


def _make_packed(method: Method, megabytes: int, folder: Path) -> None:
    """Write a compressed bundle; LLVM's program has no option for zlib."""
    images = list(related(library_code(), megabytes * 1_000_000 // len(IDS)))
    plan = plan_bundle(zip(IDS, images, strict=True))
    with replace_file(folder / "packed.ccob") as out:
        compress_bundle(out, list(plan.chunks()), method=method)


def _measure_packed(method: Method, megabytes: int, folder: Path, llvm: str) -> None:
    names = [f"{who}{index}" for who in ("llvm", "ours") for index in range(len(IDS))]
    targets = f"-targets={','.join(IDS)}"
    outputs = [f"-output={name}" for name in names]
    jobs = {
        "-unbundle": (["-unbundle", targets, *outputs[:4]], ["-unbundle", targets, *outputs[4:]]),
        "-list": (["-list"], ["-list"]),
    }
    for job, (theirs, ours) in jobs.items():
        common = ["-type=bc", "-input=packed.ccob"]
        commands = [[llvm, *common, *theirs], [*BUNDLER, *common, *ours]]
        _print(f"{job} of {megabytes} MB, {method}", *compare(commands, folder, runs=3))
    for one, other in zip(names[:4], names[4:], strict=True):
        assert filecmp.cmp(folder / one, folder / other, shallow=False)
        (folder / one).unlink()
        (folder / other).unlink()


def _print(job: str, reference: Figures, measured: Figures) -> None:
    print(f"\n{job}")
    print(f"  {'LLVM':24} {reference}")
    print(
        f"  {'ours':24} {measured}   {measured.wall / reference.wall:5.2f} x LLVM"
        f" wall, {measured.cpu / reference.cpu:5.2f} x cpu"
    )


def _make(name: str, folder: Path) -> None:
    images, size = CASES[name]
    for index, image in enumerate(images(library_code(), size)):
        (folder / f"in{index}").write_bytes(image)


def _measure(name: str, folder: Path, llvm: str) -> None:
    inputs = [f"-input=in{index}" for index in range(4)]
    outputs = [f"-output=out{index}" for index in range(4)]
    common = ["-type=bc", f"-targets={','.join(IDS)}"]
    jobs = {
        "compress": ([*common, "-compress", *inputs], "-output=llvm.ccob", "-output=ours.ccob"),
        "decompress": ([*common, "-unbundle", *outputs], "-input=llvm.ccob", "-input=llvm.ccob"),
    }
    for job, (arguments, theirs, ours) in jobs.items():
        commands = [[llvm, *arguments, theirs], [*BUNDLER, *arguments, ours]]
        _print(f"{job} 256 MB, {name}", *compare(commands, folder, runs=3))
    size, reference_size = ((folder / f"{who}.ccob").stat().st_size for who in ("ours", "llvm"))
    print(f"  size: {size:,} against {reference_size:,} bytes: {size / reference_size:.3f} x LLVM")
    # LLVM must be able to read our output.
    read = [llvm, *common, "-unbundle", "-input=ours.ccob", *outputs]
    subprocess.run(read, cwd=folder, check=True)
    for index in range(4):
        assert filecmp.cmp(folder / f"in{index}", folder / f"out{index}", shallow=False)
