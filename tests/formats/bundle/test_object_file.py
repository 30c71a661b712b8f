"""The object bundle: the files of clang-offload-bundler, read without trust."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.bundle.object_file import (
    HOST_MARKER,
    ObjectEntry,
    check_not_merged,
    is_object_file,
    plan_host,
    plan_object_bundle,
    read_object_bundle,
)
from tests.conftest import Tool, run_tool
from tests.formats.object_files import (
    GFX90A,
    GFX906,
    HOST,
    PREFIX,
    assemble,
    make_coff,
    make_elf,
    write_file,
)

HEADER = {
    "elf": (b"\x7fELF\2\1\1", "ELF"),
    "elf-class": (b"\x7fELF\7\1\1", None),
    "elf-order": (b"\x7fELF\2\7\1", None),
    "mach-o": (b"\xcf\xfa\xed\xfe\7\0\0\1\3\0\0\0\1\0\0\0", "Mach-O"),
    "mach-o-big": (b"\xfe\xed\xfa\xcf\1\0\0\7\0\0\0\3\0\0\0\1", "Mach-O"),
    "mach-o-kind": (b"\xcf\xfa\xed\xfe\7\0\0\1\3\0\0\0\x63\0\0\0", None),
    "mach-o-universal": (b"\xca\xfe\xba\xbe\0\0\0\1", None),
    "xcoff32": (b"\1\xdf\0\0", "XCOFF"),
    "xcoff64": (b"\1\xf7\0\0", "XCOFF"),
    "dxcontainer": (b"DXBC", "DXContainer"),
    "coff-x86-64": (b"\x64\x86", "COFF"),
    "coff-i386": (b"\x4c\1", "COFF"),
    "coff-aarch64": (b"\x64\xaa", "COFF"),
    "coff-too-many-sections": (b"\x64\x86\x0a\0", None),
    "coff-import-library": (b"\0\0\xff\xff\0\0\x64\x86", None),
    "coff-bigobj": (
        b"\0\0\xff\xff\2\0\x64\x86\0\0\0\0" + bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8"),
        "COFF",
    ),
    "windows-resource": (b"\0\0\0\0\x20\0\0\0\xff\xff\0\0\xff\xff\0\0", None),
    "dos": (b"MZ", None),
    "bitcode": (b"BC\xc0\xde", None),
    "archive": (b"!<arch>\n", None),
    "bundle": (b"__CLANG_OFFLOAD_BUNDLE__", None),
    "offload-binary": (b"\x10\xff\x10\xad", None),
    "text": (b"some text", None),
}


def entries_of(data: bytes) -> dict[str, bytes]:
    view = memoryview(data)
    entries = read_object_bundle(view)
    return {entry.id: data[entry.offset : entry.offset + entry.size] for entry in entries}


@pytest.fixture
def bundler(llvm: Tool) -> Path:
    """Return its real path: it runs the llvm-objcopy beside the path it is called by."""
    return Path(llvm("clang-offload-bundler")).resolve()


@pytest.mark.llvm
@pytest.mark.parametrize(("start", "expected"), HEADER.values(), ids=HEADER.keys())
def test_object_files_as_llvm_sees_them(
    start: bytes, expected: str | None, bundler: Path, tmp_path: Path
) -> None:
    """What is an object file here is one there: it does not get the binary layout."""
    data = start.ljust(400, b"\0")
    assert is_object_file(memoryview(data)) == expected
    (tmp_path / "host").write_bytes(data)
    (tmp_path / "image").write_bytes(b"image")
    inputs = [f"-input={tmp_path / name}" for name in ("host", "image")]
    command = [bundler, "-type=o", f"-targets={HOST},{GFX906}", *inputs]
    command.append(f"-output={tmp_path / 'out'}")
    subprocess.run(command, check=False, capture_output=True)  # llvm-objcopy may fail
    is_binary_layout = (tmp_path / "out").read_bytes().startswith(PREFIX.encode())
    assert is_binary_layout == (expected is None)


@pytest.mark.llvm
def test_merged_objects(llvm: Tool, tmp_path: Path) -> None:
    """`ld -r` of bundled objects is recognised by its host markers and refused."""
    objects = []
    for index, classes in enumerate(("a", "b")):
        (tmp_path / f"{classes}.s").write_text(f".globl {classes}\n{classes}: .long {index}\n")
        host = tmp_path / f"{classes}.o"
        source = tmp_path / f"{classes}.s"
        run_tool(llvm("clang"), "--target=x86_64-linux-gnu", "-c", source, "-o", host)
        rows = [(HOST, HOST_MARKER), (GFX906, b"image")]
        plan = plan_object_bundle(memoryview(host.read_bytes()), rows)
        objects.append(tmp_path / f"{classes}.bundled.o")
        write_file(objects[-1], plan, host)
    run_tool(llvm("ld.lld"), "-r", *objects, "-o", tmp_path / "merged.o")
    entries = read_object_bundle(memoryview((tmp_path / "merged.o").read_bytes()))
    assert [(entry.host_markers, entry.size) for entry in entries] == [(2, 2), (0, 10)]
    with pytest.raises(UnsupportedError, match=r"'m.o', offset .*`ld -r` made this of 2 bundled"):
        check_not_merged(entries, path="m.o")


def test_round_trip(tmp_path: Path) -> None:
    """What is added is read, an ID that is no text as well, and taken out again."""
    host = make_elf()
    contents = {GFX90A: b"device", HOST: HOST_MARKER, GFX906: b"", "hip-\udcff": b"\1"}
    plan = plan_object_bundle(memoryview(host), list(contents.items()))
    bundled = assemble(plan, host, tmp_path)
    assert list(entries_of(bundled).items()) == list(contents.items())
    plain = assemble(plan_host(memoryview(bundled)), bundled, tmp_path)
    assert entries_of(plain) == {}


def test_code_object_of_one_nul() -> None:
    """Only the host's own section of one NUL byte stands for the host."""
    names = [PREFIX.encode() + key.encode() for key in (HOST, GFX906, "hostile-x", "host-y-")]
    data = make_elf(extra=dict(zip(names, (b"\0", b"\0", b"\0", b"elf"), strict=True)))
    entries = read_object_bundle(memoryview(data))
    assert [entry.host_markers for entry in entries] == [1, 0, 0, 0]


def test_bundle_without_sections() -> None:
    """An object without a bundle has no entries; neither has a format that can hold none."""
    assert read_object_bundle(memoryview(make_elf())) == ()
    assert read_object_bundle(memoryview(HEADER["mach-o"][0].ljust(40, b"\0"))) == ()
    with pytest.raises(
        FormatError, match="'x', offset 0x0: expected an object file, found b'text'"
    ):
        read_object_bundle(memoryview(b"text"), path="x")


def test_ids_that_occur_twice() -> None:
    twice = [ObjectEntry(HOST, 8, 1, 1), ObjectEntry(GFX906, 9, 1), ObjectEntry(GFX906, 10, 1)]
    with pytest.raises(FormatError, match=f"2 sections have the bundle entry ID '{GFX906}'"):
        check_not_merged(twice)
    check_not_merged(twice[:2])


@pytest.mark.parametrize(
    ("host", "ids", "message"),
    [
        (make_elf(), [], "at least one entry"),
        (make_elf(), [HOST, HOST], f"2 entries have the bundle entry ID '{HOST}'; each"),
        (
            make_elf(extra={PREFIX.encode() + GFX906.encode(): b"x"}),
            [GFX906],
            f"ID '{GFX906}'; 'h.o' is a bundle already",
        ),
        (HEADER["mach-o"][0].ljust(40, b"\0"), [HOST], "'h.o' is a Mach-O file; .* ELF only"),
        (make_coff(), [HOST], "'h.o' is a COFF file"),
        (b"\0asm\1\0\0\0", [HOST], "'h.o' is a Wasm file"),
        (b"\1\xdf\0\0", [HOST], "'h.o' is a XCOFF file"),
        (b"\3\xf0\0\0", [HOST], "'h.o' is a GOFF file"),
        (b"text", [HOST], "'h.o' is not an object file; .* binary layout"),
    ],
    ids=["empty", "twice", "present", "mach-o", "coff", "wasm", "xcoff", "goff", "text"],
)
def test_impossible_bundles(host: bytes, ids: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_object_bundle(memoryview(host), [(name, b"x") for name in ids], path="h.o")
