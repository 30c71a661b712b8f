"""One bad file does not stop a scan, and cannot lead it elsewhere."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.cli import main
from offload_tool.errors import FormatError
from offload_tool.formats.kpack.marker import KpackMarker
from offload_tool.io.limits import Budget, Limits, limited
from offload_tool.operations.join import join_file
from tests.conftest import Capture
from tests.formats.kpack_archives import write_archive
from tests.formats.marked_programs import marked_program
from tests.formats.object_files import make_code_object, make_coff, make_elf, make_image
from tests.fuzz.seeds import GFX906, archive, bundle, make_seeds, zipped
from tests.operations.archives import thin_archive
from tests.operations.fatbins import HOST, make_bundle
from tests.operations.test_cuda import fatbin

BUNDLE = bundle({GFX906: b"image"})


def listed(capsys: Capture, *args: str) -> tuple[list[str], list[str]]:
    """Run ``list --json``, which must return 1; return target IDs and error lines."""
    assert main(["list", "--json", *args]) == 1
    captured = capsys.readouterr()
    return [row["target_id"] for row in json.loads(captured.out)], captured.err.splitlines()


def test_a_zip_member_with_an_empty_name(tmp_path: Path, capsys: Capture) -> None:
    """A member without a name is read like others, and does not hide an archive from a program."""
    program = marked_program((KpackMarker("a#0", ("@GFXARCH@.kpack",)), 0), relocated=True)
    write_archive(tmp_path / "k", [("a#0#0", "gfx906", b"image")], scheme="none")
    archive = (tmp_path / "k").read_bytes()
    (tmp_path / "k").unlink()
    members = {"": BUNDLE, "b": BUNDLE, "program": program, "gfx906.kpack": archive}
    (tmp_path / "x.zip").write_bytes(zipped(members))
    assert main(["list", "--json", str(tmp_path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["member"] for row in rows] == ["", "b", "gfx906.kpack(a#0#0)"]
    assert main(["check", str(tmp_path / "x.zip"), "--targets", "gfx906"]) == 0


def test_whatever_happens_in_a_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error in one file of a folder affects only that file; the status is 1."""
    for name in "abc":
        (tmp_path / name).write_bytes(BUNDLE)
    errors = iter([IndexError("odd"), MemoryError()])
    real = Path

    def read(*args: object, **options: object) -> object:
        for error in errors:
            raise error
        return read_bundle(*args, **options)  # type: ignore[arg-type]

    from offload_tool.formats.bundle.binary import read_bundle

    monkeypatch.setattr("offload_tool.containers.entries.read_bundle", read)
    ids, lines = listed(capsys, str(tmp_path))
    assert ids == ["gfx906"]
    assert f"'{real(tmp_path, 'a')}'" in lines[0]
    assert "IndexError: odd" in lines[0]
    assert "needs more memory than there is" in lines[1]


def test_a_broken_member_of_an_archive(tmp_path: Path, capsys: Capture) -> None:
    data = archive({b"a": BUNDLE, b"b": BUNDLE[:-1], b"c": BUNDLE})
    (tmp_path / "x.a").write_bytes(data)
    ids, lines = listed(capsys, str(tmp_path / "x.a"))
    assert ids == ["gfx906", "gfx906"]
    assert len(lines) == 1
    assert "x.a(b)" in lines[0]
    assert main(["extract", str(tmp_path / "x.a"), "-o", str(tmp_path / "out")]) == 1
    assert sorted(path.name[:5] for path in (tmp_path / "out").iterdir()) == ["x.a_a", "x.a_c"]


def test_links_that_lead_elsewhere(tmp_path: Path, capsys: Capture) -> None:
    """A link to device code out of the folder is an error; `list` notes linked folders, too."""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    for made in (folder / "sub", elsewhere):
        made.mkdir(parents=True)
        (made / "b").write_bytes(BUNDLE)
    (tmp_path / "text").write_bytes(make_elf())
    within = {"file": "sub/b", "in": "sub", "loop": ".", "none": "gone", "null": "/dev/null"}
    within["text"] = "../text"
    outside = {"out": "../elsewhere", "sub/c": "../../elsewhere/b"}
    for name, target in (within | outside).items():
        (folder / name).symlink_to(target)
    for status, *args in ((1, "check"), (1, "diff", str(elsewhere)), (0, "list")):
        assert main([*map(str, args), str(folder)]) == status
        lines = capsys.readouterr().err.splitlines()
        named = [line.split("'")[1] for line in lines if "this link leads to" in line]
        expected = ["sub/c"] if status else [*outside]
        assert named == [str(folder / name) for name in expected]
    assert len(list_images(folder)) == 1


@pytest.mark.parametrize("name", ["fifo", "/dev/zero", "socket", "."])
def test_a_thin_archive_of_what_is_no_file(tmp_path: Path, capsys: Capture, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
        thin_archive(tmp_path / "x.a", [name])
        (tmp_path / "y").write_bytes(BUNDLE)
        ids, lines = listed(capsys, str(tmp_path))
    assert ids == ["gfx906"]
    assert "is not a regular file" in lines[0]


@pytest.mark.parametrize(("name", "what"), [("fifo", "is a FIFO"), ("link", "is a device")])
@pytest.mark.parametrize(
    "args",
    [
        ("list",),
        ("bundler", "-type=o", "-list", "-input"),
        ("packager",),
        ("wrapper", "--kind=openmp", "-o", "out"),
        ("archive", "-o", "out"),
        ("merge", "-o", "out", "b"),
        ("compile", "-o", "out", "--target-id", "gfx906", "--kind", "hip"),
    ],
    ids=lambda args: args[0],
)
def test_an_input_that_is_no_file(
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    what: str,
    args: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "b").write_bytes(BUNDLE)
    assert main([*args, name]) == 1
    assert f"{what}; expected a regular file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_thin_archive_of_files_elsewhere(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members outside of the archive's folder are rejected, unless the user allows them."""
    (tmp_path / "secret").write_bytes(BUNDLE)
    folder = tmp_path / "folder"
    (folder / "in").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    for number, name in enumerate(("../secret", str(tmp_path / "secret"), "link")):
        thin_archive(folder / f"{number}.a", [name])
    # A nested archive may name files in the outer archive's folder.
    (folder / "own").write_bytes(BUNDLE)
    thin_archive(folder / "in" / "inner.a", ["../own"])
    thin_archive(folder / "outer.a", ["in/inner.a"])
    assert main(["extract", str(folder), "-o", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len([line for line in lines if "names a file outside of" in line]) == 4
    assert not [path for path in (tmp_path / "out").iterdir() if "secret" in path.name]
    monkeypatch.setenv("OFFLOAD_THIN_OUTSIDE", "1")
    assert main(["list", str(folder / "0.a")]) == 0


@pytest.mark.parametrize("name", ["absolute", "above", "link", "pattern"])
def test_a_kpack_marker_of_files_elsewhere(
    name: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive outside of its program's folder is rejected, unless the user allows it."""
    private = tmp_path / "private"
    private.mkdir()
    kpack = private / "demo_gfx906.kpack"
    write_archive(kpack, [("k#0", "gfx906", b"secret")], scheme="none")
    folder = tmp_path / "tree/bin"
    (folder / ".kpack").mkdir(parents=True)
    path, link = {
        "absolute": (str(kpack), None),
        "above": ("../../private/demo_gfx906.kpack", None),
        "pattern": ("../../private/demo_@GFXARCH@.kpack", None),
        "link": (".kpack/demo_@GFXARCH@.kpack", folder / ".kpack" / kpack.name),
    }[name]
    if link is not None:
        link.symlink_to(kpack)
    program = folder / "program"
    program.write_bytes(marked_program((KpackMarker("k", (path,)), 0), relocated=True))
    out = tmp_path / "out"
    for args in (["list"], ["extract", "-o", str(out)], ["check"]):
        assert main([*args, str(program)]) == 1
        assert "allow it with OFFLOAD_KPACK_OUTSIDE=1" in capsys.readouterr().err
    with pytest.raises(FormatError, match=r"names the kpack archive '/.*', which is neither"):
        list_images(program)
    with pytest.raises(FormatError, match=r"names the kpack archive '/.*', which is neither"):
        join_file(program, [], out)
    assert not out.exists()
    monkeypatch.setenv("OFFLOAD_KPACK_OUTSIDE", "1")
    assert main(["extract", "-o", str(out), str(program)]) == 0
    assert [file.read_bytes() for file in out.iterdir()] == [b"secret"]
    with limited(Budget(Limits(kpack_outside=True))):
        assert len(list_images(program)) == 1


@pytest.mark.parametrize(
    "path", [".kpack/x.kpack", "x.kpack", "in/x.kpack", "../../.kpack/x.kpack"]
)
def test_kpack_archives_beside(path: str, tmp_path: Path) -> None:
    """Archives in the program's folder and in folders called ``.kpack`` are found."""
    program = tmp_path / "tree/lib/program"
    archive = program.parent / path
    program.parent.mkdir(parents=True)
    archive.parent.mkdir(exist_ok=True)
    write_archive(archive, [("k#0", "gfx906", b"image")], scheme="none")
    program.write_bytes(marked_program((KpackMarker("k", (path,)), 0), relocated=True))
    assert len(list_images(program)) == 1


def test_depth(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nesting of files is limited, and the limit can be changed."""
    data = BUNDLE
    for _ in range(9):
        data = archive({b"m": data})
    (tmp_path / "x").write_bytes(data)
    assert main(["list", str(tmp_path / "x")]) == 1
    assert "allow more with OFFLOAD_MAX_DEPTH" in capsys.readouterr().err
    monkeypatch.setenv("OFFLOAD_MAX_DEPTH", "9")
    assert main(["list", str(tmp_path / "x")]) == 0


def test_members(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(archive({b"%d" % n: b"x" for n in range(10)}))
    monkeypatch.setenv("OFFLOAD_MAX_MEMBERS", "15")
    assert main(["list", str(tmp_path)]) == 1
    assert "expected at most 15 members" in capsys.readouterr().err


def test_a_code_object_is_an_image(tmp_path: Path, capsys: Capture) -> None:
    """A bare code object is listed, matched and extracted: as a file, in folders and wheels."""
    seeds = make_seeds()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "k.co").write_bytes(seeds["code object"])
    (tmp_path / "in" / "k.cubin").write_bytes(seeds["cubin"])
    files = {"a/Kernels.co": seeds["code object"], "lib.a": archive({b"m": seeds["code object"]})}
    (tmp_path / "in" / "x.whl").write_bytes(zipped(files))
    assert main(["list", "--json", str(tmp_path / "in")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["container"], row["target_id"], row["kind"]) for row in rows] == [
        ("code-object", "gfx90a", "hipv4"),
        ("code-object", "sm_90a", "cuda"),
        ("code-object", "gfx90a", "hipv4"),
        ("code-object", "gfx90a", "hipv4"),
    ]
    assert main(["match", str(tmp_path / "in" / "k.co"), "gfx90a:xnack+"]) == 0
    assert main(["extract", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    written = sorted((tmp_path / "out").iterdir())
    assert [path.suffix for path in written] == [".co", ".cubin", ".co", ".co"]
    assert main(["list", str(written[0])]) == 0


def test_a_code_object_of_an_unknown_processor(tmp_path: Path, capsys: Capture) -> None:
    data = bytearray(make_seeds()["code object"])
    data[48] = 0xFE
    (tmp_path / "k.co").write_bytes(data)
    ids, lines = listed(capsys, str(tmp_path))
    assert ids == []
    assert "found 0xfe" in lines[0]


def test_windows_libraries(tmp_path: Path, capsys: Capture) -> None:
    """The sections of a linked DLL, whose names are truncated to 8 bytes, are searched."""
    files = {
        "hip.dll": make_image({b".hip_fat": BUNDLE}),
        "cuda.dll": make_image({b".nv_fatb": make_seeds()["cuda fat binary"]}),
        "omp.dll": make_image({b".llvm.of": make_seeds()["offload binary"]}),
    }
    (tmp_path / "x.whl").write_bytes(zipped(files))
    assert main(["list", "--json", str(tmp_path / "x.whl")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["member"], row["target_id"]) for row in rows] == [
        ("hip.dll", "gfx906"),
        ("cuda.dll", "compute_70"),
        ("cuda.dll", "sm_90"),
        ("omp.dll", "gfx90a"),
        ("omp.dll", "gfx906"),
    ]


def test_what_is_outside_of_known_sections(tmp_path: Path, capsys: Capture) -> None:
    """A container outside of known sections leads to a note; with --scan it is listed."""
    (tmp_path / "x.so").write_bytes(
        make_elf(extra={b".data": b"abc" + BUNDLE, b".hip_fatbin": BUNDLE})
    )
    assert main(["list", "--json", str(tmp_path / "x.so")]) == 0
    captured = capsys.readouterr()
    (known,) = json.loads(captured.out)
    assert "looks like a bundle is at offset" in captured.err
    assert "outside of every known section" in captured.err
    assert main(["list", "--json", "--scan", str(tmp_path / "x.so")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2
    assert rows[0] == known
    # The note is printed even if the file has no other containers, which is an error.
    bare = tmp_path / "bare.dll"
    bare.write_bytes(make_coff({b".rdata": b"abc" + BUNDLE}))
    assert main(["list", str(bare)]) == 1
    output = capsys.readouterr().err.splitlines()
    assert len(output) == 2
    assert "outside of every known section" in output[0]
    assert main(["list", "--scan", str(bare)]) == 0
    assert (tmp_path / "x.so").read_bytes()[rows[1]["offset"] :][:5] == b"image"


@pytest.mark.parametrize(
    "command",
    [
        *("list", "match gfx906", "check", "extract -o out", "diff other"),
        *("thin --keep gfx906 -o out", "split -o out"),
    ],
)
def test_programs_without_section_headers(command: str, tmp_path: Path, capsys: Capture) -> None:
    """Device code that no section leads to is refused, not passed over; --scan lists it."""
    path = tmp_path / "in" / "x.so"
    path.parent.mkdir()
    data = bytearray(make_elf(extra={b".hip_fatbin": BUNDLE}))
    data[16:18], data[40:48], data[58:64] = b"\3\0", bytes(8), bytes(6)  # ET_DYN, without a table
    path.write_bytes(data)
    (tmp_path / "other").write_bytes(BUNDLE)
    name, *options = command.split()
    options = [str(tmp_path / word) if word in ("out", "other") else word for word in options]
    for given in (path, path.parent):
        assert main([name, str(given), *options]) == 1
        expected = f"'{path}', offset {data.index(BUNDLE):#x}: holds what looks like a bundle, but"
        assert expected in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*"))
    assert main(["list", "--scan", str(path)]) == 0


def test_images_of_found_containers_are_no_strays(tmp_path: Path, capsys: Capture) -> None:
    """A cubin in a fat binary that was found in a data section is listed once, without a note."""
    data = b"abc" + fatbin("sm_80", "sm_90") + BUNDLE
    (tmp_path / "x.so").write_bytes(make_elf(extra={b".rodata": data}))
    assert main(["list", "--json", str(tmp_path / "x.so")]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 2
    assert captured.err.count("outside of every known section") == 1
    assert "looks like a bundle is at offset" in captured.err
    assert main(["list", "--json", "--scan", str(tmp_path / "x.so")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["container"] for row in rows] == ["cuda-fatbin", "cuda-fatbin", "bundle"]


def test_images_of_object_bundles_are_no_strays(tmp_path: Path, capsys: Capture) -> None:
    """The code object or fat binary in a section of an object bundle is listed once."""
    images = {HOST: make_elf(), "gfx906": make_code_object("gfx906"), "sm_80": fatbin("sm_80")}
    path = make_bundle(tmp_path / "b.o", images, file_type="o")
    for args in ([], ["--scan"]):
        assert main(["list", "--json", *args, str(path)]) == 0
        captured = capsys.readouterr()
        assert [row["target_id"] for row in json.loads(captured.out)] == ["", "gfx906", "sm_80"]
        assert captured.err == ""


def test_a_magic_alone_is_nothing(tmp_path: Path, capsys: Capture) -> None:
    magics = b"__CLANG_OFFLOAD_BUNDLE__\0CCOB\0\x10\xff\x10\xad\0\x50\xed\x55\xba\0\x7fELF\x02\x01"
    data = make_elf(extra={b".rodata": magics + bytes(64), b".hip_fatbin": BUNDLE})
    (tmp_path / "x").write_bytes(data)
    assert main(["list", "--json", str(tmp_path / "x")]) == 0
    assert capsys.readouterr().err == ""


def test_scan_of_any_file(tmp_path: Path, capsys: Capture) -> None:
    """With --scan, containers are found anywhere, in files of unknown formats and in wheels."""
    seeds = make_seeds()
    parts = [
        *(BUNDLE, seeds["compressed 3"], seeds["offload binary"], seeds["cuda fat binary"]),
        seeds["code object"],
    ]
    data = b"firmware" + b"".join(b"\x01" * 100 + part for part in parts)
    (tmp_path / "x.zip").write_bytes(zipped({"x.bin": data}))
    (tmp_path / "x.bin").write_bytes(data)
    for name in ("x.bin", "x.zip"):
        assert main(["list", "--json", "--scan", str(tmp_path / name)]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [row["container"] for row in rows] == [
            *("bundle", "compressed-bundle", "compressed-bundle", "compressed-bundle"),
            *("offload-binary", "offload-binary", "cuda-fatbin", "cuda-fatbin", "code-object"),
        ]
    assert rows[-1]["size"] == len(seeds["code object"])
