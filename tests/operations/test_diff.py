"""Changes between two builds, and differences that do not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offload_tool.errors import OffloadError
from offload_tool.formats.cuda.fatbin import NewCudaEntry, plan_cuda_fatbin
from offload_tool.operations.diff import Comparison, compare_builds
from tests.conftest import Tool, run_tool
from tests.formats.kernel_info.code_objects import KERNEL, code_object, compiled, metadata
from tests.operations.fatbins import HOST, make_bundle, zip_of

SOURCE = """
#define KERNEL __attribute__((global)) void
__attribute__((device)) int table[100] = {1, 2, VALUE};
namespace { KERNEL unnamed(int *p) { *p = 1; } }
static KERNEL hidden(int *p) { *p = 2; }
KERNEL plain(int *p) { for (int i = 0; i < p[0]; i++) p[i] += table[p[i]] + MORE; }
void use(void *, void *, void *);
void f() { use((void *)unnamed, (void *)hidden, (void *)plain); }
"""
Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path, llvm: Tool) -> Build:
    """Return a function that compiles the source in a folder."""

    def run(folder: str, *flags: str, value: str = "3", more: str = "0") -> Path:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        source = SOURCE.replace("VALUE", value).replace("MORE", more)
        return compiled(llvm("clang"), tmp_path / folder, "gfx90a", *flags, source=source)

    return run


def compared(before: Path, after: Path, **options: Any) -> Comparison:
    return compare_builds([(before, after)], **options)


def changes(found: Comparison) -> list[tuple[str, str]]:
    return [(row.change, row.name) for row in found.kernels]


@pytest.mark.llvm
@pytest.mark.parametrize("flags", [("-g",), ("-fgpu-rdc", "-g", "-S", "-emit-llvm")])
def test_other_folders(flags: tuple[str, ...], build: Build, llvm: Tool) -> None:
    """Builds in folders of different names are equal, though their files differ."""
    one, other = build("a", *flags), build("a/much/longer/folder", *flags)
    assert one.read_bytes() != other.read_bytes()
    if "-S" in flags:  # names of static kernels contain hashes of paths
        for path in (one, other):
            text = path.rename(path.with_suffix(".ll"))
            run_tool(llvm("llc"), "-mcpu=gfx90a", "-filetype=obj", str(text), "-o", str(path))
        assert b"hiddenPi.intern." in one.read_bytes()
    assert compared(one, other).is_equal


@pytest.mark.llvm
def test_stripped(build: Build, llvm: Tool) -> None:
    """Stripped and unstripped code are equal; in stripped code, too, other instructions count."""
    base, other = build("base"), build("other", more="5")
    stripped = {}
    for option in ("--strip-all", "--strip-sections"):
        for path in (base, other):
            stripped[option, path] = path.with_name(f"{option}.co")
            run_tool(llvm("llvm-objcopy"), option, str(path), str(stripped[option, path]))
    assert compared(base, stripped["--strip-all", base]).is_equal
    found = compared(base, stripped["--strip-all", other])
    assert [row.name for row in found.kernels] == ["_Z5plainPi"]
    pair = stripped["--strip-sections", base], stripped["--strip-sections", other]
    assert [row.change for row in compared(*pair).targets] == ["changed"]
    assert compared(pair[0], pair[0]).is_equal


@pytest.mark.llvm
def test_other_code(build: Build) -> None:
    """Other instructions are a change of the kernel; other data, a change of the target."""
    base = build("base")
    grown = compared(base, build("grown", more="p[i + 1] * p[i + 2] / 77"))
    (kernel,) = grown.kernels
    assert (kernel.change, kernel.name) == ("changed", "_Z5plainPi")
    assert kernel.grown > 0
    assert "code_size" in kernel.fields
    assert [row.change for row in grown.targets] == ["changed"]
    other = compared(base, build("other", more="5"))
    assert [row.name for row in other.kernels] == ["_Z5plainPi"]
    data = compared(base, build("data", value="4"))
    assert (data.kernels, data.targets[0].change, data.targets[0].grown) == ((), "changed", 0)
    assert compared(base, build("data", value="4"), tolerance=0.1).is_equal


def code(**kernels: int) -> bytes:
    rows = [KERNEL | {".name": name, ".vgpr_count": count} for name, count in kernels.items()]
    return code_object(metadata(rows))


def test_kernels(tmp_path: Path) -> None:
    """Kernels of targets in both builds are compared; those of new targets are not listed."""
    old = make_bundle(tmp_path / "1", {HOST: b"h", "gfx906": code(a=8, b=8), "gfx908": code(a=8)})
    new = make_bundle(tmp_path / "2", {HOST: b"i", "gfx906": code(a=9, c=8), "gfx90a": code(a=8)})
    found = compared(old, new)
    assert changes(found) == [("changed", "a"), ("removed", "b"), ("added", "c")]
    assert found.kernels[0].fields == ("vgprs",)
    assert {(row.target, row.change) for row in found.targets} == {
        ("gfx908", "removed"),
        ("gfx90a", "added"),
    }
    assert compared(old, old).is_equal


def test_tolerance(tmp_path: Path) -> None:
    """Numbers may differ by a share of the old value; from zero, any number is a change."""
    old = make_bundle(tmp_path / "1", {"gfx906": code(a=100, b=0)})
    new = make_bundle(tmp_path / "2", {"gfx906": code(a=105, b=0)})
    assert changes(compared(old, new, tolerance=4.9)) == [("changed", "a")]
    assert compared(old, new, tolerance=5).is_equal
    assert changes(compared(new, old, tolerance=4.7)) == [("changed", "a")]
    new = make_bundle(tmp_path / "3", {"gfx906": code(a=100, b=1)})
    assert changes(compared(old, new, tolerance=1000)) == [("changed", "b")]


def test_kernels_of_one_name(tmp_path: Path) -> None:
    """Equal static kernels of one name are no change, in whatever order they occur."""
    one = [KERNEL | {".name": f"k.intern.{n:016x}", ".vgpr_count": n} for n in (1, 2, 3)]
    two = [KERNEL | {".name": f"k.intern.{n * 77:016x}", ".vgpr_count": n} for n in (3, 5, 1, 9)]
    old = make_bundle(tmp_path / "1", {"gfx906": code_object(metadata(one))})
    new = make_bundle(tmp_path / "2", {"gfx906": code_object(metadata(two))})
    found = compared(old, new)
    assert [row.change for row in found.kernels] == ["changed", "added"]
    assert found.kernels[0].before is not None
    assert (found.kernels[0].before.vgprs, found.kernels[0].after.vgprs) == (2, 5)  # type: ignore[union-attr]


def test_wheel_with_folder(tmp_path: Path) -> None:
    """A wheel equals the folder that it was made from; libraries are matched by name."""
    folder = tmp_path / "folder"
    (folder / "lib").mkdir(parents=True)
    files = {"lib/a.so": code(a=1), "b.so": code(b=1)}
    made = {name: make_bundle(folder / name, {"gfx906": one}) for name, one in files.items()}
    wheel = zip_of(tmp_path / "w.whl", made)
    assert compared(wheel, folder).is_equal
    (folder / "b.so").rename(folder / "c.so")
    found = compared(wheel, folder)
    assert [(row.library, row.change) for row in found.targets] == [
        *(("b.so", "removed"), ("c.so", "added"))
    ]


def test_ptx(tmp_path: Path) -> None:
    """PTX is compared by statements: comments, files and lines do not count."""
    head, body = ".version 8.0\n.target sm_80\n.address_size 64\n", ".entry k() {\n\tret;\n}\n"

    def written(text: str) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.fatbin"
        rows = [NewCudaEntry("sm_80", text.encode())]
        path.write_bytes(b"".join(plan_cuda_fatbin(rows).chunks()))
        return path

    base = written(head + body)
    assert compared(base, base).is_equal
    same = '// other\n\t.file 1 "/a/b.cu"\n'
    assert compared(base, written(head + same + body)).is_equal
    longer = compared(base, written(head + body.replace("ret", "trap")))
    assert [(row.target, row.grown) for row in longer.targets] == [("compute_80", 1)]
    other = compared(base, written(head + ".func f() { ret; }\n" + body))
    assert other.targets[0].grown > 0


def test_nothing_to_compare(tmp_path: Path) -> None:
    """Unreadable parts and the lack of images are reported, once for one file."""
    path = zip_of(tmp_path / "wheel.whl", {"broken.a": b"!<arch>\nbroken"})
    problems: list[OffloadError] = []
    notes: list[str] = []
    for given, times in ((tmp_path, 2), (path, 1)):
        assert compared(given, given, skipped=problems.append, notes=notes.append).is_equal
        assert notes == [f"'{given}': there are no device images"] * times
        notes.clear()
    assert len(problems) == 3


def test_no_kernels_and_broken(tmp_path: Path) -> None:
    """Bitcode and broken images are compared by size, and reported."""
    images = {"gfx906": b"BC\xc0\xde" + bytes(60), "gfx908": code(a=1)[:-3]}
    old = make_bundle(tmp_path / "1", images)
    new = make_bundle(tmp_path / "2", images | {"gfx906": b"BC\xc0\xde" + bytes(64)})
    problems: list[OffloadError] = []
    notes: list[str] = []
    found = compared(old, new, skipped=problems.append, notes=notes.append)
    assert [(row.target, row.grown) for row in found.targets] == [("gfx906", 4)]
    assert len(problems) == len(notes) == 2


def test_equal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(
        "offload_tool.operations.diff.kernels_of", lambda *given, **_: read.append(given)
    )
    image = code(a=1)
    old = make_bundle(tmp_path / "1", {"gfx906": image})
    new = make_bundle(tmp_path / "2", {"gfx906": image})
    assert compared(old, new).is_equal
    assert compared(old, old).is_equal
    assert not read
    content = bytearray(new.read_bytes())
    content[-1] ^= 1
    new.write_bytes(content)
    compared(old, new)
    assert len(read) == 2

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("filecmp.cmp", refuse)
    compared(old, new)  # reading names the file that cannot be read
    assert len(read) == 4
