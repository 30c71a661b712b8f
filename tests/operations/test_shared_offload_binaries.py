"""Multi-image offload binaries, compressed or not, work like single-image ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import (
    ExtractOptions,
    ImageFilter,
    PackagedImage,
    extract_images,
    list_images,
    package_images,
)
from offload_tool.errors import FormatError
from offload_tool.formats.offload_binary import read_offload_binary
from offload_tool.operations.match import Device
from offload_tool.operations.merge import MergeError, merge_files
from offload_tool.operations.thin import thin_file
from tests.conftest import Tool, run_tool
from tests.formats.compressed import ZLIB, ZSTD, compressed_offload_binary
from tests.operations.fatbins import code, make_package

TARGETS = ["gfx1030", "gfx906", "gfx90a:xnack+", "gfx90a:xnack-"]
IMAGES = {target: code(target, 3000 + 7 * len(target)) for target in TARGETS}
FORMS = ["shared", "zlib", "zstd"]


def make(path: Path, form: str, *targets: str) -> Path:
    make_package(path, [(target, IMAGES[target]) for target in targets], generation=23)
    if form != "shared":
        method = ZLIB if form == "zlib" else ZSTD
        path.write_bytes(compressed_offload_binary(path.read_bytes(), method))
    return path


def contents(path: Path) -> dict[str, bytes]:
    data = memoryview(path.read_bytes())
    data, binary, _ = read_offload_binary(data, 0)
    return {image.arch: bytes(image.content(data)) for image in binary.images}


@pytest.mark.parametrize("form", FORMS)
def test_thin(tmp_path: Path, form: str) -> None:
    """Images are removed from a binary that keeps others; compressed ones are recompressed."""
    path = make(tmp_path / "p", form, *TARGETS)
    thin_file(path, tmp_path / "t", keep=[Device.parse(t) for t in ("gfx90a:xnack-", "gfx1030")])
    kept = ["gfx1030", "gfx90a:xnack-"]
    assert contents(tmp_path / "t") == {target: IMAGES[target] for target in kept}
    _, _, method = read_offload_binary(memoryview((tmp_path / "t").read_bytes()), 0)
    assert method == (None if form == "shared" else form)
    if form == "shared":
        expected = make(tmp_path / "e", form, *kept)
        assert (tmp_path / "t").read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_merge(tmp_path: Path, form: str) -> None:
    """Builds of some targets each are merged into the binary of all, compressed if all were."""
    first = make(tmp_path / "1", form, "gfx906", "gfx90a:xnack-")
    second = make(tmp_path / "2", form, "gfx1030", "gfx90a:xnack+")
    merge_files([first, second], tmp_path / "out")
    assert contents(tmp_path / "out") == IMAGES
    plain = make(tmp_path / "3", "shared", "gfx1030", "gfx90a:xnack+")
    merge_files([first, plain], tmp_path / "mixed")
    expected = make(tmp_path / "e", "shared", *TARGETS)
    assert (tmp_path / "mixed").read_bytes() == expected.read_bytes()
    with pytest.raises(MergeError, match=r"1' and '.*4' both have an image for 'hip-amdgcn-amd-"):
        merge_files([first, make(tmp_path / "4", form, "gfx906")], tmp_path / "no")


@pytest.mark.parametrize("form", FORMS)
def test_thin_in_an_object(tmp_path: Path, llvm: Tool, form: str) -> None:
    """The same holds in an object's section, and LLVM's next binary begins at its place."""
    path = make(tmp_path / "p", form, *TARGETS)
    more = make(tmp_path / "q", "shared", "gfx906")
    both = tmp_path / "both"
    both.write_bytes(path.read_bytes() + more.read_bytes())
    (tmp_path / "host.c").write_text("int host;\n")
    host = tmp_path / "host.o"
    embed = ["-Xclang", f"-fembed-offload-object={both}"]
    run_tool(llvm("clang"), "-c", *embed, tmp_path / "host.c", "-o", host)
    thin_file(host, tmp_path / "thin.o", keep=[Device.parse("gfx906")])
    assert [(row.index, row.target_id) for row in list_images(tmp_path / "thin.o")] == [
        (0, "gfx906"),
        (1, "gfx906"),
    ]


def test_names_in_several_layers(tmp_path: Path) -> None:
    inner = make(tmp_path / "inner", "zstd", "gfx906", "gfx1030")
    path, strings = tmp_path / "p.bin", {"triple": "outer", "arch": "x"}
    package_images([PackagedImage(inner, strings)] * 2, path, generation=23)
    made: list[str] = []
    options = ExtractOptions(folder=tmp_path / ".", generation=23)
    extract_images(path, [], extracted=made.append, options=options)
    targets = ["gfx906", "gfx1030"] * 2
    assert made == [f"p-amdgcn-amd-amdhsa-{t}.{n}.o" for n, t in enumerate(targets)]
    assert [(tmp_path / name).read_bytes() for name in made] == [IMAGES[t] for t in targets]
    options = ExtractOptions(generation=23)
    extract_images(path, [ImageFilter(output=tmp_path / "x")], options=options)
    assert (tmp_path / "x").read_bytes() == inner.read_bytes()


def test_too_many_layers(tmp_path: Path) -> None:
    path = make(tmp_path / "0", "shared", "gfx906")
    for number in range(12):
        outer = tmp_path / f"{number + 1}"
        package_images([PackagedImage(path, {"triple": "t"})], outer, generation=23)
        path = outer
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FormatError, match="at most 8 nested offload binaries"):
        extract_images(path, [], options=ExtractOptions(folder=tmp_path, generation=23))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.llvm
def test_llvm_23_reads_what_thin_and_merge_make(tmp_path: Path, llvm23: Tool) -> None:
    first = make(tmp_path / "1", "shared", "gfx906", "gfx90a:xnack-")
    second = make(tmp_path / "2", "shared", "gfx1030", "gfx90a:xnack+")
    merge_files([first, second], tmp_path / "all")
    thin_file(tmp_path / "all", tmp_path / "some", keep=[Device.parse("gfx906")])
    tool = llvm23("llvm-offload-binary")
    for name, targets in (("all", TARGETS), ("some", ["gfx906"])):
        output = run_tool(tool, name, cwd=tmp_path)
        names = [f"{name}-amdgcn-amd-amdhsa-{t}.{n}.o" for n, t in enumerate(targets)]
        assert output == "".join(f"Extracted: {n}\n" for n in names)
        assert [(tmp_path / n).read_bytes() for n in names] == [IMAGES[t] for t in targets]
