"""The sums of a report: in every grouping, they add up to the content of the files."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offload_tool import Compression, DeviceImage, list_images
from offload_tool.cli import main
from offload_tool.operations.size_report import (
    Intermediates,
    SizeRow,
    fold_smallest,
    images_under,
    summarise,
)
from offload_tool.util.frozen import replaced
from tests.conftest import Tool, run_tool
from tests.operations.fatbins import make_bundle

IMAGES = {
    "host-x86_64-unknown-linux-gnu-": bytes(1000),
    "hipv4-amdgcn-amd-amdhsa--gfx90a": bytes(5000),
    "hipv4-amdgcn-amd-amdhsa--gfx1100": bytes(3000),
    "openmp-amdgcn-amd-amdhsa--gfx90a": bytes(400),
    "openmp-x86_64-pc-linux-gnu-": bytes(50),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle") / "b", IMAGES)


def test_per_target(bundle: Path) -> None:
    """Images are summed per target ID; those without one count under their triple, hosts apart."""
    report = summarise(list_images(bundle))
    assert [(row.target, row.kinds, row.images, row.size) for row in report.targets] == [
        ("gfx90a", ("hipv4", "openmp"), 2, 5400),
        ("gfx1100", ("hipv4",), 1, 3000),
        ("x86_64-pc-linux-gnu", ("openmp",), 1, 50),
    ]
    assert (report.images, report.size, report.host) == (4, 8450, 1000)
    for rows in (report.targets, report.files, report.containers, report.cells):
        assert sum(row.size for row in rows) == 8450
    assert report.stored == bundle.stat().st_size
    assert report.overhead == bundle.stat().st_size - 8450 - 1000
    assert [row.stored for row in report.files] == [bundle.stat().st_size]


def test_compressed(tmp_path: Path) -> None:
    """Compressed images count with their share of the stored container, not unpacked."""
    path = make_bundle(tmp_path / "c", IMAGES, compression=Compression())
    report = summarise(list_images(path))
    assert report.size == 8450
    assert report.stored == path.stat().st_size < 1000
    assert sum(row.stored for row in report.targets) + report.host <= report.stored


def test_two_ways_to_a_file(bundle: Path, tmp_path: Path) -> None:
    """A file reached by two paths counts once, a similar one with other bytes separately."""
    link = tmp_path / "link"
    link.symlink_to(bundle)
    twin = make_bundle(tmp_path / "twin", IMAGES)
    found = images_under([bundle, link, bundle.parent / "." / "b", twin])
    images = [image for image, _, _ in found]
    assert Counter(image.file for image in images) == {str(bundle): 5, str(twin): 5}


Row = tuple[str, str | None, int, str, str, int]

_IMAGES = st.lists(
    st.tuples(
        st.sampled_from("ab"),  # file
        st.sampled_from([None, "m", "n"]),  # member
        st.integers(0, 2),  # container
        st.sampled_from(["", "gfx90a", "gfx90a:xnack+", "gfx1100"]),
        st.sampled_from(["host", "hip", "openmp"]),
        st.integers(0, 5),  # size: small, so that equal sizes are frequent
    ),
    max_size=20,
)


FIELDS = ("file", "member", "index", "target_id", "kind", "size")


def made(bundle: Path, rows: list[Row]) -> list[DeviceImage]:
    pattern = replaced(list_images(bundle)[1], container_size=100)
    return [
        replaced(pattern, stored_size=row[-1], **dict(zip(FIELDS, row, strict=True)))
        for row in rows
    ]


@given(_IMAGES)
@example([])
def test_tables_agree(bundle: Path, rows: list[Row]) -> None:
    """Every table has the same totals of images and bytes; that of members, their part."""
    images = made(bundle, rows)
    report = summarise(images)
    device = [image for image in images if image.kind != "host"]
    expected = (len(device), sum(image.size for image in device))
    assert (report.images, report.size) == expected
    for table in (report.targets, report.files, report.containers, report.cells):
        assert (sum(row.images for row in table), sum(row.size for row in table)) == expected
    assert sum(row.size for row in report.members) == sum(
        image.size for image in device if image.member is not None
    )
    containers = {(image.file, image.member, image.index) for image in images}
    assert report.stored == sum(row.stored for row in report.files) == 100 * len(containers)
    assert report.stored == report.size + report.host + report.overhead


@given(_IMAGES, st.randoms(use_true_random=False))
def test_largest_first(bundle: Path, rows: list[Row], random: Random) -> None:
    """Rows are sorted by size, then by names, in whatever order the files come."""
    images = made(bundle, rows)
    report = summarise(images)
    targets = [(-row.size, row.target) for row in report.targets]
    assert targets == sorted(targets)
    files = [(-row.size, row.file) for row in report.files]
    assert files == sorted(files)
    cells = [
        (-row.size, row.file, row.member is not None, row.member or "", row.target)
        for row in report.cells
    ]
    assert cells == sorted(cells)
    random.shuffle(images)
    assert summarise(images) == report


@given(_IMAGES, st.integers(0, 8))
def test_fold(bundle: Path, rows: list[Row], limit: int) -> None:
    """Folding keeps the largest cells, and the sums per target ID."""
    cells = summarise(made(bundle, rows)).cells
    folded = fold_smallest(cells, limit)
    assert folded[:limit] == list(cells[:limit])
    assert all(cell.file == "" for cell in folded[limit:])
    assert len(folded) <= limit + 4

    def sums(cells: tuple[SizeRow, ...] | list[SizeRow]) -> dict[str, list[int]]:
        totals: dict[str, list[int]] = {}
        for cell in cells:
            sofar = totals.get(cell.target, [0, 0, 0])
            numbers = (cell.images, cell.size, cell.stored)
            totals[cell.target] = [a + b for a, b in zip(sofar, numbers, strict=True)]
        return totals

    assert sums(folded) == sums(cells)


TARGETS = ("gfx90a", "gfx1100")
SOURCE = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void k(int* p) { *p = 1; }
"""


def intermediates(folder: Path) -> list[str]:
    found = Intermediates()
    for image in images_under([folder]):
        found.add(*image)
    return sorted(Path(name).name for name in found.files())


@pytest.fixture
def build(tmp_path: Path, llvm: Tool) -> Path:
    """Return a folder of code objects, bundle, object and library of one source."""
    (tmp_path / "k.hip").write_text(SOURCE)
    clang = [llvm("clang++"), "-O2", "-fPIC"]
    hip = ["-x", "hip", "k.hip", "-nogpuinc", "-nogpulib", "-cuid=1"]
    device = [*hip, "--cuda-device-only", "--no-gpu-bundle-output"]
    folder = tmp_path / "build"
    folder.mkdir()
    every = [f"--offload-arch={target}" for target in TARGETS]
    commands = [
        *([*device, arch, "-o", f"build/k.{arch.partition('=')[2]}.co"] for arch in every),
        [*hip, "--cuda-device-only", *every, "-o", "build/k.hipfb"],
        [*hip, *every, "-c", "-o", "build/k.o"],
        ["-shared", "build/k.o", "-o", "build/libk.so"],
    ]
    for command in commands:
        run_tool(*clang, *command, cwd=tmp_path)
    return folder


def test_each_step_is_a_part_of_the_next(build: Path) -> None:
    """Code objects are intermediates of the bundle, it of the object, and that of the library."""
    co = sorted(path.name for path in build.glob("*.co"))
    assert len(co) == len(TARGETS)
    assert intermediates(build) == [*co, "k.hipfb", "k.o"]
    (build / "libk.so").unlink()
    assert intermediates(build) == [*co, "k.hipfb"]
    (build / "k.o").unlink()
    assert intermediates(build) == co


def test_other_code_counts(build: Path) -> None:
    """A code object that no other file contains counts; so do a wheel and the library in it."""
    (build / "other.co").write_bytes((build / "k.gfx90a.co").read_bytes() + b"\0")
    with zipfile.ZipFile(build / "k.whl", "w") as wheel:
        wheel.write(build / "libk.so", "libk.so")
    before = intermediates(build)
    assert "other.co" not in before
    assert "libk.so" not in before
    (build / "libk.so").unlink()
    assert "k.o" not in intermediates(build)


def test_report(build: Path, tmp_path: Path) -> None:
    """The page counts the library's images, lists omitted files, and counts files given by name."""
    page = tmp_path / "page.html"
    assert main(["report", str(build), "-o", str(page)]) == 0
    assert '"Device images":2' in page.read_text()
    assert page.read_text().count(f"{build}/k.") == 4
    assert main(["report", str(build / "k.hipfb"), str(build / "libk.so"), "-o", str(page)]) == 0
    assert '"Device images":4' in page.read_text()
