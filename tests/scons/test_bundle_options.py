"""File types, missing entries and versions of bundles: what LLVM's options are as variables."""

from __future__ import annotations

import pytest

from offload_tool.formats.objects.ar import ArchiveReader
from tests.documents.test_statements import Beside
from tests.documents.test_statements import beside as beside
from tests.scons.conftest import Project

GFX906 = "hip-amdgcn-amd-amdhsa--gfx906"
GFX908 = "hip-amdgcn-amd-amdhsa--gfx908"
OPENMP = "openmp-amdgcn-amd-amdhsa--gfx906"
NVIDIA = "openmp-nvptx64-nvidia-cuda--sm_80"
HOST = "host-x86_64-unknown-linux-gnu-"
TWO = f"files = ['a.in', 'b.in']\nids = ['{GFX906}', '{GFX908}']\n"
MEMBERS = f"""\
one = env.OffloadBundle('one.o', ['host.in', 'a.in', 'b.in', 'c.in'],
    OFFLOAD_TARGETS=['{HOST}', '{GFX906}', '{OPENMP}', '{NVIDIA}'])
two = env.OffloadBundle('two.o', ['d.in'], OFFLOAD_TARGETS=['{GFX906}'])
library = env.OffloadArchive('parts', [one, two])
"""
FROM_LIBRARY = ("-type=a", "-unbundle", "-input=libparts.a")


@pytest.fixture
def files(beside: Beside) -> Beside:
    """Return a project with files to bundle."""
    for name in ("host", "d"):
        beside.write(f"{name}.in", f"content of {name}\n")
    return beside


def theirs(files: Beside, *options: str) -> bytes:
    """Return what LLVM's bundler makes."""
    files.run("clang-offload-bundler", *options, "-output=theirs")
    return files.read("theirs")


@pytest.mark.llvm
@pytest.mark.parametrize(
    "file_type", ["i", "ii", "cui", "hipi", "d", "s", "ll", "bc", "o", "gch", "ast"]
)
def test_file_types(files: Beside, file_type: str) -> None:
    """A bundle of each file type is what LLVM writes, and comes apart into what went in."""
    files.scons(
        f"{TWO}env['OFFLOAD_BUNDLE_TYPE'] = '{file_type}'\n"
        "bundle = env.OffloadBundle('ours', files, OFFLOAD_TARGETS=ids, OFFLOAD_BUNDLE_ALIGN=1)\n"
        "env.OffloadUnbundle('part', bundle, OFFLOAD_TARGETS=ids)\n"
    )
    options = [f"-type={file_type}", f"-targets={GFX906},{GFX908}", "-input=a.in", "-input=b.in"]
    assert files.read(f"ours.{file_type}") == theirs(files, *options)
    for name, target in (("a", "gfx906"), ("b", "gfx908")):
        assert files.read(f"part.{target}.{file_type}") == files.read(f"{name}.in")


def test_programs_keep_their_layout(project: Project) -> None:
    """OFFLOAD_BUNDLE_TYPE in an environment does not change the fat binaries of programs."""
    project.sconstruct("env.OffloadObject('k.hip')\n").build()
    before = project.read("k.hipfb")
    other = "env['OFFLOAD_BUNDLE_TYPE'] = 'ii'\nenv.OffloadObject('k.hip')\n"
    project.sconstruct(other).build_once()
    assert project.read("k.hipfb") == before


@pytest.mark.llvm
@pytest.mark.parametrize("by_type", [False, True])
def test_archive_targets(files: Beside, by_type: bool) -> None:
    """OFFLOAD_TARGETS names entries of any kind; their archives are LLVM's, with its names.

    Members are called .bc for AMD GPUs and .cubin for NVIDIA's. OffloadUnbundle does the
    same for the file type "a".
    """
    ids = [GFX906, OPENMP, NVIDIA]
    call = f"OffloadDeviceArchive(library, OFFLOAD_TARGETS={ids})"
    if by_type:
        call = f"OffloadUnbundle(library, OFFLOAD_TARGETS={ids}, OFFLOAD_BUNDLE_TYPE='a')"
    files.scons(f"{MEMBERS}env.{call}\n")
    outputs = [f"-output=theirs.{number}" for number in range(len(ids))]
    files.run("clang-offload-bundler", *FROM_LIBRARY, f"-targets={','.join(ids)}", *outputs)
    extensions = []
    for number, name in enumerate(("hip-gfx906", "openmp-gfx906", "sm_80")):
        ours = files.read(f"libparts.{name}.a")
        assert ours == files.read(f"theirs.{number}")
        members = ArchiveReader(memoryview(ours), path=name)
        extensions.append([member.name.rpartition(".")[2] for member in members])
    assert extensions == [["bc", "bc"], ["bc"], ["cubin"]]


@pytest.mark.llvm
def test_hip_for_openmp(files: Beside) -> None:
    """With OFFLOAD_HIP_OPENMP_COMPATIBLE, HIP's entries serve OpenMP's targets, as in LLVM."""
    files.scons(
        f"{MEMBERS}env.OffloadDeviceArchive(library, OFFLOAD_TARGETS='{OPENMP}',\n"
        "    OFFLOAD_HIP_OPENMP_COMPATIBLE=True)\n"
    )
    ours = files.read("libparts.gfx906.a")
    assert ours == theirs(files, *FROM_LIBRARY, f"-targets={OPENMP}", "-hip-openmp-compatible")
    assert len(list(ArchiveReader(memoryview(ours), path="ours"))) == 3


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("call", "output", "options"),
    [
        ("OffloadDeviceArchive('x', library, ", "x.gfx908.a", FROM_LIBRARY),
        ("OffloadUnbundle('x', one, ", "x.gfx908.co", ("-type=o", "-unbundle", "-input=one.o")),
    ],
    ids=["archive", "bundle"],
)
def test_missing_entries(files: Beside, call: str, output: str, options: tuple[str, ...]) -> None:
    """What a bundle or archive lacks is an error; OFFLOAD_ALLOW_MISSING_BUNDLES makes it empty."""
    body = f"{MEMBERS}env.{call}OFFLOAD_TARGETS='{GFX908}', %s)\n"
    files.refused(body % "", GFX908)
    assert not (files.folder / output).exists()
    files.scons(body % "OFFLOAD_ALLOW_MISSING_BUNDLES=True")
    options = (*options, f"-targets={GFX908}", "-allow-missing-bundles")
    assert files.read(output) == theirs(files, *options)


@pytest.mark.llvm
def test_checked_archive(files: Beside) -> None:
    """OFFLOAD_CHECK_INPUT_ARCHIVE refuses members that no bundle may have, as LLVM does."""
    ids = ["hip-amdgcn-amd-amdhsa--gfx90a", "hip-amdgcn-amd-amdhsa--gfx908:xnack+"]
    files.scons(f"env.OffloadBundle('bad.o', ['a.in', 'b.in'], OFFLOAD_TARGETS={ids})\n")
    files.write("bad.o", files.read("bad.o").replace(b"gfx908:", b"gfx90a:"))
    files.run("llvm-ar", "rcsD", "bad.a", "bad.o")
    call = f"env.OffloadDeviceArchive('x', 'bad.a', OFFLOAD_TARGETS='{ids[0]}', %s)\n"
    files.refused(call % "OFFLOAD_CHECK_INPUT_ARCHIVE=True", "conflicting TargetIDs")
    options = ["-type=a", "-unbundle", "-input=bad.a", f"-targets={ids[0]}"]
    checked = [*options, "-output=theirs", "-check-input-archive"]
    done = files.tried("clang-offload-bundler", *checked)
    assert (done.returncode, "onflicting TargetIDs" in done.stderr) == (1, True)
    files.scons(call % "")
    assert files.read("x.gfx90a.a") == theirs(files, *options)


@pytest.mark.llvm
def test_compressed_version(files: Beside) -> None:
    """Version 2 for older runtimes, by our variable or clang's in ENV; a change packs again."""
    call = TWO + "env.OffloadBundle('x', files, OFFLOAD_TARGETS=ids, OFFLOAD_COMPRESS='zstd'%s)\n"
    older = "env['ENV']['COMPRESSED_BUNDLE_FORMAT_VERSION'] = '2'\n"
    for body, version, is_packed in (
        (call % "", 3, True),
        (call % ", OFFLOAD_COMPRESS_VERSION=3", 3, False),
        (call % ", OFFLOAD_COMPRESS_VERSION='2'", 2, True),
        (older + call % "", 2, False),
        (older + call % ", OFFLOAD_COMPRESS_VERSION=3", 3, True),
        (older + call % "", 2, True),
    ):
        assert ("BUNDLE x.hipfb" in files.scons(body).actions) is is_packed
        assert files.read("x.hipfb")[:6] == b"CCOB" + bytes([version, 0])
    options = ["-type=bc", "-unbundle", "-input=x.hipfb", f"-targets={GFX906}"]
    assert theirs(files, *options) == b"content of a\n"


def test_version_of_plain_bundles(files: Beside) -> None:
    """Without compression the version is nothing to pack again for."""
    call = TWO + "env.OffloadBundle('x', files, OFFLOAD_TARGETS=ids%s)\n"
    files.scons(call % "")
    assert "BUNDLE x.hipfb" not in files.scons(call % ", OFFLOAD_COMPRESS_VERSION=2").actions


def test_unbundle_openmp(files: Beside) -> None:
    """OffloadUnbundle asks for entries of OFFLOAD_KIND for the target IDs of OFFLOAD_ARCH."""
    files.scons(
        MEMBERS + "env.OffloadUnbundle('part', one, OFFLOAD_KIND='openmp', OFFLOAD_ARCH='gfx906')\n"
        f"env.OffloadUnbundle('two', one, OFFLOAD_TARGETS=['{GFX906}', '{OPENMP}'])\n"
    )
    for name, part in (("part.", "b"), ("two.hip-", "a"), ("two.openmp-", "b")):
        assert files.read(f"{name}gfx906.co") == files.read(f"{part}.in")
