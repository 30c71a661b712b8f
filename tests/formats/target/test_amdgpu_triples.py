"""AMD GPUs as LLVM 23 names them: triples such as ``amdgpu9.06``, and its processors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offload_tool.formats.target import triple as triples
from offload_tool.formats.target.bundle_entry_id import BundleEntryID, is_compatible
from offload_tool.formats.target.processors import AMDGPU_ARCHES, PROCESSORS, find_processor
from offload_tool.formats.target.target_id import TargetID
from tests.formats.target.test_bundle_entry_id_llvm import (
    archive,
    contents,
    differences,
    header_ids,
    one_entry_bundle,
)

AMDGPU = [row for row in PROCESSORS.values() if row.family == "amdgcn"]
REST = "amd-amdhsa-"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("amdgcn", "amdgpu", True),
        ("amdgcn", "amdgpu9.06", True),
        ("amdgpu9", "amdgpu9.06", True),
        ("amdgpu9.06", "amdgpu9.06", True),
        ("amdgpu9.06", "amdgpu9.00", False),
        ("amdgpu9", "amdgpu9.08", False),  # gfx9-generic's code does not run on gfx908
        ("amdgpu9", "amdgpu9.4", False),
        ("amdgpu9.4", "amdgpu9.42", True),
        ("amdgpu8", "amdgpu8.03", True),
        ("amdgpu8", "amdgpu8.10", False),
        ("amdgpu11", "amdgpu11.7", False),
        ("amdgpu99.99", "amdgpu99.99", True),
        ("amdgpu99.99", "amdgpu98.99", False),
        ("amdgpu9.06", "r600", False),
    ],
)
def test_who_serves_whom(first: str, second: str, expected: bool) -> None:
    """The same GPU, a family and its members, and what leaves the GPU open serve each other."""
    pair = (f"{first}-{REST}", f"{second}-{REST}")
    assert triples.is_compatible(*pair) is expected
    assert triples.is_compatible(*pair[::-1]) is expected


def test_entries_of_both_spellings_serve_each_other() -> None:
    """Which LLVM wrote an ID makes no difference, as long as the processor is the same."""
    old, new = (f"hip-{arch}-{REST}-gfx906" for arch in ("amdgcn", "amdgpu9.06"))
    for entry, target in ((old, new), (new, old)):
        for features, served in (("", True), (":xnack+", True)):
            wanted = BundleEntryID.parse(target + features)
            assert is_compatible(BundleEntryID.read(entry), wanted) is served
    other = BundleEntryID.parse(f"hip-amdgcn-{REST}-gfx908")
    assert not is_compatible(BundleEntryID.read(new), other)


def test_an_architecture_is_a_name_of_its_processor() -> None:
    """As a target ID, too: it is the processor that the family or GPU is named after."""
    assert find_processor("amdgpu9.50") is PROCESSORS["gfx950"]
    assert find_processor("amdgpu9.4") is PROCESSORS["gfx9-4-generic"]
    assert str(TargetID.parse("amdgpu9.0a:xnack+:sramecc-")) == "gfx90a:sramecc-:xnack+"
    assert find_processor("amdgpu6") is None  # a family without a processor of its own


# -- as in LLVM 23 -------------------------------------------------------------------------


@pytest.fixture
def bundler(llvm23: Callable[[str], str], tmp_path: Path) -> Callable[..., None]:
    """Run LLVM 23's bundler in a folder that holds one input, ``x``."""
    (tmp_path / "x").write_bytes(b"x")
    tool = llvm23("clang-offload-bundler")

    def run(*arguments: str) -> None:
        subprocess.run([tool, *arguments], cwd=tmp_path, check=True, capture_output=True)

    return run


ARCHES = ["amdgcn", "amdgpu", *AMDGPU_ARCHES]


@pytest.mark.llvm
def test_ids_are_written_as_llvm_writes_them(bundler: Callable[..., None], tmp_path: Path) -> None:
    """Every architecture, and every processor, with other fields in and out of place."""
    rests = ["amd-amdhsa-", "amd-amdhsa-unknown", "-amdhsa-", "amd-amdpal-gnu", "amdhsa-amd-x"]
    typed = [f"hip-{arch}-{rest}-" for arch in ARCHES for rest in rests]
    typed += [f"hip-amdgpu-amd-linux-gnu{n}-{name}" for n, name in enumerate(PROCESSORS)]
    bundler("-type=bc", f"-targets={','.join(typed)}", *["-input=x"] * len(typed), "-output=o")
    written = list(header_ids((tmp_path / "o").read_bytes()))
    assert [str(BundleEntryID.parse(text)) for text in typed] == written


@pytest.mark.llvm
def test_architectures_serve_each_other_as_in_llvm(
    bundler: Callable[..., None], tmp_path: Path
) -> None:
    """Every pair of architectures, for three processors, is decided as LLVM decides it."""

    def served(entries: Sequence[str], targets: Sequence[str]) -> list[set[int]]:
        members = [one_entry_bundle(entry, b"%06d" % i) for i, entry in enumerate(entries)]
        (tmp_path / "in.a").write_bytes(archive(members))
        outputs = [f"out{i}" for i in range(len(targets))]
        bundler(
            *("-type=a", "-unbundle", "-allow-missing-bundles", "-input=in.a"),
            *(f"-targets={','.join(targets)}", *(f"-output={output}" for output in outputs)),
        )
        return [{int(c) for c in contents(tmp_path / output)} for output in outputs]

    ids = [
        f"hip-{arch}-{REST}-{target}"
        for arch in ARCHES
        for target in ("gfx906", "gfx9-4-generic", "gfx1310")
    ]
    serving, different = differences(ids, ids, served(ids, ids))
    assert different == []
    assert serving > 1000


def _supported(clang: str, target: str) -> set[str]:
    command = [clang, f"--target={target}", "--print-supported-cpus"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (run.stdout + run.stderr).splitlines()
    return {line.strip() for line in lines if line.startswith("\t")}


@pytest.mark.llvm
def test_clang_lists_the_same_processors(llvm23: Callable[[str], str]) -> None:
    """The table's names are those of clang 23."""
    clang = llvm23("clang-23")
    names = {name for row in AMDGPU for name in (row.name, *row.alternative_names)}
    found = _supported(clang, "amdgcn-amd-amdhsa")
    if not found:
        pytest.skip("this clang has no AMDGPU target")
    assert names == found - {"generic", "generic-hsa"}


@pytest.mark.llvm
def test_clang_accepts_the_features_of_the_table(llvm23: Callable[[str], str]) -> None:
    """For every AMD GPU and feature, clang 23's --offload-arch takes what the table says."""
    clang = llvm23("clang-23")

    def accepts(target_id: str) -> bool:
        command = [clang, "-###", "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib"]
        command += [f"--offload-arch={target_id}", "/dev/null"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    pairs = [(row, feature) for row in AMDGPU for feature in ("sramecc", "xnack")]
    with ThreadPoolExecutor(2) as pool:
        accepted = list(pool.map(accepts, [f"{row.name}:{feature}+" for row, feature in pairs]))
    wrong = [
        (row.name, feature, taken)
        for (row, feature), taken in zip(pairs, accepted, strict=True)
        if taken != (feature in row.features)
    ]
    assert wrong == []


@pytest.mark.llvm
def test_code_objects_carry_the_numbers_of_the_table(
    llvm23: Callable[[str], str], tmp_path: Path
) -> None:
    """The ELF files that clang 23 writes for the newer processors have the table's numbers."""
    clang = llvm23("clang-23")
    if not _supported(clang, "amdgcn-amd-amdhsa"):
        pytest.skip("this clang has no AMDGPU target")
    for row in (row for row in AMDGPU if row.since > 22):
        output = tmp_path / f"{row.name}.o"
        command = [clang, "--target=amdgcn-amd-amdhsa", f"-mcpu={row.name}", "-nogpulib"]
        command += ["-c", "-x", "assembler", "/dev/null", "-o", str(output)]
        subprocess.run(command, capture_output=True, check=True)
        assert output.read_bytes()[48] == row.mach, row.name


@pytest.mark.llvm
def test_clang_names_architectures_as_we_do(llvm23: Callable[[str], str], tmp_path: Path) -> None:
    """For each architecture of the table, clang 23 alone compiles for the table's processor."""
    clang = llvm23("clang-23")
    if not _supported(clang, "amdgcn-amd-amdhsa"):
        pytest.skip("this clang has no AMDGPU target")
    for arch in AMDGPU_ARCHES:
        row = find_processor(arch)
        output = tmp_path / "x.o"
        command = [clang, f"--target={arch}-amd-amdhsa", "-nogpulib", "-c", "-x", "assembler"]
        done = subprocess.run([*command, "/dev/null", "-o", output], capture_output=True)
        assert done.returncode == 0, (arch, done.stderr)
        if row is not None:  # a family without a processor of its own is clang's choice
            assert output.read_bytes()[48] == row.mach, arch
