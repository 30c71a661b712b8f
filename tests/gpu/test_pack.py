"""The suite itself, without a GPU: packed programs run, and what is wrong with one is named."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import missing, program
from tests.gpu import run
from tests.gpu.cases import HIP_TARGETS, NVIDIA_DEVICES, SETS, VERSION, all_cases, expected_lines
from tests.gpu.pack import HERE, Machine, pack

CASES = ("cuda/images", "cuda/objects")
MARK = struct.pack("<i", 0x0FF10AD5)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed folder of programs that are linked with a stand-in for CUDA's runtime."""
    try:
        machine = Machine.of_environment()
    except SystemExit as error:
        missing(str(error))
    folder = tmp_path_factory.mktemp("gpu")
    include = machine.cuda / "include"
    source, made = HERE / "standin_cudart.c", folder / "standin_cudart.o"
    compile_ = [program("clang-22"), "-D_GNU_SOURCE", f"-I{include}", "-c", source, "-o", made]
    subprocess.run(compile_, check=True)
    subprocess.run(["ar", "rc", folder / "libstandin_cudart.a", made], check=True)
    pack(folder / "packed", only=CASES, runtime=(str(folder), "standin_cudart"))
    return folder / "packed"


@pytest.fixture
def outcomes(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, run.Result]]:
    """Return a function that runs a copy of the folder, with one program's bytes changed."""

    def run_changed(
        change: Callable[[bytes], bytes] = bytes, target: str = "sm_90"
    ) -> dict[str, run.Result]:
        monkeypatch.setenv("STANDIN_DEVICE", target[3:])
        folder = tmp_path / "copy"
        shutil.copytree(packed, folder)
        path = folder / "build/cuda/images/images"
        path.write_bytes(change(path.read_bytes()))
        device = run.Device(target, "a stand-in", "")
        return {each.name: each for each in run.run_cases(folder, {"cuda": device})}

    return run_changed


@pytest.mark.parametrize("target", ["sm_75", "sm_86", "sm_87", "sm_90"])
def test_packed_programs_run(outcomes: Callable[..., dict[str, run.Result]], target: str) -> None:
    """Each program prints what the table says for each device that has a cubin."""
    found = outcomes(target=target)
    assert list(found) == list(CASES)
    assert {(each.outcome, each.reason) for each in found.values()} == {(run.PASSED, "")}


def swap_images(data: bytes) -> bytes:
    """Say of the image for sm_80 that it is for sm_90, and the reverse."""
    cubin = struct.Struct("<HHIQ12xI")
    changed = bytearray(data)
    at = data.index(b"\x50\xed\x55\xba") + 16
    while (entry := cubin.unpack_from(data, at))[0] in (1, 2):
        swapped = {80: 90, 90: 80}.get(entry[4], entry[4])
        struct.pack_into("<I", changed, at + 28, swapped)
        at += entry[2] + entry[3]
    assert changed != data
    return bytes(changed)


def unregister(data: bytes) -> bytes:
    """Change the kernel's name where the host registers it: behind all images, or before them."""
    name = b"\0_Z6imagesPi\0"
    found = data.index(name)
    assert data.find(b"\x7fELF", 1) > found or data.rfind(b"\x7fELF") < found
    return data.replace(name, b"\0_Z6imagesPl\0", 1)


def age(data: bytes) -> bytes:
    """Put into each image the version of an older source."""
    now, older = (struct.pack("<i", number) for number in (VERSION, VERSION - 1))
    tag = MARK + struct.pack("<i", 90)
    assert tag + now in data
    return data.replace(tag + now, tag + older)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            swap_images,
            "expected: images: target 90 binary 90 version 3\nfound:    images: target 80",
        ),
        (unregister, "SymbolNotFound"),
        (age, "found:    images: target 90 binary 90 version 2"),
    ],
)
def test_a_fault_is_named(
    outcomes: Callable[..., dict[str, run.Result]],
    change: Callable[[bytes], bytes],
    reason: str,
) -> None:
    """A wrong image, a kernel that is not registered and a stale cubin fail that case alone."""
    found = outcomes(change)
    assert reason in found["cuda/images"].reason
    assert [name for name, each in found.items() if each.outcome == run.FAILED] == ["cuda/images"]


def test_what_is_not_there_fails(packed: Path, tmp_path: Path) -> None:
    """A program that was removed fails, and is named."""
    folder = tmp_path / "copy"
    shutil.copytree(packed, folder)
    (folder / "build/cuda/images/images").unlink()
    results = run.run_cases(folder, {"cuda": run.Device("sm_90", "", "")}, ["cuda/images"])
    assert [each.outcome for each in results] == [run.FAILED]
    assert "No such file" in results[0].reason


def test_table() -> None:
    """Each case has a name of its own, and prints lines on one of the devices it is made for."""
    cases = all_cases()
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        devices = HIP_TARGETS if case.api == "hip" else NVIDIA_DEVICES
        found = [lines for device in devices if (lines := expected_lines(case, device))]
        assert found, case
        assert case.kind == SETS or all(lines for lines, _ in found), case
