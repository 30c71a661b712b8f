"""Processors that the table lacks, where a clang that knows them is enough; this machine's GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.cli.compile import run_compile
from offload_tool.errors import CompilerError, TargetIDError
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.toolchain.probe import Toolchain
from offload_tool.toolchain.supported_processors import native_targets, refusal, targets_of_compiler
from tests.conftest import Tool
from tests.scripts import script
from tests.toolchain.test_select import fake_clang

KERNEL = "__attribute__((global)) void kernel(float *p) { *p += 1; }\n"


@pytest.fixture
def newer_clang(tmp_path: Path, llvm: Tool) -> str:
    """Return a clang that knows gfx9990, which is gfx90a under a name of the future."""
    newer = tmp_path / "newer-clang"
    newer.write_text(
        f'#!/bin/bash\nexec {llvm("clang")} "${{@//gfx9990/gfx90a}}"\n'  # in each argument
    )
    newer.chmod(0o755)
    return str(newer)


def compiler(command: str) -> Callable[[], Toolchain]:
    return lambda: find_toolchain({"PATH": os.environ["PATH"]}, command)


def nobody() -> Toolchain:
    raise AssertionError("no compiler need be asked")


def test_known_processors_are_asked_of_nobody() -> None:
    """For what LLVM 22 has, no process is started; mistakes are told as ever."""
    devices = targets_of_compiler(["gfx90a:xnack+", "gfx1100", "tahiti"], "hip", nobody)
    assert [device.name for device in devices] == ["gfx1100", "gfx600", "gfx90a:xnack+"]
    for wrong in ("gfx90a:bogus+", "gfx90a:xnack+ gfx90a", "gfx9990:xnack", "sm_90"):
        with pytest.raises(TargetIDError):
            targets_of_compiler(["gfx9990", wrong], "hip", nobody)


@pytest.mark.parametrize("text", ["amdgcn-amd-amdhsa", "amdgpu9.06-amd-amdhsa", "nvptx64-a-b"])
@pytest.mark.parametrize("kind", ["hip", "openmp"])
def test_triples_of_gpus_are_no_devices(text: str, kind: str) -> None:
    """Only a CPU is named by its triple."""
    with pytest.raises(TargetIDError, match=f"'{text}' is a GPU's triple; give its target ID"):
        targets_of_compiler([text], kind, nobody)


@pytest.mark.llvm
def test_the_compiler_decides(newer_clang: str) -> None:
    """A processor and its features are known if the compiler takes them."""
    names = ["gfx1030", "gfx9990:xnack+:sramecc-"]
    devices = targets_of_compiler(names, "hip", compiler(newer_clang))
    assert [device.name for device in devices] == ["gfx1030", "gfx9990:sramecc-:xnack+"]
    assert devices[1].triple == "amdgcn-amd-amdhsa-"


@pytest.mark.llvm
@pytest.mark.parametrize("text", ["gfx9991", "gfx9990:wavefrontsize64+"])
def test_what_the_compiler_refuses_is_refused_in_its_words(newer_clang: str, text: str) -> None:
    """The message says what the table lacks, who was asked, and what it said."""
    with pytest.raises(TargetIDError) as caught:
        targets_of_compiler(["gfx1030", text], "hip", compiler(newer_clang))
    message = str(caught.value)
    assert f"unknown processor '{text.partition(':')[0]}'" in message
    assert f"newer-clang) does not compile for '{text}': " in message
    assert message.endswith((f"architecture: {text}", "(e.g., 'gfx908:sramecc+:xnack-')"))


@pytest.mark.llvm
@pytest.mark.parametrize("text", ["gfx1310", "gfx1250:sramecc+", "gfx13-generic"])
def test_a_compiler_that_is_too_old(llvm: Tool, text: str) -> None:
    """What the table has from LLVM 23 is refused early where the compiler is LLVM 22's."""
    message = f"clang 22.* does not compile for '{re.escape(text)}': "
    with pytest.raises(TargetIDError, match=message):
        targets_of_compiler([text], "hip", compiler(llvm("clang")))


@pytest.mark.llvm
def test_the_right_compiler_for_them(llvm23: Tool) -> None:
    """LLVM 23's compiler takes them."""
    clang = llvm23("clang-23")
    names = ["gfx1310", "gfx1250:sramecc+", "gfx13-generic", "gfx1172"]
    toolchain = Toolchain((clang,), (), (), (), (), "23.1.4", "", clang, "")
    devices = targets_of_compiler(names, "hip", lambda: toolchain)
    assert [refusal(toolchain, device) for device in devices] == [None] * 4


@pytest.mark.llvm
def test_compile_for_one(newer_clang: str, tmp_path: Path, capfd) -> None:
    """``offload-tool compile`` needs no option for it, and refuses others before it compiles."""
    source, output = tmp_path / "k.hip", tmp_path / "k.co"
    source.write_text(KERNEL)
    environ = {**os.environ, "OFFLOAD_CLANG": newer_clang, "XDG_CACHE_HOME": str(tmp_path)}

    def run(target_id: str) -> int:
        args = [str(source), "-o", str(output), "--target-id", target_id]
        return run_compile("compile", [*args, "--", "-nogpuinc", "-nogpulib"], environ)

    assert run("gfx9991") == 1
    assert "does not compile for 'gfx9991'" in capfd.readouterr().err
    assert not output.exists()
    assert run("gfx9990:xnack+") == 0
    assert output.read_bytes()[48] == 0x3F  # gfx90a


@pytest.fixture
def with_programs(tmp_path: Path) -> Toolchain:
    """Return a compiler whose folder has the programs that a test writes."""
    native_targets.cache_clear()
    file = fake_clang(tmp_path / "clang-22", "22.1.8")
    text = file.read_text()
    beside = f"[ -e {tmp_path}/$name ] && echo {tmp_path}/$name || echo $name"
    answer = f"-print-prog-name=*) name=${{last#*=}}; {beside};;\n*) exit 1"
    file.write_text(text.replace("*) exit 1", answer))
    return find_toolchain(clang=str(file))


def test_gpus_of_this_machine(with_programs: Toolchain, tmp_path: Path) -> None:
    """Each kind asks for its own GPUs; each target ID comes once."""
    script(tmp_path / "amdgpu-arch", "echo gfx90a:sramecc+:xnack-; echo gfx90a:sramecc+:xnack-")
    script(tmp_path / "nvptx-arch", "echo sm_90")
    script(tmp_path / "offload-arch", "echo gfx1100; echo sm_80")
    assert native_targets(with_programs, "hip") == ["gfx90a:sramecc+:xnack-"]
    assert native_targets(with_programs, "cuda") == ["sm_90"]
    assert native_targets(with_programs, "openmp") == ["gfx1100", "sm_80"]


def test_the_other_program(with_programs: Toolchain, tmp_path: Path) -> None:
    """Where one program fails or finds nothing, the next one is asked."""
    script(tmp_path / "amdgpu-arch", "echo no driver >&2; exit 1")
    script(tmp_path / "offload-arch", "echo gfx1100")
    assert native_targets(with_programs, "hip") == ["gfx1100"]


def test_no_gpu(with_programs: Toolchain, tmp_path: Path) -> None:
    """Without a GPU there is an error that says so, and who was asked."""
    script(tmp_path / "amdgpu-arch", "echo no driver >&2; exit 1")
    script(tmp_path / "offload-arch", "true")
    with pytest.raises(CompilerError) as caught:
        native_targets(with_programs, "hip")
    message = str(caught.value)
    assert "'native' stands for the GPUs of this machine, and none was found for hip" in message
    assert "no driver" in message
    assert "offload-arch names no GPU" in message


def test_what_is_no_target_id(with_programs: Toolchain, tmp_path: Path) -> None:
    """A line that is not a target ID is not taken for one."""
    script(tmp_path / "amdgpu-arch", "echo gfx90a:bogus")
    with pytest.raises(CompilerError, match="names no GPU; offload-arch is not there"):
        native_targets(with_programs, "hip")
