"""The output of ``offload-tool list --json`` conforms to its JSON schema, and covers it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from offload_tool import DeviceImage, PackagedImage, package_images
from offload_tool.cli import main
from offload_tool.formats.cuda.fatbin import _KINDS as CUDA_IMAGE_KINDS
from offload_tool.formats.kpack.archive import ZSTD
from offload_tool.formats.kpack.marker import KpackMarker
from offload_tool.formats.offload_binary import ImageKind
from offload_tool.formats.targets.compatibility import EXACT, PTX, RULES
from tests.cli.conftest import schema_judge
from tests.conftest import Capture
from tests.formats.cuda.test_fatbin import cuda_fatbin
from tests.formats.marked_programs import marked_program
from tests.fuzz.seeds import HERE as FUZZ
from tests.operations import test_image_data
from tests.operations.archives import thin_archive
from tests.operations.fatbins import HOST, code, make_bundle
from tests.operations.test_kpack_archives import write as write_kpack_archive

IMAGES = {HOST: b"", "gfx9-4-generic": code("generic"), "gfx90a:xnack+": code("gfx90a", 77)}
SEEDS = FUZZ / "seeds"


@pytest.fixture(scope="module")
def judge() -> jsonschema.Draft202012Validator:
    return schema_judge("list", "--schema")


List = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def listed(capsys: Capture, judge: jsonschema.Draft202012Validator) -> List:
    """Return a function that lists a file as JSON, validated by the schema."""

    def run(*args: str | Path) -> list[dict[str, Any]]:
        assert main(["list", "--json", *map(str, args)]) == 0
        images: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        assert images
        assert [error.message for error in judge.iter_errors(images)] == []
        return images

    return run


def _package(folder: Path) -> Path:
    images = []
    for name, content in (("a.bc", b"BC\xc0\xde"), ("b.o", b"x"), ("c.cubin", b"y"), ("d", b"")):
        (folder / name).write_bytes(content)
        strings = {"triple": "amdgcn-amd-amdhsa", "arch": "gfx90a"}
        images.append(PackagedImage(folder / name, strings, "openmp"))
    package_images(images, folder / "package")
    return folder / "package"


def _cuda(folder: Path) -> Path:
    other = bytearray(cuda_fatbin())
    other[16] = 77  # an image kind without a name
    (folder / "x.fatbin").write_bytes(cuda_fatbin() + other)
    return folder / "x.fatbin"


def _code_object(folder: Path) -> Path:
    (folder / "x.co").write_bytes((SEEDS / "gfx90a.co").read_bytes())
    return folder / "x.co"


def _folder(folder: Path) -> Path:
    test_image_data.plain(folder / "bundle")
    _cuda(folder)
    return folder


def _kpack(folder: Path) -> Path:
    write_kpack_archive(folder / "demo_gfx942.kpack", [("lib/a.so#0", "gfx942")], ZSTD)
    marker = KpackMarker("lib/a.so", ("demo_@GFXARCH@.kpack",))
    (folder / "a.so").write_bytes(marked_program((marker, 0)))
    return folder / "demo_gfx942.kpack"


def _marked(folder: Path) -> Path:
    return _kpack(folder).with_name("a.so")


def _thin(folder: Path) -> Path:
    test_image_data.compressed(folder / "compressed")
    return thin_archive(folder / "thin.a", ["compressed"])


def _of_image_data(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    return lambda folder: make(folder / "input")


OWN = (_package, _cuda, _code_object, _kpack, _marked, _thin, _folder)
MAKERS = {make.__name__: make for make in OWN}
MAKERS |= {make.__name__: _of_image_data(make) for make in test_image_data.MAKERS}


def test_devices(tmp_path: Path, listed: List) -> None:
    path = make_bundle(
        tmp_path / "b", IMAGES | {"hip-spirv64-amd-amdhsa--amdgcnspirv": b"x", "gfx906": b"y"}
    )
    args = [f"--target={name}" for name in ("gfx906:xnack-", "gfx90a:xnack+", "gfx942", "gfx1100")]
    images = listed(path, *args)
    assert {load["rule"] for image in images for load in image["loads"]} == {*RULES} - {PTX}
    images = listed(_cuda(tmp_path), "--target=sm_89", "--target=sm_90")
    assert {load["rule"] for image in images for load in image["loads"]} == {PTX, EXACT}


def test_every_container_is_listed_here(
    tmp_path: Path, judge: jsonschema.Draft202012Validator, listed: List
) -> None:
    """What is listed of each kind of file conforms, and these are all kinds."""
    seen = set()
    for name, make in MAKERS.items():
        (tmp_path / name).mkdir()
        seen |= {image["container"] for image in listed(make(tmp_path / name))}
    assert seen == set(judge.schema["items"]["properties"]["container"]["enum"])


def test_keys_and_words_are_the_code_s(judge: jsonschema.Draft202012Validator) -> None:
    """The schema has the fields of `DeviceImage`, and the code's names of values."""
    properties = judge.schema["items"]["properties"]
    assert list(properties) == [*DeviceImage.__match_args__]
    assert judge.schema["items"]["required"] == list(properties)
    new = [
        name
        for name in CUDA_IMAGE_KINDS.values()
        if name not in {k.name.lower() for k in ImageKind}
    ]
    kinds = properties["image_kind"]["anyOf"][0]["enum"]
    assert kinds == [
        None,
        *(kind.name.lower() for kind in ImageKind),
        "unknown",
        *new,
        "relocatable",
    ]
    assert properties["loads"]["items"]["properties"]["rule"]["enum"] == list(RULES)


def _damaged(image: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an image without one key, with a new one, and with each value of a wrong type."""
    yield image | {"more": 1}
    for key, value in image.items():
        yield {name: kept for name, kept in image.items() if name != key}
        yield image | {key: {"wrong": value}}
        if isinstance(value, int):
            yield image | {key: -1}
    for key in ("container", "image_kind"):
        yield image | {key: "nothing"}
    yield image | {"loads": [{"device": "gfx906", "rule": "luck", "reason": ""}]}
    yield image | {"loads": [{"device": "gfx906", "rule": "exact"}]}


def test_anything_else_is_refused(
    tmp_path: Path, judge: jsonschema.Draft202012Validator, listed: List
) -> None:
    """Missing and new keys, and invalid values, do not conform."""
    (image, *_) = listed(test_image_data.plain(tmp_path / "b"))
    assert judge.is_valid([copy.deepcopy(image)])
    for wrong in _damaged(image):
        assert not judge.is_valid([wrong]), wrong
