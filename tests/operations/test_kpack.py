"""Parts of a program with separate device code: archives, markers, wrappers, interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import CodeObjectError, OffloadError, UnsupportedError
from offload_tool.formats.hip_fatbin import EMBEDDED, KPACKED
from offload_tool.formats.kpack.archive import SCHEMES, read_kpack, unpacked_kpack_image
from offload_tool.formats.kpack.marker import KpackMarker, read_marker
from offload_tool.operations.archive import create_archive
from offload_tool.operations.embed import (
    CodeFile,
    interface_of,
    mark_host_file,
    pack_code_objects,
    write_marker,
)
from tests.conftest import program, run_tool
from tests.formats.kernel_info.code_objects import KERNEL, code_object, metadata
from tests.formats.marked_programs import marked_program

MARKER = KpackMarker("lib/a.so", ("../.kpack/demo_@GFXARCH@.kpack",))
MARKED = marked_program((MARKER, 0), (MARKER, 1))
HOST = MARKED.replace(KPACKED, EMBEDDED)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_archive_of_code_objects(tmp_path: Path, scheme: str) -> None:
    """An archive has each file under its key, in any order of files."""
    contents = {"b#0": b"two" * 99, "a#0": b"one" * 99, "c#0": b"one" * 99}
    files = [CodeFile(key, "gfx942", tmp_path / key) for key in contents]
    for file in files:
        Path(file.path).write_bytes(contents[file.key])
    out, other = tmp_path / "out.kpack", tmp_path / "other.kpack"
    for path, rows in ((out, files), (other, files[::-1])):
        pack_code_objects(rows, path, group="demo", target_ids=["gfx942"], scheme=scheme)
    assert out.read_bytes() == other.read_bytes()
    data = memoryview(out.read_bytes())
    found = read_kpack(data)
    assert {
        image.key: bytes(unpacked_kpack_image(data, image)) for image in found.images
    } == contents
    assert len({image.offset for image in found.images}) == 2  # equal files are stored once


def test_marker_file(tmp_path: Path) -> None:
    write_marker(MARKER, tmp_path / "marker")
    assert read_marker(memoryview((tmp_path / "marker").read_bytes()))[0] == MARKER


def test_wrappers_are_for_markers(tmp_path: Path) -> None:
    """Each wrapper's magic changes, in objects and in archives, and no other byte does."""
    host = tmp_path / "host.o"
    host.write_bytes(HOST)
    mark_host_file(host, tmp_path / "out.o")
    assert (tmp_path / "out.o").read_bytes() == MARKED
    (tmp_path / "plain.o").write_bytes(marked_program())
    create_archive([(n, tmp_path / n) for n in ("host.o", "plain.o")], tmp_path / "host.a")
    mark_host_file(tmp_path / "host.a", tmp_path / "out.a")
    whole = (tmp_path / "host.a").read_bytes()
    assert HOST in whole
    assert (tmp_path / "out.a").read_bytes() == whole.replace(HOST, MARKED)


def test_files_whose_wrappers_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / "host.bc").write_bytes(b"BC\xc0\xde" + bytes(60))
    (tmp_path / "host.o").write_bytes(HOST)
    run_tool(program("ar"), "rcT", "host.a", "host.o", cwd=tmp_path)
    for name, message in (("host.bc", "found bitcode"), ("host.a", "thin archive")):
        with pytest.raises(UnsupportedError, match=message):
            mark_host_file(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def kernels(path: Path, **arguments: list[dict[str, object]]) -> Path:
    """Write a code object with kernels that take these arguments."""
    rows = [{**KERNEL, ".name": name, ".args": args} for name, args in arguments.items()]
    path.write_bytes(code_object(metadata(rows, printf=["a"])))
    return path


def argument(size: int, kind: str = "by_value", offset: int = 0) -> dict[str, object]:
    """Return an argument's metadata."""
    return {".name": "any", ".offset": offset, ".size": size, ".value_kind": kind}


def test_interface(tmp_path: Path) -> None:
    """The digest covers names and arguments, but not order or additions by the compiler."""
    hidden = argument(8, "hidden_block_count_x", 8)
    one = kernels(tmp_path / "one", a=[argument(4)], b=[argument(8), hidden])
    two = kernels(tmp_path / "two", b=[argument(8)], a=[argument(4)])
    digest = interface_of([one])
    assert interface_of([one, two]) == interface_of([two]) == digest
    others = [
        kernels(tmp_path / "3", a=[argument(8)], b=[argument(8)]),
        kernels(tmp_path / "4", a=[argument(4, "global_buffer")], b=[argument(8)]),
        kernels(tmp_path / "5", a=[argument(4)]),
        kernels(tmp_path / "6", a=[argument(4, offset=4)], b=[argument(8)]),
    ]
    assert len({interface_of([other]) for other in others} | {digest}) == 5
    for other, name in zip(others, "aaba", strict=True):
        with pytest.raises(CodeObjectError, match=f"the kernel '{name}' has not the same"):
            interface_of([one, other])


def test_interface_of_broken_code(tmp_path: Path) -> None:
    path = tmp_path / "code"
    path.write_bytes(code_object(metadata([KERNEL])[:-3]))
    with pytest.raises(OffloadError, match="metadata"):
        interface_of([path])
