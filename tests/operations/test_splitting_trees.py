"""Split folders and wheels: the packager's outputs, the installed files, and their loading."""

from __future__ import annotations

import os
import shutil
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from offload_tool import PackagedImage, list_images, package_images
from offload_tool.cli import main
from offload_tool.errors import FormatError, NoContainerError, UnsupportedError, UsageError
from offload_tool.io.limits import Budget, Limits, limited
from offload_tool.operations.match import Device
from offload_tool.operations.split import split_file
from offload_tool.operations.thin import thin_file
from tests.conftest import Tool, run_tool
from tests.operations.split_programs import link, make_wheel, record_faults, registered
from tests.operations.test_cuda import fatbin

pytestmark = pytest.mark.llvm
NAME = "demo-1.2+rocm7-py3-none-linux_x86_64.whl"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory, llvm: Tool, hip_objects: Path) -> Path:
    folder = tmp_path_factory.mktemp("made") / "demo"
    for name, prefix in (("lib/deep/liba.so", "k"), ("libb.so", "z")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        link(hip_objects, llvm("clang"), path, "library-lld", prefix)
    (folder / "lib/deep/link.so").symlink_to("liba.so")
    (folder / "empty").mkdir()
    (folder / "data.txt").write_text("data")
    (folder / "data.txt").chmod(0o640)
    return folder


@pytest.fixture
def wheel(libraries: Path, tmp_path: Path) -> Path:
    files = {
        f"demo/{path.relative_to(libraries)}": path.read_bytes()
        for path in sorted(libraries.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    return make_wheel(tmp_path / NAME, {**files, "demo/__init__.py": b""})


def check_found(folder: Path, originals: Path) -> None:
    """Compare the code that the libraries' wrappers find with their original bundles."""
    for name in ("lib/deep/liba.so", "libb.so"):
        before = [image for image in list_images(originals / name) if image.kind != "host"]
        sizes = {(image.index, image.target_id): image.size for image in before}
        for row in registered(folder / name):
            for target_id in ("gfx942", "gfx1100", "gfx90a:xnack+"):
                code = row.code(target_id)
                assert sizes.get((row.index, target_id)) == (code and len(code))


def test_folder(libraries: Path, tmp_path: Path) -> None:
    """A split folder stays one tree that loads; links, empty folders, modes and times are kept."""
    report = split_file(libraries, tmp_path / "out")
    assert [part.target_id for part in report.parts] == [None, "gfx1100", "gfx90a:xnack+", "gfx942"]
    check_found(tmp_path / "out", libraries)
    assert (tmp_path / "out/lib/deep/link.so").readlink() == Path("liba.so")
    assert (tmp_path / "out/empty").is_dir()
    old, new = libraries / "data.txt", tmp_path / "out/data.txt"
    assert new.read_bytes() == old.read_bytes()
    assert (new.stat().st_mode, new.stat().st_mtime) == (old.stat().st_mode, old.stat().st_mtime)
    assert sorted(p.name for p in (tmp_path / "out/.kpack").iterdir()) == [
        *("demo_gfx1100.kpack", "demo_gfx90a:xnack+.kpack", "demo_gfx942.kpack")
    ]


def test_parts(libraries: Path, tmp_path: Path) -> None:
    """Parts are folders that make the same tree when laid over one another."""
    split_file(libraries, tmp_path / "whole")
    split_file(libraries, tmp_path / "parts", in_parts=True)
    names = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert names == ["demo_gfx1100", "demo_gfx90a_xnack+", "demo_gfx942", "demo_host"]
    for name in names:
        shutil.copytree(
            tmp_path / "parts" / name, tmp_path / "laid", symlinks=True, dirs_exist_ok=True
        )
    run_tool("diff", "-r", tmp_path / "whole", tmp_path / "laid")


def test_unpacked_wheel(wheel: Path, tmp_path: Path) -> None:
    """RECORD files in a folder list changed and new files."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    split_file(tmp_path / "site", tmp_path / "out")
    packed = tmp_path / "again.whl"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted((tmp_path / "out").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(tmp_path / "out"))
    assert record_faults(packed) == []
    (tmp_path / "site/other-1.dist-info").mkdir()
    (tmp_path / "site/other-1.dist-info/RECORD").write_text("other-1.dist-info/RECORD,,\n")
    split_file(tmp_path / "site", tmp_path / "two")  # the archives' package is unknown
    assert not any(".kpack" in path.read_text() for path in (tmp_path / "two").glob("*/RECORD"))


def test_link_out_of_the_folder(libraries: Path, tmp_path: Path) -> None:
    shutil.copytree(libraries, tmp_path / "in", symlinks=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "in/.kpack").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="is a link: nothing is written through one"):
        split_file(tmp_path / "in", tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "out").exists()


def test_pipe_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in/pipe")
    with pytest.raises(UnsupportedError, match=r"in/pipe': expected files, folders and links"):
        split_file(tmp_path / "in", tmp_path / "out")


def test_wheel(wheel: Path, tmp_path: Path) -> None:
    """A wheel becomes one for the host and one for each processor, with correct RECORD files.

    The same wheel gives the same bytes.
    """
    report = split_file(wheel, tmp_path / "out")
    split_file(wheel, tmp_path / "again")
    run_tool("diff", "-r", tmp_path / "out", tmp_path / "again")
    names = [part.path.name for part in report.parts]
    device = [f"demo_device_{n}-{NAME.split('-', 1)[1]}" for n in ("gfx1100", "gfx90a", "gfx942")]
    assert names == [NAME, *device]
    for name in names:
        assert record_faults(tmp_path / "out" / name) == []
    with zipfile.ZipFile(tmp_path / "out" / NAME) as host, zipfile.ZipFile(wheel) as old:
        assert host.namelist() == old.namelist()
        for row in host.infolist():
            before = old.getinfo(row.filename)
            assert (row.date_time, row.external_attr) == (before.date_time, before.external_attr)
        text = host.read("demo-1.2+rocm7.dist-info/METADATA").decode()
    extras = [line for line in text.splitlines() if line.startswith(("Provides", "Requires"))]
    need = 'Requires-Dist: demo-device-{0} == 1.2+rocm7; extra == "device-{1}"'
    assert extras == [
        *("Provides-Extra: device-gfx1100", need.format("gfx1100", "gfx1100")),
        *("Provides-Extra: device-gfx90a", need.format("gfx90a", "gfx90a")),
        *("Provides-Extra: device-gfx942", need.format("gfx942", "gfx942")),
        "Provides-Extra: device-all",
        *(need.format(name, "all") for name in ("gfx1100", "gfx90a", "gfx942")),
    ]
    assert text.endswith("\n\nText\n")


def test_pip_installs(wheel: Path, libraries: Path, tmp_path: Path) -> None:
    split_file(wheel, tmp_path / "out")
    venv.create(tmp_path / "v", with_pip=True)
    pip = [tmp_path / "v/bin/python", "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-index", "--find-links", tmp_path / "out"]
    run_tool(*pip, "install", "-q", *options, "demo[device-gfx942]")
    run_tool(*pip, "check")
    (package,) = (tmp_path / "v/lib").glob("python*/site-packages/demo")
    assert [path.name for path in (package / ".kpack").iterdir()] == ["demo_gfx942.kpack"]
    for name in ("lib/deep/liba.so", "libb.so"):
        codes = [row.code("gfx942") is not None for row in registered(package / name)]
        assert codes == [True, True, False]
    run_tool(*pip, "install", "-q", *options, "demo[device-all]")
    check_found(package, libraries)


def test_options(wheel: Path, tmp_path: Path) -> None:
    """Options of the command set names, the archives' folder, and requirements."""
    options = ["--group=g", "--compression=none", "--device-prefix=amd-demo"]
    options += ["--overlay-root=demo/lib", "--device-requires=rocm-device-@GFXARCH@ == 7"]
    assert main(["split", str(wheel), "-o", str(tmp_path / "out"), *options]) == 0
    path = tmp_path / "out" / f"amd_demo_gfx942-{NAME.split('-', 1)[1]}"
    with zipfile.ZipFile(path) as made:
        assert made.namelist()[0] == "demo/lib/.kpack/g_gfx942.kpack"
        text = made.read("amd_demo_gfx942-1.2+rocm7.dist-info/METADATA").decode()
    assert "Requires-Dist: demo == 1.2+rocm7\nRequires-Dist: rocm-device-gfx942 == 7\n" in text
    for name in (NAME, path.name):
        with zipfile.ZipFile(tmp_path / "out" / name) as made:
            made.extractall(tmp_path / "site")
    for name in ("lib/deep/liba.so", "libb.so"):
        assert registered(tmp_path / "site/demo" / name)[0].code("gfx942")


def test_other_writers(wheel: Path, tmp_path: Path, libraries: Path) -> None:
    """Wheels with stored members, data descriptors, extra fields and comments are copied intact."""
    path = tmp_path / "odd" / NAME
    path.parent.mkdir()
    with (
        zipfile.ZipFile(wheel) as old,
        path.open("wb") as raw,
        zipfile.ZipFile(_Stream(raw), "w") as new,  # type: ignore[call-overload]
    ):
        for row in old.infolist():
            data = old.read(row)
            if row.filename.endswith("METADATA"):
                row.comment = b"a comment"
            row.extra = b"UT\x05\x00\x01" + bytes(4)
            if row.filename.endswith(".txt"):
                row.compress_type = zipfile.ZIP_STORED
            new.writestr(row, data)
    split_file(path, tmp_path / "out")
    assert record_faults(tmp_path / "out" / NAME) == []
    with zipfile.ZipFile(tmp_path / "out" / NAME) as made:
        assert made.getinfo("demo-1.2+rocm7.dist-info/METADATA").comment == b"a comment"
        made.extractall(tmp_path / "site")
    tested = run_tool(sys.executable, "-m", "zipfile", "-t", tmp_path / "out" / NAME)
    assert "Done testing" in tested


class _Stream:
    """A file that cannot seek, so that zipfile writes sizes after each member."""

    def __init__(self, raw: object) -> None:
        self.write = raw.write  # type: ignore[attr-defined]
        self.flush = raw.flush  # type: ignore[attr-defined]


def test_refused_wheels(wheel: Path, libraries: Path, tmp_path: Path) -> None:
    library = (libraries / "libb.so").read_bytes()
    info = "demo-1.2+rocm7.dist-info"
    path = tmp_path / "in" / NAME
    path.parent.mkdir()
    cases = (
        ({"demo/a.so": library, f"{info}/RECORD.jws": b"x"}, UnsupportedError, "is a signature"),
        ({"demo/a.so": library, "more/b": b""}, UsageError, "found demo, more; give the overlay"),
        ({"demo/../a.so": library}, FormatError, "its name leads out of the wheel"),
        ({"/demo/a.so": library}, FormatError, "its name leads out of the wheel"),
        (
            {"demo/x": b"", f"{info[:-10]}.data/scripts/a.so": library},
            UnsupportedError,
            "installed outside of the folder of packages",
        ),
        ({"demo/x": b""}, NoContainerError, "expected device code"),
    )
    for files, kind, message in cases:
        make_wheel(path, files)
        with pytest.raises(kind, match=message):
            split_file(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    make_wheel(path, {"demo/a.so": library, f"{info}/RECORD.p7s": b""})
    with pytest.raises(UnsupportedError, match="is a signature"):
        thin_file(path, path, keep=[Device.parse("gfx942")])
    path.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(FormatError):
        split_file(path, tmp_path / "out")
    shutil.copy(wheel, tmp_path / "in/demo.whl")
    with pytest.raises(FormatError, match="expected a wheel's name"):
        split_file(tmp_path / "in/demo.whl", tmp_path / "out")


@pytest.mark.parametrize("form", ["wheel", "folder", "parts"])
def test_cuda(tmp_path: Path, form: str) -> None:
    """CUDA code is thinned once for each target ID, and nothing else is written."""
    files = {"demo/lib/a.fatbin": fatbin("sm_80", "sm_90"), "demo/b": b"b"}
    wheel = make_wheel(tmp_path / NAME, files)
    with zipfile.ZipFile(wheel) as made:
        made.extractall(tmp_path, files)
    source = wheel if form == "wheel" else tmp_path / "demo"
    report = split_file(source, tmp_path / "out", in_parts=form == "parts")
    assert [(part.target_id, part.images) for part in report.parts] == [("sm_80", 1), ("sm_90", 1)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["sm_80", "sm_90"]
    for target in ("sm_80", "sm_90"):
        path = tmp_path / "out" / target / source.name
        assert {image.target_id for image in list_images(path)} == {target}
        assert record_faults(path) == [] if form == "wheel" else (path / "b").read_bytes() == b"b"


def test_many_targets(tmp_path: Path) -> None:
    """A file of any number of target IDs is within a run's limits, though each part reads it."""
    names = [f"sm_{number}" for number in (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)]
    (tmp_path / "a").write_bytes(fatbin(*names, size=100_000))
    with limited(Budget(Limits(reread=0))):
        report = split_file(tmp_path / "a", tmp_path / "out")
    assert [part.target_id for part in report.parts] == sorted(names)


def test_images_without_a_target_id(tmp_path: Path) -> None:
    """The part for a CPU's images has their entry ID as its name."""
    (tmp_path / "image").write_bytes(b"1")
    cpu = {"triple": "x86_64-pc-linux-gnu", "arch": ""}
    gpu = {"triple": "nvptx64-nvidia-cuda", "arch": "sm_90"}
    rows = [PackagedImage(tmp_path / "image", strings, "openmp") for strings in (cpu, gpu)]
    package_images(rows, tmp_path / "in")
    report = split_file(tmp_path / "in", tmp_path / "out")
    names = ["openmp-x86_64-pc-linux-gnu-", "sm_90"]
    assert [(part.target_id, part.images) for part in report.parts] == [(n, 1) for n in names]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_thin_wheel(wheel: Path, tmp_path: Path) -> None:
    report = thin_file(wheel, tmp_path / "out.whl", keep=[Device.parse("gfx942")])
    assert (report.kept, report.removed) == (4, 6)
    assert record_faults(tmp_path / "out.whl") == []
    assert {i.target_id for i in list_images(tmp_path / "out.whl")} == {"", "gfx942"}
    with zipfile.ZipFile(tmp_path / "out.whl") as made:
        made.extractall(tmp_path / "site")
    assert len(registered(tmp_path / "site/demo/libb.so")) == 3
    thin_file(wheel, wheel, keep=[Device.parse("gfx942")])
    assert wheel.read_bytes() == (tmp_path / "out.whl").read_bytes()


def test_thin_folder(libraries: Path, tmp_path: Path) -> None:
    """A folder is thinned into a new one, or in place, where no other file changes."""
    thin_file(libraries, tmp_path / "out", keep=[Device.parse("gfx1100")])
    shutil.copytree(libraries, tmp_path / "in", symlinks=True)
    before = (tmp_path / "in/data.txt").stat().st_ino
    thin_file(tmp_path / "in", tmp_path / "in", keep=[Device.parse("gfx1100")])
    assert (tmp_path / "in/data.txt").stat().st_ino == before
    run_tool("diff", "-r", tmp_path / "in", tmp_path / "out")
    assert {i.target_id for i in list_images(tmp_path / "in/libb.so")} == {"", "gfx1100"}
    assert len(registered(tmp_path / "in/libb.so")) == 3
    assert (tmp_path / "out/lib/deep/link.so").readlink() == Path("liba.so")
