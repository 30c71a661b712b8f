"""``offload-tool wrapper`` against LLVM's two tools, and intended differences."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offload_tool.cli.llvm.wrapper import OLDER_WRAPPER_COMMAND_LINE, choose_tool, run_wrapper
from offload_tool.formats.bitcode.llvmlite import compile_object
from tests.cli.side_by_side import Bench, Result
from tests.conftest import Capture, Tool, missing, run_tool
from tests.formats.registration_modules import disassembled

TRIPLES = [
    *("x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"),
    *("i386-pc-linux-gnu", "s390x-ibm-linux-gnu", "x86_64-pc-windows-msvc"),
    *("i686-w64-windows-gnu", "x86_64-pc-windows-elf", "arm64-apple-macosx14.0"),
    *("x86_64-apple-darwin", "nvptx64-nvidia-cuda", "wasm32-unknown-unknown"),
    *("powerpc64-ibm-aix", "s390x-ibm-zos", "spirv64-unknown-unknown", "x86_64-unknown-uefi"),
    *("thumbv7em-none-eabihf", "amdgcn-amd-amdhsa", 'we"ird\\triple', "garbage"),
    *("m\N{LATIN SMALL LETTER U WITH DIAERESIS}ll", ""),
]
OLDER = "/usr/lib/llvm-15/bin/clang-offload-wrapper"


class WrapperBench(Bench):
    """The two programs, and LLVM's disassembler."""

    dis = ""

    def assert_same_module(self, *arguments: str) -> str:
        """Run both; compare the text of their modules; return it."""
        assert self.assert_same([*arguments, "-o", "x.bc"]) == Result(0, b"", "")
        return self.same_text(*arguments)

    def same_text(self, *arguments: str) -> str:
        sides = (self.folder / side / "x.bc" for side in ("ours", "theirs"))
        text, expected = (disassembled(self.dis, path) for path in sides)
        assert text == expected, arguments
        return text


def make_bench(
    folder: Path, tools: Tool, capture: Any, tool: str = "", *ours_alone: str
) -> WrapperBench:
    made = WrapperBench(run_wrapper, folder, tool or tools("llvm-offload-wrapper"), capture)
    made.dis = tools("llvm-dis")
    made.ours_alone = [*ours_alone]
    return made


@pytest.fixture
def bench(tmp_path: Path, llvm: Tool, capfdbinary) -> WrapperBench:
    return make_bench(tmp_path, llvm, capfdbinary)


@pytest.fixture
def older(tmp_path: Path, llvm: Tool, capfdbinary) -> WrapperBench:
    if not shutil.which(OLDER):
        missing("LLVM 15's clang-offload-wrapper")
    return make_bench(tmp_path, llvm, capfdbinary, OLDER, "--llvm=15")


def random_image(source: random.Random) -> bytes:
    size = source.choice([0, 1, 2, 3, 7, 8, 16, 33, 100, 1000, source.randrange(5000)])
    style = source.randrange(5)
    if style == 0:
        return bytes(size)
    if style == 1:
        return bytes(source.choice(b'abc_."\\\n\xff') for _ in range(size))
    if style == 2:
        return b"text" * (size // 4) + b"\0"
    if style == 3:
        return b"\x7fELF" + source.randbytes(size)
    return source.randbytes(size)


def packaged(bench: WrapperBench, llvm: Tool, name: str, content: bytes) -> str:
    bench.write("inner", content)
    image = "--image=file=inner,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=openmp"
    run_tool(llvm("llvm-offload-binary"), "-o", name, image, cwd=bench.folder / "theirs")
    return bench.write(name, bench.content("theirs", name) or b"")


# ---- the same modules ----------------------------------------------------------------


@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(int(os.environ.get("WRAPPER_CASES", "60"))))
def test_random_modules(bench: WrapperBench, llvm: Tool, seed: int) -> None:
    """The disassembly is LLVM's, for any kind, triple, number, sizes and bytes of images."""
    source = random.Random(seed)
    kind = ("openmp", "cuda", "hip")[seed % 3]
    count = source.choice([1, 1, 2, 3, 9]) if kind == "openmp" else 1
    names = []
    for number in range(count):
        content = random_image(source)
        if source.random() < 0.3:
            names.append(packaged(bench, llvm, f"image{number}", content))
        else:
            names.append(bench.write(f"image{number}", content))
    if count > 1 and source.random() < 0.3:
        names.append(names[0])  # the same file twice
    arguments = [f"--kind={kind}", *names]
    if (triple := source.choice([None, *TRIPLES])) is not None:
        arguments.insert(source.randrange(len(arguments)), f"--triple={triple}")
    bench.assert_same_module(*arguments)


@pytest.mark.llvm
@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("kind", ["openmp", "cuda", "hip"])
def test_every_triple(bench: WrapperBench, kind: str, triple: str) -> None:
    """Sections and linkage for each object format and kind are LLVM's."""
    bench.assert_same_module(f"--kind={kind}", f"--triple={triple}", bench.write("x", b"an image"))


@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(int(os.environ.get("WRAPPER_CASES", "30"))))
def test_random_modules_of_the_older_tool(older: WrapperBench, seed: int) -> None:
    """With -target and --llvm=15, the disassembly is that of clang-offload-wrapper 15."""
    source = random.Random(seed)
    names = [
        older.write(f"image{number}", random_image(source))
        for number in range(source.choice([1, 2, 3, 9]))
    ]
    triple = source.choice([*TRIPLES[:-4], "x86_64"])  # the last ones are not triples
    older.assert_same_module("-target", triple, *names)


@pytest.mark.llvm
def test_notes_of_the_older_tool(older: WrapperBench) -> None:
    """-add-omp-offload-notes adds the same notes to ELF images, and warns of others."""
    text = "define i32 @f() {\n ret i32 7\n}\n@x = global i32 5\n"
    elf = compile_object(text, "x86_64-unknown-linux-gnu")
    names = [older.write("a.o", elf), older.write("b", b"no ELF")]
    arguments = ["-target=x86_64-pc-linux-gnu", "-add-omp-offload-notes", *names]
    result = older.assert_same([*arguments, "-o", "x.bc"])
    assert "warning: b is not an ELF image" in result.errors
    assert "LLVMOMPOFFLOAD" in older.same_text()


# ---- the same errors -----------------------------------------------------------------

REFUSED = [
    "",
    "image",
    "--kind",
    "--kind=sycl image -o x",
    "--kind=HIP image",
    "--kind=openmp",
    "--kind=openmp -o x",
    "--kind=openmp missing -o x",
    "--kind=openmp image missing -o x",
    "--kind=openmp . -o x",
    "--kind=openmp image -o x --triple",
    "--kind=openmp image -o",
    "--kind=openmp image -o x --foo",
    "--kind=openmp image -o x --trple=y",
    "--kind=hip image image -o x",
    "--kind=cuda image image -o missing/x",
    "--kind=cuda image missing -o x",
    "--kind=hip missing missing -o x",
]
REFUSED_OLDER = [
    "",
    "image",
    "-o x",
    "-o x image",
    "-target x86_64 image",
    "-target bogus -o x image",
    "-target bogus -o x missing",
    "-target= -o x image",
    "-target x86_64 -o x missing",
    "-target x86_64 -o x image missing",
    "-target x86_64 -o x .",
    "-target x86_64 -o missing/x image",
    "-target x86_64 -o missing/x missing",
    "-target x86_64 -o . image",
    "-target x86_64 -o x -target",
    "-target x86_64 -o x --foo image",
]


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("fixture", "args"),
    [*(("bench", args) for args in REFUSED), *(("older", args) for args in REFUSED_OLDER)],
)
def test_refusals(request: pytest.FixtureRequest, fixture: str, args: str) -> None:
    """A wrong command line, or missing input, leads to LLVM's message and status, no output."""
    bench: WrapperBench = request.getfixturevalue(fixture)
    bench.write("image", b"x")
    assert bench.assert_same(args.split()).status == 1
    assert bench.content("ours", "x") is None


# ---- where we differ -----------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "image").write_bytes(b"an image")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--kind=openmp image", "no output file; give one with -o FILE"),
        ("--kind=openmp image -o none/x", "'none/x': No such file or directory"),
        ("--kind=openmp image -o .", "'.': Is a directory"),
        ("--kind=openmp missing", "'missing': No such file or directory"),
    ],
)
def test_messages_about_outputs(folder: Path, capsys: Capture, args: str, message: str) -> None:
    assert run_wrapper("bin/tool", args.split(), {}) == 1
    assert capsys.readouterr().err == f"bin/tool: error: {message}\n"


def test_broken_offload_binary(folder: Path, capsys: Capture) -> None:
    """A truncated offload binary is rejected; LLVM refers to bytes outside of it."""
    (folder / "image").write_bytes(bytes.fromhex("10ff10ad01000000"))
    assert run_wrapper("tool", ["--kind=openmp", "image", "-o", "x"], {}) == 1
    assert "tool: error: 'image', offset 0x0, header: expected" in capsys.readouterr().err
    assert not (folder / "x").exists()


def test_output_on_standard_output(folder: Path) -> None:
    command = [sys.executable, "-m", "offload_tool", "wrapper", "--kind=openmp", "-", "-o", "-"]
    done = subprocess.run(command, input=b"by pipe", capture_output=True, check=True)
    assert done.stdout.startswith(b"BC\xc0\xde")
    assert b"by pipe" in done.stdout
    assert not (folder / "-").exists()


def test_objects_by_name(folder: Path) -> None:
    assert run_wrapper("tool", ["--kind=hip", "image", "-o", "a.o"], {}) == 0
    assert run_wrapper("tool", ["-target", "x86_64-linux-gnu", "image", "-o", "b.o"], {}) == 0
    assert {(folder / n).read_bytes()[:4] for n in ("a.o", "b.o")} == {b"\x7fELF"}


@pytest.mark.llvm
@pytest.mark.parametrize("name", ["llvm-offload-wrapper", "clang-offload-wrapper-22"])
def test_bitcode_as_llvms(folder: Path, llvm: Tool, name: str) -> None:
    """Under LLVM's names, an output is bitcode whatever its name, as in LLVM."""
    for output in ("a.o", "a.obj", "a.ll", "a"):
        assert run_wrapper(f"/usr/bin/{name}", ["--kind=hip", "image", "-o", output], {}) == 0
        assert (folder / output).read_bytes()[:4] == b"BC\xc0\xde"
        run_tool(llvm("llvm-offload-wrapper"), "--kind=hip", "image", "-o", f"theirs-{output}")
        assert (folder / f"theirs-{output}").read_bytes()[:4] == b"BC\xc0\xde"


def test_wrong_offload_arch(folder: Path, capfd: Capture) -> None:
    """Target IDs are canonical in the module; an invalid one is rejected by name."""
    args = ["-target", "x86_64-linux-gnu", "image", "-o", "x.o", "--offload-arch"]
    for given, canonical in (
        ("gfx906:xnack+:sramecc-", "gfx906:sramecc-:xnack+"),
        ("fiji", "gfx803"),
    ):
        assert run_wrapper("tool", [*args, given], {}) == 0
        assert f"{canonical}\0".encode() in (folder / "x.o").read_bytes()
    (folder / "x.o").unlink()
    for wrong in ("banana", "gfx906:foo+", ""):
        assert run_wrapper("tool", [*args, wrong], {}) == 1
        assert f"invalid target ID '{wrong}'" in capfd.readouterr().err
        assert not (folder / "x.o").exists()


@pytest.mark.llvm
def test_offload_arch(folder: Path, llvm: Tool) -> None:
    """--offload-arch before each image registers its target ID before the library."""
    (folder / "other").write_bytes(b"another")
    args = "-target x86_64-pc-linux-gnu -o x.bc --offload-arch=gfx906 image --offload-arch"
    assert run_wrapper("tool", [*args.split(), "gfx90a:xnack+", "other"], {}) == 0
    text = disassembled(llvm("llvm-dis"), folder / "x.bc")
    for line in (
        "%__tgt_image_info = type { i32, i32, i32, ptr, ptr }",
        '@__offload_arch = internal constant [7 x i8] c"gfx906\\00", '
        'section ".offload_arch_list", align 1',
        '@__offload_arch.1 = internal constant [14 x i8] c"gfx90a:xnack+\\00", '
        'section ".offload_arch_list", align 1',
        "@.offload_image_info = internal constant %__tgt_image_info "
        "{ i32 1, i32 0, i32 2, ptr @__offload_arch, ptr null }",
        "@.offload_image_info.1 = internal constant %__tgt_image_info "
        "{ i32 1, i32 1, i32 2, ptr @__offload_arch.1, ptr null }",
    ):
        assert line in text.splitlines()
    calls = (
        "  call void @__tgt_register_image_info(ptr @.offload_image_info)\n"
        "  call void @__tgt_register_image_info(ptr @.offload_image_info.1)\n"
    )
    register = "  call void @__tgt_register_lib(ptr @.omp_offloading.descriptor)\n"
    assert 0 < text.index(calls) < text.index(register)
    assert "declare extern_weak void @__tgt_register_image_info(ptr)" in text
    assert run_wrapper("tool", ["--llvm=15", *args.split(), "gfx90a:xnack+", "other"], {}) == 0
    assert calls + register in disassembled(llvm("llvm-dis"), folder / "x.bc")


@pytest.mark.llvm
@pytest.mark.parametrize("kind", ["openmp", "cuda", "hip"])
@pytest.mark.parametrize("tool", ["llvm-offload-wrapper-23", "offload-tool wrapper"])
def test_llvm_23(folder: Path, llvm: Tool, kind: str, tool: str) -> None:
    """LLVM 23's wrappers are excluded from sanitizers, and relocatable images are separate."""
    option = [] if tool.endswith("23") else ["--llvm=23"]
    args = [f"--kind={kind}", "--relocatable", "image", "-o", "x.bc"]
    assert run_wrapper(tool, [*option, *args], {}) == 0
    text = disassembled(llvm("llvm-dis"), folder / "x.bc")
    assert (", no_sanitize_address, no_sanitize_hwaddress, align 8" in text) is (kind != "openmp")
    assert ('section ".llvm.offloading.relocatable"' in text) is (kind == "openmp")
    assert run_wrapper(tool, ["--llvm=22", *args], {}) == 1


@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("kind", ["openmp", "cuda", "hip"])
def test_modules_of_llvm_23(
    tmp_path: Path, llvm23: Tool, kind: str, triple: str, capfdbinary
) -> None:
    bench = make_bench(tmp_path, llvm23, capfdbinary, "", "--llvm=23")
    bench.write("image", b"image")
    for more in ((), ("--relocatable",)):
        bench.assert_same_module(f"--kind={kind}", f"--triple={triple}", *more, "image")


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("tool", "options", "section"),
    [
        ("clang-offload-wrapper", [], "llvm_offload_entries"),
        ("clang-offload-wrapper-22", [], "llvm_offload_entries"),
        ("clang-offload-wrapper-15", ["--llvm=22"], "llvm_offload_entries"),
        ("clang-offload-wrapper-15", [], "omp_offloading_entries"),
        ("/usr/bin/clang-offload-wrapper-19.exe", [], "omp_offloading_entries"),
        ("offload-tool wrapper", ["--llvm=15"], "omp_offloading_entries"),
    ],
)
def test_whose_objects_the_module_is_for(
    folder: Path, llvm: Tool, tool: str, options: list[str], section: str
) -> None:
    """The older tool's modules fit a current clang's objects, unless older ones are requested."""
    args = [*options, "-target", "x86_64-pc-linux-gnu", "image", "-o", "x.bc"]
    assert run_wrapper(tool, args, {}) == 0
    text = disassembled(llvm("llvm-dis"), folder / "x.bc")
    assert f'section "{section}"' in text
    assert ("omp_offloading_entries" in text) is (section == "omp_offloading_entries")


def test_offload_arch_for_each_image(folder: Path, capsys: Capture) -> None:
    args = "-target x86_64-pc-linux-gnu -o x.bc --offload-arch=gfx906 image image"
    assert run_wrapper("tool", args.split(), {}) == 1
    message = "expected one target ID for each of 2 images, found 1"
    assert capsys.readouterr().err == f"tool: error: {message}\n"


@pytest.mark.parametrize(
    ("tool", "args", "older"),
    [
        ("llvm-offload-wrapper", "--kind=hip x", False),
        ("llvm-offload-wrapper", "x", False),
        ("/bin/clang-offload-wrapper-15", "x", True),
        ("/bin/clang-offload-wrapper-15", "--kind openmp x", False),
        ("offload-tool wrapper", "-target a -o x y", True),
        ("offload-tool wrapper", "--target=a", True),
        ("offload-tool wrapper", "--offload-arch=a x", True),
        ("offload-tool wrapper", "-- -target", False),
        ("offload-tool wrapper", "target", False),
    ],
)
def test_which_tool_is_meant(tool: str, args: str, older: bool) -> None:
    """The options select one of the two tools; without them, the name does."""
    command_line, _ = choose_tool(tool, args.split())
    assert (command_line is OLDER_WRAPPER_COMMAND_LINE) is older
