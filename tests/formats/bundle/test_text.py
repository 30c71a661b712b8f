"""The text bundle: written and read as LLVM does, and never past its end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.cli.llvm.bundler import run_bundler
from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.bundle import text
from offload_tool.formats.bundle.binary import BundleEntry
from offload_tool.formats.bundle.text import (
    COMMENT_MARKS,
    check_text_content,
    marker,
    read_text_bundle,
)
from tests.cli.side_by_side import Bench
from tests.conftest import Tool

HOST = "host-x86_64-unknown-linux-gnu-"
GFX906 = "hip-amdgcn-amd-amdhsa--gfx906"
GFX908 = "hip-amdgcn-amd-amdhsa--gfx908"
START = "// __CLANG_OFFLOAD_BUNDLE____START__ "
END = "// __CLANG_OFFLOAD_BUNDLE____END__ "


def entry(name: str, content: bytes, comment: str = "//") -> bytes:
    return marker(comment, text.START, name) + content + marker(comment, text.END, name)


@given(
    items=st.lists(
        st.tuples(
            st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30),
            st.binary(max_size=80),
        ),
        max_size=6,
    ),
    comment=st.sampled_from(sorted(set(COMMENT_MARKS.values()))),
    between=st.binary(max_size=9),
)
def test_round_trip(items: list[tuple[str, bytes]], comment: str, between: bytes) -> None:
    data = memoryview(between.join([b"", *(entry(*item, comment) for item in items), b""]))
    read = read_text_bundle(data, comment)
    assert [(item.id, bytes(data[item.offset : item.offset + item.size])) for item in read] == items


PIECES = st.sampled_from(
    [b"\n", b"a", b"x", b"\r", START.encode(), END.encode(), b"//", b" ", START.encode()[:-9]]
)


@given(data=st.lists(PIECES, max_size=30).map(b"".join), wanted=st.sampled_from(["a", "x", None]))
def test_any_text_gives_entries_or_a_format_error(data: bytes, wanted: str | None) -> None:
    """Entries never overlap, never leave the file, and never hold an end marker."""
    accept = None if wanted is None else (lambda name: name == wanted)
    found: tuple[BundleEntry, ...] = ()
    with suppress(FormatError):
        found = read_text_bundle(memoryview(data), "//", wanted=accept)
    position = 0
    for item in found:
        assert position <= item.offset <= item.offset + item.size <= len(data)
        position = item.offset + item.size
        check_text_content(memoryview(data)[item.offset : position], "//")


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (f"\n{START}{HOST}\nsecret", "expected an end marker"),
        (f"\n{START}{HOST}\nsecret{END}{HOST}\n", "expected an end marker"),
        (f"\n{START}{HOST}\n{END}{HOST}\n", "expected an end marker"),
        (f"\n{START}{HOST}", "expected a line feed after the ID"),
    ],
    ids=["no-end", "end-inside-line", "one-line-feed-for-two-markers", "no-line-feed"],
)
@pytest.mark.parametrize("wanted", [None, HOST])
def test_entries_without_end(tail: str, message: str, wanted: str | None) -> None:
    data = memoryview(entry(GFX906, b"g") + tail.encode())
    accept = None if wanted is None else (lambda name: name == wanted)
    with pytest.raises(FormatError, match=message) as caught:
        read_text_bundle(data, "//", wanted=accept, path="cut.i")
    offset = len(entry(GFX906, b"g")) + 1
    assert str(caught.value).startswith(f"'cut.i', offset {offset:#x}, entry '{HOST}': ")


def test_content_that_cannot_be_stored() -> None:
    """A content with an end marker is refused at the marker; in another comment it is none."""
    bundle = memoryview(entry(HOST, b"x"))
    with pytest.raises(FormatError, match=r"unbundle it first") as caught:
        check_text_content(bundle, "//", path="twice.i")
    assert bytes(bundle[caught.value.offset :]) == f"{END}{HOST}\n".encode()
    check_text_content(bundle, "#")
    check_text_content(memoryview(f"{END}on the first line\n".encode()), "//")


def test_ids_that_are_no_text() -> None:
    """An ID's bytes, its last CR as well, survive reading and writing; a line feed would not."""
    data = f"\n{START}".encode() + b"hip-\xff\r\nx" + f"\n{END}\n".encode()
    (found,) = read_text_bundle(memoryview(data), "//")
    assert marker("//", text.START, found.id) == data[: found.offset]
    with pytest.raises(UsageError, match="holds a line feed"):
        marker("//", text.START, "a\nb")


def raw(name: str, content: str, lead: str = "\n", tail: str = "\n") -> str:
    return f"{lead}{START}{name}\n{content}\n{END}{name}{tail}"


UNUSUAL = {
    "text-around": "before" + raw(HOST, "h") + "between\n" + raw(GFX906, "g") + "after",
    "one-line-feed-between": raw(HOST, "h") + raw(GFX906, "g", lead=""),
    "text-after-end-marker": raw(HOST, "h", tail=" and more\n") + raw(GFX906, "g"),
    "end-marker-is-last": raw(HOST, "h") + raw(GFX906, "g", tail=""),
    "first-line": raw(HOST, "h", lead="") + raw(GFX906, "g"),
    "end-names-another": f"\n{START}{HOST}\nh\n{END}zzz\n" + raw(GFX906, "g"),
    "end-names-nothing": f"\n{START}{HOST}\nh\n{END}\n{START}{GFX906}\ng\n{END}\n",
    "end-before-start": f"\n{END}x\n" + raw(HOST, "h"),
    "twice": raw(HOST, "first") + raw(GFX906, "g") + raw(HOST, "second"),
    "nested-in-host": raw(HOST, raw(GFX906, "inner")) + raw(GFX908, "k"),
    "nested-in-device": raw(GFX908, "a" + raw(GFX906, "inner") + "b") + raw(HOST, "h"),
    "nested-same-id": raw(GFX908, "a" + raw(GFX908, "inner") + "b") + raw(HOST, "h"),
    "line-feed-of-start-is-not-shared": f"\n{START}{HOST}\n{END}\n" + raw(GFX906, "g"),
    "start-in-a-line": raw(HOST, f"x {START}{GFX906}\ny"),
    "no-bundle": "int x;\n",
    "other-comment": raw(HOST, "h").replace("//", "#"),
}


@pytest.mark.llvm
@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_unusual_files_as_in_llvm(text: str, llvm: Tool, tmp_path: Path, capfdbinary) -> None:
    """Listing gives LLVM's IDs in its order; unbundling, its content or its error."""
    bench = Bench(run_bundler, tmp_path, llvm("clang-offload-bundler"), capfdbinary)
    bench.write("bundle.i", text.encode())
    bench.assert_same(["-type=i", "-list", "-input=bundle.i"])
    for name in (HOST, GFX906, GFX908):
        targets = ["-type=i", "-unbundle", f"-targets={name}"]
        bench.assert_same([*targets, "-input=bundle.i", "-output=out"], ["out"])
