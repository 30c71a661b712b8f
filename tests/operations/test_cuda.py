"""CUDA's fat binaries in files: found everywhere, thinned in place, merged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.cli import main
from offload_tool.errors import UnsupportedError
from offload_tool.formats.cuda.fatbin import NewCudaEntry, plan_cuda_fatbin
from offload_tool.operations.check import Rule, check_libraries
from offload_tool.operations.match import Device, NoImageError, match_images
from offload_tool.operations.merge import MergeError, merge_files
from offload_tool.operations.thin import thin_file
from tests.conftest import Capture, Tool, run_tool
from tests.formats.cuda_images import content_of, images_of, packed_fatbin, ptx
from tests.formats.cuda_images import cubin as real_cubin
from tests.formats.object_files import Part, make_cubin, make_elf, pack_elf

PREFIX = "cuda-nvptx64-nvidia-cuda-unknown-"


def cubin(processor: str, size: int = 9000, *, seed: int = 0) -> bytes:
    """Return a cubin for readers of headers: an ELF header and arbitrary bytes."""
    number = int("".join(filter(str.isdigit, processor)))
    body = random.Random(f"{processor} {seed}").randbytes(size - 64)
    return make_cubin(number) + body[:-1] + b"\x01"


def fatbin(*processors: str, method: str = "", size: int = 9000, seed: int = 0) -> bytes:
    """Return a fat binary of cubins (``sm_80``) and PTX (``compute_80``), perhaps compressed."""
    rows = [
        NewCudaEntry(
            name,
            ptx(name.replace("compute", "sm"), kernels=40)
            if name.startswith("compute")
            else cubin(name, size, seed=seed),
        )
        for name in processors
    ]
    plain = b"".join(plan_cuda_fatbin(rows).chunks())
    return packed_fatbin(plain, method) if method else plain


def program(folder: Path, llvm: Tool, linked: bytes, *others: bytes) -> Path:
    """Return a library with what is linked of `others`, or if `linked` is a stub, beside them."""
    source = '.section .nvFatBinSegment,"aw"\n.long 0x466243b1, 2\n.quad linked, 0\n'
    source += '.section .nv_fatbin,"a"\nlinked: .incbin "linked"\n'
    source += f'.section {".nv_fatbin" if linked == STUB else "__nv_relfatbin"},"a"\n'
    for name, content in {"linked": linked, **{f"o{at}": o for at, o in enumerate(others)}}.items():
        (folder / name).write_bytes(content)
        source += "" if name == "linked" else f'.balign 8\n.incbin "{name}"\n'
    (folder / "x.s").write_text(source)
    command = f"--target=x86_64-linux-gnu -fuse-ld=lld -nostdlib -shared x.s -o x{len(others)}.so"
    run_tool(llvm("clang"), *command.split(), cwd=folder)
    return folder / f"x{len(others)}.so"


EMPTY = pack_elf([Part(b".strtab", 3, 0, b"\0.strtab\0")], machine=190)
EMPTY = make_cubin(75)[:32] + EMPTY[32:48] + make_cubin(75)[48:52] + EMPTY[52:]
STUB = b"".join(plan_cuda_fatbin([NewCudaEntry("sm_75", EMPTY)]).chunks())
"""What nvcc links of no relocatable code: a cubin without code and data."""


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("linked", "others", "lacking"),
    [
        (STUB, [fatbin("sm_80", "compute_80")], ["sm_75"]),
        (fatbin("sm_80"), [fatbin("sm_80", "compute_80"), fatbin("compute_80")], ["sm_75"]),
        (fatbin("sm_80"), [fatbin("sm_80", "compute_80"), fatbin("sm_80")], ["sm_75", "sm_90"]),
    ],
    ids=["stub", "ptx", "no-ptx"],
)
def test_devices_that_link(
    linked: bytes, others: list[bytes], lacking: list[str], llvm: Tool, tmp_path: Path
) -> None:
    """A device needs the linked image or each source's code, and nothing of nvcc's stub."""
    path = program(tmp_path, llvm, linked, *others)
    for name in ("sm_75", "sm_80", "sm_90"):
        device = Device.parse(name)
        assert bool(list(check_libraries([path], [Rule(targets=(device,))]))) == (name in lacking)
        assert all(match.loads for match in match_images(path, device)) == (name not in lacking)


def targets(path: Path) -> list[str]:
    return [image.target_id for image in list_images(path)]


def contents(path: Path) -> list[tuple[str, bytes]]:
    data = path.read_bytes()
    return [(image.processor, content_of(data, image)) for image in images_of(data)]


ALL = ("sm_70", "sm_80", "sm_86", "sm_90", "sm_90a", "compute_90")


@pytest.mark.parametrize("method", ["", "zstd", "lz4"])
@pytest.mark.parametrize(
    ("keep", "stays"),
    [
        (["sm_86"], ["sm_86", "compute_90"]),
        (["sm_89"], ["sm_86", "compute_90"]),
        (["sm_80", "sm_72"], ["sm_70", "sm_80", "compute_90"]),
        (["sm_90"], ["sm_90", "sm_90a", "compute_90"]),
        (["sm_120"], ["compute_90"]),
        (["sm_87"], ["sm_86", "compute_90"]),
    ],
)
def test_thin(method: str, keep: list[str], stays: list[str], tmp_path: Path) -> None:
    """Images that the devices load stay, byte for byte, and so does PTX."""
    path, out = tmp_path / "all.fatbin", tmp_path / "out.fatbin"
    path.write_bytes(fatbin(*ALL, method=method))
    report = thin_file(path, out, keep=[Device.parse(name) for name in keep])
    assert [name for name, _ in contents(out)] == stays
    assert contents(out) == [row for row in contents(path) if row[0] in stays]
    assert (report.kept, report.removed) == (len(stays), len(ALL) - len(stays))


def test_thin_ptx(tmp_path: Path) -> None:
    """Without keep_ptx, PTX is removed if a cubin is loaded, and stays if nothing else fits."""
    path, out = tmp_path / "all.fatbin", tmp_path / "out.fatbin"
    path.write_bytes(fatbin(*ALL))
    thin_file(path, out, keep=[Device.parse("sm_86")], keep_ptx=False)
    assert targets(out) == ["sm_86"]
    thin_file(path, out, keep=[Device.parse("sm_86"), Device.parse("sm_100")], keep_ptx=False)
    assert targets(out) == ["sm_86", "compute_90"]
    with pytest.raises(NoImageError, match="no image for sm_60"):
        thin_file(path, out, keep=[Device.parse("sm_60")])


def test_several_of_one_processor(tmp_path: Path) -> None:
    """Images of one processor in one fat binary belong together: all of them stay."""
    rows = [NewCudaEntry(name, cubin(name, seed=n)) for n in (1, 2) for name in ALL[:3]]
    path, out = tmp_path / "all.fatbin", tmp_path / "out.fatbin"
    path.write_bytes(b"".join(plan_cuda_fatbin(rows).chunks()))
    thin_file(path, out, keep=[Device.parse("sm_86")])
    assert targets(out) == ["sm_86", "sm_86"]


def test_compressed_together(nvidia: Callable[[str], Path], tmp_path: Path) -> None:
    """Images that share a payload stay together; entries without a kept image are removed."""
    command = [nvidia("fatbinary"), "-64", "-concat", "-compress-all", "--create=all.fatbin"]
    for name in ("sm_80", "sm_86"):
        (tmp_path / name).write_bytes(real_cubin(nvidia("ptxas"), tmp_path, name))
        command.append(f"--image3=kind=elf,sm={name[3:]},file={name}")
    (tmp_path / "p").write_bytes(ptx("sm_80"))
    run_tool(*command, "--image3=kind=ptx,sm=80,file=p", cwd=tmp_path)
    path, out = tmp_path / "all.fatbin", tmp_path / "out.fatbin"
    images = list_images(path)
    assert sorted(image.target_id for image in images) == ["compute_80", "sm_80", "sm_86"]
    assert [i.offset for i in images if i.target_id == "sm_80"] == [None]
    stored = sum(image.stored_size for image in images)
    assert stored < path.stat().st_size < stored + 600
    thin_file(path, out, keep=[Device.parse("sm_86")], keep_ptx=False)
    assert sorted(targets(out)) == ["sm_80", "sm_86"]
    thin_file(path, out, keep=[Device.parse("sm_90")], keep_ptx=False)
    assert targets(out) == ["compute_80"]


def test_merge(tmp_path: Path) -> None:
    """Merged builds for different targets equal one build for all targets."""
    parts = [("sm_90", "compute_90"), ("sm_100",), ("sm_80", "compute_80")]
    paths = []
    for names in parts:
        paths.append(tmp_path / names[0])
        paths[-1].write_bytes(fatbin(*names, method="zstd"))
    merge_files(paths, tmp_path / "out")
    one = fatbin("sm_100", "sm_80", "compute_80", "sm_90", "compute_90", method="zstd")
    assert (tmp_path / "out").read_bytes() == one
    with pytest.raises(MergeError, match="both have an image for 'sm_80'"):
        merge_files([tmp_path / "out", paths[-1]], tmp_path / "never")
    assert not (tmp_path / "never").exists()


SECTIONS = (".nv_fatbin", "__nv_relfatbin")
# Registers a pointer to each fat binary, as NVIDIA's own registration does.
LIBRARY = """
    .section {flags[0]}
    .balign 8
{images}
    .section .nvFatBinSegment,{flags[1]}
    .balign 8
    .globl wrappers
wrappers:
{pointers}
"""
# Prints the size at each pointer, and a hash of the fat binary.
LOADER = """
import ctypes, hashlib, json, sys
library, count = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
found = []
for at in (ctypes.c_void_p * count).in_dll(library, "wrappers"):
    size = 16 + ctypes.c_uint64.from_address(at + 8).value
    found.append(hashlib.sha256(ctypes.string_at(at, size)).hexdigest())
print(json.dumps(found))
"""


def assemble(folder: Path, llvm: Tool, images: list[bytes], section: str, triple: str) -> Path:
    """Write an object with `images` in `section`, and pointers to them."""
    for number, image in enumerate(images):
        (folder / f"{number}.fatbin").write_bytes(image)
    names = [f'.balign 8\nfatbin{n}: .incbin "{n}.fatbin"\n' for n in range(len(images))]
    pointers = "".join(f".quad fatbin{n}\n" for n in range(len(images)))
    is_coff = "windows" in triple
    flags = (
        (f'{section},"dr"', '"dw"') if is_coff else (f'{section},"a",@progbits', '"aw",@progbits')
    )
    text = LIBRARY.format(flags=flags, images="".join(names), pointers=pointers)
    (folder / "images.s").write_text(text)
    target = [f"--target={triple}"]
    run_tool(llvm("clang"), *target, "-c", "images.s", "-o", "images.o", cwd=folder)
    return folder / "images.o"


def shared_library(folder: Path, llvm: Tool, images: list[bytes], section: str) -> Path:
    built = assemble(folder, llvm, images, section, "x86_64-pc-linux-gnu")
    run_tool(llvm("clang"), "-shared", "-fuse-ld=lld", built, "-o", "lib.so", cwd=folder)
    return folder / "lib.so"


def registered(library: Path, count: int) -> list[str]:
    """Load a library; return a hash of the fat binary at each of its pointers."""
    command = [sys.executable, "-c", LOADER, str(library), str(count)]
    found: list[str] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def hashes(images: list[bytes]) -> list[str]:
    return [sha256(image).hexdigest() for image in images]


@pytest.mark.parametrize("section", SECTIONS)
def test_thin_library(section: str, llvm: Tool, tmp_path: Path) -> None:
    """A thinned library loads, is smaller, and points to the thinned fat binaries."""
    full = [fatbin(*ALL, size=40000, seed=n) for n in range(3)]
    wanted = [fatbin("sm_86", "compute_90", size=40000, seed=n) for n in range(3)]
    full.append(fatbin("sm_70", "sm_75"))
    wanted.append(fatbin())
    library, out = shared_library(tmp_path, llvm, full, section), tmp_path / "out.so"
    assert registered(library, 4) == hashes(full)
    thin_file(library, out, keep=[Device.parse("sm_86")])
    assert registered(out, 4) == hashes(wanted)
    assert targets(out) == ["sm_86", "compute_90"] * 3
    assert {image.section for image in list_images(out)} == {section}
    assert out.stat().st_size < library.stat().st_size * 0.4
    thin_file(out, tmp_path / "again.so", keep=[Device.parse("sm_86")], keep_ptx=False)
    assert targets(tmp_path / "again.so") == ["sm_86"] * 3


def test_thin_object(llvm: Tool, tmp_path: Path) -> None:
    full = [fatbin(*ALL, seed=n) for n in range(2)]
    wanted = [fatbin("sm_80", "compute_90", seed=n) for n in range(2)]
    built = assemble(tmp_path, llvm, full, ".nv_fatbin", "x86_64-pc-linux-gnu")
    thin_file(built, built, keep=[Device.parse("sm_80")])
    run_tool(llvm("clang"), "-shared", "-fuse-ld=lld", built, "-o", tmp_path / "lib.so")
    assert registered(tmp_path / "lib.so", 2) == hashes(wanted)


@pytest.mark.parametrize("section", SECTIONS)
def test_windows_library(section: str, llvm: Tool, tmp_path: Path) -> None:
    """PE files have 8 characters of the section's name; they are read, and not changed."""
    full = [fatbin(*ALL, seed=n) for n in range(3)]
    built = assemble(tmp_path, llvm, full, section, "x86_64-pc-windows-msvc")
    assert targets(built) == [*ALL] * 3
    library = tmp_path / "lib.dll"
    command = [str(Path(llvm("ld.lld")).with_name("lld-link")), "/dll", "/noentry", "/debug:none"]
    run_tool(*command, f"/out:{library}", built)
    assert {image.section for image in list_images(library)} <= {section, section[:8]}
    assert targets(library) == [*ALL] * 3
    with pytest.raises(UnsupportedError, match="only ELF files are changed"):
        thin_file(library, tmp_path / "out.dll", keep=[Device.parse("sm_86")])


def test_scattered(tmp_path: Path, capsys: Capture) -> None:
    """Fat binaries in other data sections are found; thin keeps and reports them."""
    images = [fatbin("sm_80", "sm_86", seed=n) for n in range(3)]
    data = b"table of something".join([b"", *images, b"end"])
    known = fatbin("sm_80", "sm_86", "sm_90")
    path = tmp_path / "x.o"
    path.write_bytes(make_elf(extra={b".resource": data, b".nv_fatbin": known}))
    found = list_images(path)
    assert [i.section for i in found] == [".resource"] * 6 + [".nv_fatbin"] * 3
    assert [i.target_id for i in found] == ["sm_80", "sm_86"] * 3 + ["sm_80", "sm_86", "sm_90"]
    out = tmp_path / "out.o"
    report = thin_file(path, out, keep=[Device.parse("sm_86")])
    assert targets(out) == ["sm_80", "sm_86"] * 3 + ["sm_86"]
    assert data in out.read_bytes()
    assert report.untouched == ((".resource", 6),)
    assert main(["thin", str(path), "--keep", "sm_86", "-o", str(out)]) == 0
    line = "  .resource: all 6 device images stay: what is around them may count their bytes"
    assert line in capsys.readouterr().out.splitlines()
