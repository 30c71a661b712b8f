"""``offload-tool embed``: the object that completes a host object."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.operations.embed import write_cuda_fatbin
from tests.cli.conftest import KERNEL, names, run
from tests.conftest import Capture, found_toolchain, run_tool

HIP = KERNEL.replace("VALUE", "1")
HOST_ENTRY = ["-targets=host-x86_64-unknown-linux-gnu-", "-input=/dev/null"]
GFX906 = "hipv4-amdgcn-amd-amdhsa--gfx906"
NO_HEADERS = ["--", "-nogpuinc", "-nogpulib"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a bundle and a CUDA fat binary of one image each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OFFLOAD_LAUNCHER", raising=False)
    Path("image").write_bytes(b"code for gfx906")
    Path("c.ptx").write_text(".version 7.0\n.target sm_80\n.address_size 64\n")
    write_cuda_fatbin([("sm_80", "c.ptx")], "c.fatbin")
    made = ["bundler", "-type=o", *HOST_ENTRY, f"-targets={GFX906}", "-input=image"]
    assert run(*made, "-output=k.hipfb") == 0
    return tmp_path


def compile_host(source: str, text: str, *options: str) -> None:
    found_toolchain()
    Path(source).write_text(text)
    assert run("compile", source, "-o", "host.o", "--host", *options) == 0


def test_cuid_and_host_object_agree() -> None:
    compile_host("k.hip", HIP, "--cuid", "13", *NO_HEADERS)
    assert run("embed", "k.hipfb", "-o", "a.o", "--cuid", "13") == 0
    assert run("embed", "k.hipfb", "-o", "b.o", "--host-object", "host.o") == 0
    assert Path("a.o").read_bytes() == Path("b.o").read_bytes()
    assert [image.target_id for image in list_images("a.o")] == ["", "gfx906"]


RUNTIME = """\
int printf(const char *, ...);
void **__hipRegisterFatBinary(const void *data) {
    static void *handle[1];
    printf("%.24s\\n", *(const char **)((const char *)data + 8));
    return handle;
}
void __hipRegisterFunction(void **h, const void *f, char *d, const char *name) {
    printf("%s\\n", name);
}
void __hipRegisterVar() {}
void __hipUnregisterFatBinary(void **h) {}
int __hipPushCallConfiguration() { return 0; }
int __hipPopCallConfiguration() { return 0; }
int hipLaunchKernel() { return 100; }
int main(void) { return 0; }
"""


@pytest.mark.parametrize("driver", ["--offload-new-driver", "--no-offload-new-driver"])
def test_relocatable_code_of_either_driver_is_registered(driver: str) -> None:
    """A program of the object and its host objects registers their kernels at start-up."""
    hosts = []
    for name in ("first", "second"):
        text = HIP.replace("kernel", name)
        compile_host(f"{name}.hip", text, "--rdc", *NO_HEADERS, driver)
        shutil.move("host.o", f"{name}.o")
        hosts += ["--host-object", f"{name}.o"]
    assert run("embed", "k.hipfb", "-o", "a.o", *hosts) == 0
    os.utime("a.o", (1, 1))
    assert run("embed", "k.hipfb", "-o", "a.o", *hosts) == 0
    assert Path("a.o").stat().st_mtime == 1
    Path("runtime.c").write_text(RUNTIME)
    run_tool(*found_toolchain().cc, "first.o", "second.o", "a.o", "runtime.c", "-o", "prog")
    done = run_tool("./prog")
    lines = done.splitlines()
    assert lines[0] == "__CLANG_OFFLOAD_BUNDLE__"
    assert sorted(lines[1:]) == ["_Z5firstPi", "_Z6secondPi"]
    assert [image.target_id for image in list_images("prog")] == ["", "gfx906"]


def test_kernels_that_nobody_registers(capfd: Capture) -> None:
    """A host object with a kernel, but without a way to register it, is rejected by name."""
    Path("lost.c").write_text("void _Z5__device_stub__k(void) {}\n")
    run_tool(*found_toolchain().cc, "-c", "lost.c")
    assert run("embed", "k.hipfb", "-o", "a.o", "--host-object", "lost.o") == 1
    assert "no code registers the kernel _Z5__device_stub__k" in capfd.readouterr().err
    assert not Path("a.o").exists()


def test_offload_binary() -> None:
    """An offload binary becomes a section of a copy of the host object."""
    compile_host("k.hip", HIP, *NO_HEADERS)
    image = "file=image,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=openmp"
    assert run("packager", "-o", "k.offload", f"--image={image}") == 0
    assert run("embed", "k.offload", "-o", "a.o", "--host-object", "host.o") == 0
    assert [found.target_id for found in list_images("a.o")] == ["gfx906"]


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["k.hipfb", "-o", "a.o"], 2, "--cuid --host-object is required"),
        (["k.hipfb", "-o", "a.o", "--cuid", "1", "--host-object", "x"], 2, "not allowed with"),
        (["k.hipfb", "--cuid", "1"], 2, "required: -o"),
        (["none", "-o", "a.o", "--cuid", "1"], 1, "'none': No such file"),
        (["k.hipfb", "-o", "none/a.o", "--cuid", "1"], 1, "'none/a.o'"),
        (["k.hipfb", "-o", "a.o", "--host-object", "none"], 1, "'none': No such file"),
        (["k.hipfb", "-o", "a.o", "--host-object", "image"], 1, "no host object to embed"),
        (["image", "-o", "a.o", "--cuid", "1"], 1, "expected a bundle, a CUDA fat binary"),
        (["c.fatbin", "-o", "a.o", "--cuid", "1"], 1, "'c.fatbin' is a CUDA fat binary; give"),
        (["c.fatbin", "-o", "a.o", "--host-object", "image"], 1, "'image'"),
        (["k.hipfb", "-o", "a.o", "--cuid", "1", "--host-triple", "mars-linux"], 1, "mars"),
        (["k.hipfb", "-o", "a.o", "--cuid", "1", "--host-triple", ""], 1, "cannot embed for host"),
    ],
)
def test_wrong_usage(capfd: Capture, args: list[str], status: int, message: str) -> None:
    """The last line reports the error, and nothing is written."""
    before = names()
    assert run("embed", *args) == status
    output = capfd.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert message in lines[-1]
    assert status == 2 or len(lines) == 1
    assert names() == before
