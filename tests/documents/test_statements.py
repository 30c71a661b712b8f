"""Statements of the documents of LLVM's tools, each as an SConstruct, beside LLVM's own commands.

The documents: clang.llvm.org/docs/ClangOffloadBundler.html and ClangOffloadPackager.html of Clang
22, that of clang-offload-wrapper in AMD's compiler, "Bundled Device Binaries", and the proposal of
clang-offload-bundler. A row begins with the document's words.
"""

from __future__ import annotations

import pytest

from tests.documents.beside import (
    AMD,
    BUNDLER,
    CPU,
    GFX906,
    HIP,
    HOST,
    NVIDIA,
    OPENMP,
    OURS,
    PACKAGE,
    PACKAGER,
    PLAIN,
    THREE,
    UNBUNDLE,
    Beside,
    Row,
    archived,
    bundle,
    bundled,
    package,
    packaged,
)
from tests.documents.beside import beside as beside

pytestmark = pytest.mark.llvm

UNPACKED = f"{UNBUNDLE} -targets={HOST},{GFX906} -input=small.hipfb -output=u0 -output=u1"
CALL = "env.OffloadExtract('x', 'gab.o', OFFLOAD_ARCH='gfx906'{})\n"
MERGED = [
    *(packaged(name, THREE, f"{name}.bin") for name in "ab"),
    *(f"clang -c {n}.c -Xclang -fembed-offload-object={n}.bin -o g{n}.o" for n in "ab"),
    "ld.lld -r -o gab.o ga.o gb.o",
]
LIBRARY = (
    "env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_ARCH=['gfx906'], OFFLOAD_FLAGS='-nogpulib')\n"
    "lib = env.OffloadStaticLibrary('r', ['one.c', 'two.c'])\nenv.OffloadExtract({!r}, lib)\n"
)
WRAPPER = "env['OFFLOAD_KIND'] = 'openmp'\nenv.OffloadWrapper({})\n".format
BUILDERS = ("Bundle", "Unbundle", "DeviceArchive", "Package", "Extract")

ROWS: dict[str, Row] = {
    # The bundler: bundle entry IDs. LLVM's bundle has the four fields that the warning names.
    "The bundler only accepts target triples in the 4-field format": Row(
        bundle("a", "hip-amdgcn-amd-amdhsa-gfx906", **PLAIN),
        OURS,
        [bundled("a", [GFX906], "theirs")],
        [
            "'hip-amdgcn-amd-amdhsa-gfx906' has a triple of three fields",
            f"it is taken as '{GFX906}', write that",
        ],
    ),
    "Host: clang-offload-bundler always includes this entry": Row(
        bundle("a", OPENMP),
        messages=["expecting exactly one host target but got 0"],
        refused_there=bundled("a", [OPENMP], "theirs"),
    ),
    **{
        f"Each entry must have a different bundle entry ID: {builder}, {name}": Row(
            f"env.{builder}('x', 'a.in', OFFLOAD_TARGETS={targets})\n",
            messages=[message],
            refused_there=f"{BUNDLER} -type={kind} -unbundle -targets={','.join(targets)} "
            "-input=a.in -output=t0 -output=t1",
        )
        for builder, kind in (("OffloadUnbundle", "o"), ("OffloadDeviceArchive", "a"))
        for name, targets, message in (
            ("equal", [GFX906] * 2, "Duplicate targets are not allowed"),
            ("Any", [GFX906, f"{GFX906}:xnack+"], "inputs with conflicting targets"),
        )
    },
    # LLVM gives the first of two bundles, without a word.
    "Each entry must have a different bundle entry ID: two bundles in one file": Row(
        f"import shutil\nwith open('ab', 'wb') as out:\n"
        "    for name in 'ab':\n        out.write(open(name + '.bundle', 'rb').read())\n"
        f"env.OffloadUnbundle('x', 'ab', OFFLOAD_TARGETS='{GFX906}')\n",
        {"a.in": "theirs"},
        [f"{UNBUNDLE} -targets={GFX906} -input=ab -output=theirs"],
        [f"'ab': 2 entries '{GFX906}', at 0x"],
        [bundled(name, [GFX906], f"{name}.bundle") for name in "ab"],
        is_refused=True,
    ),
    # Compression.
    "Features to compress the full bundle: no object bundle, with a warning": Row(
        f"env.OffloadBundle('ours.hipfb', ['a.in', 'host.o'], OFFLOAD_TARGETS={[GFX906, HOST]},\n"
        "                  OFFLOAD_BUNDLE_TYPE='o', OFFLOAD_COMPRESS='zstd')\n",
        OURS,
        [
            f"{BUNDLER} -type=o -targets={GFX906},{HOST} -compress -input=a.in -input=host.o "
            "-output=theirs"
        ],
        ["offload: warning: [ours.hipfb] no compression"],
        ["clang -c a.c -o host.o"],
    ),
    "Compress the full bundle: type o without a host object": Row(
        bundle("a", GFX906, BUNDLE_TYPE="o", COMPRESS="zstd", **PLAIN),
        {"u": "a.in"},
        [f"{BUNDLER} -type=o -unbundle -targets={GFX906} -input=ours.hipfb -output=u"],
        begins={"ours.hipfb": b"CCOB"},
    ),
    **{
        f"Compress the full bundle, afterwards: {method}, version {version}": Row(
            f"env.OffloadRepack('small', 'plain', OFFLOAD_COMPRESS='{method}', "
            f"OFFLOAD_COMPRESS_VERSION={version})\n"
            "env.OffloadRepack('again', 'small.hipfb', OFFLOAD_BUNDLE_ALIGN=1)\n",
            {"again.hipfb": "plain", "u1": "b.in"},
            [UNPACKED],
            before=[bundled("ab", [HOST, GFX906], "plain")],
            begins={"small.hipfb": bytes([*b"CCOB", version])},
        )
        for method, version in (("zstd", 3), ("zstd", 2), ("zlib", 3))
    },
    # Target IDs: every builder refuses wrong ones, also where entries may be missing.
    **{
        f"A target feature name that is supported by the processor: {builder}": Row(
            f"env.Offload{builder}('x', 'a.in', OFFLOAD_TARGETS='{HIP}gfx9999',\n"
            "    OFFLOAD_ALLOW_MISSING_BUNDLES=True)\n",
            messages=["OFFLOAD_TARGETS", "unknown processor 'gfx9999', did you mean"],
        )
        for builder in BUILDERS
    },
    "Processor: a target specific processor": Row(
        f"env.Replace(OFFLOAD_ALLOW_UNKNOWN_ARCH=True, OFFLOAD_TARGETS='{HIP}gfx9999')\n"
        "env.OffloadUnbundle('u', env.OffloadBundle('ours', 'a.in', OFFLOAD_BUNDLE_ALIGN=1))\n",
        {"u.gfx9999.co": "a.in"},
        messages=[f"unknown processor 'gfx9999' in '{HIP}gfx9999' is kept"],
    ),
    # The packager: its format. Two images for one file are refused, and archived.
    "Even after they may have been merged: refused": Row(
        CALL.format(""),
        messages=["'gab.o': 2 images", "gab.o at 0x", "OFFLOAD_EXTRACT_ARCHIVE=True"],
        before=MERGED,
    ),
    "Even after they may have been merged: archived": Row(
        CALL.format(", OFFLOAD_EXTRACT_ARCHIVE=True"),
        {"x.gfx906.a": "theirs.a"},
        [archived("gab.o", f"{AMD},arch=gfx906")],
        before=MERGED,
    ),
    "Each created binary contains its own magic bytes: refused": Row(
        LIBRARY.format("x"), messages=["'libr.a': 2 images", "one.o at 0x", "two.o at 0x"]
    ),
    "Each created binary contains its own magic bytes: archived": Row(
        LIBRARY.format("x.a"),
        {"x.gfx906.a": "theirs.a"},
        [archived("libr.a", f"{AMD},arch=gfx906", "openmp")],
    ),
    "Used to generically contain any arbitrary key-value pair": Row(
        package(
            f"['a.in', 'b.in'], OFFLOAD_TARGETS=['{GFX906}', '{HIP}gfx908'],\n"
            "    OFFLOAD_PACKAGE_KEYS={\n"
            "        'feature': '+xnack', 'b.in': {'feature': '+x', 'symbols': 's'}}"
        ),
        PACKAGE,
        [packaged("ab", [f"{THREE[0]},feature=+xnack", f"{THREE[1]},feature=+x,symbols=s"])],
    ),
    **{
        f"A key-value pair: {keys}": Row(
            package(f"'a.in', OFFLOAD_TARGETS='{GFX906}', OFFLOAD_PACKAGE_KEYS={keys}"),
            messages=[message],
        )
        for keys, message in (
            ("{'z': {'feature': 'x'}}", "'z' is not in the package; expected one of a.in"),
            ("{'arch': 'gfx908'}", "'arch' is what nodes set by themselves"),
            ("{'feature': 1}", "expected texts for a key and its value, found 'feature': 1"),
        )
    },
    "Bundled together by simply concatenating them": Row(
        package(
            "['c.in', 'a.in'], OFFLOAD_PACKAGE_BASE='base.bin',\n"
            f"    OFFLOAD_TARGETS=['{GFX906}', '{HIP}gfx90a']"
        ),
        PACKAGE,
        [packaged("cba", THREE)],
        before=[packaged("ab", THREE, "base.bin")],
    ),
    # The packager: its usage.
    "clang-offload-packager -o out.bin --image=file=input.o,triple=nvptx64,arch=sm_70": Row(
        package("'a.in', OFFLOAD_TARGETS='none-nvptx64----sm_70'"),
        PACKAGE,
        [packaged("a", ["triple=nvptx64,arch=sm_70"])],
    ),
    **{
        f"The matching images will be placed in the output: {typed}": Row(
            f"env.OffloadExtract('x', 'in.bin', OFFLOAD_TARGETS='{typed}')\n",
            {"x.sm_70.co": "theirs.o"},
            [f"{PACKAGER} in.bin --image=file=theirs.o,triple=nvptx64,arch=sm_70"],
            before=[packaged("a", ["triple=nvptx64,arch=sm_70"], "in.bin")],
        )
        for typed in ("none-nvptx64----sm_70", "none-nvptx64-unknown-unknown-unknown-sm_70")
    },
    **{
        f"The offloading kind: {kind}, by {by}": Row(
            package(f"'a.in', OFFLOAD_TARGETS='{kind}-nvptx64-nvidia-cuda-unknown-sm_80'")
            + f"env.OffloadExtract('x', 'ours.offload', {call})\n",
            {**PACKAGE, "x.sm_80.co": "t"},
            [
                packaged("a", [f"{NVIDIA},arch=sm_80,kind={kind}"]),
                f"{PACKAGER} ours.offload --image=file=t,{NVIDIA},arch=sm_80,kind={kind}",
            ],
        )
        for kind in ("cuda", "openmp")
        for by, call in (
            ("name", f"OFFLOAD_KIND='{kind}', OFFLOAD_ARCH='sm_80'"),
            ("ID", f"OFFLOAD_TARGETS='{kind}-nvptx64-nvidia-cuda-unknown-sm_80'"),
        )
    },
    "The arch argument is suggested: PTX": Row(
        package("'a.in', OFFLOAD_TARGETS='cuda-nvptx64-nvidia-cuda-unknown-compute_80'"),
        PACKAGE,
        [packaged("a", [f"{NVIDIA},arch=compute_80,kind=cuda"])],
    ),
    **{
        f"The file and triple arguments are mandatory: {old}": Row(
            package(f"'a.in', OFFLOAD_TARGETS='{old}'"),
            PACKAGE,
            [packaged("a", [described])],
            [f"'{old}' has a triple of three fields"],
        )
        for old, described in (
            ("hip-amdgcn-amd-amdhsa-gfx906", THREE[0]),
            ("cuda-nvptx64-nvidia-cuda-sm_80", f"{NVIDIA},arch=sm_80,kind=cuda"),
        )
    },
    "The producer of the image (e.g. openmp, cuda)": Row(
        package("'a.in', OFFLOAD_TARGETS='foo-nvptx64-nvidia-cuda--sm_70'"),
        messages=["unknown offload kind 'foo', expected openmp, cuda, hip, sycl or none"],
    ),
    **{
        f"--archive: write extracted files to a static archive: {name}": Row(
            f"env.OffloadExtract({call}, OFFLOAD_ARCH='gfx906')\n",
            {"x.gfx906.a": "theirs.a"},
            [archived("all.bin", f"{AMD},arch=gfx906")],
            before=[packaged("abc", [THREE[0]] * 3, "all.bin")],
        )
        for name, call in (
            ("suffix", "'x.a', 'all.bin'"),
            ("variable", "'x', 'all.bin', OFFLOAD_EXTRACT_ARCHIVE=True"),
        )
    },
    # The wrapper.
    **{
        f"--offload-arch=gfx906 gfx906-binary.out: {call}": Row(WRAPPER(call), messages=[message])
        for call, message in (
            ("'w.bc', 'a.in', OFFLOAD_TARGETS='banana'", "invalid target ID 'banana'"),
            (
                "'w.bc', 'a.in', OFFLOAD_TARGETS='gfx906 gfx908'",
                "one target ID for each of 1 images",
            ),
            ("'w.ll', 'a.in'", "OffloadWrapper of 'w.ll': LLVM IR text is not written"),
            (
                "'w.bc', 'a.in', OFFLOAD_KIND='hip', OFFLOAD_TARGETS='gfx906'",
                "for openmp, not for hip",
            ),
        )
    },
}


@pytest.mark.parametrize("statement", ROWS)
def test_statement(beside: Beside, statement: str) -> None:
    """Our outputs are LLVM's, or nothing is made and a message says why."""
    beside.check(ROWS[statement])


def disassembled(beside: Beside, name: str) -> list[str]:
    """Return a module's text without the lines that name its file."""
    text = beside.run("llvm-dis", name, "-o", "-").stdout
    return [line for line in text.splitlines() if not line.startswith((";", "source_filename"))]


@pytest.mark.parametrize(
    "targets", ["gfx906 gfx90a:xnack+", "openmp-amdgcn-amd-amdhsa--gfx906 fiji"]
)
def test_target_ids(beside: Beside, targets: str) -> None:
    """'--offload-arch=gfx906 gfx906-binary.out': the target ID of each image."""
    beside.scons(WRAPPER(f"'w.bc', ['a.in', 'b.in'], OFFLOAD_TARGETS='{targets}'"))
    ids = [text.rpartition("--")[2].replace("fiji", "gfx803") for text in targets.split()]
    text = "\n".join(disassembled(beside, "w.bc"))
    for number, target_id in enumerate(ids):
        name = "@__offload_arch" + (f".{number}" if number else "")
        assert f'{name} = internal constant [{len(target_id) + 1} x i8] c"{target_id}\\00"' in text
    assert "call void @__tgt_register_image_info" in text


@pytest.mark.parametrize(
    ("kind", "target"),
    [("openmp", CPU), ("openmp", "aarch64-unknown-linux-gnu"), ("hip", CPU)],
)
def test_host_target(beside: Beside, kind: str, target: str) -> None:
    """'-target host-triple': the driver says it, of the flags of host compiles."""
    flags = "" if target == CPU else ", CCFLAGS='--target=aarch64-linux-gnu'"
    beside.scons(WRAPPER(f"'w.bc', 'a.in', OFFLOAD_KIND={kind!r}{flags}"))
    beside.run("llvm-offload-wrapper", f"--kind={kind}", f"--triple={target}", "-o", "t.bc", "a.in")
    ours = disassembled(beside, "w.bc")
    assert ours.pop(0).startswith("target datalayout = ")  # clang adds it
    assert ours == disassembled(beside, "t.bc")


def test_older_layout(beside: Beside) -> None:
    """The document's module, of LLVM 15, registers entries under that LLVM's names."""
    beside.scons(WRAPPER("'w.bc', ['a.in', 'b.in'], OFFLOAD_WRAPPER_LLVM=15"))
    names = "@__start_omp_offloading_entries = external hidden constant %__tgt_offload_entry"
    assert names in "\n".join(disassembled(beside, "w.bc"))
