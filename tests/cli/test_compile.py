"""``offload-tool compile``: one checked output, or none; messages and leftover files."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.clang.depfile import read_depfile
from offload_tool.formats.hip_fatbin import cuid_hash
from offload_tool.io.file_digests import digest_of
from offload_tool.operations.embed import read_host_files
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.passes.source_kind import derive_cuid
from offload_tool.sccache_dist import cluster as dist_cluster
from offload_tool.toolchain.probe import Toolchain
from tests.cli.conftest import KERNEL, hits, names, run, state
from tests.cli.loaded import loaded_modules
from tests.conftest import Capture, Tool, needs_clang, program, run_tool, wait_for
from tests.scripts import script
from tests.toolchain.installed import HEADER, write_rocm

REGION = "int f(void) { int v = 0;\n#pragma omp target map(from : v)\nv = 1;\nreturn v; }\n"
BARE = ["--", "-nogpuinc", "-nogpulib"]
FLAGS = [*BARE, "-DVALUE=1"]
GFX906 = ["compile", "k.hip", "-o", "k.co", "--target-id", "gfx906"]
HOST = ["compile", "k.hip", "-o", "k.o", "--host"]
CPU = "x86_64-pc-linux-gnu"
# A compiler that passes a different CUID.
OTHER_CUID = (
    'for w; do shift; [ "$w" != -cuid=13 ] || w=-cuid=14; set -- "$@" "$w"; done; exec "$real" "$@"'
)


def processor(path: str) -> int:
    """Return EF_AMDGPU_MACH of a code object."""
    return Path(path).read_bytes()[48]


@pytest.mark.parametrize(
    ("target", "number"), [("gfx906", 0x2F), ("gfx90a:xnack+", 0x3F), (" gfx906,", 0x2F)]
)
def test_device_pass(folder: Path, target: str, number: int) -> None:
    """A device pass writes the code object for that target ID, and no other file."""
    assert run("compile", "k.hip", "-o", "k.co", "--target-id", target, *FLAGS) == 0
    assert processor("k.co") == number
    assert names() == {"k.hip", "k.co", ".k.co.manifest"}


def test_host_pass(folder: Path) -> None:
    """The host object refers to the bundle of the source's CUID: given, or from its name."""
    assert run(*HOST, *FLAGS) == 0
    assert sorted(read_host_files(["k.o"]).hashes) == [cuid_hash(derive_cuid("k.hip"))]
    assert run(*HOST, "--cuid", "13", *FLAGS) == 0
    assert sorted(read_host_files(["k.o"]).hashes) == ["ea124c110e41cc5"]


def test_flags_come_last(folder: Path) -> None:
    """All arguments after the first ``--`` reach the compiler in order, even a second ``--``."""
    assert run(*GFX906, *FLAGS, "-UVALUE", "-DVALUE=2") == 0
    first = Path("k.co").read_bytes()
    assert run(*GFX906, *FLAGS, "-DVALUE=3", "-UVALUE", "-DVALUE=2") == 0
    assert Path("k.co").read_bytes() == first
    assert run(*GFX906, *FLAGS, "--") != 0


def test_equal_output_is_untouched(folder: Path) -> None:
    """OUT keeps its inode and time if its bytes are equal, and is replaced otherwise."""
    args = [*GFX906, "--depfile", "k.d", "--stamp", "k.stamp", *FLAGS]
    assert run(*args) == 0
    before, stamp = state("k.co"), state("k.stamp")
    Path("k.hip").write_text(KERNEL + "// a comment\n")
    assert run(*args) == 0
    assert state("k.co") == before
    assert state("k.stamp")[1] > stamp[1]
    assert run(*args, "-UVALUE", "-DVALUE=2") == 0
    assert state("k.co") != before
    assert names() == {"k.hip", "k.co", ".k.co.manifest", "k.d", "k.stamp"}


def test_depfile(folder: Path) -> None:
    """The rule for OUT names the source, the headers of this pass, and the compiler."""
    Path("host.h").touch()
    Path("device.h").touch()
    Path("k.hip").write_text(
        "#ifdef __HIP_DEVICE_COMPILE__\n"
        '#include "device.h"\n#else\n#include "host.h"\n#endif\n' + KERNEL
    )
    for args, header in ((GFX906, "device.h"), (HOST, "host.h")):
        assert run(*args, "--depfile", "k.d", *FLAGS) == 0
        assert Path("k.d").read_text().startswith(f"{args[3]}:")
        source, own, *compiler = read_depfile(Path("k.d"))
        assert (source, own) == ("k.hip", header)
        assert all(Path(path).is_absolute() for path in compiler)
        assert compiler


def test_stamp_is_what_the_rule_is_for(folder: Path) -> None:
    assert run(*GFX906, "--depfile", "k.d", "--stamp", "k.stamp", *FLAGS) == 0
    assert Path("k.d").read_text().startswith("k.stamp:")
    assert Path("k.stamp").read_bytes() == b""
    assert run(*GFX906, "--stamp", "alone.stamp", *FLAGS) == 0
    assert Path("alone.stamp").exists()


ODD = ["with blank.h", "two  b.h", "cash$.h", "hash#.h", "x:y.h", "#.h", "$$(x).h"]


@pytest.fixture
def odd_names(folder: Path) -> str:
    """Return the output's name after a compile in which all files have unusual names."""
    Path("a $b").mkdir()
    for name in ODD:
        Path(name).touch()
    source = Path("a $b/k #1.hip")
    source.write_text("".join(f'#include "../{name}"\n' for name in ODD) + KERNEL)
    output = "o #1 $x.co"
    args = ["compile", str(source), "-o", output, "--target-id", "gfx906", "--depfile", "k.d"]
    assert run(*args, *FLAGS) == 0
    return output


@pytest.mark.parametrize("tool", ["make", "ninja"])
def test_odd_names(odd_names: str, tool: str) -> None:
    """Make and Ninja read unusual names in a depfile: a change of each file rebuilds OUT."""
    touch = f"touch '{odd_names.replace('$', '$$')}'\n"
    Path("Makefile").write_text(f"include k.d\n%.co:\n\t{touch}")
    goal = odd_names.replace("$", "$$").replace(" ", "$ ")
    Path("build.ninja").write_text(
        f"rule touch\n  command = {touch}  depfile = k.d\nbuild {goal}: touch\n"
    )
    command = [program(tool), "-n", *([odd_names] if tool == "make" else ["-v"])]
    if tool == "ninja":
        run_tool(program(tool))
    made = Path(odd_names).stat().st_mtime
    files = ("a $b/k #1.hip", *ODD)
    for name in files:
        os.utime(name, (made - 10, made - 10))
    assert "touch '" not in run_tool(*command)
    for name in files:
        os.utime(name, (made + 10, made + 10))
        assert "touch '" in run_tool(*command), name
        os.utime(name, (made - 10, made - 10))


def test_line_break_in_a_name(folder: Path, capfd: Capture) -> None:
    """A name that a depfile cannot hold is an error, and there is no output."""
    Path("a\nb.hip").write_text(KERNEL)
    before = names()
    args = ["compile", "a\nb.hip", "-o", "k.co", "--target-id", "gfx906", "--depfile", "k.d"]
    assert run(*args, *FLAGS) == 2
    assert "holds a line break" in capfd.readouterr().err
    assert names() == before


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        ([*GFX906, "--host"], 2, "argument --host: not allowed with argument --target-id"),
        ([*GFX906, "--emit-host-ir"], 2, "not allowed with"),
        (["compile", "k.hip", "-o", "k.co"], 2, "one of the arguments --target-id --host"),
        (["compile", "k.hip", "--host"], 2, "required: -o"),
        (["compile"], 2, "required: SOURCE, -o"),
        ([*HOST, "--bogus"], 2, "unrecognized arguments: --bogus"),
        ([*HOST, "--dep", "k.d"], 2, "unrecognized arguments: --dep"),
        ([*HOST, "--kind", "sycl"], 2, "invalid choice: 'sycl'"),
        (["compile", "other.hip", *HOST[1:]], 2, "expected one source, found other.hip, k.hip"),
        (["compile", "none.hip", "-o", "k.o", "--host"], 1, "'none.hip': No such file"),
        (["compile", ".", "-o", "k.o", "--host", "--kind", "hip"], 1, "Is a directory"),
        (["compile", "k.txt", "-o", "k.o", "--host"], 2, "no offload kind; give --kind"),
        ([*GFX906[:-1], "gfx9999"], 1, "unknown processor 'gfx9999'"),
        ([*GFX906[:-1], "gfx906:foo+"], 1, "not 'foo'"),
        ([*GFX906[:-1], ""], 2, "expected one target ID"),
        ([*GFX906[:-1], "gfx906,gfx908"], 2, "expected one target ID for one output"),
        ([*GFX906[:-1], CPU], 1, CPU),
        ([*GFX906, "--depfile", "none/k.d"], 1, "'none/k.d': cannot be written"),
        ([*GFX906, "--stamp", "none/k"], 1, "'none/k': cannot be written"),
        (["compile", "k.hip", "-o", "none/k.o", "--host"], 1, "'none/k.o': cannot be written"),
        ([*GFX906, "--depfile", "."], 2, "'.': expected the name of a regular file"),
        (["compile", "k.hip", "-o", "/dev/null", "--host"], 2, "'/dev/null': expected the name"),
        (["compile", "k.hip", "-o", "/dev/stdout", "--host"], 2, "'/dev/stdout': expected the"),
        (["compile", "k.hip", "-o", "./k.hip", "--host"], 2, "'./k.hip' would replace 'k.hip'"),
        ([*GFX906, "--depfile", "k.co"], 2, "'k.co' would replace 'k.co'"),
        ([*GFX906, "--depfile", "k.d", "--stamp", "k.d"], 2, "'k.d' would replace 'k.d'"),
        ([*GFX906, "--host-ir", "k.hip"], 2, "only host and device passes of OpenMP"),
        ([*GFX906, "--kind", "openmp"], 2, "reads its host IR; give --host-ir"),
        ([*GFX906, "--kind", "openmp", "--host-ir", "none.bc"], 1, "'none.bc': No such file"),
        ([*HOST[:-1], "--emit-host-ir"], 2, "only OpenMP sources are compiled to host IR"),
        ([*GFX906, "--kind", "cuda"], 1, "gfx906 cannot be compiled from CUDA sources"),
        ([*HOST, "--link"], 2, "--link links for one target ID"),
        ([*GFX906, "--link", "--cuid", "x"], 2, "--cuid is of no use with --link"),
        ([*GFX906, "--link", "--host-ir", "x"], 2, "--host-ir is of no use with --link"),
        (["compile", "none.bc", *GFX906[1:], "--link"], 1, "'none.bc': No such file"),
        ([*GFX906[:-1], "gfx906,gfx908", "--link"], 2, "expected one target ID"),
    ],
)
def test_wrong_usage(
    folder: Path, capfd: Capture, args: list[str], status: int, message: str
) -> None:
    Path("k.txt").touch()
    before = names()
    assert run(*args, *FLAGS) == status
    output = capfd.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("offload-tool compile: error: ")
    assert message in line
    assert names() == before


@pytest.mark.parametrize(
    ("variable", "value", "status", "message"),
    [
        ("OFFLOAD_CLANG", "/nowhere/clang", 1, "OFFLOAD_CLANG names '/nowhere/clang'"),
        ("OFFLOAD_CLANG", "/bin/false", 1, "/bin/false --version failed"),
        ("OFFLOAD_LAUNCHER", "/nowhere/ccache", 1, "'/nowhere/ccache' cannot be run"),
        ("OFFLOAD_LAUNCHER", "'", 2, "is not a command: No closing quotation"),
        ("OFFLOAD_DIST", "/nowhere/d", 2, "OFFLOAD_DIST: '/nowhere/d' is not a folder of"),
        ("OFFLOAD_CUTOFF", "maybe", 2, "OFFLOAD_CUTOFF"),
        ("OFFLOAD_CUTOFF_CHECK", "2", 2, "OFFLOAD_CUTOFF_CHECK: expected 0 or 1, found '2'"),
    ],
)
def test_wrong_environment(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Capture,
    variable: str,
    value: str,
    status: int,
    message: str,
) -> None:
    """A variable with an unusable value is an error in one line, and nothing is written."""
    monkeypatch.setenv(variable, value)
    assert run(*GFX906, *FLAGS) == status
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line
    assert names() == {"k.hip"}


def test_missing_file_of_embed(folder: Path, capfd: Capture) -> None:
    """The error names it, although clang 22 with a depfile is silent of it."""
    Path("k.hip").write_text('const char data[] = {\n#embed "data"\n};\n')
    assert run(*GFX906, *FLAGS) == 1
    assert "'data' file not found" in capfd.readouterr().err


def test_compiler_error(folder: Path, capfd: Capture) -> None:
    """The compiler's message and status are passed on; the old output is removed."""
    args = [*GFX906, "--depfile", "k.d", "--stamp", "k.stamp", *FLAGS]
    assert run(*args) == 0
    Path("k.hip").write_text(KERNEL + "this is not C++\n")
    assert run(*args) == 1
    output = capfd.readouterr().err
    assert "k.hip:4:1: error:" in output
    assert "offload-tool" not in output
    assert names() == {"k.hip"}


@pytest.mark.parametrize(
    ("args", "text", "message"),
    [
        (GFX906, "exit 0", "reported success but wrote no such file"),
        (GFX906, 'exec "$real" "$@" --no-offload-arch=gfx906 --offload-arch=gfx908', "found 0x30"),
        (HOST, OTHER_CUID, "expected the undefined symbol __hip_fatbin_ea124c110e41cc5"),
        (HOST, "echo text >k.o", "expected a host object (ELF), found b'text"),
    ],
    ids=["nothing", "target", "host-cuid", "host-text"],
)
def test_wrong_result(
    folder: Path,
    stand_in: Callable[[str], None],
    capfd: Capture,
    args: list[str],
    text: str,
    message: str,
) -> None:
    """An output other than the requested code or host object is an error, and is removed."""
    stand_in(text)
    assert run(*args, "--cuid", "13", *FLAGS) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line
    assert names() == {"k.hip"}


def test_stopped_while_the_compiler_makes_its_file(folder: Path) -> None:
    """Temporary files of clang and lld are removed; older files of such names stay."""
    begun = "touch k.co.tmp0a1b2c3 k-0a1b2c3d.co.tmp k.co.tmpl k.co.tmp0a1b2c3d begun"
    launcher = script(folder.parent / "slow", f"{begun}; sleep 60")
    Path("k.co.tmp9876543").write_text("a user's")
    with subprocess.Popen(
        [sys.executable, "-m", "offload_tool", *GFX906, *FLAGS],
        env=os.environ | {"OFFLOAD_LAUNCHER": launcher},
    ) as process:
        wait_for(Path("begun").exists)
        process.terminate()
        assert process.wait(timeout=20) == 128 + signal.SIGTERM
    others = {"k.co.tmpl", "k.co.tmp0a1b2c3d", "k.co.tmp9876543"}
    assert names() == {"k.hip", "begun", *others}


def test_openmp(folder: Path) -> None:
    """Host IR, then a host object and device code from it; their depfiles list the IR."""
    Path("r.c").write_text(REGION)
    assert run("compile", "r.c", "-o", "r.bc", "--emit-host-ir", "--depfile", "r.d") == 0
    assert read_depfile(Path("r.d"))[0] == "r.c"
    assert run("why", "r.bc") == 0  # its record has the identity of each file, too
    given = ["--host-ir", "r.bc", "--depfile", "r.d"]
    assert run("compile", "r.c", "-o", "r.o", "--host", *given) == 0
    assert read_depfile(Path("r.d"))[0] == "r.bc"
    assert run("compile", "r.c", "-o", "r.dev.o", "--target-id", CPU, *given) == 0
    assert read_depfile(Path("r.d"))[:2] == ["r.c", "r.bc"]
    args = ["compile", "r.c", "-o", "r.gpu.bc", "--target-id", "gfx90a", *given, "--", "-nogpulib"]
    assert run(*args) == 0
    assert Path("r.gpu.bc").read_bytes()[:2] == b"BC"


def test_openmp_by_the_name_for_cxx(
    folder: Path, tmp_path: Path, compiler: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A C source is compiled as C by a compiler called ``clang++``, on the host and on devices."""
    needs_clang(compiler, "a link to zig is no compiler")
    clang = shutil.which(find_toolchain().clang[0])
    link = tmp_path / "clang++"
    link.symlink_to(Path(clang or "").resolve())
    monkeypatch.setenv("OFFLOAD_CLANG", str(link))
    Path("r.c").write_text(REGION.replace("int v = 0", "int class = 1, v = 0, *p = (void *)0"))
    assert run("compile", "r.c", "-o", "r.bc", "--emit-host-ir") == 0
    args = ["compile", "r.c", "-o", "r.dev.o", "--target-id", CPU, "--host-ir", "r.bc"]
    assert run(*args) == 0


def test_openmp_entry_names(folder: Path, capfd: Capture) -> None:
    """If the source is replaced after its host IR was made, the result is an error."""
    Path("r.c").write_text(REGION)
    assert run("compile", "r.c", "-o", "r.bc", "--emit-host-ir") == 0
    Path("copy.c").write_text(REGION)
    Path("copy.c").replace("r.c")
    args = ["compile", "r.c", "-o", "r.o", "--target-id", CPU, "--host-ir", "r.bc"]
    assert run(*args, "--depfile", "r.d") == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("; the source was replaced between the two compiles")
    assert {"r.o", "r.d"}.isdisjoint(names())


def test_openmp_with_ccache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache returns no result with the names of an older inode; without a change, it hits."""
    monkeypatch.setenv("OFFLOAD_LAUNCHER", program("ccache"))
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    monkeypatch.delenv("CCACHE_DISABLE", raising=False)
    Path("r.h").write_text(REGION)
    Path("r.c").write_text('#include "r.h"\n')

    def compile_all(target_id: str, *flags: str) -> None:
        assert run("compile", "r.c", "-o", "r.bc", "--emit-host-ir") == 0
        for args in (["-o", "r.o", "--host"], ["-o", "r.dev", "--target-id", target_id]):
            assert run("compile", "r.c", *args, "--host-ir", "r.bc", "--", *flags) == 0

    compile_all(CPU)
    assert hits() == 0
    for name in ("r.bc", "r.o", "r.dev"):
        Path(name).unlink()
    compile_all(CPU)
    assert hits() >= 1
    Path("copy.h").write_text(REGION)
    Path("copy.h").replace("r.h")
    compile_all("gfx906", "-nogpulib")  # not in the cache yet


def test_flags_that_mend(
    folder: Path,
    tmp_path: Path,
    compiler: Toolchain,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Capture,
) -> None:
    """Headers that compile with the flags alone are no error; a warning names other headers."""
    needs_clang(compiler, "HIP's headers need clang's wrapper headers")
    header = f"{HEADER}#ifndef MENDED\n#error lacking\n#endif\n"
    clang = shutil.which(find_toolchain().clang[0])
    monkeypatch.setenv("ROCM_PATH", str(write_rocm(tmp_path / "rocm", header=header)))
    monkeypatch.setenv("OFFLOAD_CLANG", str(clang))
    args = [*GFX906, "--", "-nogpulib", "-DVALUE=1"]
    for _ in range(2):
        assert run(*args, "-DMENDED") == 0
        assert capfd.readouterr().err == ""
    assert run(*args) == 0  # the source does not include it
    assert "warning: clang " in (output := capfd.readouterr().err)
    assert "lacking" in output


def test_what_is_loaded(folder: Path) -> None:
    """A HIP pass with a cached compiler loads no module that only other commands need."""
    args = [*GFX906, "--cuid", "13", "--depfile", "k.d", *FLAGS]
    loaded_modules(args)  # fills the caches
    assert "offload_tool.passes.verify_output" not in loaded_modules(args)  # nothing is compiled
    Path("k.co").unlink()
    loaded = loaded_modules(args)
    assert "offload_tool.passes.verify_output" in loaded
    heavy = {"subprocess", "shutil", "tempfile", "pathlib", "hashlib", "zstandard"}
    heavy |= {"dataclasses", "inspect", "elftools", "rich", "SCons"}
    heavy |= {"concurrent.futures", "offload_tool.operations", "offload_tool.sccache_dist"}
    heavy |= {"offload_tool.passes.compile_pass", "offload_tool.passes.choose_compiler"}
    assert loaded & heavy == set()


# Remote compiles: launchers and clusters.


@pytest.fixture
def launcher(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that sets OFFLOAD_LAUNCHER to a script, and returns its log."""

    def make(text: str) -> Path:
        path = script(folder.parent / "my launcher", f'echo "$*" >>"{folder.parent}/log"\n{text}')
        monkeypatch.setenv("OFFLOAD_LAUNCHER", shlex.join([path, "its option"]))
        return folder.parent / "log"

    return make


@pytest.mark.parametrize("args", [GFX906, HOST])
def test_launcher(launcher: Callable[[str], Path], args: list[str], compiler: Toolchain) -> None:
    """OFFLOAD_LAUNCHER's command runs each compile, and is in no depfile."""
    log = launcher('shift; exec "$@"')
    assert run(*args, "--depfile", "k.d", *FLAGS) == 0
    (line,) = log.read_text().splitlines()
    assert line.startswith(f"its option {shlex.join(compiler.clang)} ")
    assert not any("launcher" in name for name in read_depfile(Path("k.d")))


def test_launcher_fails(launcher: Callable[[str], Path], capfd: Capture) -> None:
    """A device compile that failed in the launcher runs once locally, with a message."""
    log = launcher("echo node lost >&2; exit 254")
    assert run(*GFX906, *FLAGS) == 0
    assert processor("k.co") == 0x2F
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("failed (status 254: node lost); compiled again on this machine")
    assert len(log.read_text().splitlines()) == 1


@pytest.fixture
def cluster(
    tmp_path: Path, folder: Path, compiler: Toolchain, llvm: Tool, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Return a function that sets OFFLOAD_DIST, with a script as sccache, and returns its log."""
    clang = llvm("clang")
    monkeypatch.setenv("OFFLOAD_CLANG", clang)
    dist, path = tmp_path / "dist", tmp_path / "socket"
    dist.mkdir()
    (dist / "env").write_text(
        f"SCCACHE_CONF={dist}/client.toml\nSCCACHE_SERVER_UDS={path}\nOFFLOAD_CLANG={clang}\n"
        f"OFFLOAD_IDENTITY={digest_of(find_toolchain().identity.encode())}\n"
    )
    sccache, log = tmp_path / "sccache", tmp_path / "log"
    monkeypatch.setattr(dist_cluster, "find_sccache", lambda: str(sccache))
    monkeypatch.setenv("OFFLOAD_DIST", str(dist))

    def make(text: str) -> Path:
        shown = "$SCCACHE_SERVER_UDS $SCCACHE_RECACHE $HIP_DEVICE_LIB_PATH $*"
        begin = """case $1 in --*) echo '"num_servers":1'; exit;; esac"""
        script(sccache, f'{begin}\necho "{shown}" >>"{log}"\n{text}')
        return log

    return make


def test_cluster(
    cluster: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With OFFLOAD_DIST, sccache runs HIP device compiles, with the folder's settings alone."""
    monkeypatch.setenv("SCCACHE_RECACHE", "1")
    log = cluster('exec "$@"')
    assert run(*GFX906, "--depfile", "k.d", *FLAGS) == 0
    (line,) = log.read_text().splitlines()
    assert line.startswith(f"{tmp_path / 'socket'}   /")
    assert " --cuda-device-only --offload-arch=gfx906 " in line
    assert processor("k.co") == 0x2F
    assert read_depfile(Path("k.d"))[0] == "k.hip"
    assert run(*HOST, *FLAGS) == 0
    assert run(*GFX906, *FLAGS, "-ftime-trace") == 0
    assert log.read_text() == f"{line}\n"  # host passes, and those with other outputs, stay here


def test_unusable_cluster(
    cluster: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    """An engine that does not start, or a launcher in addition, is an error in one line."""
    cluster("exit 1")
    script(tmp_path / "sccache", "echo no room >&2; exit 2")
    assert run(*GFX906, *FLAGS) == 1
    monkeypatch.setenv("OFFLOAD_LAUNCHER", "ccache")
    assert run(*GFX906, *FLAGS) == 2
    engine, launcher = capfd.readouterr().err.splitlines()
    assert "'sccache --start-server' fails: no room; check '" in engine
    assert "unset OFFLOAD_LAUNCHER" in launcher
    assert names() == {"k.hip"}
