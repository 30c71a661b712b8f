"""``offload-tool compile --rdc``, ``compile --link`` and ``embed`` of CUDA code.

NVIDIA's toolkit is not needed: stand-ins replace its programs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offload_tool.clang.depfile import read_depfile
from offload_tool.cli import main
from offload_tool.operations.list_images import list_images
from offload_tool.toolchain.probe import Toolchain
from tests.conftest import Capture, run_tool
from tests.scons.nvidia import NVLINK, PTXAS, RUNTIME
from tests.scons.relocatable import one, two

FLAGS = ["--", "-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version"]
SM_80, SM_90 = ["--target-id", "sm_80"], ["--target-id", "sm_90"]
TARGETS = ("sm_80", "sm_90")


@pytest.fixture
def sources(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory with two sources; stand-ins replace NVIDIA's programs."""
    Path("one.cu").write_text(one("cuda"))
    Path("two.cu").write_text(two("cuda"))
    for name, text in (("ptxas", PTXAS), ("nvlink", NVLINK)):
        program = tmp_path / name
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setenv(f"OFFLOAD_{name.upper()}", str(program))
    return folder


def compile_all() -> None:
    for name in ("one", "two"):
        source = [f"{name}.cu", "--rdc"]
        assert main(["compile", *source, "-o", f"{name}.o", "--host", *FLAGS]) == 0
        for target in TARGETS:
            output = ["-o", f"{name}.{target}.ptx", "--target-id", target]
            assert main(["compile", *source, *output, *FLAGS]) == 0


def link(target: str, *more: str) -> int:
    inputs = [f"{name}.{target}.ptx" for name in ("one", "two")]
    output = ["-o", f"prog.{target}.cubin", "--target-id", target]
    return main(["compile", "--link", *inputs, *output, *more])


def test_program(sources: Path, compiler: Toolchain) -> None:
    """Linked with `embed`'s output, a program registers the images of all sources, once."""
    compile_all()
    for target in TARGETS:
        assert link(target) == 0
    cubins = [f"prog.{target}.cubin" for target in TARGETS]
    hosts = ["--host-object", "one.o", "--host-object", "two.o"]
    names = [word for target in TARGETS for word in ("--target-id", target)]
    assert main(["embed", *cubins, *names, "-o", "prog.cuda.o", *hosts]) == 0
    Path("main.c").write_text("int main(void) { return 0; }\n")
    Path("runtime.c").write_text(RUNTIME)
    run_tool(*compiler.cc, "one.o", "two.o", "prog.cuda.o", "main.c", "runtime.c", "-o", "prog")
    lines = run_tool(sources / "prog", cwd=sources).splitlines()
    assert lines[0] == "registered sm_80 sm_90"
    names = [re.sub(r"counter__static__\w+", "counter", name) for name in lines[1:-2]]
    assert sorted(names) == ["_Z5firstPi", "_Z6secondPi", "_ZL7counter", "shared_by_all"]
    assert [image.target_id for image in list_images("prog")] == list(TARGETS)


def test_link(sources: Path, capfd: Capture) -> None:
    """A link writes a depfile, is skipped if nothing changed, and reports errors."""
    compile_all()
    assert link("sm_80", "--depfile", "prog.d") == 0
    assert read_depfile(Path("prog.d"))[:2] == ["one.sm_80.ptx", "two.sm_80.ptx"]
    log = Path("nvlink.log").read_text()
    assert (
        re.sub(r"/\S*/", "", log)
        == "-arch=sm_80 -m64 one.sm_80.cubin two.sm_80.cubin -o linked.cubin\n"
    )
    assert link("sm_80") == 0
    assert Path("nvlink.log").read_text() == log
    Path("one.sm_80.ptx").write_text("no PTX")
    assert link("sm_80") == 1
    assert "expected a relocatable cubin or a CUDA fat binary" in capfd.readouterr().err
    assert not Path("prog.sm_80.cubin").exists()


def test_flags_for_the_assembler(sources: Path) -> None:
    """A link passes arguments of -Xcuda-ptxas to ptxas, and the rest to the linker."""
    compile_all()
    assert link("sm_80", "--", "-Xcuda-ptxas", "-O1", "-dlto") == 0
    assert all(" -O1 " in line for line in Path("ptxas.log").read_text().splitlines())
    line = Path("nvlink.log").read_text()
    assert "-dlto" in line
    assert "-O1" not in line
    assert link("sm_80", "--", "-Xcuda-ptxas", "-O2", "-dlto") == 0
    assert " -O2 " in Path("ptxas.log").read_text()


def test_no_assembler(sources: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    """PTX without ptxas is rejected by name, and so is a machine without a linker."""
    compile_all()
    monkeypatch.setenv("OFFLOAD_PTXAS", "none")
    assert link("sm_80") == 1
    assert "'one.sm_80.ptx' is PTX, and there is no ptxas" in capfd.readouterr().err
    monkeypatch.setenv("OFFLOAD_NVLINK", "none")
    assert link("sm_80") == 1
    assert "neither nvlink nor libnvJitLink is on this machine" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.cubin", "--cuid", "1"], "linked cubins are registered by name"),
        (["a.cubin", "one.cu", "--host-object", "one.o"], "expected a bundle, a CUDA fat binary"),
        (["a.cubin", "--host-object", "one.o"], "found 0 for 1 cubins"),
        ([*SM_80, "a.cubin", "--host-object", "plain.o"], "has relocatable CUDA code to register"),
        ([*SM_90, "a.cubin", "--host-object", "one.o"], "cubin given for sm_90 is for sm_80"),
        ([*SM_80, "k.fatbin", "--host-object", "one.o"], "--target-id is for linked cubins"),
        (
            [*SM_80, "a.o", "--host-object", "one.o"],
            "expected a linked cubin, found relocatable code",
        ),
        (["k.fatbin", "a.cubin", "--host-object", "one.o"], "found 'a.cubin' beside it"),
    ],
)
def test_embed_refuses(
    sources: Path, compiler: Toolchain, args: list[str], message: str, capfd: Capture
) -> None:
    """Objects that cannot be registered, and unlinked cubins, are rejected; nothing is written."""
    compile_one = ["compile", "one.cu", "--rdc", "-o"]
    assert main([*compile_one, "one.o", "--host", *FLAGS]) == 0
    assert main([*compile_one, "one.ptx", "--target-id", "sm_80", *FLAGS]) == 0
    Path("plain.c").write_text("int x;\n")
    run_tool(*compiler.cc, "-c", "plain.c")
    assert main(["compile", "--link", "one.ptx", "-o", "a.cubin", "--target-id", "sm_80"]) == 0
    cubin = Path("a.cubin").read_bytes()
    Path("a.o").write_bytes(cubin[:16] + b"\1\0" + cubin[18:])
    Path("k.fatbin").write_bytes(bytes.fromhex("50ed55ba01001000") + bytes(8))
    assert main(["embed", *args, "-o", "out.o"]) in (1, 2)
    assert message in capfd.readouterr().err
    assert not Path("out.o").exists()
