"""Section Usage."""

from __future__ import annotations

import pytest

from tests.documents.conftest import Beside

pytestmark = pytest.mark.llvm


def disassembled(beside: Beside, name: str) -> list[str]:
    """Return a module's text without the lines that name its file."""
    text = beside.run("llvm-dis", name, "-o", "-").stdout
    return [line for line in text.splitlines() if not line.startswith((";", "source_filename"))]


@pytest.mark.parametrize(
    "targets", ["gfx906 gfx90a:xnack+", "openmp-amdgcn-amd-amdhsa--gfx906 fiji"]
)
def test_target_ids(beside: Beside, targets: str) -> None:
    """'--offload-arch=gfx906 gfx906-binary.out': the target ID of each image."""
    beside.scons(
        f"env.OffloadWrapper('w.bc', ['a.in', 'b.in'], OFFLOAD_KIND='openmp', "
        f"OFFLOAD_TARGETS='{targets}')\n"
    )
    ids = [text.rpartition("--")[2].replace("fiji", "gfx803") for text in targets.split()]
    text = "\n".join(disassembled(beside, "w.bc"))
    for number, target_id in enumerate(ids):
        name = "@__offload_arch" + (f".{number}" if number else "")
        assert f'{name} = internal constant [{len(target_id) + 1} x i8] c"{target_id}\\00"' in text
    assert "call void @__tgt_register_image_info" in text


@pytest.mark.parametrize("target", ["x86_64-pc-linux-gnu", "aarch64-unknown-linux-gnu"])
def test_host_target(beside: Beside, target: str) -> None:
    """'-target host-triple': the driver says it, of the flags of host compiles."""
    flags = "" if target.startswith("x86") else ", CCFLAGS='--target=aarch64-linux-gnu'"
    beside.scons(f"env.OffloadWrapper('w.bc', 'a.in', OFFLOAD_KIND='openmp'{flags})\n")
    beside.run("llvm-offload-wrapper", "--kind=openmp", f"--triple={target}", "-o", "t.bc", "a.in")
    ours = disassembled(beside, "w.bc")
    assert ours.pop(0).startswith("target datalayout = ")  # clang adds it
    assert ours == disassembled(beside, "t.bc")


def test_older_layout(beside: Beside) -> None:
    """The document's module, of LLVM 15, registers entries under that LLVM's names."""
    beside.scons(
        "env.OffloadWrapper('w.bc', ['a.in', 'b.in'], OFFLOAD_KIND='openmp', "
        "OFFLOAD_WRAPPER_LLVM=15)\n"
    )
    names = "@__start_omp_offloading_entries = external hidden constant %__tgt_offload_entry"
    assert names in "\n".join(disassembled(beside, "w.bc"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("'w.bc', 'a.in', OFFLOAD_TARGETS='banana'", "invalid target ID 'banana'"),
        ("'w.bc', 'a.in', OFFLOAD_TARGETS='gfx906 gfx908'", "one target ID for each of 1 images"),
        ("'w.ll', 'a.in'", "OffloadWrapper of 'w.ll': LLVM IR text is not written"),
        ("'w.bc', 'a.in', OFFLOAD_KIND='hip', OFFLOAD_TARGETS='gfx906'", "for openmp, not for hip"),
    ],
)
def test_mistakes(beside: Beside, call: str, message: str) -> None:
    beside.refused(f"env['OFFLOAD_KIND'] = 'openmp'\nenv.OffloadWrapper({call})\n", message)
