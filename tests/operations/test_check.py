"""Faults of libraries, and correct libraries without faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import Compression, Device
from offload_tool.cli import main
from offload_tool.errors import OffloadError
from offload_tool.operations.check import Fault, Rule, check_libraries, find_siblings
from tests.conftest import Capture, Tool, run_tool
from tests.formats.kernel_info.code_objects import KERNEL, code_object, metadata
from tests.formats.object_files import make_code_object
from tests.fuzz.seeds import HERE
from tests.operations.archives import archive
from tests.operations.fatbins import HOST, make_bundle, make_package, zip_of

QUIET = KERNEL | {".vgpr_spill_count": 0, ".sgpr_spill_count": 0}
SPILLING = QUIET | {".name": "s", ".vgpr_spill_count": 1200, ".sgpr_spill_count": 3}


def code(*names: str) -> bytes:
    return code_object(metadata([QUIET | {".name": name} for name in names]))


def targets(*names: str) -> tuple[Device, ...]:
    return tuple(map(Device.parse, names))


def faults(path: Path, *rules: Rule) -> list[str]:
    found = [*check_libraries([path], rules or [Rule()])]
    assert all(str(fault) == f"{fault.library}: {fault.message}" for fault in found)
    return [fault.message for fault in found]


@pytest.mark.parametrize("compression", [None, Compression()], ids=["plain", "compressed"])
def test_targets(compression: Compression | None, tmp_path: Path) -> None:
    """Images count by the runtimes' rules; each device without one is a fault."""
    images = {HOST: b"", "gfx906": code("k"), "gfx9-4-generic": code("k"), "gfx90a:xnack+": b""}
    path = make_bundle(tmp_path / "b", images, compression=compression)
    assert faults(path, Rule(targets=targets("gfx906:xnack-", "gfx942", "gfx950"))) == []
    present = "; there are gfx906, gfx9-4-generic, gfx90a:xnack+"
    assert faults(path, Rule(targets=targets("gfx1100", "sm_90", "gfx906", "gfx90a:xnack+"))) == [
        f"no image for gfx1100{present}",
        f"no image for sm_90{present}",
        f"no image for gfx90a:xnack+{present}",  # an empty image counts as missing
    ]


def test_every_container(tmp_path: Path) -> None:
    """Each container must serve each device, except containers with a host entry only."""
    both = make_bundle(tmp_path / "1", {HOST: b"h", "gfx906": code("a"), "gfx90a": code("a")})
    one = make_bundle(tmp_path / "2", {HOST: b"h", "gfx906": code("b")})
    host = make_bundle(tmp_path / "3", {HOST: b"h"})
    path = tmp_path / "all"
    path.write_bytes(
        b"".join(f.read_bytes() + bytes(-f.stat().st_size % 4096) for f in (both, one, host))
    )
    assert faults(path, Rule(targets=targets("gfx906"))) == []
    assert faults(path, Rule(targets=targets("gfx90a"))) == [
        "no image for gfx90a in 1 of 2 containers, bundle 1 the first; there are gfx906"
    ]
    assert faults(host, Rule(targets=targets("gfx90a"))) == ["no image for gfx90a; there are none"]


def test_offload_binaries_count_together(tmp_path: Path) -> None:
    """Offload binaries hold one image each; all in a section serve the devices together."""
    images = [(name, code("k")) for name in ("gfx906", "gfx90a", "gfx906")]
    path = make_package(tmp_path / "p", images[:2], "openmp")
    assert faults(path, Rule(targets=targets("gfx906", "gfx90a"))) == []
    (message,) = faults(make_package(tmp_path / "q", images, "openmp"))
    assert message.endswith("another image for gfx906 has kernel 'k', too: one of them is hidden")


def test_hidden(tmp_path: Path) -> None:
    hip = "hip-amdgcn-amd-amdhsa--gfx906"
    path = make_bundle(tmp_path / "b", {"gfx906": code("a", "k"), hip: code("k", "b")})
    assert faults(path) == [
        "bundle 0: another image for gfx906 has kernel 'k', too: one of them is hidden"
    ]
    assert faults(make_bundle(tmp_path / "c", {"gfx906": code("a"), hip: code("b")})) == []
    assert faults(make_bundle(tmp_path / "d", {"gfx906": code("a"), "gfx908": code("a")})) == []


def test_same_kernels(tmp_path: Path) -> None:
    """Faults name the kernels that an image lacks; with targets, only loaded images count."""
    images = {"gfx906": code(*"abcdef"), "gfx908": code("a"), "gfx90a": code(*"abcdef", "z")}
    path = make_bundle(tmp_path / "b", images)
    assert faults(path, Rule(same_kernels=True)) == [
        "bundle 0: gfx906 has no kernel 'z', which another target has",
        "bundle 0: gfx908 has no kernels 'b', 'c', 'd' and 3 more, which another target has",
    ]
    assert faults(path, Rule(same_kernels=True, targets=targets("gfx906"))) == []


def test_same_kernels_for_each_setting(tmp_path: Path) -> None:
    """The images for each setting of a feature that an ID leaves open are compared, too."""
    images = {"gfx90a:xnack+": code("k"), "gfx90a:xnack-": code(), "gfx942": code("m")}
    path = make_bundle(tmp_path / "b", images)
    assert faults(path, Rule(targets=targets("gfx90a"), same_kernels=True)) == [
        "bundle 0: gfx90a:xnack- has no kernel 'k', which another target has"
    ]


def test_spills(tmp_path: Path) -> None:
    """Each kernel with spills is a fault; a note reports kernels without spill counts."""
    images = {"gfx906": code_object(metadata([QUIET, SPILLING])), "gfx90a": code("k")}
    path = make_bundle(tmp_path / "b", images)
    message = "bundle 0: gfx906 spills 1,200 VGPRs and 3 SGPRs in kernel 's'"
    assert faults(path, Rule(no_spills=True)) == [message]
    assert faults(path, Rule(no_spills=True, targets=targets("gfx90a"))) == []
    notes: list[str] = []
    cubin = HERE / "seeds" / "sm_90a.cubin"
    assert [*check_libraries([cubin], [Rule(no_spills=True)], notes=notes.append)] == []
    assert len(notes) == 1
    assert "kernels do not say whether they spill registers" in notes[0]


def test_size(tmp_path: Path) -> None:
    """The limit applies to the stored bytes of device images, without hosts and padding."""
    images = {HOST: bytes(9999), "gfx906": bytes(300), "gfx90a": bytes(200)}
    path = make_bundle(tmp_path / "b", images)
    assert faults(path, Rule(max_size=500)) == []
    assert faults(path, Rule(max_size=499)) == ["device images take 500 bytes, more than 499"]
    packed = make_bundle(tmp_path / "c", {"gfx906": bytes(90_000)}, compression=Compression())
    assert faults(packed, Rule(max_size=packed.stat().st_size)) == []


def test_names(tmp_path: Path) -> None:
    """Rules match libraries in folders, wheels and archives; a rule without a match is a fault."""
    folder = tmp_path / "folder"
    (folder / "lib").mkdir(parents=True)
    bundle = make_bundle(folder / "lib" / "x.so", {"gfx906": code("k")})
    (folder / "text").write_text("no library")
    zip_of(folder / "w.whl", {"lib/y.so": bundle})
    archive(folder / "z.a", bundle)
    wanted = {"lib/x.so": 1, "*.so": 1, "w.whl(lib/*)": 1, "*y.so*": 1, "z.a(*)": 1, "lib/?.so": 1}
    for pattern, count in wanted.items():
        rule = Rule(paths=(pattern,), targets=targets("gfx908"))
        assert len(faults(folder, rule)) == count, pattern
    assert faults(folder, Rule(("none", "q*"))) == ["there is no library none or q*"]
    notes: list[str] = []
    assert [*check_libraries([bundle], [Rule(("x.so",))], notes=notes.append)] == []
    assert [*check_libraries([folder], [Rule(("*.so",))], notes=notes.append)] == []
    assert [note.rpartition(": ")[2] for note in notes] == ["no rule is about it"] * 2


def test_names_of_links(tmp_path: Path) -> None:
    """A link in the folder is another name of its library, which rules may have."""
    (tmp_path / "lib").mkdir()
    make_bundle(tmp_path / "lib" / "x.so.1.2", {"gfx906": code("k")})
    for name, target in (("x.so.1", "x.so.1.2"), ("x.so", "x.so.1")):
        (tmp_path / "lib" / name).symlink_to(target)
    assert faults(tmp_path, Rule(("lib/x.so",)), Rule(("lib/x.so.1",))) == []
    rule = Rule(("*.so",), targets=targets("gfx908"))
    assert faults(tmp_path, rule) == ["no image for gfx908; there are gfx906"]


def test_nothing(tmp_path: Path) -> None:
    assert [*check_libraries([tmp_path], [])] == [
        Fault(str(tmp_path), "there are no device images")
    ]


def test_broken(tmp_path: Path) -> None:
    images = {"gfx906": code("k")[:-9], "gfx90a": code("k"), "gfx908": b"BC\xc0\xde"}
    make_bundle(tmp_path / "b", images)
    problems: list[OffloadError] = []
    notes: list[str] = []
    rule = Rule(targets=targets("gfx906", "gfx942"), same_kernels=True)
    found = check_libraries([tmp_path], [rule], skipped=problems.append, notes=notes.append)
    assert [fault.message for fault in found] == [
        "no image for gfx942; there are gfx906, gfx90a, gfx908"
    ]
    assert len(problems) == len(notes) == 1


def test_code_objects_of_a_folder(tmp_path: Path) -> None:
    """Single-target code objects are checked together; one given by its path, alone."""
    for name in ("gfx906", "gfx942"):
        (tmp_path / f"{name}.co").write_bytes(make_code_object(name))
    assert faults(tmp_path, Rule(targets=targets("gfx906", "gfx942"))) == []
    assert faults(tmp_path, Rule(targets=targets("gfx1030"))) == [
        "no image for gfx1030 in any of 2 code objects; there are gfx906, gfx942"
    ]
    make_bundle(tmp_path / "b", {"gfx1030": code("k")})
    assert "no image for gfx1030 in any" in faults(tmp_path, Rule(targets=targets("gfx1030")))[0]
    for name in ("gfx90a:xnack+", "gfx90a:xnack-"):
        (tmp_path / f"{name}.co").write_bytes(make_code_object(name))
    assert faults(tmp_path, Rule(("*.co",), targets("gfx90a"))) == []
    lacking = ["no image for gfx942; there are gfx906"]
    assert faults(tmp_path / "gfx906.co", Rule(targets=targets("gfx942"))) == lacking


SAME = "__attribute__((global)) void k(int* p) { *p = 1; }\n"
OTHER = SAME + "#ifdef __gfx1031__\n__attribute__((global)) void m(int* p) { *p = 2; }\n#endif\n"
ARCHES = ("gfx1030", "gfx1031", "gfx1100", "gfx906")


@pytest.fixture
def bundles(tmp_path: Path, llvm: Tool) -> Path:
    """Return a folder with a bundle of equal code, as clang compiles it, and one without."""
    flags = ["-nogpuinc", "-nogpulib", *(f"--offload-arch={name}" for name in ARCHES)]
    for name, text in (("same", SAME), ("other", OTHER)):
        source = tmp_path / f"{name}.hip"
        source.write_text(text)
        command = [llvm("clang++"), "-x", "hip", *flags, "--cuda-device-only", "-O2", "-c"]
        run_tool(*command, source, "-o", tmp_path / f"{name}.hipfb")
        source.unlink()
    return tmp_path


def test_siblings(bundles: Path, capsys: Capture) -> None:
    """Numbers and names of processors do not count; all other code does; no sibling is a fault."""
    (found,) = find_siblings(bundles)
    assert found.path == str(bundles / "same.hipfb")
    assert found.targets == ("gfx1030", "gfx1031")
    assert (found.equal, found.containers) == (1, 1)
    assert found.generic == "gfx10-3-generic"
    assert found.equal_saves == found.generic_saves > 0
    assert main(["check", "--siblings", str(bundles)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "gfx1030, gfx1031: the same code in 1 of 1 containers" in line
    assert "gfx10-3-generic" in line


def test_containers_of_one_file(bundles: Path) -> None:
    """If only some containers have equal code, a generic target saves more than one image."""
    both = bundles / "both"
    data = [(bundles / f"{name}.hipfb").read_bytes() for name in ("same", "other")]
    both.write_bytes(b"".join(part + bytes(-len(part) % 4096) for part in data))
    (found,) = find_siblings(both)
    assert (found.equal, found.containers) == (1, 2)
    assert 0 < found.equal_saves < found.generic_saves
