"""CUDA's fat binaries, compared with what NVIDIA's own programs write and read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.errors import UsageError
from offload_tool.formats.cuda.fatbin import NewCudaEntry, plan_cuda_fatbin
from tests.conftest import run_tool
from tests.formats.cuda_images import PROCESSORS, content_of, cubin, images_of, odd_ptx, ptx
from tests.formats.nvfatbin import Image, NvFatbin

Tool = Callable[[str], Path]
SEEDS = range(60)
MODES = ("none", "default", "balance", "speed", "size")


@pytest.fixture(scope="session")
def cubins(nvidia: Tool, tmp_path_factory: pytest.TempPathFactory) -> list[Image]:
    """Return a cubin of each processor, and a few relocatable ones."""
    folder, ptxas = tmp_path_factory.mktemp("cubins"), nvidia("ptxas")
    plain = [Image("elf", name, cubin(ptxas, folder, name)) for name in PROCESSORS]
    rest = [("sm_80", 7), ("sm_100a", 3), ("sm_120", 1)]
    return plain + [
        Image("elf", name, cubin(ptxas, folder, name, kernels=count, relocatable=True))
        for name, count in rest
    ]


def written(images: list[Image], level: int | None = None) -> bytes:
    rows = [NewCudaEntry(image.processor, image.content, image.options) for image in images]
    return b"".join(plan_cuda_fatbin(rows, level=level).chunks())


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


def random_options(rng: random.Random) -> list[str]:
    """Return options that `fatbinary` and its library have in common."""
    found = ["-64", f"-compress-mode={rng.choice(MODES)}"]
    found += ["-compress-all"] if rng.random() < 0.4 else []
    return found + (["-g"] if rng.random() < 0.2 else [])


def fatbinary(nvidia: Tool, folder: Path, images: list[Image], *options: str) -> bytes:
    """Return what NVIDIA's program writes of files, as ``f.fatbin``."""
    command = [nvidia("fatbinary"), f"--create={folder}/f.fatbin", *options]
    for number, image in enumerate(images):
        (folder / str(number)).write_bytes(image.content)
        name = image.processor.removeprefix("sm_")
        command.append(f"--image3=kind={image.kind},sm={name},file={folder}/{number}")
    run_tool(*command)
    return (folder / "f.fatbin").read_bytes()


def contents(data: bytes) -> list[tuple[str, str, bytes]]:
    return [(i.image_kind, i.processor, content_of(data, i)) for i in images_of(data)]


def check(theirs: bytes, images: list[Image], options: list[str]) -> None:
    """Check that NVIDIA's fat binary is read as ours, and equals it in its style."""
    ours = written(images)
    assert contents(theirs) == contents(ours)
    assert [found.identifier for found in images_of(theirs)] == [i.identifier for i in images]
    if options == ["-64", "-compress-mode=none"] and not any(i.identifier for i in images):
        assert ours == theirs


@pytest.mark.parametrize("seed", SEEDS)
def test_cubins_of_12_are_read(seed: int, nvidia: Tool, cubins: list[Image]) -> None:
    rng = random.Random(seed)
    images, options = rng.sample(cubins, 5), random_options(rng)
    check(NvFatbin(nvidia("libnvfatbin.so.12")).write(options, images), images, options)


@pytest.mark.parametrize("seed", range(20))
def test_random_as_fatbinary(seed: int, nvidia: Tool, cubins: list[Image], tmp_path: Path) -> None:
    """What `fatbinary` writes of files, with its options, is read and written too."""
    rng = random.Random(1000 + seed)
    images, style = random_images(rng, cubins), random_options(rng)
    identifier = rng.choice([images[0].identifier, ""])
    options = next((image.options for image in images if image.options), "")
    more = [f"-ident={identifier}"] if identifier else []
    more += [f"-cmdline={options}"] if options else []
    theirs = fatbinary(nvidia, tmp_path, images, *style, *more)
    check(theirs, [image._replace(identifier=identifier) for image in images], style)


def test_wrong_processor(cubins: list[Image]) -> None:
    with pytest.raises(UsageError, match=r"sm_80 is for sm_75$"):
        written([cubins[0]._replace(processor="sm_80")])


def test_bitcode(nvidia: Tool) -> None:
    """NVVM bitcode for optimization when linking is written as 12.9 writes it."""
    image = Image("nvvm", "lto_90a", b"BC\xc0\xde" + bytes(60), "name", "-ftz=1")
    for option in ("-compress=false", "-compress-mode=size"):
        check(NvFatbin(nvidia("libnvfatbin.so.12")).write([option], [image]), [image], [option])


@pytest.mark.parametrize("level", [None, 3, 19])
def test_cuobjdump_reads_it(
    level: int | None, nvidia: Tool, cubins: list[Image], tmp_path: Path
) -> None:
    images = [*cubins[:9], Image("ptx", "sm_90a", ptx("sm_90a"), "n.cu")]
    (tmp_path / "f.fatbin").write_bytes(written(images, level))
    output = run_tool(nvidia("cuobjdump"), "f.fatbin", cwd=tmp_path)
    arches = [line.split()[-1] for line in output.splitlines() if line.startswith("arch = ")]
    assert arches == [image.processor for image in images]
    assert output.count("host = linux") == output.count("compile_size = 64bit") == len(images)
    for what in ("-xelf", "-xptx"):
        run_tool(nvidia("cuobjdump"), what, "all", "f.fatbin", cwd=tmp_path)
    found = {path.read_bytes() for path in tmp_path.glob("*.cubin")}
    assert found == {image.content for image in images[:-1]}
    (text,) = tmp_path.glob("*.ptx")
    assert text.read_bytes() == contents((tmp_path / "f.fatbin").read_bytes())[-1][-1]


@pytest.mark.parametrize("name", ["", "some name"])
@pytest.mark.parametrize("mode", ["default", "speed", "size"])
def test_concatenated(
    mode: str, name: str, nvidia: Tool, cubins: list[Image], tmp_path: Path
) -> None:
    """Images that fatbinary compresses together are read one by one, as cuobjdump does."""
    options = ["-64", "-concat", "-compress-all", f"-compress-mode={mode}", "-cmdline=-O2"]
    options += [f"-ident={name}"] if name else []
    images = [*cubins, Image("ptx", "sm_80", ptx("sm_80"))]
    data = fatbinary(nvidia, tmp_path, images, *options)
    for what in ("-xelf", "-xptx"):
        run_tool(nvidia("cuobjdump"), what, "all", "f.fatbin", cwd=tmp_path)
    found = contents(data)
    assert {image.identifier for image in images_of(data)} == {name}
    assert len(found) == len(cubins) + 1
    assert {row[-1] for row in found} >= {image.content for image in cubins}
    if not name:  # with one, files of equal processors have the same name
        extracted = {path.read_bytes() for path in tmp_path.glob("*.sm_*")}
        assert {row[-1] for row in found} == extracted
