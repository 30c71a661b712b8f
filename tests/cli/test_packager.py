"""``offload-tool packager`` against llvm-offload-binary 22, and intended differences."""

from __future__ import annotations

import os
import random
import re
import shlex
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from offload_tool.cli.llvm.packager import run_packager
from tests.cli.side_by_side import Bench, Result
from tests.conftest import Tool, run_tool

KINDS = ["openmp", "cuda", "hip", "sycl", "none"]
TRIPLES = ["amdgcn-amd-amdhsa", "nvptx64-nvidia-cuda", "amdhsa", "x86_64-pc-linux-gnu", "", "a=b"]
ARCHES = ["gfx90a", "gfx90a:xnack+", "90a", "sm_70", "generic", "", "ä", "gfx1100,gfx1101"]
USUAL_KEYS = {
    "triple": TRIPLES,
    "arch": ARCHES,
    "feature": ["", "+xnack", "-sramecc", "xnack"],
    "linker-arg": ["", "-lm", "--whole-archive"],
    "symbols": ["", "main", "n" * 3000, "feature"],
    "kind": KINDS,
}
OUR_WARNINGS = re.compile(
    r".*: warning: (unknown offload kind '.*|'.*': (none of its \d+ images|it holds no offload) .*)"
)
"""Messages that DESIGN specifies where LLVM prints none."""


class PackagerBench(Bench):
    """The two programs, in folders for outputs of unknown names."""

    def files(self, side: str) -> dict[str, bytes]:
        """Return the files that a run has created, and remove them."""
        found = {}
        for path in sorted((self.folder / side / "out").iterdir()):
            found[path.name] = path.read_bytes()
            path.unlink()
        return found

    def assert_same_files(self, *arguments: str) -> dict[str, bytes]:
        """Run both; compare status, messages and, unless they failed, files; return these."""
        ours, theirs = self.ours(*arguments), self.theirs(*arguments)
        expected_lines = theirs.errors.splitlines()
        messages = [line for line in ours.errors.splitlines() if not OUR_WARNINGS.fullmatch(line)]
        assert (ours.status, ours.output) == (theirs.status, theirs.output), (arguments, ours)
        assert len(messages) == len(expected_lines), (messages, expected_lines)
        for line, expected in zip(messages, expected_lines, strict=True):
            assert is_same_message(line, expected, self.tool), (arguments, line, expected)
        files, expected_files = self.files("ours"), self.files("theirs")
        if theirs.status == 0:
            assert files == expected_files, arguments
        else:
            assert files == {}, arguments
        return files


def is_same_message(ours: str, theirs: str, tool: str) -> bool:
    """Return whether our message is the same, or adds only file and offset."""
    prefix = f"{tool}: error: "
    if ours == theirs or not theirs.startswith(prefix):
        return ours == theirs
    text = re.escape(theirs.removeprefix(prefix))
    return bool(re.fullmatch(f"{re.escape(prefix)}'.*': {text}(: offset 0x.*)?", ours))


def packager_bench(
    folder: Path, tool: str, capture: Any, files: Mapping[str, bytes]
) -> PackagerBench:
    """Return both programs, and files in the parent of their working directory."""
    made = PackagerBench(run_packager, folder, tool, capture, "out")
    for name, content in files.items():
        made.write(name, content)
    return made


@pytest.fixture
def bench(tmp_path: Path, llvm: Tool, capfdbinary) -> PackagerBench:
    return packager_bench(tmp_path, llvm("llvm-offload-binary"), capfdbinary, contents())


def contents() -> dict[str, bytes]:
    """Return files of each image kind, by content or extension, of 0 bytes to 100 KB."""
    source = random.Random(22)
    sizes = [0, 1, 7, 8, 9, 63, 64, 1000, 4096, 100_000]
    extensions = [".o", ".bc", ".cubin", ".fatbin", ".s", ".spv", ".x", "", ".o.", ".O"]
    made = {
        f"f{index}{extension}": source.randbytes(size)
        for index, (size, extension) in enumerate(zip(sizes, extensions, strict=True))
    }
    made |= {".o": b"dot", "x.bitcode": b"BC\xc0\xde" + bytes(40), "y.o": b"BC\xc0\xde"}
    return made | {"wrapped": b"\xde\xc0\x17\x0b" + bytes(30), "almost.o": b"BC\xc0"}


def compiled(bench: PackagerBench) -> list[str]:
    """Write device images with symbols; return their names and those of other files."""
    source = bench.folder / "s.c"
    source.write_text("int variable = 1; static int hidden; int f(void) { return hidden; }\n")
    clang = Path(bench.tool).with_name("clang")
    for name, flags in {
        "code.o": ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx906", "-nogpulib"],
        "code.bc": ["--target=nvptx64-nvidia-cuda", "-emit-llvm"],
        "host": [],
    }.items():
        run_tool(clang, "-c", *flags, source, "-o", bench.folder / name)
        bench.write(name, (bench.folder / name).read_bytes())
    bitcode = (b"BC", b"\xde\xc0")  # LLVM's messages about broken bitcode differ
    others = [name for name, content in contents().items() if content[:2] not in bitcode]
    return ["code.o", "code.bc", "host", *others]


def random_image(source: random.Random, files: Sequence[str]) -> str:
    """Return a random ``--image`` value: any keys, in any order, some given twice."""
    parts = [f"file=../{name}" for name in source.choices(files, k=source.choice([1, 1, 1, 2]))]
    for _ in range(source.choice([0, 0, 1, 3, 60])):
        length = source.choice(
            [0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 32, 33, 50, 64, 65, 127, 128, 150]
        )
        parts.append("".join(source.choices("abcdefgh-", k=length)) + source.choice(["", "=x"]))
    for key in source.choices(list(USUAL_KEYS), k=source.randint(0, 7)):
        value = source.choice(USUAL_KEYS[key])
        parts.append(source.choice([f"{key}={value}"] * 9 + [key]))
    source.shuffle(parts)
    return "--image=" + ",".join(parts)


def random_filter(source: random.Random) -> str:
    """Return a filter that often matches one or several images."""
    parts = []
    if source.random() < 0.7:
        parts.append(f"file={source.choice(['one', 'two', 'ä', 'one.a'])}")
    for key in source.choices([*USUAL_KEYS, "other"], k=source.choice([0, 0, 1, 1, 2])):
        parts.append(f"{key}={source.choice([*USUAL_KEYS.get(key, ['']), 'zz'])}")
    source.shuffle(parts)
    return "--image=" + ",".join(parts)


@pytest.mark.llvm
def test_packages_are_llvms(bench: PackagerBench) -> None:
    source = random.Random(5)
    files = sorted(contents())
    count = 0
    for _ in range(150):
        images = [random_image(source, files) for _ in range(source.randint(1, 12))]
        made = bench.assert_same_files("-o", "made.bin", *images)
        count += made["made.bin"].count(b"\x10\xff\x10\xad")
    assert count > 900


@pytest.mark.llvm
def test_extraction_is_llvms(bench: PackagerBench) -> None:
    """Any filters select LLVM's images, write files of the same names, and print its messages."""
    source = random.Random(6)
    files = compiled(bench)
    count = 0
    for run in range(150):
        if run % 5 == 0:
            images = [random_image(source, files) for _ in range(source.randint(0, 9))]
            images += [f"{images[0]},=x"] if images else []  # "" is a valid key
            assert bench.theirs("-o", "../package.x.bin", *images).status == 0
            package = (bench.folder / "theirs/package.x.bin").read_bytes()
            bench.write("package.x.bin", package)
        filters = [random_filter(source) for _ in range(source.randint(0, 3))]
        archive = ["--archive"] * source.choice([0, 0, 1])
        count += len(bench.assert_same_files("../package.x.bin", *archive, *filters))
    assert count > 150


REFUSED = """
-o made.bin --image=triple=x
-o made.bin --image=
-o made.bin --image=file=../f2.cubin --image=arch=x
-o made.bin --image=file=none
-o made.bin --image=file=
-o made.bin --image=file=.,triple=x
-o made.bin --image=file=../f2.cubin,file
-o none/made.bin --image=file=../f2.cubin
-o .. --image=file=../f2.cubin
-o made.bin ../package
-o made.bin ../package --image=
none --image=
none
.. --image=
../package --image=file=none/x
../package --image=file=
../package --image=file=..
../package --archive --image=file=none/x
../package --archive --image=
../package --archive --image=file=x --image=arch=gfx90a
../package --foo
../package ../package
../package -o
-o made.bin --image
--archive=x ../package
../cut --image=
../cut
../junk --image=
../padded --image=
../unknown --image=
../short --image=
../endless --image=
"""


@pytest.fixture
def package(bench: PackagerBench) -> PackagerBench:
    """Return inputs for extraction: ``package`` and broken files."""
    images = [
        "--image=file=../f7,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip",
        "--image=file=../f3.fatbin,triple=nvptx64-nvidia-cuda,arch=sm_70,kind=cuda",
        "--image=file=../f8.o.,triple=amdgcn-amd-amdhsa,arch=gfx1100,kind=openmp,feature=q",
    ]
    assert bench.theirs("-o", "../package", *images).status == 0
    package = (bench.folder / "theirs/package").read_bytes()
    size = struct.unpack_from("<Q", package, 8)[0]
    bench.write("package", package)
    bench.write("cut", package[:-1])
    bench.write("junk", package[:size] + b"x" * 100)
    bench.write("padded", package + bytes(64))
    bench.write("unknown", package[:size] + package[size:].replace(b"\xad\1\0", b"\xad\7\0", 1))
    bench.write("short", package[:71])
    bench.write("endless", package[:8] + b"\xff" * 8 + package[16:])
    return bench


@pytest.mark.llvm
@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_refusals_are_llvms(line: str, package: PackagerBench) -> None:
    """Inputs that LLVM rejects are rejected with its message and status 1; nothing is written."""
    arguments = shlex.split(line)
    package.assert_same_files(*arguments)
    assert package.ours(*arguments).status == 1


ACCEPTED = """
../package
../package --image=
../package --image=file=one
../package --image=file=one --image=file=one,arch=gfx90a
../package --image=file=one,triple=amdgcn-amd-amdhsa
../package --image=file=-,arch=gfx90a
../package --image=file=-
../package --image=file=none/x,arch=zz
../package --image=kind=hip
../package --image=kind=HIP
../package --image=arch= --image=kind=none
../package --archive --image=file=x
../package --archive --image=file=-
../package --archive --image=file=x --image=file=y,kind=cuda
../package --archive --image=file=x,arch=zz
../package --archive --image=arch=zz
../package --image=arch=gfx90a,arch=x
../package --image=,
../package --image=feature
-o made.bin
-o -
-o - --image=file=../f7
-o made.bin --archive --image=file=../f7,kind=,kind=openmp
-o made.bin --image=file=../f7,kind=hipv4
-o= ../package
--image=file=../f7
-o= --image=file=../f7
../f7 --image=
../f0.o --image=
-h
--help
--help-hidden
--archive

""".removeprefix("\n")


@pytest.mark.llvm
@pytest.mark.parametrize("line", ACCEPTED.splitlines())
def test_other_uses_are_llvms(line: str, package: PackagerBench) -> None:
    """All kinds of uses lead to LLVM's files, standard output and messages."""
    package.assert_same_files(*shlex.split(line))
    assert package.ours(*shlex.split(line)).status == 0


@pytest.mark.llvm
@pytest.mark.parametrize(
    "name",
    [
        *("clang-offload-packager", "clang-offload-packager-22", "clang-offload-packager.exe"),
        *("x-clang-offload-packager", "clang-offload-packagers", "llvm-offload-binary"),
    ],
)
@pytest.mark.parametrize("arguments", [["-o", "made.bin"], [], ["-h"], ["--help"], ["--foo"]])
def test_deprecated_name(name: str, arguments: list[str], bench: PackagerBench) -> None:
    """Under its older name, the tool uses that name in the same messages as LLVM's."""
    link = bench.folder / name
    link.symlink_to(bench.tool)
    bench.tool = str(link)
    bench.assert_same_files(*arguments)


@pytest.mark.llvm
def test_standard_input(package: PackagerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for side in ("theirs", "ours"):
        out = package.folder / side / "out"
        program = [package.tool]
        if side == "ours":
            program = [sys.executable, "-m", "offload_tool", "packager"]
        for arguments in (
            ["-", "--image=arch=gfx90a"],
            ["-", "--archive", "--image=file=x.a,kind=cuda"],
            ["-o", "made.bin", "--image=file=-,triple=t"],
        ):
            with (package.folder / side / "package").open("rb") as stdin:
                command = [*program, *arguments]
                subprocess.run(command, cwd=out, stdin=stdin, check=True, env=environ)
        results.append(package.files(side))
    assert results[0] == results[1]
    assert set(results[0]) == {"--amdgcn-amd-amdhsa-gfx90a.0.", "x.a", "made.bin"}


# -- where we differ on purpose ----------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path, capfdbinary) -> PackagerBench:
    files = {"a.o": b"first image", "b.o": b"second"}
    return packager_bench(tmp_path, "packager", capfdbinary, files)


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        (
            "-o p --image=file=../a.o,triple=t,kind=hipv4",
            0,
            "warning: unknown offload kind 'hipv4', expected openmp, cuda, hip, sycl or none; it "
            "counts as none",
        ),
        (
            "../made --image=file=q,arch=y",
            0,
            "warning: '../made': none of its 1 images matches 'file=q,arch=y'",
        ),
        (
            "-o p --image=file=../a.o --image=file=../none,triple=t",
            1,
            "error: '../none': No such file or directory",
        ),
    ],
)
def test_messages(alone: PackagerBench, line: str, status: int, message: str) -> None:
    """Warnings that LLVM does not have, and errors that name the file."""
    assert alone.ours("-o", "../made", "--image=file=../a.o,arch=x").errors == ""
    assert alone.ours(*line.split()) == Result(status, b"", f"packager: {message}\n")
    assert [*alone.files("ours")] == (["p"] if "kind" in line else [])


def test_documented_numbering(alone: PackagerBench) -> None:
    """On request, hip is 3 as in the published document; by default it is LLVM 22's 4."""
    image = "--image=file=../a.o,triple=t,kind=hip"
    alone.ours("-o", "new", image)
    alone.ours("-o", "old", "--kind-numbering=documented", image)
    files = alone.files("ours")
    assert (files["new"][34], files["old"][34]) == (4, 3)
    for numbering, kind, found in (
        ("", "hip", {"new", "old"}),
        ("documented", "hip", {"old"}),
        ("documented", "sycl", {"new"}),
        ("llvm22", "hip", {"new"}),
        ("", "sycl", set()),
    ):
        option = [f"--kind-numbering={numbering}"] if numbering else []
        for name in ("new", "old"):
            alone.write(name, files[name])
            alone.ours(*option, f"../{name}", f"--image=kind={kind},file=x")
            assert alone.files("ours") == ({"x": b"first image"} if name in found else {})
    refused = alone.ours("-o", "x", "--kind-numbering=other", image)
    assert refused.status == 1
    message = "packager: for the --kind-numbering option: Cannot find option named 'other'!\n"
    assert refused.errors == message


@pytest.mark.parametrize(
    "strings", ["triple=../../x,arch=y", "triple=a,arch=/tmp/y", "triple=t,arch=a/b"]
)
def test_no_file_outside_of_the_folder(strings: str, alone: PackagerBench) -> None:
    """Strings that would lead to another folder are rejected, and nothing is written."""
    images = ["--image=file=../a.o,triple=good,arch=a", f"--image=file=../b.o,{strings}"]
    assert alone.ours("-o", "../p", *images).status == 0
    before = sorted(alone.folder.rglob("*"))
    result = alone.ours("../p", "--image=")
    assert result.status == 1
    assert "which could lead out of the folder; name the output" in result.errors
    assert sorted(alone.folder.rglob("*")) == before
    key = strings.partition(",")[0]
    assert alone.ours("../p", f"--image=file=x,{key}").status == 0
    assert alone.files("ours") == {"x": b"second"}


def test_version_is_our_own(alone: PackagerBench) -> None:
    """--version names this program, and the tool that it replaces."""
    result = alone.ours("--version")
    assert result.output == (
        b"offload-tool packager 0.1.0 (behaves as llvm-offload-binary 22.1.8)\n"
    )
