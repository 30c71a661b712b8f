"""A compiler is chosen because it can do the job, with what is installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from offload_tool.clang.driver import QueryResult
from offload_tool.clang.options import relevant_flags
from offload_tool.errors import CompilerError
from offload_tool.passes import capability_check
from offload_tool.passes.capability_check import Job
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.run.pass_command import WantedPass, pass_command
from tests.conftest import program
from tests.toolchain.installed import HEADER, write_device_libraries, write_rocm

BARE = ("-nogpuinc", "-nogpulib")
ROCM, LIBRARIES = "OFFLOAD_ROCM_PATH", "OFFLOAD_DEVICE_LIB_PATH"


@pytest.fixture(autouse=True)
def no_installations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide those that the shell names."""
    for name in ("ROCM_PATH", "HIP_PATH", "HIP_DEVICE_LIB_PATH", "CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clang() -> str:
    return program("clang-22")


@pytest.fixture
def older() -> str:
    return program("clang-19")


@pytest.fixture
def installed(tmp_path: Path, clang: str) -> dict[str, str]:
    libraries = write_device_libraries(tmp_path / "libraries", clang)
    return {ROCM: str(write_rocm(tmp_path / "rocm")), LIBRARIES: str(libraries)}


def test_real_headers_and_libraries(clang: str, installed: dict[str, str]) -> None:
    """What the job uses is passed to clang, said in one line, and part of the identity."""
    job = Job("hip", ("gfx906", "gfx90a:xnack+"))
    found = find_toolchain({**os.environ, **installed}, clang=clang, jobs=(job,))
    assert found.rocm_flags == (
        f"--rocm-path={installed[ROCM]}",
        f"--rocm-device-lib-path={installed[LIBRARIES]}",
    )
    assert f"HIP 6.4.1 (OFFLOAD_ROCM_PATH: {installed[ROCM]})" in str(found)
    assert "\n" not in str(found)
    bare = find_toolchain(clang=clang)
    assert found.identity.startswith(bare.identity)
    assert found.identity != bare.identity == found.own_identity
    assert installed[ROCM] not in found.identity
    assert f"{installed[LIBRARIES]}/oclc_isa_version_906.bc" in found.installed


def test_headers_that_call_libraries(clang: str, tmp_path: Path, installed: dict[str, str]) -> None:
    """Functions of headers may call device libraries, which the trial of the headers leaves out."""
    header = f"{HEADER}__device__ int called(); __device__ int caller() {{ return called(); }}\n"
    rocm = write_rocm(tmp_path / "calling", header=header)
    environ = {**os.environ, **installed, ROCM: str(rocm)}
    found = find_toolchain(environ, clang=clang, jobs=(Job("hip", ("gfx906",)),))
    assert f"--rocm-path={rocm}" in found.rocm_flags


def test_nothing_is_required_that_flags_leave_out(clang: str) -> None:
    """With -nogpuinc and -nogpulib, any clang with the target will do, without ROCm."""
    found = find_toolchain(clang=clang, jobs=(Job("hip", ("gfx906",), BARE),))
    assert (found.rocm_flags, found.installations) == ((), "")


def test_cuda_without_a_toolkit(clang: str) -> None:
    """A clang that finds no CUDA can compile for processors that its oldest PTX does not know."""
    flags = ("-nocudainc", "-nocudalib", "--cuda-path=/nowhere")
    found = find_toolchain(clang=clang, jobs=(Job("cuda", ("sm_75", "sm_90"), flags),))
    assert found.cuda == ""


@pytest.mark.parametrize(
    ("kind", "target", "source"),
    [
        ("hip", "gfx90a:xnack+", "a.hip"),
        ("cuda", "sm_75", "a.cu"),
        ("openmp", "gfx90a", "a.c"),
        ("openmp", "sm_80", "a.cpp"),
    ],
)
def test_a_trial_is_the_passes_own_command(
    kind: str, target: str, source: str, clang: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds only what leaves out headers and libraries, fewer warnings, and files."""
    run: list[list[str]] = []

    def query(args: list[str], _: object) -> QueryResult:
        run.append(args)
        return QueryResult(0, "", "")

    monkeypatch.setattr(capability_check, "query", query)
    monkeypatch.setattr(
        capability_check,
        "cached_compiler_result",
        lambda *args: args[3](),
    )
    flags = BARE
    find_toolchain(clang=clang, jobs=(Job(kind, (target,), flags, source=source),))
    *own, output, empty = run[-1]
    host_ir = next((arg for arg in own if arg.endswith("host.bc")), None)
    environ = {**os.environ, "OFFLOAD_CLANG": clang}
    wanted = WantedPass(kind, "device", "trial", source, environ, flags, target, host_ir=host_ir)
    command = pass_command(wanted)
    of_trial = [
        *BARE[::-1],
        "-w",
        "-ferror-limit=1",
        "-fno-crash-diagnostics",
        "-o",
    ]
    assert own == [*command.args, *flags, *command.last, *of_trial]
    assert (Path(output).name, empty) == ("output", os.devnull)


def test_newest_that_can(clang: str, older: str, tmp_path: Path, installed: dict[str, str]) -> None:
    """Headers that the newest clang cannot compile lead to an older one, and it is said why."""
    header = f"{HEADER}#if __clang_major__ > 19\n#error too new for us\n#endif\n"
    rocm = write_rocm(tmp_path / "old", header=header)
    libraries = write_device_libraries(tmp_path / "of 19", older)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for file in (clang, older):
        (bin_folder / Path(file).name).symlink_to(file)
    places = {ROCM: str(rocm), LIBRARIES: str(libraries)}
    environ = {"PATH": str(bin_folder)}
    found = find_toolchain({**environ, **places}, jobs=(Job("hip", ("gfx906",)),))
    assert found.major == 19
    assert "too new for us" in found.passed_over[0]
    assert "skipped: clang 22" in str(found)
    places = {ROCM: installed[ROCM], LIBRARIES: str(libraries)}
    assert find_toolchain({**environ, **places}, jobs=(Job("hip", ("gfx906",)),)).major == 22


def test_libraries_of_a_newer_llvm(older: str, clang: str, tmp_path: Path) -> None:
    """Device libraries that a compiler cannot read are none for it."""
    if Path("/opt/rocm").exists():
        pytest.skip("this machine's ROCm has others")
    libraries = write_device_libraries(tmp_path / "new", clang)
    for file in libraries.iterdir():  # not only an attribute that an old one may skip
        data = bytearray(file.read_bytes())
        data[4:] = bytes(len(data) - 4)
        file.write_bytes(data)
    places = {LIBRARIES: str(libraries)}
    job = Job("hip", ("gfx906",), ("-nogpuinc",))
    with pytest.raises(CompilerError, match=f"device libraries in {libraries}: "):
        find_toolchain({**os.environ, **places}, clang=older, jobs=(job,))


def test_libraries_without_the_processor(clang: str, tmp_path: Path) -> None:
    """A folder that lacks a processor's file does not serve, and the message names it."""
    libraries = write_device_libraries(tmp_path / "libraries", clang, isa=("906",))
    places = {LIBRARIES: str(libraries)}
    job = Job("hip", ("gfx906", "gfx1100"), ("-nogpuinc",))
    with pytest.raises(CompilerError, match="cannot find ROCm device library for gfx1100"):
        find_toolchain({**os.environ, **places}, clang=clang, jobs=(job,))


def test_none_can(clang: str, older: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error lists what was found, what each lacks, and what to install."""
    rocm = write_rocm(tmp_path / "rocm", header="#error for nobody\n")
    places = {ROCM: str(rocm)}
    environ = {"PATH": os.pathsep.join({str(Path(clang).parent), str(Path(older).parent)})}
    with pytest.raises(CompilerError) as caught:
        find_toolchain({**environ, **places}, jobs=(Job("hip", ("gfx906",)),))
    message = str(caught.value)
    assert message.startswith("no usable compiler for HIP code for gfx906:\n  clang 22")
    assert f"HIP 6.4.1 (OFFLOAD_ROCM_PATH: {rocm}): for nobody" in message
    assert "\n  clang 19" in message
    assert "rocm-device-libs-NN" in message


def test_unknown_processor(older: str) -> None:
    """A compiler that does not know the processor cannot do the job."""
    with pytest.raises(CompilerError, match="gfx1250"):
        find_toolchain(clang=older, jobs=(Job("hip", ("gfx1250",), BARE),))


def test_embedded_compiler_has_no_wrappers(installed: dict[str, str]) -> None:
    """The wheel's compiler stops before the first compile of what needs real headers."""
    pytest.importorskip("ziglang")
    with pytest.raises(CompilerError, match="has none of clang's wrapper headers"):
        find_toolchain(
            {**os.environ, **installed}, clang="embedded", jobs=(Job("hip", ("gfx906",)),)
        )
    found = find_toolchain(clang="embedded", jobs=(Job("hip", ("gfx906",), BARE),))
    assert found.is_embedded


def test_spirv_needs_its_translator(clang: str) -> None:
    """SPIR-V without one of the programs that make it is refused, by that program's name."""
    if shutil.which("llvm-spirv") or Path("/usr/lib/llvm-22/bin/llvm-spirv").exists():
        pytest.skip("llvm-spirv is installed")
    with pytest.raises(CompilerError, match=r"llvm-(spirv|link)'"):
        find_toolchain(clang=clang, jobs=(Job("hip", ("amdgcnspirv",), BARE),))


def test_shell_variables_that_name_no_installation(clang: str, installed: dict[str, str]) -> None:
    """They are passed over, and it is said: where another one is taken, and where none is."""
    environ = {"PATH": str(Path(clang).parent), "ROCM_PATH": "/no/rocm", "CUDA_PATH": "/no/cuda"}
    places = {LIBRARIES: installed[LIBRARIES]}
    other = {**environ, "HIP_PATH": installed[ROCM]}
    found = find_toolchain({**other, **places}, clang=clang, jobs=(Job("hip", ("gfx906",)),))
    lacks = "$ROCM_PATH='/no/rocm' has no include/hip/hip_runtime.h"
    assert f"HIP 6.4.1 ($HIP_PATH: {installed[ROCM]}); {lacks}" in str(found)
    with pytest.raises(CompilerError, match=r"\$CUDA_PATH='/no/cuda' has no include/cuda\.h"):
        find_toolchain(environ, clang=clang, jobs=(Job("cuda", ("sm_80",)),))


def test_flags_that_say_where(clang: str, installed: dict[str, str]) -> None:
    """Where a flag says where ROCm is, nothing else is passed."""
    flags = (
        f"--rocm-path={installed[ROCM]}",
        f"--rocm-device-lib-path={installed[LIBRARIES]}",
    )
    found = find_toolchain(clang=clang, jobs=(Job("hip", ("gfx906",), flags),))
    assert found.rocm_flags == ()


def test_flags_that_decide() -> None:
    """Of a compile's flags, those for installations decide, and no others."""
    given = ["-O3", "-nogpulib", "--rocm-path=/x", "-DA=-nogpuinc", "-I/x", "--cuda-path=/y"]
    assert relevant_flags(given) == ("-nogpulib", "--rocm-path=/x", "--cuda-path=/y")
    assert relevant_flags(["-Xarch_device", "-nogpulib"]) == ("-nogpulib",)


LACKING = f"{HEADER}#ifndef MENDED\n#error this clang lacks something\n#endif\n"


@pytest.fixture
def lacking(tmp_path: Path) -> dict[str, str]:
    """Return an installation whose header compiles only with a flag, or a file somewhere else."""
    mend = tmp_path / "mend.h"
    header = f'#if __has_include("{mend}")\n#define MENDED\n#endif\n{LACKING}'
    return {ROCM: str(write_rocm(tmp_path / "rocm", header=header))}


NO_LIBRARIES = ("-nogpulib",)


def test_refusal_is_not_remembered(clang: str, lacking: dict[str, str], tmp_path: Path) -> None:
    """What a compiler cannot do is asked again in the next run: nobody knows what may mend it."""
    job = Job("hip", ("gfx906",), NO_LIBRARIES)
    with pytest.raises(CompilerError):
        find_toolchain({**os.environ, **lacking}, clang=clang, jobs=(job,))
    (tmp_path / "mend.h").write_text("")
    capability_check._reason.cache_clear()  # as in another run
    assert find_toolchain({**os.environ, **lacking}, clang=clang, jobs=(job,)).rocm_flags
