"""Each case of the table on this machine's GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import run
from tests.gpu.cases import all_cases
from tests.gpu.pack import pack


@pytest.fixture(scope="session")
def devices() -> dict[str, run.Device | str]:
    found = run.find_devices()
    if not any(isinstance(each, run.Device) for each in found.values()):
        pytest.skip("no GPU: " + "; ".join(dict.fromkeys(map(str, found.values()))))
    return found


@pytest.fixture(scope="session")
def packed(devices: dict[str, run.Device | str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "packed"
    pack(folder)
    return folder


@pytest.mark.gpu
@pytest.mark.parametrize("name", [case.name for case in all_cases()])
def test_case(name: str, packed: Path, devices: dict[str, run.Device | str]) -> None:
    """The program prints what the table says for this GPU."""
    results = [each for each in run.run_cases(packed, devices, [name]) if each.name == name]
    if not results or results[0].outcome == run.SKIPPED:
        pytest.skip(results[0].reason if results else "this machine cannot build it")
    assert results[0].outcome == run.PASSED, results[0].reason
