"""CUDA's fat binaries, compared with what NVIDIA's own programs write and read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from offload_tool.errors import UsageError
from offload_tool.formats.cuda.fatbin import (
    FatbinStyle,
    NewCudaEntry,
    image_content,
    plan_cuda_fatbin,
    read_cuda_fatbin,
)
from offload_tool.formats.cuda.fatbin_payload import MODES
from tests.conftest import run_tool
from tests.formats.cuda_images import PROCESSORS, cubin, odd_ptx, ptx
from tests.formats.nvfatbin import Image, NvFatbin

Find = Callable[[str], Path]
SEEDS = range(60)
VERSIONS = {"libnvfatbin.so.13": 13, "libnvfatbin.so.12": 12}
# What of it is equal depends on the version of this library.
ZSTD_OF_13 = zstandard.ZSTD_VERSION == (1, 5, 7)


@pytest.fixture(scope="session")
def cubins(nvidia: Find, tmp_path_factory: pytest.TempPathFactory) -> list[Image]:
    """Return a cubin of each processor, and a few relocatable ones."""
    folder, ptxas = tmp_path_factory.mktemp("cubins"), nvidia("ptxas")
    plain = [Image("elf", name, cubin(ptxas, folder, name)) for name in PROCESSORS]
    rest = [("sm_80", 7), ("sm_100a", 3), ("sm_120", 1)]
    return plain + [
        Image("elf", name, cubin(ptxas, folder, name, kernels=count, relocatable=True))
        for name, count in rest
    ]


def written(images: list[Image], style: FatbinStyle) -> bytes:
    rows = [
        NewCudaEntry(image.processor, image.content, image.identifier, image.options)
        for image in images
    ]
    return b"".join(plan_cuda_fatbin(rows, style))


def random_images(rng: random.Random, cubins: list[Image]) -> list[Image]:
    identifier = rng.choice(["", "a", "abc.cu", "12345678", "x" * rng.randrange(40)])
    options = rng.choice(["", "-O3", "-v --fmad=false", "z" * rng.randrange(40)])
    images = []
    for _ in range(rng.randint(1, 5)):
        name = rng.choice(PROCESSORS)
        kind = rng.choice(["ptx", "odd", "elf", "elf"])
        if kind == "elf":
            image = rng.choice(cubins)._replace(identifier=identifier)
        else:
            text = odd_ptx(rng) if kind == "odd" else ptx(name, kernels=rng.randint(1, 9))
            image = Image("ptx", name, text, identifier, options)
        images.append(image)
    return images


def random_style(rng: random.Random, release: int) -> FatbinStyle:
    return FatbinStyle(
        mode=rng.choice(MODES),
        compress_all=rng.random() < 0.4,
        debug=rng.random() < 0.2,
        host=rng.choice(["linux", "linux", "windows", "mac"]),
        release=release,
    )


def flags(style: FatbinStyle) -> list[str]:
    """Return the options that `fatbinary` and its library have in common."""
    found = [f"-compress-mode={style.mode}"]
    found += ["-compress-all"] if style.compress_all else []
    return found + (["-g"] if style.debug else [])


def same_bytes(style: FatbinStyle) -> bool:
    """Return whether this machine's libraries compress as NVIDIA's do."""
    if style.mode == "none":
        return True
    if style.mode == "speed" or (style.mode == "default" and style.release < 13):
        return style.release >= 13
    return ZSTD_OF_13 and style.release >= 13


def fatbinary(nvidia: Find, folder: Path, images: list[Image], *options: str) -> bytes:
    """Return what NVIDIA's `fatbinary` makes of images as files."""
    command = [nvidia("fatbinary"), f"--create={folder}/f.fatbin", "-64", *options]
    for number, image in enumerate(images):
        (folder / str(number)).write_bytes(image.content)
        name = image.processor.removeprefix("sm_")
        command.append(f"--image3=kind={image.kind},sm={name},file={folder}/{number}")
    run_tool(*command)
    return (folder / "f.fatbin").read_bytes()


def content_of(data: bytes) -> list[tuple[object, ...]]:
    view = memoryview(data)
    return [
        (image.image_kind, image.processor, image.flags, image.identifier, image.size)
        + (bytes(image_content(view, image)),)
        for image in read_cuda_fatbin(view).images
    ]


@pytest.mark.parametrize("library", VERSIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_as_nvfatbin(library: str, seed: int, nvidia: Find, cubins: list[Image]) -> None:
    """Random images in random styles give NVIDIA's bytes, except where its libraries differ."""
    rng = random.Random(seed)
    images, style = random_images(rng, cubins), random_style(rng, VERSIONS[library])
    theirs = NvFatbin(nvidia(library)).write(["-64", *flags(style), f"-host={style.host}"], images)
    ours = written(images, style)
    assert content_of(ours) == content_of(theirs)
    if same_bytes(style):
        assert ours == theirs


@pytest.mark.parametrize("seed", range(20))
def test_random_as_fatbinary(seed: int, nvidia: Find, cubins: list[Image], tmp_path: Path) -> None:
    """What `fatbinary` writes of files, with its options, are the same bytes too."""
    rng = random.Random(1000 + seed)
    images, style = random_images(rng, cubins), random_style(rng, 13)
    style = FatbinStyle(style.mode, style.compress_all, style.debug)
    identifier = images[0].identifier
    options = next((image.options for image in images if image.options), "")
    more = [f"-ident={identifier}"] if identifier else []
    more += [f"-cmdline={options}"] if options else []
    theirs = fatbinary(nvidia, tmp_path, images, *flags(style), *more)
    ours = written(images, style)
    assert content_of(ours) == content_of(theirs)
    if same_bytes(style):
        assert ours == theirs


def test_relocatable(nvidia: Find, cubins: list[Image], tmp_path: Path) -> None:
    """The -c of fatbinary for relocatable code compresses all images, and does nothing else."""
    theirs = fatbinary(nvidia, tmp_path, cubins[-3:], "-c")
    style = FatbinStyle("default", compress_all=True)
    assert content_of(written(cubins[-3:], style)) == content_of(theirs)


def test_wrong_processor(nvidia: Find, cubins: list[Image]) -> None:
    """A cubin for another processor is refused, by the library and by us."""
    wrong = cubins[0]._replace(processor="sm_80")
    with pytest.raises(Exception, match="elf arch does not match"):
        NvFatbin(nvidia("libnvfatbin.so.13")).write([], [wrong])
    with pytest.raises(UsageError, match=r"sm_80 is for sm_75$"):
        written([wrong], FatbinStyle())


def test_bitcode(nvidia: Find) -> None:
    """NVVM bitcode for optimization when linking is written as 12.9 writes it."""
    image = Image("nvvm", "lto_90a", b"BC\xc0\xde" + bytes(57), "name", "-ftz=1")
    for options, style in (
        (["-compress=false"], FatbinStyle(release=12)),
        (["-compress-mode=size"], FatbinStyle("size", release=12)),
    ):
        theirs = NvFatbin(nvidia("libnvfatbin.so.12")).write(options, [image])
        assert content_of(written([image], style)) == content_of(theirs)


@pytest.mark.parametrize("mode", MODES)
def test_cuobjdump_reads_it(mode: str, nvidia: Find, cubins: list[Image], tmp_path: Path) -> None:
    """NVIDIA's reader sees every image with its processor, and extracts what was put in."""
    images = [*cubins[:9], Image("ptx", "sm_90a", ptx("sm_90a"), "n.cu")]
    (tmp_path / "f.fatbin").write_bytes(written(images, FatbinStyle(mode)))  # type: ignore[arg-type]
    said = run_tool(nvidia("cuobjdump"), "f.fatbin", cwd=tmp_path)
    arches = [line.split()[-1] for line in said.splitlines() if line.startswith("arch = ")]
    assert arches == [image.processor for image in images]
    assert said.count("host = linux") == said.count("compile_size = 64bit") == len(images)
    for what in ("-xelf", "-xptx"):
        run_tool(nvidia("cuobjdump"), what, "all", "f.fatbin", cwd=tmp_path)
    found = {path.read_bytes() for path in tmp_path.glob("*.cubin")}
    assert found == {image.content for image in images[:-1]}
    (text,) = tmp_path.glob("*.ptx")
    assert text.read_bytes() == content_of((tmp_path / "f.fatbin").read_bytes())[-1][-1]


@pytest.mark.parametrize("name", ["", "some name"])
@pytest.mark.parametrize("mode", ["default", "speed", "size"])
def test_concatenated(
    mode: str, name: str, nvidia: Find, cubins: list[Image], tmp_path: Path
) -> None:
    """Images that fatbinary compresses together are read one by one, as cuobjdump does."""
    options = ["-concat", "-compress-all", f"-compress-mode={mode}", "-cmdline=-O2"]
    options += [f"-ident={name}"] if name else []
    images = [*cubins, Image("ptx", "sm_80", ptx("sm_80"))]
    found = content_of(fatbinary(nvidia, tmp_path, images, *options))
    for what in ("-xelf", "-xptx"):
        run_tool(nvidia("cuobjdump"), what, "all", "f.fatbin", cwd=tmp_path)
    assert {row[3] for row in found} == {name}
    assert len(found) == len(cubins) + 1
    assert {row[-1] for row in found} >= {image.content for image in cubins}
    if not name:  # with one, files of equal processors have the same name
        extracted = {path.read_bytes() for path in tmp_path.glob("*.sm_*")}
        assert {row[-1] for row in found} == extracted
