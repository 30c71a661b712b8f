"""Bundles with the IDs of the previous one are read by a fast path with equal results."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool import ArchiveOptions, BundleEntryID, unbundle_archive
from offload_tool.errors import OffloadError
from offload_tool.operations import unarchive
from tests.formats.bundle.test_binary import bundle_of
from tests.operations.archives import archive_of

HOST, GFX906, GFX90A = "host-x86_64-unknown-linux-gnu", "hip-amdgcn--gfx906", "hip-amdgcn--gfx90a"
IDS = (HOST, "hip-amdgcn-amd-amdhsa--gfx906", "hip-amdgcn-amd-amdhsa--gfx90a", GFX906, GFX90A)
CONTENTS = (b"", b"x", b"\x7fELF\2\1\1" + bytes(70), b"MZ" + bytes(90), b"BC\xc0\xde", b"y" * 99)


@st.composite
def members(draw: st.DrawFn) -> bytes:
    """Return a bundle: intact, with a changed byte, with data after it, or truncated."""
    names = draw(st.sampled_from([IDS[:3], IDS[:3], IDS[:2], (*IDS[1:3], IDS[1]), IDS]))
    images = {name: draw(st.sampled_from(CONTENTS)) for name in names}
    data = bytearray(bundle_of(images, draw(st.sampled_from((1, 1, 64)))))
    change = draw(st.sampled_from(("", "", "", "byte", "behind", "cut", "other")))
    if change == "byte":
        data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    elif change == "cut":
        del data[draw(st.integers(0, len(data))) :]
    elif change == "behind":
        data += draw(st.sampled_from((b"\0" * 9, b"\n", bytes(data))))
    return b"no bundle" if change == "other" else bytes(data)


def _result(hda: Path, folder: Path, **options: object) -> tuple[str, list[bytes], list[str]]:
    outputs = {BundleEntryID.parse(name): folder / f"{n}.a" for n, name in enumerate(IDS[1:3])}
    lines: list[str] = []
    try:
        unbundle_archive(
            hda, outputs, options=ArchiveOptions(allow_missing=True), warn=lines.append, **options
        )  # type: ignore[arg-type]
    except OffloadError as error:
        return str(error), [], []
    return "", [path.read_bytes() for path in outputs.values()], lines


@given(
    st.lists(members(), min_size=1, max_size=6),
    st.sampled_from(("m{}.o", "a:b{}", "..{}", "long name of member {}.o", "d/{}")),
)
def test_equal(contents: list[bytes], name: str) -> None:
    """Outputs, warnings and errors equal those of a run that opens each member separately."""
    members = {name.format(n): content for n, content in enumerate(contents)}
    with TemporaryDirectory() as folder:
        hda = archive_of(Path(folder, "hda.a"), members)
        fast = _result(hda, Path(folder))
        assert fast == _result(hda, Path(folder), opened=lambda _: None)


def _archive(path: Path, contents: list[bytes]) -> Path:
    return archive_of(path, {f"m{n}.o": content for n, content in enumerate(contents)})


def _bundle(*contents: bytes) -> bytes:
    return bundle_of(dict(zip(IDS, contents, strict=False)))


@pytest.mark.parametrize("limit", ["_AT_ONCE", "_BYTES_AT_ONCE"])
def test_taken_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Each member is taken once, however many at a time, also after a different member."""
    alike = [_bundle(b"", b"%d" % number, b"y" * number) for number in range(20)]
    hda = _archive(tmp_path / "hda.a", [*alike[:9], b"no bundle", _bundle(b"", b"x"), *alike[9:]])
    expected = _result(hda, tmp_path, opened=lambda _: None)
    assert expected[1][0].count(b"0           0     0     644") == 21
    monkeypatch.setattr(unarchive, limit, 3)
    assert _result(hda, tmp_path) == expected


def test_reasons_are_said_once(tmp_path: Path) -> None:
    """Unreadable symbols of a member are reported once, even if the member is rejected."""
    sound, broken = CONTENTS[1], b"\x7fELF\2\1\1" + b"\xff" * 70
    contents = [_bundle(b"", sound, sound), _bundle(b"", b"BC\xc0\xde", broken)]
    hda = _archive(tmp_path / "hda.a", contents)
    lines: list[str] = []
    outputs = {BundleEntryID.parse(name): tmp_path / name for name in IDS[1:3]}
    with pytest.raises(OffloadError, match=r"m1\.o"):
        unbundle_archive(hda, outputs, warn=lines.append)
    assert len(lines) == 1
