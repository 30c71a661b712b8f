"""Unbundle one heterogeneous device archive into 8 device-specific ones: row 5 of the aims.

The code objects are ELF files with symbols, so that each archive gets a symbol index; their
sizes differ from member to member, as in real archives.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from benchmarks.measure import BUNDLER, TARGETS, compare
from offload_tool import BundleEntryID
from offload_tool.formats.bundle.binary import plan_bundle
from offload_tool.formats.objects.ar import GrowingArchive, NewMember, plan_archive
from offload_tool.io import InputFile, replace_file
from offload_tool.io.write_plan import FilePlan

IDS = [str(BundleEntryID.parse(f"hip-amdgcn-amd-amdhsa--{name}")) for name in TARGETS]
SIZE = 52_500
"""Average bytes of a code object: 1000 members with 8 make 420 MB."""
SMALL = 2_500
LARGE = 500_000
MANY = 1_000_000
"""Number of members; each is a bundle of one 16-byte image."""
KERNELS = 8


def _code_object(folder: Path, clang: str, target: str, size: int) -> bytes:
    """Assemble an object with KERNELS functions and about `size` bytes."""
    noise = folder / "noise"
    noise.write_bytes(random.Random(target).randbytes((size - 1100) // KERNELS))
    source = folder / "code.s"
    names = [f"kernel_{index}" for index in range(KERNELS)]
    source.write_text(
        "".join(f'.globl {n}\n.type {n},@function\n{n}:\n.incbin "{noise}"\n' for n in names)
    )
    flags = ["--target=amdgcn-amd-amdhsa", f"-mcpu={target}", "-c"]
    subprocess.run([clang, *flags, source, "-o", folder / "code.o"], check=True)
    return (folder / "code.o").read_bytes()


def _write_hda(path: Path, count: int, images: list[bytes]) -> None:
    """Write an archive of `count` bundles of the images, padded to different sizes."""
    chance = random.Random(count)
    members = []
    for index in range(count):
        padded = (FilePlan.of([image, chance.randrange(256)]) for image in images)
        bundle = plan_bundle(zip(IDS, padded, strict=True))
        members.append(NewMember(f"member{index}.o", bundle))
    plan_archive(members).write(path)


def main(folder: Path, llvm: str) -> None:
    """Measure and print the row, and the growth of time with the number of members."""
    clang = str(Path(llvm).with_name("clang"))
    hda = folder / "hda.a"
    outputs = [f"-output={name}.a" for name in TARGETS]
    arguments = ["-type=a", "-unbundle", f"-targets={','.join(IDS)}", f"-input={hda}", *outputs]
    for count, size in ((100, LARGE), (1000, SIZE), (1000, SMALL), (5000, SMALL), (20000, SMALL)):
        _write_hda(hda, count, [_code_object(folder, clang, t, size) for t in TARGETS])
        # LLVM runs alone: the memory that it frees at exit slows the next process.
        (theirs,) = compare([[llvm, *arguments]], folder, runs=3)
        commands: list[list[str | Path]] = [["cp", hda, "copy.a"], [*BUNDLER, *arguments]]
        copied, ours = compare(commands, folder, runs=9)
        print(f"\narchive of {count} members x 8 targets, {hda.stat().st_size / 1e6:.0f} MB")
        for label, figures in (("cp", copied), ("LLVM", theirs), ("ours", ours)):
            print(f"  {label:24} {figures}   {figures.cpu / copied.cpu:5.2f} x cp in cpu")
        print(f"  {'ours, a member':24} {ours.wall / count * 1e6:8.1f} us wall")
    _measure_many(folder, llvm)


def _measure_many(folder: Path, llvm: str) -> None:
    bundle = b"".join(plan_bundle([(IDS[0], b"x" * 16)]).chunks())
    source = InputFile.from_data("bundle", memoryview(bundle))
    archive = GrowingArchive()
    for index in range(MANY):
        archive.add(b"m%d.o" % index, source, 0, len(bundle), None)
    with replace_file(folder / "many.a") as out:
        archive.write_to(out)
    arguments = ["-type=a", "-unbundle", f"-targets={IDS[0]}", "-input=many.a", "-output=one.a"]
    theirs, ours = compare([[llvm, *arguments], [*BUNDLER, *arguments]], folder, runs=1)
    print(f"\narchive of {MANY} small members (aim: 6 s)")
    print(f"  {'LLVM':24} {theirs}")
    print(f"  {'ours':24} {ours}   {ours.cpu / theirs.cpu:5.2f} x LLVM in cpu")
