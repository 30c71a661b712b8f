"""Section Binary Format."""

from __future__ import annotations

import pytest

from tests.documents.conftest import Beside

pytestmark = pytest.mark.llvm

PACKAGER = "llvm-offload-binary"
HIP = "hip-amdgcn-amd-amdhsa--"
AMD = "triple=amdgcn-amd-amdhsa"
REGION = "int {0}(void) {{ int v = 0;\n#pragma omp target map(from : v)\nv = 1; return v; }}\n"
OPENMP = "env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_ARCH=['gfx906'], OFFLOAD_FLAGS='-nogpulib')\n"


def test_merged_by_the_linker(beside: Beside) -> None:
    """'Even after they may have been merged, such as when using relocatable linking'.

    OffloadExtract refuses two images for one file by their names, and archives them.
    """
    for name in "ab":
        image = f"--image=file={name}.in,{AMD},arch=gfx906,kind=hip"
        beside.run(PACKAGER, "-o", f"{name}.bin", image)
        beside.write("empty.c", f"int {name};\n")
        embed = f"-fembed-offload-object={name}.bin"
        beside.run("clang", "-c", "empty.c", "-Xclang", embed, "-o", f"g{name}.o")
    beside.run("ld.lld", "-r", "-o", "gab.o", "ga.o", "gb.o")
    call = "env.OffloadExtract('x', 'gab.o', OFFLOAD_ARCH='gfx906'%s)\n"
    beside.refused(call % "", "'gab.o': 2 images", "gab.o at 0x", "OFFLOAD_EXTRACT_ARCHIVE=True")
    assert not list(beside.folder.glob("x.*"))
    beside.scons(call % ", OFFLOAD_EXTRACT_ARCHIVE=True")
    wanted = f"--image=file=theirs.a,{AMD},arch=gfx906,kind=hip"
    beside.run(PACKAGER, "gab.o", "--archive", wanted)
    assert beside.read("x.gfx906.a") == beside.read("theirs.a")


def test_own_library_of_two_sources(beside: Beside) -> None:
    """'Each created binary contains its own magic bytes': the members of a library of ours, too."""
    for name in ("one", "two"):
        beside.write(f"{name}.c", REGION.format(name))
    head = OPENMP + "lib = env.OffloadStaticLibrary('r', ['one.c', 'two.c'])\n"
    call = "env.OffloadExtract('%s', lib)\n"
    beside.refused(head + call % "x", "'libr.a': 2 images", "one.o at 0x", "two.o at 0x")
    beside.scons(head + call % "x.a")
    wanted = f"--image=file=theirs.a,{AMD},arch=gfx906,kind=openmp"
    beside.run(PACKAGER, "libr.a", "--archive", wanted)
    assert beside.read("x.gfx906.a") == beside.read("theirs.a")


def test_arbitrary_keys(beside: Beside) -> None:
    """'Used to generically contain any arbitrary key-value pair': of all images, and of one."""
    beside.scons(
        f"env.OffloadPackage('ours', ['a.in', 'b.in'],\n"
        f"    OFFLOAD_TARGETS=['{HIP}gfx906', '{HIP}gfx908'],\n"
        "    OFFLOAD_PACKAGE_KEYS={\n"
        "        'feature': '+xnack', 'b.in': {'feature': '+x', 'symbols': 's'}})\n"
    )
    tail = "kind=hip,feature="
    images = [
        f"--image=file=a.in,{AMD},arch=gfx906,{tail}+xnack",
        f"--image=file=b.in,{AMD},arch=gfx908,{tail}+x,symbols=s",
    ]
    beside.run(PACKAGER, "-o", "theirs", *images)
    assert beside.read("ours.offload") == beside.read("theirs")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{'z.in': {'feature': 'x'}}", "'z.in' is not in the package; expected one of a.in"),
        ("{'arch': 'gfx908'}", "'arch' is what nodes set by themselves"),
        ("{'feature': 1}", "expected texts for a key and its value, found 'feature': 1"),
    ],
)
def test_wrong_keys(beside: Beside, keys: str, message: str) -> None:
    """'A key-value pair': what is none, or of no image, is refused by name."""
    beside.refused(
        f"env.OffloadPackage('p', 'a.in', OFFLOAD_TARGETS='{HIP}gfx906',\n"
        f"                   OFFLOAD_PACKAGE_KEYS={keys})\n",
        message,
    )


def test_image_replaced_and_added(beside: Beside) -> None:
    """'Bundled together by simply concatenating them': one of a package replaced, one added."""
    described = [f"{AMD},arch={arch},kind=hip" for arch in ("gfx906", "gfx908", "gfx90a")]
    first = [f"--image=file={name}.in,{what}" for name, what in zip("ab", described, strict=False)]
    beside.run(PACKAGER, "-o", "base.bin", *first)
    beside.write("new.in", "a new image")
    beside.scons(
        "env.OffloadPackage('ours', ['new.in', 'c.in'], OFFLOAD_PACKAGE_BASE='base.bin',\n"
        f"                   OFFLOAD_TARGETS=['{HIP}gfx906', '{HIP}gfx90a'])\n"
    )
    names = ("new", "b", "c")
    images = [f"--image=file={name}.in,{what}" for name, what in zip(names, described, strict=True)]
    beside.run(PACKAGER, "-o", "theirs", *images)
    assert beside.read("ours.offload") == beside.read("theirs")


def test_several_images_to_replace(beside: Beside) -> None:
    """'Multiple offloading images': none is lost where one would replace two."""
    images = [f"--image=file={name}.in,{AMD},arch=gfx906,kind=hip" for name in "ab"]
    beside.run(PACKAGER, "-o", "base.bin", *images)
    beside.refused(
        "env.OffloadPackage('ours', 'c.in', OFFLOAD_PACKAGE_BASE='base.bin',\n"
        f"                   OFFLOAD_TARGETS='{HIP}gfx906')\n",
        "'base.bin': 2 images of hip with triple amdgcn-amd-amdhsa and arch gfx906",
    )
