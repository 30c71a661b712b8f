"""File types, missing entries and versions of bundles: what LLVM's options are as variables."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from offload_tool.formats.objects.ar import ArchiveReader
from tests.scons.conftest import Project

GFX906 = "hip-amdgcn-amd-amdhsa--gfx906"
GFX908 = "hip-amdgcn-amd-amdhsa--gfx908"
OPENMP = "openmp-amdgcn-amd-amdhsa--gfx906"
NVIDIA = "openmp-nvptx64-nvidia-cuda--sm_80"
HOST = "host-x86_64-unknown-linux-gnu-"
TWO = f"files = ['a.in', 'b.in']\nids = ['{GFX906}', '{GFX908}']\n"


@pytest.fixture
def files(project: Project) -> Project:
    """Return a project with files to bundle."""
    for name in ("host", *"abcd"):
        project.write(f"{name}.in", f"content of {name}\n")
    return project


Bundler = Callable[..., bytes]


@pytest.fixture
def bundler(files: Project, llvm: Callable[[str], str]) -> Bundler:
    """Return a function that runs LLVM's bundler, and gives its output."""

    def run(*options: str, output: str = "theirs", fails_with: str = "") -> bytes:
        command = [llvm("clang-offload-bundler"), *options]
        command += [f"-output={output}"] * bool(output)
        done = subprocess.run(
            command, cwd=files.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == bool(fails_with), done.stderr
        assert fails_with in done.stderr
        return b"" if fails_with or not output else files.read(output)

    return run


def built(project: Project, body: str) -> None:
    project.sconstruct(body).done()


# -- file types --------------------------------------------------------------------------


@pytest.mark.llvm
@pytest.mark.parametrize("file_type", ["i", "ii", "cui", "hipi", "d", "s", "ll", "bc", "o"])
def test_file_types(files: Project, file_type: str, bundler: Bundler) -> None:
    """A bundle of each file type is what LLVM writes, and comes apart into what went in."""
    built(
        files,
        TWO
        + f"env['OFFLOAD_BUNDLE_TYPE'] = '{file_type}'\n"
        + "bundle = env.OffloadBundle('ours', files, OFFLOAD_TARGETS=ids,\n"
        "                            OFFLOAD_BUNDLE_ALIGN=1)\n"
        "env.OffloadUnbundle('part', bundle, OFFLOAD_TARGETS=ids)\n",
    )
    options = [f"-type={file_type}", f"-targets={GFX906},{GFX908}", "-input=a.in", "-input=b.in"]
    assert files.read(f"ours.{file_type}") == bundler(*options)
    for name, target in (("a", "gfx906"), ("b", "gfx908")):
        part = (files.folder / f"part.{target}.{file_type}").read_text()
        assert part == f"content of {name}\n"
    files.assert_up_to_date()


def test_programs_keep_their_layout(files: Project) -> None:
    """OFFLOAD_BUNDLE_TYPE in an environment does not change the fat binaries of programs."""
    files.sconstruct("env.OffloadObject('k.hip')\n").build()
    before = files.read("k.hipfb")
    files.sconstruct("env['OFFLOAD_BUNDLE_TYPE'] = 'ii'\nenv.OffloadObject('k.hip')\n").build()
    assert files.read("k.hipfb") == before
    files.assert_up_to_date()


# -- archives ----------------------------------------------------------------------------

MEMBERS = (
    "def member(name, files, ids):\n"
    "    return env.OffloadBundle(name, files, OFFLOAD_TARGETS=ids)\n"
    "one = member('one.o', ['host.in', 'a.in', 'b.in', 'c.in'],\n"
    f"             ['{HOST}', '{GFX906}', '{OPENMP}', '{NVIDIA}'])\n"
    f"two = member('two.o', ['d.in'], ['{GFX906}'])\n"
    "library = env.OffloadArchive('parts', [one, two])\n"
)


@pytest.mark.llvm
@pytest.mark.parametrize("by_type", [False, True])
def test_archive_targets(files: Project, by_type: bool, bundler: Bundler) -> None:
    """OFFLOAD_TARGETS names entries of any kind; their archives are LLVM's, with its names.

    Members are called .bc for AMD GPUs and .cubin for NVIDIA's. OffloadUnbundle does the
    same for the file type "a".
    """
    ids = [GFX906, OPENMP, NVIDIA]
    call = f"OffloadDeviceArchive(library, OFFLOAD_TARGETS={ids})"
    if by_type:
        call = f"OffloadUnbundle(library, OFFLOAD_TARGETS={ids}, OFFLOAD_BUNDLE_TYPE='a')"
    built(files, MEMBERS + f"env.{call}\n")
    options = ["-type=a", "-unbundle", "-input=libparts.a", f"-targets={','.join(ids)}"]
    outputs = [f"-output=theirs.{number}" for number in range(len(ids))]
    bundler(*options, *outputs, output="")
    names = ["libparts.hip-gfx906.a", "libparts.openmp-gfx906.a", "libparts.sm_80.a"]
    extensions = []
    for number, name in enumerate(names):
        ours = files.read(name)
        assert ours == files.read(f"theirs.{number}")
        members = ArchiveReader(memoryview(ours), path=name)
        extensions.append([member.name.rpartition(".")[2] for member in members])
    assert extensions == [["bc", "bc"], ["bc"], ["cubin"]]
    files.assert_up_to_date()


@pytest.mark.llvm
def test_hip_for_openmp(files: Project, bundler: Bundler) -> None:
    """With OFFLOAD_HIP_OPENMP_COMPATIBLE, HIP's entries serve OpenMP's targets, as in LLVM."""
    built(
        files,
        MEMBERS
        + f"env.OffloadDeviceArchive(library, OFFLOAD_TARGETS='{OPENMP}',\n"
        + "                         OFFLOAD_HIP_OPENMP_COMPATIBLE=True)\n",
    )
    options = ["-type=a", "-unbundle", "-input=libparts.a", f"-targets={OPENMP}"]
    ours = files.read("libparts.gfx906.a")
    assert ours == bundler(*options, "-hip-openmp-compatible")
    assert len(list(ArchiveReader(memoryview(ours), path="ours"))) == 3


@pytest.mark.llvm
@pytest.mark.parametrize("builder", ["OffloadDeviceArchive", "OffloadUnbundle"])
def test_missing_entries(files: Project, builder: str, bundler: Bundler) -> None:
    """What a bundle or archive lacks is an error; OFFLOAD_ALLOW_MISSING_BUNDLES makes it empty."""
    is_archive = builder == "OffloadDeviceArchive"
    source = "library" if is_archive else "one"
    call = f"env.{builder}('x', {source}, OFFLOAD_TARGETS='{GFX908}', %s)\n"
    files.sconstruct(MEMBERS + call % "")
    assert GFX908 in files.fails().errors
    output = files.folder / ("x.gfx908.a" if is_archive else "x.gfx908.co")
    assert not output.exists()
    built(files, MEMBERS + call % "OFFLOAD_ALLOW_MISSING_BUNDLES=True")
    options = [f"-type={'a' if is_archive else 'o'}", "-unbundle", f"-targets={GFX908}"]
    options += [f"-input={'libparts.a' if is_archive else 'one.o'}", "-allow-missing-bundles"]
    assert output.read_bytes() == bundler(*options)
    files.assert_up_to_date()


@pytest.mark.llvm
def test_checked_archive(files: Project, llvm: Callable[[str], str], bundler: Bundler) -> None:
    """OFFLOAD_CHECK_INPUT_ARCHIVE refuses members that no bundle may have, as LLVM does."""
    built(files, MEMBERS)
    ids = ("hip-amdgcn-amd-amdhsa--gfx90a", "hip-amdgcn-amd-amdhsa--gfx908:xnack+")
    built(files, f"env.OffloadBundle('bad.o', ['a.in', 'b.in'], OFFLOAD_TARGETS={list(ids)})\n")
    bad = files.folder / "bad.o"
    bad.write_bytes(bad.read_bytes().replace(b"gfx908:", b"gfx90a:"))
    subprocess.run([llvm("llvm-ar"), "rcsD", "bad.a", "bad.o"], cwd=files.folder, check=True)
    call = f"env.OffloadDeviceArchive('x', 'bad.a', OFFLOAD_TARGETS='{ids[0]}', %s)\n"
    files.sconstruct(call % "OFFLOAD_CHECK_INPUT_ARCHIVE=True")
    assert "conflicting TargetIDs" in files.fails().errors
    options = ["-type=a", "-unbundle", "-input=bad.a", f"-targets={ids[0]}"]
    bundler(*options, "-check-input-archive", fails_with="onflicting TargetIDs")
    built(files, call % "")
    assert files.read("x.gfx90a.a") == bundler(*options)


# -- the version of compressed bundles ----------------------------------------------------


def version(project: Project, name: str = "x.hipfb") -> int:
    header = project.read(name)[:6]
    assert header[:4] == b"CCOB"
    return int.from_bytes(header[4:], "little")


@pytest.mark.llvm
def test_compressed_version(files: Project, bundler: Bundler) -> None:
    """Version 2 for older runtimes, by our variable or clang's in ENV; a change packs again."""
    call = TWO + "env.OffloadBundle('x', files, OFFLOAD_TARGETS=ids, OFFLOAD_COMPRESS='zstd'%s)\n"
    older = "env['ENV']['COMPRESSED_BUNDLE_FORMAT_VERSION'] = '2'\n"
    for body, expected, is_packed in (
        (call % "", 3, True),
        (call % ", OFFLOAD_COMPRESS_VERSION=3", 3, False),
        (call % ", OFFLOAD_COMPRESS_VERSION='2'", 2, True),
        (older + call % "", 2, False),
        (older + call % ", OFFLOAD_COMPRESS_VERSION=3", 3, True),
        (older + call % "", 2, True),
    ):
        files.sconstruct(body)
        assert ("BUNDLE x.hipfb" in files.done().actions) is is_packed
        assert version(files) == expected
        files.assert_up_to_date()
    options = ["-type=bc", "-unbundle", "-input=x.hipfb", f"-targets={GFX906}"]
    assert bundler(*options) == b"content of a\n"


def test_version_of_plain_bundles(files: Project) -> None:
    """Without compression the version is nothing to pack again for."""
    call = TWO + "env.OffloadBundle('x', files, OFFLOAD_TARGETS=ids%s)\n"
    built(files, call % "")
    files.sconstruct(call % ", OFFLOAD_COMPRESS_VERSION=2")
    assert "BUNDLE x.hipfb" not in files.run().actions


# -- OpenMP ------------------------------------------------------------------------------


def test_unbundle_openmp(files: Project) -> None:
    """OffloadUnbundle asks for entries of OFFLOAD_KIND for the target IDs of OFFLOAD_ARCH."""
    built(
        files,
        MEMBERS + "env.OffloadUnbundle('part', one, OFFLOAD_KIND='openmp', OFFLOAD_ARCH='gfx906')\n"
        f"env.OffloadUnbundle('two', one, OFFLOAD_TARGETS=['{GFX906}', '{OPENMP}'])\n",
    )
    contents = {
        name: (files.folder / name).read_text()
        for name in ("part.gfx906.co", "two.hip-gfx906.co", "two.openmp-gfx906.co")
    }
    assert list(contents.values()) == ["content of b\n", "content of a\n", "content of b\n"]
