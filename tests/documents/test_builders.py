"""What builders make of sources, and with each option, beside what LLVM's tools make."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.documents.beside import (
    AMD,
    BUNDLER,
    CPU,
    GFX906,
    GFX908,
    HIP,
    HOST,
    OF_NVIDIA,
    OPENMP,
    PACKAGE,
    PACKAGER,
    THREE,
    Beside,
    Row,
    bundled,
    packaged,
)
from tests.documents.beside import beside as beside

pytestmark = pytest.mark.llvm

BOTH = f"files = ['a.in', 'b.in']\nids = ['{GFX906}', '{GFX908}']\n"
MEMBERS = f"""\
one = env.OffloadBundle('one.o', ['c.in', 'a.in', 'b.in', 'c.in'],
    OFFLOAD_TARGETS=['{HOST}', '{GFX906}', '{OPENMP}', '{OF_NVIDIA}'])
two = env.OffloadBundle('two.o', ['d.in'], OFFLOAD_TARGETS=['{GFX906}'])
library = env.OffloadArchive('parts', [one, two])
"""
OF_LIBRARY = f"{BUNDLER} -type=a -unbundle -input=libparts.a -output=theirs"
OF_ONE = f"{BUNDLER} -type=o -unbundle -input=one.o -output=theirs"
DEVICES = "env.Replace(OFFLOAD_ARCH='gfx906 gfx90a:xnack+', CCFLAGS='-nogpuinc -nogpulib')\n"
CODE = {"gfx906": "k.gfx906.co", "gfx90a:xnack+": "k.gfx90a_xnack+.co"}
IDS = [HOST, *(f"hipv4-amdgcn-amd-amdhsa--{target}" for target in CODE)]
IMAGES = [f"--image=file={file},{AMD},arch={target},kind=hip" for target, file in CODE.items()]


def compiled_bundle(ids: Sequence[str], files: Sequence[str], output: str = "theirs") -> str:
    inputs = " ".join(f"-input={name}" for name in files)
    targets = f"-targets={','.join(ids)}"
    return f"{BUNDLER} -type=bc -bundle-align=4096 {targets} {inputs} -output={output}"


ROWS: dict[str, Row] = {
    "OffloadBundle of a source, and what comes out of it": Row(
        f"{DEVICES}bundle = env.OffloadBundle('k.hip')\nparts = env.OffloadUnbundle('p', bundle)\n"
        f"env.OffloadUnbundle('p', bundle, OFFLOAD_TARGETS='{HOST}')\n"
        "env.OffloadBundle('again', parts)\n",
        {
            "k.hipfb": "theirs",
            "again.hipfb": "k.hipfb",
            "p.host.co": "/dev/null",
            **{file.replace("k.", "p."): file for file in CODE.values()},
        },
        [compiled_bundle(IDS, ("/dev/null", *CODE.values()))],
    ),
    "OffloadPackage of a source, and what comes out of it": Row(
        f"{DEVICES}parts = env.OffloadExtract('p', env.OffloadPackage('k.hip'))\n"
        "env.OffloadPackage('again', parts)\n",
        {
            "k.offload": "theirs",
            "again.offload": "k.offload",
            "k.gfx906.co": "out",
            **{file.replace("k.", "p."): file for file in CODE.values()},
        },
        [
            f"{PACKAGER} -o theirs {' '.join(IMAGES)}",
            f"{PACKAGER} k.offload {IMAGES[0].replace(CODE['gfx906'], 'out')}",
        ],
    ),
    "OffloadBundle of a source with its host object": Row(
        f"{DEVICES}env.OffloadBundle('k.hip', OFFLOAD_BUNDLE_HOST=True)\n",
        {"k.hipfb": "theirs"},
        [compiled_bundle([f"host-{CPU}-", *IDS[1:]], ("k.host.o", *CODE.values()))],
    ),
    "OffloadBundle of nodes, which bring their IDs, and of files, which are given theirs": Row(
        f"{DEVICES}nodes = env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
        f"env.OffloadBundle('ours', [nodes, 'a.in'], OFFLOAD_TARGETS='{HIP}gfx1030')\n"
        "env.OffloadBundle('nodes', nodes)\n",
        {"ours.hipfb": "theirs", "nodes.hipfb": "t"},
        [
            compiled_bundle([IDS[1], f"{HIP}gfx1030"], ("k.gfx906.co", "a.in")),
            compiled_bundle(IDS[:2], ("/dev/null", "k.gfx906.co"), "t"),
        ],
    ),
    "OffloadPackage of nodes, which know their device, and of files, which are given theirs": Row(
        f"{DEVICES}nodes = env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
        "env.OffloadPackage('ours', [nodes, 'a.in'],\n"
        "    OFFLOAD_TARGETS='hipv4-amdgcn-amd-amdhsa--gfx1030')\n"
        f"env.OffloadPackage('other.bin', 'a.in', OFFLOAD_TARGETS='openmp-{CPU}-')\n",
        {**PACKAGE, "other.bin": "t"},
        [
            f"{PACKAGER} -o theirs {IMAGES[0]} --image=file=a.in,{AMD},arch=gfx1030,kind=hip",
            packaged("a", [f"triple={CPU},kind=openmp"], "t"),
        ],
    ),
    "OffloadExtract of an image that is not there": Row(
        "env.OffloadExtract('x', 'in.bin', OFFLOAD_ARCH='gfx942')\n",
        messages=["[x.gfx942.co] 'in.bin': no image of hip with"],
        before=[packaged("ab", THREE, "in.bin")],
    ),
    "OffloadDeviceArchive of a library of sources": Row(
        f"{DEVICES}env['OFFLOAD_RDC'] = True\n"
        "env.OffloadDeviceArchive(env.OffloadArchive('parts', 'k.hip'))\n",
        {"libparts.gfx906.a": "t0", "libparts.gfx90a_xnack+.a": "t1"},
        [
            f"{BUNDLER} -type=a -unbundle -input=libparts.a -output=t0 -output=t1 "
            f"-targets={','.join(HIP + target for target in CODE)}"
        ],
    ),
    "OffloadDeviceArchive of a library of OpenMP sources": Row(
        f"env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_ARCH='gfx906 {CPU}', CCFLAGS='-nogpulib')\n"
        "env.OffloadDeviceArchive(env.OffloadArchive('parts', ['one.c', 'two.c']))\n",
        {"libparts.gfx906.a": "t0", f"libparts.{CPU}.a": "t1"},
        [
            f"{BUNDLER} -type=a -unbundle -input=libparts.a -output=t0 -output=t1 "
            f"-targets={OPENMP},openmp-{CPU}-"
        ],
    ),
    **{
        f"-type: a bundle, and what comes out of it: {file_type}": Row(
            f"{BOTH}env['OFFLOAD_BUNDLE_TYPE'] = '{file_type}'\n"
            "made = env.OffloadBundle('ours', files, OFFLOAD_TARGETS=ids, OFFLOAD_BUNDLE_ALIGN=1)\n"
            "env.OffloadUnbundle('part', made, OFFLOAD_TARGETS=ids)\n",
            {
                f"ours.{file_type}": "theirs",
                f"part.gfx906.{file_type}": "a.in",
                f"part.gfx908.{file_type}": "b.in",
            },
            [bundled("ab", [GFX906, GFX908], "theirs", f"-type={file_type}")],
        )
        for file_type in ("i", "ii", "cui", "hipi", "d", "s", "ll", "bc", "o", "gch", "ast")
    },
    **{
        f"Entries of any kind, in archives with LLVM's names of members: {name}": Row(
            f"{MEMBERS}env.{call.format([GFX906, OPENMP, OF_NVIDIA])}\n",
            {f"libparts.{n}.a": f"theirs.{n}" for n in ("hip-gfx906", "openmp-gfx906", "sm_80")},
            [
                f"{BUNDLER} -type=a -unbundle -input=libparts.a "
                f"-targets={GFX906},{OPENMP},{OF_NVIDIA} -output=theirs.hip-gfx906 "
                "-output=theirs.openmp-gfx906 -output=theirs.sm_80"
            ],
        )
        for name, call in (
            ("by builder", "OffloadDeviceArchive(library, OFFLOAD_TARGETS={})"),
            ("by type", "OffloadUnbundle(library, OFFLOAD_TARGETS={}, OFFLOAD_BUNDLE_TYPE='a')"),
        )
    },
    "OffloadUnbundle: entries of OFFLOAD_KIND for OFFLOAD_ARCH, or of OFFLOAD_TARGETS": Row(
        f"{MEMBERS}env.OffloadUnbundle('p', one, OFFLOAD_KIND='openmp', OFFLOAD_ARCH='gfx906')\n"
        f"env.OffloadUnbundle('two', one, OFFLOAD_TARGETS=['{GFX906}', '{OPENMP}'])\n",
        {"p.gfx906.co": "b.in", "two.hip-gfx906.co": "a.in", "two.openmp-gfx906.co": "b.in"},
    ),
    "-hip-openmp-compatible: HIP's entries serve OpenMP's targets": Row(
        f"{MEMBERS}env.OffloadDeviceArchive(library, OFFLOAD_TARGETS='{OPENMP}',\n"
        "    OFFLOAD_HIP_OPENMP_COMPATIBLE=True)\n",
        {"libparts.gfx906.a": "theirs"},
        [f"{OF_LIBRARY} -targets={OPENMP} -hip-openmp-compatible"],
    ),
    **{
        f"-allow-missing-bundles: {output}, {'' if more else 'not '}allowed": Row(
            f"{MEMBERS}env.{call}OFFLOAD_TARGETS='{GFX908}'{more})\n",
            {output: "theirs"} if more else {},
            [f"{command} -targets={GFX908} -allow-missing-bundles"] if more else [],
            [] if more else [GFX908],
        )
        for call, output, command in (
            ("OffloadDeviceArchive('x', library, ", "x.gfx908.a", OF_LIBRARY),
            ("OffloadUnbundle('x', one, ", "x.gfx908.co", OF_ONE),
        )
        for more in ("", ", OFFLOAD_ALLOW_MISSING_BUNDLES=True")
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_builder(beside: Beside, name: str) -> None:
    """Our outputs are LLVM's, or nothing is made and a message says why."""
    beside.check(ROWS[name])


def theirs(beside: Beside, *options: str) -> bytes:
    """Return what LLVM's bundler makes."""
    beside.run("clang-offload-bundler", *options, "-output=theirs")
    return beside.read("theirs")


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
