"""Joined programs, folders and wheels equal those before splitting."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.errors import (
    FormatError,
    NoContainerError,
    OffloadError,
    UsageError,
)
from offload_tool.operations.join import join_file
from offload_tool.operations.match import Device
from offload_tool.operations.split import split_file
from offload_tool.operations.thin import thin_file
from tests.conftest import Tool
from tests.operations.split_programs import bundles_of, link, make_wheel, record_faults

pytestmark = pytest.mark.llvm
NAME = "demo-1.2-py3-none-linux_x86_64.whl"


def test_archives_from_elsewhere(library: Path, tmp_path: Path) -> None:
    split_file(library, tmp_path / "apart")
    shutil.move(tmp_path / "apart/.kpack", tmp_path / "archives")
    with pytest.raises(FormatError, match=r"expected code for 'library#0' in \.kpack/library_@GFX"):
        join_file(tmp_path / "apart/library", [], tmp_path / "out")
    archives = sorted((tmp_path / "archives").iterdir())
    join_file(tmp_path / "apart/library", archives, tmp_path / "out")
    assert bundles_of(tmp_path / "out") == bundles_of(library)
    other = tmp_path / "library_gfx9.kpack"
    shutil.copy(archives[0], other)
    with pytest.raises(UsageError, match="has no code that"):
        join_file(tmp_path / "apart/library", [*archives, other], tmp_path / "out2")
    with pytest.raises(NoContainerError, match="device code is in kpack archives, found none"):
        join_file(library, [], tmp_path / "out2")
    assert not (tmp_path / "out2").exists()


def test_folders(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """The parts and the tree become the folder again; paths count as in it, though of a wheel."""
    folder, inner = tmp_path / "demo", "demo-1.0.data/purelib/lib/a.so"
    (folder / inner).parent.mkdir(parents=True)
    link(hip_objects, llvm("clang"), folder / inner, "library-lld")
    link(hip_objects, llvm("clang"), folder / "b.so", "library-bfd", "z")
    (folder / "link.so").symlink_to(inner)
    (folder / "text").write_text("text")
    split_file(folder, tmp_path / "tree")
    split_file(folder, tmp_path / "parts", in_parts=True)
    join_file(tmp_path / "tree", [], tmp_path / "one")
    host, *parts = sorted((tmp_path / "parts").iterdir(), reverse=True)
    join_file(host, parts, tmp_path / "two")
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    for out in (tmp_path / "one", tmp_path / "two"):
        assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == names
        for name in (inner, "b.so"):
            assert bundles_of(out / name) == bundles_of(folder / name)
        assert (out / "link.so").readlink() == Path(inner)
    archives = tmp_path / "tree/.kpack"
    shutil.copy(archives / "demo_gfx942.kpack", archives / "more.kpack")
    with pytest.raises(UsageError, match=r"more.kpack' has code for .*, which no library asks for"):
        join_file(tmp_path / "tree", [], tmp_path / "three")
    with pytest.raises(FormatError, match="expected code for"):
        join_file(host, parts[:1], tmp_path / "three")
    (parts[0] / "text").write_text("other")
    with pytest.raises(OffloadError, match="is in the host's folder, too"):
        join_file(host, parts, tmp_path / "three")
    assert not (tmp_path / "three").exists()
    (parts[0] / "text").unlink()
    (tmp_path / "link/a.dist-info").mkdir(parents=True)
    (tmp_path / "link/a.dist-info/RECORD").write_text("only,two\n")  # copied, not read
    join_file(host, [*parts, tmp_path / "link"], tmp_path / "four")
    assert (tmp_path / "four/a.dist-info/RECORD").read_text() == "only,two\n"
    (tmp_path / "link/.kpack").symlink_to("elsewhere")
    for order in ([*parts, tmp_path / "link"], [tmp_path / "link", *parts]):
        with pytest.raises(OffloadError, match="is in the host's folder, too"):
            join_file(host, order, tmp_path / "three")


def test_wheels(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    library = link(hip_objects, llvm("clang"), tmp_path / "a.so", "library-lld")
    wheel = make_wheel(
        tmp_path / NAME, {"demo/a.so": library.read_bytes(), "demo/__init__.py": b"x = 1\n"}
    )
    split_file(wheel, tmp_path / "apart")
    host = tmp_path / "apart" / NAME
    parts = sorted(path for path in (tmp_path / "apart").iterdir() if path != host)
    out = tmp_path / "out" / NAME
    out.parent.mkdir()
    join_file(host, parts, out)
    assert record_faults(out) == []
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(out) as new:
        assert new.namelist() == old.namelist()
        for name in old.namelist():
            if not name.endswith((".so", "RECORD")):
                assert new.read(name) == old.read(name)
        new.extractall(tmp_path / "site")
    assert bundles_of(tmp_path / "site/demo/a.so") == bundles_of(library)
    with pytest.raises(UsageError, match="asks for device code of gfx942, too; give these wheels"):
        join_file(host, parts[:2], tmp_path / "x.whl")
    other = make_wheel(tmp_path / "other-1-py3-none-any.whl", {})
    with pytest.raises(OffloadError, match="expected the header Requires-Dist"):
        join_file(host, [*parts, other], tmp_path / "x.whl")
    assert not (tmp_path / "x.whl").exists()


def test_thinned_archives(library: Path, tmp_path: Path) -> None:
    """A thinned tree is joined with the remaining code; units without code are reported."""
    split_file(library, tmp_path / "apart")
    for name in ("gfx1100", "gfx90a:xnack+"):
        (tmp_path / f"apart/.kpack/library_{name}.kpack").unlink()
    with pytest.raises(FormatError, match="expected code for 'library#2'"):
        join_file(tmp_path / "apart/library", [], tmp_path / "out")
    thin_file(library, library, keep=[Device.parse("gfx942"), Device.parse("gfx1100")])
    split_file(library, tmp_path / "again")
    join_file(tmp_path / "again/library", [], tmp_path / "out")
    assert {i.target_id for i in list_images(tmp_path / "out")} == {"", "gfx942", "gfx1100"}
