"""The kernels of images in files of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import Compression, ContentError, Device
from offload_tool.cli import main
from offload_tool.errors import LimitError, OffloadError
from offload_tool.io.limits import Budget, Limits, limited
from offload_tool.operations.check import Rule, check_libraries
from offload_tool.operations.kernel_table import demangled_names
from offload_tool.operations.list_images import iter_kernels
from tests.conftest import Tool, run_tool
from tests.formats.kernel_info.code_objects import KERNEL, code_object, metadata
from tests.formats.object_files import elf_header
from tests.fuzz.seeds import bundle
from tests.operations.fatbins import HOST, make_bundle
from tests.scripts import script

CODE = code_object(metadata([KERNEL, KERNEL | {".name": "other"}]))
BITCODE = b"BC\xc0\xde" + bytes(60)


def names(path: Path, **options: object) -> dict[str, list[str]]:
    found = iter_kernels(path, **options)  # type: ignore[arg-type]
    return {images.image.target_id: [k.name for k in images.kernels] for images in found}


@pytest.mark.parametrize("compression", [None, Compression()], ids=["plain", "compressed"])
def test_bundles(compression: Compression | None, tmp_path: Path) -> None:
    """Each image of a bundle, compressed or not, lists its kernels; host entries do not count."""
    images = {
        HOST: b"host",
        "gfx906": CODE,
        "gfx90a:xnack+": code_object(metadata([])),
        "gfx908": b"",
    }
    path = make_bundle(tmp_path / "b", images, compression=compression)
    assert names(path) == {"gfx906": ["k", "other"], "gfx90a:xnack+": [], "gfx908": []}
    assert names(path, devices=[Device.parse("gfx906:xnack+")]) == {"gfx906": ["k", "other"]}


def test_ptx_of_no_kind(tmp_path: Path) -> None:
    """PTX in a package is recognised by its text if the file's suffix was unknown (``.ptx``)."""
    (tmp_path / "k.ptx").write_text("// made by hand\n.version 8.0\n.entry k() { ret; }\n")
    image = f"--image=file={tmp_path / 'k.ptx'},triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda"
    assert main(["packager", "-o", str(tmp_path / "p"), image]) == 0
    (found,) = iter_kernels(tmp_path / "p")
    assert found.image.image_kind == "none"
    assert [kernel.name for kernel in found.kernels] == ["k"]


def test_broken_among_others(tmp_path: Path) -> None:
    """An image with broken metadata is named and skipped; kernels of the others are listed."""
    broken = code_object(metadata([KERNEL])[:-5])
    path = make_bundle(tmp_path / "b", {"gfx906": broken, "gfx908": CODE, "gfx90a": b"what?"})
    problems: list[OffloadError] = []
    assert names(path, skipped=problems.append) == {"gfx908": ["k", "other"]}
    first, second = map(str, problems)
    assert first.startswith(f"'{path}, hipv4-amdgcn-amd-amdhsa--gfx906', NT_AMDGPU_METADATA: ")
    assert "expected device code with kernels (of AMD's or NVIDIA's GPUs), found b'what?'" in second
    with pytest.raises(ContentError):
        names(path)


def test_code_to_be_made(tmp_path: Path) -> None:
    """Images that list no kernels, such as bitcode, are reported, but are not errors."""
    notes: list[str] = []
    images = {"gfx906": BITCODE, "gfx908": elf_header(1, 62), "gfx90a": CODE}
    path = make_bundle(tmp_path / "b", images)
    assert names(path, strays=notes.append) == {"gfx90a": ["k", "other"]}
    assert names(path) == {"gfx90a": ["k", "other"]}
    assert "gfx906': is LLVM bitcode; what its kernels need is decided when code is" in notes[0]
    assert "gfx908': is an ELF file for machine 62, which is no GPU's, and lists no" in notes[1]


def test_code_of_no_gpu(tmp_path: Path) -> None:
    """An image of another triple than a GPU's lists no kernels, whatever its bytes are."""
    notes: list[str] = []
    path = tmp_path / "b"
    path.write_bytes(bundle({b"sycl-spir64-unknown-unknown-": b"\x28\xb5\x2f\xfd" + bytes(60)}))
    assert names(path, strays=notes.append) == {}
    [note] = notes
    assert "': is code for spir64-unknown-unknown, which is no GPU of AMD or NVIDIA" in note
    assert [*check_libraries([path], [Rule(same_kernels=True)])] == []


def test_too_many(tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "b", {"gfx906": CODE, "gfx90a": CODE})
    with limited(Budget(Limits(members=5))), pytest.raises(LimitError, match="OFFLOAD_MAX_MEMBERS"):
        names(path)


@pytest.mark.llvm
def test_demangled(llvm: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names equal those of LLVM's own demangler; unmangled names stay the same."""
    mangled = ["_Z5spillPfi", "_ZN12_GLOBAL__N_11kERKSt6vectorIiSaIiEE", "_Z1fIiEvT_.kd"]
    plain = ["plain", "_Zbroken", "_Z", "a b\nc", "\udcff", "__nv_static_1__x__Z1kv"]
    demangler = llvm("llvm-cxxfilt")
    done = run_tool(demangler, *mangled)
    theirs = done.splitlines()
    monkeypatch.setenv("PATH", str(Path(demangler).parent))
    expected = {**dict(zip(mangled, theirs, strict=True)), **{name: name for name in plain}}
    assert demangled_names([*mangled, *plain, *mangled]) == expected


def test_no_demangler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demangled_names(["plain"]) == {"plain": "plain"}
    with pytest.raises(OffloadError, match="llvm-cxxfilt or c\\+\\+filt, and neither is on PATH"):
        demangled_names(["_Z1kv"])
    script(tmp_path / "c++filt", "exit 3")
    with pytest.raises(OffloadError, match="ended with status 3 after 0 of 1 names"):
        demangled_names(["_Z1kv"])
