"""Section Target ID."""

from __future__ import annotations

import pytest

from tests.documents.conftest import Beside

pytestmark = pytest.mark.llvm

HIP = "hip-amdgcn-amd-amdhsa--"
BUILDERS = (
    "OffloadBundle",
    "OffloadUnbundle",
    "OffloadDeviceArchive",
    "OffloadPackage",
    "OffloadExtract",
)
WRONG = {
    "processor": ("gfx9999", "unknown processor 'gfx9999', did you mean"),
    "twice": ("gfx906:xnack+:xnack+", "feature 'xnack' is given more than once"),
    "unsupported": ("gfx1030:foo+", "processor 'gfx1030' supports no features, not 'foo'"),
    "no-sign": ("gfx90a:xnack", "'xnack' must be a name and one sign"),
    "other-GPU": ("sm_80", "'sm_80' is no processor of amdgcn"),
    "any-GPU": ("generic", "'generic' names no GPU to compile for"),
}


@pytest.mark.parametrize(
    ("builder", "wrong"),
    [*((BUILDERS[0], wrong) for wrong in WRONG), *((name, "processor") for name in BUILDERS[1:])],
)
def test_syntax(beside: Beside, builder: str, wrong: str) -> None:
    """'A target feature name that is supported by the processor', and 'at most once'.

    Every builder that is given target IDs refuses others, also where entries may be missing.
    """
    target, message = WRONG[wrong]
    call = f"env.{builder}('x', 'a.in', OFFLOAD_TARGETS='{HIP}{target}'"
    beside.refused(call + ", OFFLOAD_ALLOW_MISSING_BUNDLES=True)\n", "OFFLOAD_TARGETS", message)


def test_unknown_processor(beside: Beside) -> None:
    """'Processor: a target specific processor': OFFLOAD_ALLOW_UNKNOWN_ARCH takes a newer one."""
    entry = f"{HIP}gfx9999"
    run = beside.scons(
        f"b = env.OffloadBundle('b', 'a.in', OFFLOAD_TARGETS='{entry}',\n"
        "                      OFFLOAD_ALLOW_UNKNOWN_ARCH=True)\n"
        f"env.OffloadUnbundle('u', b, OFFLOAD_TARGETS='{entry}', OFFLOAD_ALLOW_UNKNOWN_ARCH=True)\n"
    )
    assert f"unknown processor 'gfx9999' in '{entry}' is kept" in run.errors
    listed = beside.run("clang-offload-bundler", "-type=bc", "-list", "-input=b.hipfb")
    assert listed.stdout.split() == [entry]
    assert beside.read("u.gfx9999.co") == beside.read("a.in")


def test_canonical_form(beside: Beside) -> None:
    """'The canonical form is used for all generated output': features in alphabetic order."""
    beside.scons(
        f"env.OffloadBundle('ours', 'a.in', OFFLOAD_TARGETS='{HIP}gfx90a:xnack-:sramecc+',\n"
        "                  OFFLOAD_BUNDLE_ALIGN=1)\n"
    )
    beside.bundle("a", [f"{HIP}gfx90a:sramecc+:xnack-"], "theirs")
    assert beside.read("ours.hipfb") == beside.read("theirs")
