"""Merged builds of different targets equal one build of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import Compression, embed_bundle, list_images
from offload_tool.errors import OffloadError, UsageError
from offload_tool.formats.objects.ar import ArchiveReader
from offload_tool.operations.merge import MergeError, merge_files
from tests.conftest import Tool, run_tool
from tests.formats.object_files import archive_bytes, make_code_object, make_elf
from tests.operations.archives import archive, archive_of
from tests.operations.fatbins import HOST, code, make_bundle, make_package

TARGETS = ["gfx1030", "gfx906", "gfx90a:xnack+", "gfx90a:xnack-"]
"""In the SCons tool's order."""
IMAGES = {target: code(target, 3000 + 7 * len(target)) for target in TARGETS}


def part(host: bytes | None, *targets: str) -> dict[str, bytes]:
    images = {target: IMAGES[target] for target in targets}
    return images if host is None else {HOST: host, **images}


def merged(tmp_path: Path, *paths: Path) -> bytes:
    merge_files(paths, tmp_path / "merged")
    return (tmp_path / "merged").read_bytes()


def test_code_objects(tmp_path: Path) -> None:
    """Code objects are rejected as files; as members of archives, they must be equal."""
    paths = [tmp_path / f"{name}.co" for name in ("gfx906", "gfx942")]
    for path in paths:
        path.write_bytes(make_code_object(path.stem))
    with pytest.raises(UsageError, match="is a code object without a bundle around it"):
        merge_files(paths, tmp_path / "out")
    same = archive(tmp_path / "a.a", paths[0])
    assert next(iter(ArchiveReader(memoryview(merged(tmp_path, same, same))))).name == "gfx906.co"


@pytest.mark.parametrize("alignment", [1, 8, 4096])
@pytest.mark.parametrize("compression", [None, Compression(), Compression("zlib", version=2)])
@pytest.mark.parametrize("file_type", ["bc", "s"])
def test_bundles(
    tmp_path: Path, alignment: int, compression: Compression | None, file_type: str
) -> None:
    def make(name: str, *targets: str) -> Path:
        return make_bundle(
            *(tmp_path / name, part(b"", *targets)),
            alignment=alignment,
            compression=compression,
            file_type=file_type,
        )

    parts = [make(f"p{number}", target) for number, target in enumerate(reversed(TARGETS))]
    assert merged(tmp_path, *parts) == make("all", *TARGETS).read_bytes()


def test_without_host(tmp_path: Path) -> None:
    first = make_bundle(tmp_path / "1", part(None, "gfx906", "gfx90a:xnack+"))
    second = make_bundle(tmp_path / "2", part(None, "gfx1030", "gfx90a:xnack-"))
    expected = make_bundle(tmp_path / "e", part(None, *TARGETS))
    assert merged(tmp_path, first, second) == expected.read_bytes()


def test_object_bundles(tmp_path: Path) -> None:
    host = make_elf()
    # Bundling changes the layout, so the host is an object that was bundled before.
    parts = [
        make_bundle(tmp_path / f"p{number}", part(host, target), file_type="o")
        for number, target in enumerate(TARGETS)
    ]
    result = merged(tmp_path, *parts)
    images = list_images(tmp_path / "merged")
    assert [image.target_id for image in images] == ["", *TARGETS]
    for image in images[1:]:
        assert image.offset is not None
        assert result[image.offset :][: image.size] == IMAGES[image.target_id]
    expected = make_bundle(tmp_path / "e", part(host, *TARGETS), file_type="o")
    assert result == expected.read_bytes()


def test_archives(tmp_path: Path) -> None:
    """Archives are merged member by member; members without images must be equal."""
    host = make_elf()

    def make(name: str, *targets: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "readme").write_bytes(b"odd")
        members = [
            make_bundle(folder / "a.o", part(host, *targets), file_type="o"),
            make_bundle(folder / "b.bc", part(b"", *targets)),
            make_bundle(folder / "c.bc", part(b"", *targets), compression=Compression()),
            folder / "readme",
        ]
        return archive(tmp_path / f"{name}.a", *members)

    first, second = make("1", "gfx906", "gfx90a:xnack-"), make("2", "gfx90a:xnack+", "gfx1030")
    merge_files([first, second], tmp_path / "merged")
    merge_files([make("3", *TARGETS[:2]), make("4", *TARGETS[2:])], tmp_path / "other")
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "other").read_bytes()
    images = list_images(tmp_path / "merged")
    assert [(image.member, image.target_id) for image in images] == [
        (member, target) for member in ("a.o", "b.bc", "c.bc") for target in ("", *TARGETS)
    ]


def test_members_of_one_name(tmp_path: Path) -> None:
    paths = [tmp_path / f"{target}.a" for target in ("gfx906", "gfx1030")]
    for path in paths:
        images = ({HOST: bytes([number]), path.stem: b"x"} for number in (1, 2))
        contents = [make_bundle(tmp_path / "m", each).read_bytes() for each in images]
        path.write_bytes(archive_bytes([("m.bc", content) for content in contents]))
    merge_files(paths, tmp_path / "out")
    images = [(i.index, i.target_id) for i in list_images(tmp_path / "out")]
    assert images == [(n, target) for n in (0, 1) for target in ("", "gfx1030", "gfx906")]


def test_offload_binaries(tmp_path: Path) -> None:
    def make(name: str, *targets: str) -> Path:
        return make_package(tmp_path / name, [(target, IMAGES[target]) for target in targets])

    parts = [make(f"p{number}", target) for number, target in enumerate(reversed(TARGETS))]
    assert merged(tmp_path, *parts) == make("all", *TARGETS).read_bytes()
    with pytest.raises(MergeError, match=r"p0' and '.*again' both have an image for 'hip-amdgcn"):
        merge_files([parts[0], make("again", TARGETS[-1])], tmp_path / "out")


@pytest.mark.llvm
def test_one_clang_build(tmp_path: Path, llvm: Tool) -> None:
    source = tmp_path / "k.hip"
    source.write_text("__attribute__((global)) void kernel(float *p) { *p += 1; }\n")

    def make(name: str, *targets: str) -> Path:
        arch = [f"--offload-arch={target}" for target in targets]
        command = [llvm("clang"), "-x", "hip", "-nogpuinc", "-nogpulib", "-cuid=13", *arch]
        run_tool(*command, "--cuda-device-only", "-c", source, "-o", tmp_path / name)
        return tmp_path / name

    parts = [make(f"p{number}", target) for number, target in enumerate(reversed(TARGETS))]
    assert merged(tmp_path, *parts) == make("all", *TARGETS).read_bytes()


def refusal(tmp_path: Path, first: Path, second: Path) -> str:
    """Check that two files cannot be merged; return the error, which names both."""
    with pytest.raises(OffloadError) as caught:
        merge_files([first, second], tmp_path / "never")
    assert not (tmp_path / "never").exists()
    message = str(caught.value)
    assert str(first) in message
    assert str(second) in message
    return message


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (part(b"", "gfx906"), part(b"", "gfx1030", "gfx906"), "both have an entry for 'hipv4-amd"),
        (part(b"", "gfx90a:xnack+"), {HOST: b"", "gfx90a": b"x"}, "set 'xnack' in both or in"),
        (part(b"host", "gfx906"), part(b"other", "gfx1030"), "host entry"),
        (part(b"host", "gfx906"), part(None, "gfx1030"), "host entry"),
        (
            part(make_elf(), "gfx906"),
            part(make_elf(machine=183), "gfx1030"),
            "one host object, the second another",
        ),
    ],
    ids=["same target", "feature left open", "other host", "no host", "other host object"],
)
def test_contents_that_disagree(
    tmp_path: Path, first: dict[str, bytes], second: dict[str, bytes], message: str
) -> None:
    file_type = "o" if first.get(HOST, b"").startswith(b"\x7fELF") else "bc"
    pair = [
        make_bundle(tmp_path / name, images, file_type=file_type)
        for name, images in (("first", first), ("second", second))
    ]
    assert message in refusal(tmp_path, *pair)


def test_kinds_of_files(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", part(b"", "gfx906"))
    packed = make_bundle(tmp_path / "packed", part(b"", "gfx1030"), compression=Compression())
    text = make_bundle(tmp_path / "text", part(b"", "gfx1030"), file_type="s")
    library = archive(tmp_path / "library", packed)
    assert "compressed-bundle" in refusal(tmp_path, bundle, packed)
    assert "a text bundle" in refusal(tmp_path, bundle, text)
    assert "an archive" in refusal(tmp_path, bundle, library)


def test_archives_disagree(tmp_path: Path) -> None:
    one = make_bundle(tmp_path / "1", part(b"", "gfx906")).read_bytes()
    two = make_bundle(tmp_path / "2", part(b"", "gfx1030")).read_bytes()
    first = archive_of(tmp_path / "first.a", {"x.bc": one, "text": b"one"})
    second = archive_of(tmp_path / "second.a", {"x.bc": two, "text": b"two"})
    assert "(text)" in refusal(tmp_path, first, second)
    third = archive_of(tmp_path / "third.a", {"x.bc": two})
    assert "a member 'text', the second no member" in refusal(tmp_path, first, third)
    assert "no member 'text', the second a member" in refusal(tmp_path, third, first)


def test_too_few_or_useless_files(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", part(b"", "gfx906"))
    twice, text = tmp_path / "twice", tmp_path / "text"
    twice.write_bytes(bundle.read_bytes() * 2)
    text.write_bytes(b"hello")
    objects = [tmp_path / f"{target}.o" for target in TARGETS[:2]]
    for path in objects:
        each = make_bundle(tmp_path / f"b.{path.stem}", part(b"", path.stem))
        embed_bundle(each, path, cuid="x", host_triple="x86_64-linux-gnu")
    linked = r"gfx1030\.o' cannot be merged: it embeds images in section \.hip_fatbin; merge the"
    for paths, message in (
        ([bundle], "expected two or more files"),
        ([twice, bundle], "expected one bundle to merge, found 2"),
        ([text, text], "expected a bundle"),
        (objects, linked),
    ):
        with pytest.raises(UsageError, match=message):
            merge_files(paths, tmp_path / "never")
    assert not (tmp_path / "never").exists()
