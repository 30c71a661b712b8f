"""Checked archives, and versions of bundles; tests/documents has LLVM's other options."""

from __future__ import annotations

import pytest

from tests.documents.test_statements import BOTH, GFX906, Beside
from tests.documents.test_statements import beside as beside
from tests.scons.conftest import Project


def theirs(beside: Beside, *options: str) -> bytes:
    """Return what LLVM's bundler makes."""
    beside.run("clang-offload-bundler", *options, "-output=theirs")
    return beside.read("theirs")


def test_programs_keep_their_layout(project: Project) -> None:
    """OFFLOAD_BUNDLE_TYPE in an environment does not change the fat binaries of programs."""
    project.sconstruct("env.OffloadObject('k.hip')\n").build()
    before = project.read("k.hipfb")
    other = "env['OFFLOAD_BUNDLE_TYPE'] = 'ii'\nenv.OffloadObject('k.hip')\n"
    project.sconstruct(other).build_once()
    assert project.read("k.hipfb") == before


@pytest.mark.llvm
def test_checked_archive(beside: Beside) -> None:
    """OFFLOAD_CHECK_INPUT_ARCHIVE refuses members that no bundle may have, as LLVM does."""
    ids = ["hip-amdgcn-amd-amdhsa--gfx90a", "hip-amdgcn-amd-amdhsa--gfx908:xnack+"]
    beside.scons(f"env.OffloadBundle('bad.o', ['a.in', 'b.in'], OFFLOAD_TARGETS={ids})\n")
    beside.write("bad.o", beside.read("bad.o").replace(b"gfx908:", b"gfx90a:"))
    beside.run("llvm-ar", "rcsD", "bad.a", "bad.o")
    call = f"env.OffloadDeviceArchive('x', 'bad.a', OFFLOAD_TARGETS='{ids[0]}', %s)\n"
    beside.refused(call % "OFFLOAD_CHECK_INPUT_ARCHIVE=True", "conflicting TargetIDs")
    options = ["-type=a", "-unbundle", "-input=bad.a", f"-targets={ids[0]}"]
    checked = [*options, "-output=theirs", "-check-input-archive"]
    done = beside.tried("clang-offload-bundler", *checked)
    assert (done.returncode, "onflicting TargetIDs" in done.stderr) == (1, True)
    beside.scons(call % "")
    assert beside.read("x.gfx90a.a") == theirs(beside, *options)


@pytest.mark.llvm
def test_compressed_version(beside: Beside) -> None:
    """Version 2 for older runtimes, by our variable or clang's in ENV; a change packs again."""
    call = BOTH + "env.OffloadBundle('x', files, OFFLOAD_TARGETS=ids, OFFLOAD_COMPRESS='zstd'%s)\n"
    older = "env['ENV']['COMPRESSED_BUNDLE_FORMAT_VERSION'] = '2'\n"
    for body, version, is_packed in (
        (call % "", 3, True),
        (call % ", OFFLOAD_COMPRESS_VERSION=3", 3, False),
        (call % ", OFFLOAD_COMPRESS_VERSION='2'", 2, True),
        (older + call % "", 2, False),
        (older + call % ", OFFLOAD_COMPRESS_VERSION=3", 3, True),
        (older + call % "", 2, True),
    ):
        assert ("BUNDLE x.hipfb" in beside.scons(body).actions) is is_packed
        assert beside.read("x.hipfb")[:6] == b"CCOB" + bytes([version, 0])
    options = ["-type=bc", "-unbundle", "-input=x.hipfb", f"-targets={GFX906}"]
    assert theirs(beside, *options) == b"content of a\n"


def test_version_of_plain_bundles(beside: Beside) -> None:
    """Without compression the version is nothing to pack again for."""
    call = BOTH + "env.OffloadBundle('x', files, OFFLOAD_TARGETS=ids%s)\n"
    beside.scons(call % "")
    assert "BUNDLE x.hipfb" not in beside.scons(call % ", OFFLOAD_COMPRESS_VERSION=2").actions
