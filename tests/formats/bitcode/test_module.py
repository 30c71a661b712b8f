"""Objects embedded in bitcode: found by metadata, whatever else the module has."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.bitcode.llvmlite import assemble
from offload_tool.formats.bitcode.module import find_embedded_objects

SECTION = ".llvm.offloading"


def constant(content: bytes) -> str:
    return 'c"' + "".join(f"\\{byte:02X}" for byte in content) + '"'


def embedding(*contents: bytes, listed: str = SECTION) -> str:
    """Return the text of a module with constants, listed as embedded objects."""
    lines = [
        "@before = global i32 5",
        "define i32 @f() { ret i32 7 }",
        "@alias = alias i32, ptr @before",
    ]
    for index, content in enumerate(contents):
        lines.append(f"@e{index} = private constant [{len(content)} x i8] {constant(content)}")
    nodes = ", ".join(f"!{index}" for index in range(len(contents)))
    lines.append(f"!llvm.embedded.objects = !{{{nodes}}}")
    lines += [f'!{index} = !{{ptr @e{index}, !"{listed}"}}' for index in range(len(contents))]
    return "\n".join(lines)


def objects(data: bytes, section: str = SECTION) -> list[bytes]:
    found = find_embedded_objects(memoryview(data), section)
    contents = [b"".join(item.chunks()) for item in found]
    assert [len(content) for content in contents] == [item.size for item in found]
    return contents


@pytest.mark.parametrize(
    "contents",
    [
        [b"\x10\xff\x10\xad\0\0rest"],
        [b"a\0\xffb", b"second\0\0", b"\0\0\0\1"],
        [b"all of seven bits\0"],
        [b"char6\0", b"no_NUL.at.end"],
        [b"\xff\xfe\xfd\0", b"\x80"],
    ],
)
def test_contents(contents: list[bytes]) -> None:
    """However LLVM stores a string (8, 7 or 6 bits, with or without NUL), it comes back."""
    assert objects(assemble(embedding(*contents))) == contents


def test_only_what_is_listed_for_the_section() -> None:
    """Other sections' objects, other constants and other metadata are passed over."""
    text = embedding(b"\xff\0mine", b"\xfe\0too")
    text = text.replace(f'!1 = !{{ptr @e1, !"{SECTION}"}}', '!1 = !{ptr @e1, !".other"}')
    text += f'\n!other = !{{!2}}\n!2 = !{{ptr @e1, !"{SECTION}"}}\n'
    assert objects(assemble(text)) == [b"\xff\0mine"]
    assert objects(assemble(text), ".other") == [b"\xfe\0too"]
    assert objects(assemble(embedding(b"\xff\0"))[:-4] + bytes(4), ".none") == []


def test_what_is_no_string() -> None:
    """Zeros, declarations, functions and nodes of other shapes are not objects, as for LLVM."""
    text = f"""
        @zeros = constant [9 x i8] zeroinitializer
        @outside = external constant [9 x i8]
        @number = constant i32 5
        declare void @f()
        !llvm.embedded.objects = !{{!0, !1, !2, !3, !4, !5}}
        !0 = !{{ptr @zeros, !"{SECTION}"}}
        !1 = !{{ptr @outside, !"{SECTION}"}}
        !2 = !{{ptr @number, !"{SECTION}"}}
        !3 = !{{ptr @f, !"{SECTION}"}}
        !4 = !{{ptr @zeros}}
        !5 = !{{null, !"{SECTION}"}}
    """
    assert objects(assemble(text)) == []


def test_wrapped() -> None:
    data = assemble(embedding(b"\xff\0content"))
    wrapped = struct.pack("<5I", 0x0B17C0DE, 0, 20, len(data), 7) + data + bytes(12)
    assert objects(wrapped) == [b"\xff\0content"]
    with pytest.raises(FormatError, match="wrapper points to"):
        objects(wrapped[:12] + b"\xff\xff\0\0" + wrapped[16:])


def test_large_objects() -> None:
    """An object of some megabytes comes in pieces, each byte right, at any bit."""
    content = random.Random(3).randbytes((2 << 20) + 5)
    data = assemble(embedding(b"\xff\0x", content))
    view = memoryview(data)
    tracemalloc.start()
    try:
        _, large = find_embedded_objects(view, SECTION)
        position = 0
        for chunk in large.chunks():
            assert chunk == content[position : position + len(chunk)]
            position += len(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert position == len(content)
    assert peak < 8 << 20
