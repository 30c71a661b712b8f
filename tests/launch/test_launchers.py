"""OFFLOAD_LAUNCHER: with ccache, for both offload drivers, what is known is not compiled again.

The driver judges each object; ccache's own log says how many passes it has run. Passes of an object
that is there run only without our manifests (`test_memory`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offload_tool.sccache_dist.cluster import find_sccache
from tests.conftest import Tool
from tests.launch import compiles
from tests.launch.compiles import HIP, LAUNCH, TARGETS, ccache, make_project, misses, run
from tests.scripts import script

NEW, OLD = "--offload-new-driver", "--no-offload-new-driver"
DRIVERS = pytest.mark.parametrize("driver", [NEW, OLD])
ASSEMBLER = '__global__ void other() {{ asm(".pushsection .data\\n{} \\"data\\"\\n.popsection"); }}'

pytestmark = pytest.mark.llvm


class Project(compiles.Project):
    """A project, compiled by us with ccache, and by the driver."""

    def ours(self) -> subprocess.CompletedProcess[str]:
        done = super().ours()
        assert "launch: split: " in done.stderr
        return done

    def ran(self) -> int:
        """Compile both ways, with equal objects and statuses; return how many passes have run."""
        misses(self.more)
        results = []
        for launch in (LAUNCH, ()):
            done = run([*launch, *self.command()], self.folder, self.more)
            path = self.folder / "s.o"
            results.append((done.returncode, path.read_bytes() if path.exists() else b""))
            path.unlink(missing_ok=True)
        is_equal = results[0] == results[1]
        assert is_equal
        return misses(self.more)


@pytest.fixture
def project(tmp_path: Path, llvm: Tool) -> Project:
    made = Project(tmp_path / "project", llvm("clang++"))
    made.flags = [NEW, "--offload-arch=gfx906"]
    made.more = ccache(tmp_path / "kept") | {"OFFLOAD_LAUNCH_MEMORY": "0"}
    return made


@pytest.mark.parametrize(
    ("mode", "driver"), [("", NEW), ("", OLD), ("CCACHE_NODIRECT", OLD), ("CCACHE_NODEPEND", NEW)]
)
def test_what_is_compiled(mode: str, driver: str, project: Project) -> None:
    """Another target, another flag or header of one target: that target's pass alone runs."""
    project.more |= {mode: "1"} if mode else {}
    project.flags = [driver, "--offload-arch=gfx906"]
    assert [project.ran(), project.ran()] == [2, 0]
    project.flags = [driver, "--offload-arch=gfx906,gfx90a"]
    assert [project.ran(), project.ran()] == [1, 0]
    project.write("only_gfx90a.h", "#undef VALUE\n#define VALUE 7\n")
    assert [project.ran(), project.ran()] == [1, 0]
    project.ours()
    assert "only_gfx90a.h" in (project.folder / "s.d").read_text()
    project.flags += ["-Xarch_gfx90a", "-O1"]
    assert project.ran() == 1
    project.flags = [driver, "--offload-arch=gfx906"]
    assert project.ran() == 0
    project.ours()
    assert "only_gfx90a.h" not in (project.folder / "s.d").read_text()


@DRIVERS
@pytest.mark.parametrize("mode", ["", "CCACHE_NODIRECT"])
@pytest.mark.parametrize("cuid", ["-cuid=1234", ""])
def test_second_folder(cuid: str, mode: str, driver: str, project: Project) -> None:
    """As ccache is told for two checkouts, the second one compiles nothing."""
    project.more |= {"CCACHE_BASEDIR": str(project.folder.parent), "CCACHE_NOHASHDIR": "1"}
    project.more |= {mode: "1"} if mode else {}
    project.write("include/found.h", "#define FOUND 1\n")
    project.add("#include <found.h>\n__global__ void other(int *x) { *x = FOUND; }")
    objects = []
    for name in ("project", "second"):
        other = project.folder.with_name(name)
        if not other.exists():
            shutil.copytree(project.folder, other)
        project.folder = other
        project.flags = [driver, "--offload-arch=gfx906,gfx90a", f"-I{other}/include"]
        args = [word for word in project.command() if cuid or not word.startswith("-cuid=")]
        done = run([*LAUNCH, *args], project.folder, project.more)
        assert done.returncode == 0, done.stderr
        objects.append((misses(project.more), (project.folder / "s.o").read_bytes()))
    assert [count for count, _ in objects] == [3, 0]
    assert project.ran() == 0 or not cuid
    project.write("only_gfx90a.h", "#undef VALUE\n#define VALUE 7\n")
    assert project.ran() == 1 or not cuid


def test_another_folder(project: Project) -> None:
    """Where ccache is not told so, another folder compiles for itself: it may be in the result."""
    project.more["CCACHE_BASEDIR"] = str(project.folder.parent)
    assert project.ran() == 2
    project.folder = project.folder.rename(project.folder.with_name("moved"))
    assert project.ran() > 0


@DRIVERS
def test_messages(driver: str, project: Project) -> None:
    """What a pass says and prints comes again; an error is the driver's, each time."""
    project.flags[0] = driver
    project.add("#ifdef __gfx906__\n#warning hear me\n#endif\nstruct Laid {int o;} laid;")
    project.flags += ["-Xclang", "-fdump-record-layouts"]
    first, second = project.ours(), project.ours()
    assert (misses(project.more), first.returncode) == (2, 0)
    assert "hear me" in second.stderr
    assert "Laid" in second.stdout
    assert first.stderr == second.stderr
    assert first.stdout == second.stdout
    project.add("#ifdef __gfx906__\n#error no such thing\n#endif")
    for _ in range(2):
        project.ran()
        assert "error: no such thing" in project.ours().stderr


@pytest.mark.parametrize("mode", ["", "CCACHE_NODIRECT"])
@pytest.mark.parametrize("directive", [".incbin", ".include"])
@pytest.mark.parametrize("where", ["s.hip", "value.h"])
def test_assembler_reads(where: str, directive: str, mode: str, project: Project) -> None:
    """What the assembler alone reads no depfile lists: such a pass runs each time."""
    project.more |= {mode: "1"} if mode else {}
    text = (project.folder / where).read_text()
    project.write(where, f"{text}\n{ASSEMBLER.format(directive)}\n")
    for value in (1, 2, 2):
        project.write("data", f".byte {value}\n")
        project.ran()
    project.ours()
    assert "offload-pass" not in (project.folder / "s.d").read_text()


def test_time(project: Project) -> None:
    """A pass that holds the time of its compile runs each time, wherever that is spelled."""
    project.add("__attribute__((device)) const char *when = __TIME__;")
    project.ours()
    misses(project.more)
    project.ours()
    assert misses(project.more) >= 1
    project.flags += ["-DWHEN=__DATE__"]
    assert "gfx906: without the launcher: 'WHEN=__DATE__' is of the time" in project.ours().stderr


@DRIVERS
def test_earlier_header(driver: str, project: Project) -> None:
    """With ``CCACHE_NODIRECT``, a header that comes to an earlier folder is seen."""
    project.more["CCACHE_NODIRECT"] = "1"
    project.flags += [driver, "-Ifirst", "-Isecond"]
    project.write("second/found.h", "#define FOUND 1\n")
    project.add("#include <found.h>\n__global__ void other(int *x) { *x = FOUND; }")
    assert [project.ran(), project.ran()] == [2, 0]
    project.write("first/found.h", "#define FOUND 2\n")
    assert project.ran() == 2


def test_named_file(project: Project) -> None:
    """A file that an option names, here a device library, is part of what a pass is made of."""
    hip = [word for word in HIP if word != "-nogpulib"]
    device = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx906", "-nogpulib", "-emit-llvm")
    project.add('extern "C" __attribute__((device)) int g(); __global__ void f(int *x) {*x = g();}')
    project.flags += ["--hip-device-lib-path=.", "--hip-device-lib=g.bc"]
    found = []
    for value in (1, 2):
        project.write("g.c", f"int g() {{ return {value}; }}\n")
        run([project.clang, "-x", "c", *device, "-c", "g.c", "-o", "g.bc"], project.folder)
        args = [project.clang, *hip, *project.flags, "-c", "s.hip", "-o", "s.o"]
        for launch in ((), LAUNCH):
            done = run([*launch, *args], project.folder, project.more)
            assert done.returncode == 0, done.stderr
            found.append((project.folder / "s.o").read_bytes())
        assert misses(project.more) >= 1
        assert "without the launcher" not in done.stderr
    assert [found[0] == found[1], found[2] == found[3], found[0] == found[2]] == [True, True, False]


def test_linker_is_replaced(project: Project, tmp_path: Path) -> None:
    """Another program to link with links again."""
    lld = Path(shutil.which(project.clang) or "").resolve().with_name("ld.lld")
    tool = tmp_path / "tools/ld.lld"
    tool.parent.mkdir()
    project.more["COMPILER_PATH"] = str(tool.parent)
    counts = []
    for number in (1, 1, 2):
        script(tool, f'# {number}\nexec {lld} "$@"')
        counts.append(project.ran())
    assert counts == [2, 0, 1]


@pytest.mark.parametrize("how", ["linker", "crash"])
def test_failures(how: str, project: Project, tmp_path: Path) -> None:
    """A linker that fails and a front end that crashes let the driver run: it has more to say."""
    tool = tmp_path / "tools/ld.lld"
    tool.parent.mkdir()
    script(tool, "echo linker: nothing goes >&2\nexit 1")
    if how == "linker":
        project.more["COMPILER_PATH"] = str(tool.parent)
    else:
        project.add("#ifdef __gfx906__\n#pragma clang __debug llvm_fatal_error\n#endif")
    project.more["TMPDIR"] = str(tmp_path)
    done = project.ours()
    assert done.returncode != 0
    assert "launch: passed through: " in done.stderr
    assert "(use -v to see invocation)" in done.stderr
    assert not (project.folder / "s.o").exists()
    assert not list(tmp_path.glob("offload-launch-*"))


@pytest.mark.parametrize(
    "words",
    [
        *(["-fmodules", "-fmodules-cache-path=modules"], ["-ftime-trace"]),
        *(["-ivfsoverlay", "overlay"], ["-F", "frameworks"]),
        ["-Xclang", "-fembed-offload-object=overlay"],
    ],
    ids=" ".join,
)
def test_without_ccache(words: list[str], project: Project) -> None:
    """A pass that writes more than its object, or whose reads no depfile lists, runs without."""
    project.write("overlay", '{"version": 0, "roots": []}')
    project.flags += words
    for _ in range(2):
        assert ": without the launcher: " in project.ours().stderr
        assert (project.folder / "s.o").exists()


@pytest.mark.parametrize("driver", [NEW, OLD])
@pytest.mark.parametrize("spelling", ["-lfound", "first/libfound.a"])
def test_library_of_a_link(spelling: str, driver: str, project: Project) -> None:
    """A library for the link of device code is read as it is, however it is found."""
    project.add("__attribute__((device)) int found(); __global__ void f(int *x) { *x = found(); }")
    project.flags[0] = driver
    project.flags += ["-Xoffload-linker", "-Lfirst", "-Xoffload-linker", spelling]
    for value in (1, 2):
        project.write("found.c", f"int _Z5foundv() {{ return {value}; }}\n")
        target = ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx906", "-nogpulib", "-fvisibility=hidden")
        place = project.write("first/libfound.a", "")  # a linker takes an object under any name
        args = [project.clang, "-x", "c", *target, "-c", "found.c", "-o", str(place)]
        assert run(args, project.folder).returncode == 0
        objects = []
        for launch in ((), LAUNCH):
            done = run([*launch, *project.command()], project.folder, project.more)
            assert done.returncode == 0, done.stderr
            objects.append((project.folder / "s.o").read_bytes())
        is_equal = objects[0] == objects[1]
        assert is_equal


def test_many_at_once(project: Project) -> None:
    """Runs at the same time make the same object."""

    def one(number: int) -> bytes:
        command = [*LAUNCH, *project.command(f"{number}.o")]
        assert run(command, project.folder, project.more).returncode == 0
        return (project.folder / f"{number}.o").read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(one, range(4)))) == 1


def test_one_response_file_for_all(project: Project) -> None:
    """Two sources that one response file names, one after the other, have different IDs."""
    objects = []
    for name in ("one", "two"):
        project.write(f"{name}.hip", "static __attribute__((device)) int state;\n")
        project.write("words", f"{name}.hip -o s.o")
        args = [*HIP[:-1], "-fgpu-rdc", "--offload-arch=gfx906", "-c", "@words"]
        done = run([*LAUNCH, project.clang, *args], project.folder)
        assert done.returncode == 0, done.stderr
        objects.append((project.folder / "s.o").read_bytes())
    # Clang writes no leading zeros of the 16 digits.
    ids = [re.search(rb"__hip_cuid_([0-9a-f]+)\0", text) for text in objects]
    assert len({found[1] for found in ids if found}) == 2


def test_variable_that_is_gone(project: Project) -> None:
    """The folder of results that `launch` kept itself is refused, with what to set instead."""
    more = {"OFFLOAD_LAUNCH_CACHE": "kept"}
    done = run([*LAUNCH, *project.command()], project.folder, more)
    assert done.returncode == 2
    assert "error: OFFLOAD_LAUNCH_CACHE: " in done.stderr
    assert "set OFFLOAD_LAUNCHER=ccache" in done.stderr
    assert not (project.folder / "kept").exists()


def test_sccache(tmp_path: Path, llvm: Tool) -> None:
    """With sccache, device passes come from its cache; the host's it refuses."""
    make_project(tmp_path)
    sccache = find_sccache()
    more = {"OFFLOAD_LAUNCHER": sccache, "SCCACHE_DIR": str(tmp_path / "kept")}
    more |= {"SCCACHE_SERVER_UDS": str(tmp_path / "socket"), "OFFLOAD_LAUNCH_MEMORY": "0"}

    def counted(*args: str) -> tuple[int, int, int]:
        run([sccache, "--zero-stats"], tmp_path, more)
        command = [*LAUNCH, llvm("clang++"), *HIP, *args, "-MD", "-c", "s.hip", "-o", "s.o"]
        done = run(command, tmp_path, more)
        assert done.returncode == 0, done.stderr
        made = (tmp_path / "s.o").read_bytes()
        assert ("only_gfx90a.h" in (tmp_path / "s.d").read_text()) == ("gfx90a" in str(args))
        run(command[len(LAUNCH) :], tmp_path)
        is_equal = (tmp_path / "s.o").read_bytes() == made
        assert is_equal
        text = run([sccache, "--show-stats", "--stats-format", "json"], tmp_path, more).stdout
        stats = json.loads(text)["stats"]
        kinds = [sum(stats[name]["counts"].values()) for name in ("cache_hits", "cache_misses")]
        return kinds[0], kinds[1], stats["requests_not_cacheable"]

    try:
        assert counted("--offload-arch=gfx906") == (0, 1, 1)
        assert counted("--offload-arch=gfx906,gfx90a") == (1, 1, 1)
        assert counted("--offload-arch=gfx906,gfx90a", "-Xarch_gfx90a", "-O1") == (1, 1, 1)
        assert counted("--offload-arch=gfx90a,gfx906") == (2, 0, 1)
    finally:
        run([sccache, "--stop-server"], tmp_path, more)


def test_other_result(tmp_path: Path, llvm: Tool) -> None:
    """A launcher that gives another target's result is found out."""
    make_project(tmp_path)
    other = script(
        tmp_path / "launcher", 'exec $(echo "$@" | sed s/arch=gfx90a:xnack+/arch=gfx942/)'
    )
    args = [*LAUNCH, llvm("clang++"), *HIP, *TARGETS, "-c", "s.hip", "-o", "s.o"]
    done = run(args, tmp_path, {"OFFLOAD_LAUNCHER": other})
    assert done.returncode == 1
    assert "expected processor gfx90a" in done.stderr
    assert not (tmp_path / "s.o").exists()


def test_header_that_vanishes_meanwhile(tmp_path: Path, llvm: Tool) -> None:
    """Where passes succeed and what they read cannot be listed any more, the compiler says why."""
    make_project(tmp_path)
    (tmp_path / "gone.h").write_text("")
    remove = '[ "$(wc -l <ran)" != 3 ] || rm -f gone.h'
    launcher = script(tmp_path / "launcher", f'"$@" && echo >>ran && {{ {remove}; }}')
    args = [llvm("clang++"), *HIP, *TARGETS, "-include", "gone.h", "-MD", "-c", "s.hip"]
    more = {"OFFLOAD_LAUNCHER": launcher, "OFFLOAD_LAUNCH_JOBS": "1"}
    done = run([*LAUNCH, *args, "-o", "s.o"], tmp_path, more)
    assert len((tmp_path / "ran").read_text()) == 3
    assert (done.returncode, (tmp_path / "s.o").exists()) == (1, False)
    assert "'gone.h' file not found" in done.stderr
