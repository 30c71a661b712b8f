"""The suite itself, without a GPU: packed programs run, and what is wrong with one is named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import missing, program, run_tool
from tests.gpu import run
from tests.gpu.cases import HIP_TARGETS, NVIDIA_DEVICES, SETS, VERSION, all_cases, expected_lines
from tests.gpu.pack import HERE, Machine, pack
from tests.gpu.plant import FAULTS, plant

CASES = ("cuda/images", "cuda/shared")
HIP_CASES = ("hip/images", "hip/objects")


def standin(folder: Path, *flags: str | Path, output: str) -> None:
    command = [program("clang-22"), "-D_GNU_SOURCE", HERE / "standin_runtime.c", *flags]
    run_tool(*command, "-o", folder / output)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed folder of programs that are linked with a stand-in for CUDA's runtime."""
    try:
        machine = Machine.of_environment()
    except SystemExit as error:
        missing(str(error))
    folder = tmp_path_factory.mktemp("gpu")
    standin(folder, f"-I{machine.cuda / 'include'}", "-c", output="standin.o")
    run_tool("ar", "rc", folder / "libstandin.a", folder / "standin.o")
    pack(folder / "packed", only=CASES, runtime=(str(folder), "standin"))
    return folder / "packed"


def outcomes(folder: Path, target: str = "sm_90") -> dict[str, run.Result]:
    os.environ["STANDIN_DEVICE"] = target
    device = run.Device(target, "a stand-in", "")
    results = run.run_cases(folder, {"cuda": device, "hip": device})
    return {each.name: each for each in results}


@pytest.mark.parametrize("target", ["sm_75", "sm_86", "sm_87", "sm_90"])
def test_packed_programs_run(packed: Path, target: str) -> None:
    """Each program prints what the table says for each device that has a cubin."""
    found = outcomes(packed, target)
    wanted = CASES if target == "sm_75" else CASES[:1]  # the other has PTX alone for the rest
    assert list(found) == list(CASES)
    assert {(found[name].outcome, found[name].reason) for name in wanted} == {(run.PASSED, "")}


def test_faults_are_named(packed: Path, tmp_path: Path) -> None:
    """A wrong image, a kernel that is not registered and a stale image each fail by name."""
    names = plant(packed, tmp_path / "planted")
    assert names == [f"{case} with {fault}" for case in CASES for fault, _ in FAULTS]
    found = outcomes(tmp_path / "planted")
    assert {each.outcome for each in found.values()} == {run.FAILED}
    for case, unit in zip(CASES, ("images", "first"), strict=True):
        expected = f"expected: {unit}: target 90 binary 90 version {VERSION}\n"
        for fault, reason in (
            ("swapped images", f"found:    {unit}: target 75"),
            ("a wrong image", f"found:    {unit}: target 80 binary 90 version {VERSION}"),
            ("an unregistered kernel", "SymbolNotFound"),
            ("a stale image", f"found:    {unit}: target 90 binary 90 version {VERSION - 1}"),
        ):
            why = found[f"{case} with {fault}"].reason
            assert expected in why
            assert reason in why


def test_hip_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed HIP programs load their images with a stand-in for HIP's runtime."""
    hip = os.environ.get("OFFLOAD_ROCM_PATH")
    if not hip or not os.environ.get("OFFLOAD_TEST_CUDA"):
        pytest.skip("OFFLOAD_ROCM_PATH names no folder with HIP's headers, or there is no CUDA")
    flags = ("-DHIP", "-D__HIP_PLATFORM_AMD__", f"-I{hip}/include", "-shared", "-fPIC")
    standin(tmp_path, *flags, output="libamdhip64.so")
    pack(tmp_path / "packed", only=HIP_CASES)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for target in HIP_TARGETS:
        found = outcomes(tmp_path / "packed", target)
        assert list(found) == list(HIP_CASES)
        assert {(each.outcome, each.reason) for each in found.values()} == {(run.PASSED, "")}


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
