"""What ``offload-tool launch`` remembers of each pass: the driver judges each object.

`Project.build` compiles by both and returns what has become of each pass.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.launch.memory import Memory
from offload_tool.launch.split_compile import run_split
from tests.conftest import Tool
from tests.launch import compiles
from tests.launch.compiles import (
    ALWAYS_IN_STAGES,
    LAUNCH,
    WITH_EQUAL_BITCODE,
    counting,
    environment,
    run,
)
from tests.scripts import script

NEW, OLD = "--offload-new-driver", "--no-offload-new-driver"
ALL = {"gfx906", "gfx90a", "host"}
MANIFEST = ".s.o.manifest"
EDITS: dict[str, tuple[str, str, str]] = {
    "a comment": ("s.hip", "\n__global__", "\n// a comment\n__global__"),
    "a kernel": ("s.hip", "= VALUE", "= 2 * VALUE"),
    "host code": ("s.hip", "return 0", "return 1"),
    "a header": ("value.h", "VALUE 3", "VALUE 4"),
}
"""A file, a text in it, and another one."""

pytestmark = pytest.mark.llvm


class Project(compiles.Project):
    """A project whose objects are compared with the driver's."""

    def build(self) -> dict[str, str]:
        """Compile with the driver's object; return the outcome of each pass."""
        done = self.ours()
        assert done.returncode == 0, done.stderr
        assert "launch: split: " in done.stderr
        driver = run(self.command("driver.o"), self.folder)
        assert driver.returncode == 0
        is_equal = (self.folder / "s.o").read_bytes() == (self.folder / "driver.o").read_bytes()
        assert is_equal, done.stderr
        return dict(re.findall(r"^offload-tool launch: ([\w+:]+): (.*)$", done.stderr, re.M))

    def ran(self) -> set[str]:
        """Build; return the passes that have run."""
        return {name for name, outcome in self.build().items() if outcome != "current"} - {"split"}

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def project(tmp_path: Path, llvm: Tool) -> Project:
    made = Project(tmp_path / "project", llvm("clang++"))
    made.flags = ["--offload-arch=gfx906,gfx90a"]
    return made


@pytest.mark.parametrize(
    "flags",
    [
        *(f"{OLD} -O1", f"{NEW} -O1", f"{OLD} -fgpu-rdc", f"{NEW} -fgpu-rdc"),
        *(f"{OLD} --offload-compress -g", f"{NEW} --offload-compress -g -O2"),
    ],
)
def test_edits(flags: str, project: Project) -> None:
    """After each edit the object is the driver's, and only passes whose inputs changed run."""
    project.flags += flags.split()
    assert [project.ran(), project.ran()] == [ALL, set()]
    for edit in EDITS.values():
        project.edit(*edit)
        assert [project.ran(), project.ran()] == [ALL, set()]
    project.write("only_gfx90a.h", "#undef VALUE\n#define VALUE 7\n")
    assert [project.ran(), project.ran()] == [{"gfx90a"}, set()]
    project.flags += ["-Xarch_gfx906", "-DOTHER"]
    assert project.ran() == {"gfx906"}
    project.flags += ["--offload-arch=gfx1100"]
    assert project.ran() == {"gfx1100"}
    project.flags[-1] = "--no-offload-arch=gfx90a"
    assert project.ran() == set()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (f"{OLD} -flto", ALL),
        (f"{OLD} --offload-device-only", {"gfx90a"}),
        (f"{NEW} --offload-device-only", {"gfx90a"}),
        ("-MMD -O1", {"gfx90a"}),
    ],
)
def test_header_of_one_target(flags: str, expected: set[str], project: Project) -> None:
    """That target's pass runs; all do where the object is bitcode, in which no image is found."""
    project.flags += flags.split()
    project.build()
    project.write("only_gfx90a.h", "#undef VALUE\n#define VALUE 7\n")
    assert [project.ran(), project.ran()] == [expected, set()]


def test_large_images(project: Project) -> None:
    """Images of more bytes than a run may look at again without having read them are remembered."""
    with (project.folder / "s.hip").open("a") as source:
        source.write("__attribute__((device)) char table[9 << 20] = {1};\n")
    assert project.ran() == ALL
    project.write("only_gfx90a.h", "#define ONLY 5\n")
    assert project.ran() == {"gfx90a"}


@pytest.mark.parametrize("flags", [f"{OLD} -O1 -g", f"{NEW} -O1", f"{OLD} -fgpu-rdc"])
def test_source_without_device_code(flags: str, project: Project) -> None:
    """An object of a source without kernels has no images; it is split and remembered, too."""
    project.flags += flags.split()
    (project.folder / "s.hip").write_text('#include "value.h"\nint run() { return VALUE; }\n')
    assert [project.ran(), project.ran()] == [ALL, set()]
    project.flags += ["-Xarch_gfx906", "-DOTHER"]
    assert "host" not in project.ran()
    project.edit("value.h", "VALUE 3", "VALUE none")
    assert project.ours().returncode == 1
    project.edit("value.h", "VALUE none", "VALUE 4")
    assert [project.ran(), project.ran()] == [ALL, set()]
    with (project.folder / "s.hip").open("a") as file:
        file.write("__attribute__((device)) int used; int *where() { return &used; }\n")
    assert [project.ran(), project.ran()] == [ALL, set()]


def test_without_depfile(project: Project) -> None:
    """A compile without a depfile is remembered, too."""
    command = project.command
    project.command = lambda output="s.o": [  # type: ignore[method-assign]
        word for word in command(output) if word != "-MD"
    ]
    assert [project.ran(), project.ran()] == [ALL, set()]
    project.edit(*EDITS["a header"])
    assert project.ran() == ALL
    assert not (project.folder / "s.d").exists()


@pytest.mark.parametrize(
    ("flags", "one", "two"),
    [
        (["@file"], "-O1", "-O2"),
        (["-fsanitize=undefined", "-fsanitize-ignorelist=file"], "fun:none\n", "fun:run\n"),
        ([OLD, "-Xclang", "-fembed-offload-object=file"], "one", "two"),
        ([NEW, "-Xclang", "-fembed-offload-object=file"], "one", "two"),
    ],
)
def test_file_that_a_flag_names(flags: list[str], one: str, two: str, project: Project) -> None:
    """It may be replaced by an equal one; with another content, what it is for is compiled."""
    project.flags += flags
    ran = []
    for number, text in enumerate((one, one, two)):
        (project.folder / f"{number}").write_text(text)
        (project.folder / f"{number}").rename(project.folder / "file")
        ran.append(project.ran())
    assert ran[:2] == [ALL, set()]
    assert "host" in ran[2]


@pytest.mark.parametrize(
    ("root", "flags"),
    [
        *(("sr", ""), ("../sr", "")),
        *(("FOLDER/sr", f"-isystem FOLDER/sr/usr/include{below}") for below in ("", "/drm")),
    ],
)
def test_folder_that_the_driver_finds(root: str, flags: str, project: Project) -> None:
    """A folder that appears in a sysroot is searched, whatever folders flags name."""
    words = f"--sysroot={root} {flags}".replace("FOLDER", str(project.folder))
    project.flags += words.split()
    project.edit("s.hip", '#include "value.h"', '#include "value.h"\n#include <found.h>')
    project.edit("s.hip", "= VALUE", "= FOUND")
    headers = f"{root.replace('FOLDER/', '')}/usr/include"
    project.write(f"{headers}/drm/other.h", "")
    project.write(f"{headers}/cstddef", "namespace std { typedef unsigned long size_t; }\n")
    project.write(f"{headers}/found.h", "#define FOUND 1\n")
    project.ran()
    assert project.ran() == set()
    project.write(f"{headers}/x86_64-linux-gnu/found.h", "#define FOUND 2\n")
    assert [project.ran(), project.ran()] == [ALL, set()]


def test_gcc_that_becomes_complete(project: Project) -> None:
    """Clang takes the newest GCC that has a ``crtbegin.o``; its folder may have been there."""
    project.flags.append("--gcc-toolchain=g")
    project.edit("s.hip", '#include "value.h"', "#include <found.h>")
    for version in ("12", "13"):
        project.write(f"g/include/c++/{version}/found.h", f"#define VALUE {version}\n")
        cstddef = "namespace std { typedef unsigned long size_t; }\n"
        project.write(f"g/include/c++/{version}/cstddef", cstddef)
        project.write(f"g/lib/gcc/x86_64-linux-gnu/{version}/crtend.o", "")
    project.write("g/lib/gcc/x86_64-linux-gnu/12/crtbegin.o", "")
    assert [project.ran(), project.ran()] == [ALL, set()]
    project.write("g/lib/gcc/x86_64-linux-gnu/13/crtbegin.o", "")
    assert [project.ran(), project.ran()] == [ALL, set()]


def test_other_encoding(project: Project) -> None:
    """Names and texts in UTF-8 are the same bytes in a locale with another encoding."""
    project.more = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    project.flags += ["-Ié", '-DTEXT="é"']
    project.write("é/found.h", '#if __has_include("ü.h")\n#define MORE 1\n#endif\n')
    project.add("#include <found.h>\n#ifndef MORE\nconst char *text() { return TEXT; }\n#endif")
    assert [project.ran(), project.ran()] == [ALL, set()]
    project.write("é/ü.h", "")
    assert [project.ran(), project.ran()] == [ALL, set()]
    project.write("é/found.h", "")
    assert [project.ran(), project.ran()] == [ALL, set()]


def test_nothing_to_do(project: Project) -> None:
    """Then the object gets a new time, and depfile and messages are as before."""
    project.edit("s.hip", "int run", "int unused(int x) { int y; return 1; }\nint run")
    project.write("only_gfx90a.h", "#warning of gfx90a\n")
    project.flags.append("-Wall")
    project.more["OFFLOAD_LAUNCH_VERBOSE"] = "0"
    first = project.ours()
    assert "unused variable 'y'" in first.stderr
    assert "of gfx90a" in first.stderr
    paths = [project.folder / name for name in ("s.o", "s.d")]
    before = [path.read_bytes() for path in paths]
    os.utime(paths[0], (1, 1))
    paths[1].unlink()
    os.utime(project.folder / "value.h")
    assert project.ours().stderr == first.stderr
    assert [path.read_bytes() for path in paths] == before
    assert paths[0].stat().st_mtime > (project.folder / "value.h").stat().st_mtime
    project.more.clear()
    assert project.ran() == set()


def test_folder_for_a_manifest(project: Project) -> None:
    """Where no manifest can be written, all passes run; `tests/manifest` has all damages."""
    project.build()
    (project.folder / MANIFEST).unlink()
    (project.folder / MANIFEST).mkdir()
    assert [project.ran(), project.ran()] == [ALL, ALL]


def _by_hand(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _another(path: Path) -> None:
    path.write_bytes(path.with_name("driver.o").read_bytes()[:5000])


def _hard_link(path: Path) -> None:
    os.link(path, path.with_name("other.o"))


def _link(path: Path) -> None:
    path.rename(path.with_name("other.o"))
    path.symlink_to("other.o")


@pytest.mark.parametrize("damage", [Path.unlink, _by_hand, _another, _hard_link, _link])
def test_damaged_object(damage: Callable[[Path], None], project: Project) -> None:
    """An object that is not the file that was made is none, and other names of it keep theirs."""
    project.build()
    path = project.folder / "s.o"
    expected = path.read_bytes()
    damage(path)
    assert [project.ran(), project.ran()] == [ALL, set()]
    assert (path.is_symlink(), path.stat().st_nlink) == (False, 1)
    other = project.folder / "other.o"
    assert not other.exists() or other.read_bytes() == expected


def test_killed_between(project: Project) -> None:
    """A manifest that is older than the object says nothing of it."""
    project.build()
    manifest = (project.folder / MANIFEST).read_bytes()
    project.edit(*EDITS["a kernel"])
    project.build()
    (project.folder / MANIFEST).write_bytes(manifest)
    project.edit(*EDITS["a kernel"][:1], *EDITS["a kernel"][:0:-1])
    assert [project.ran(), project.ran()] == [ALL, set()]


_KILLED = """
import os, sys
from offload_tool.launch.split_compile import _Split
_Split._complete = lambda *_: os.kill(os.getpid(), 9)
from offload_tool.cli import main
main(sys.argv[1:])
"""


def test_killed_while_compiling(project: Project) -> None:
    """The next compile removes what a killed one has left."""
    project.launch = (sys.executable, "-c", _KILLED, "launch")
    assert project.ours().returncode == -signal.SIGKILL
    assert not (project.folder / "s.o").exists()
    project.launch = LAUNCH
    assert project.ran() == ALL
    names = [path.name for path in project.folder.iterdir()]
    assert not [name for name in names if re.match(r"\.offload|.*tmp", name)]


def test_long_name(project: Project) -> None:
    """An object and its depfile may have names of the greatest length."""
    name = f"{'x' * (255 - len('.o'))}.o"
    done = run([*LAUNCH, *project.command(name)], project.folder)
    assert "gfx906: compiled" in done.stderr
    assert done.returncode == run(project.command("driver.o"), project.folder).returncode == 0
    made = (project.folder / name).read_bytes()
    assert made == (project.folder / "driver.o").read_bytes()


def test_replaced_meanwhile(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that is replaced after it was found current is compiled."""
    project.build()
    judge = Memory._judge

    def replaced(memory: Memory) -> bool:
        found = judge(memory)
        (project.folder / "s.o").unlink()
        (project.folder / "s.o").write_text("by another process")
        return found

    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(Memory, "_judge", replaced)
    status, _, _ = run_split(project.command(), environment({}), lambda _: None)
    assert status == 0
    is_equal = (project.folder / "s.o").read_bytes() == (project.folder / "driver.o").read_bytes()
    assert is_equal
    assert project.ran() == set()  # it is the one of the manifest again


def test_error(project: Project) -> None:
    """After an error there is no object; a mistake that is taken back compiles nothing."""
    project.build()
    project.edit("s.hip", "return 0", "return none")
    for _ in range(2):
        assert project.ours().returncode == 1
        assert not (project.folder / "s.o").exists()
        assert (project.folder / ".s.o.kept").exists()
    project.edit("s.hip", "return none", "return 0")
    assert [project.ran(), project.ran()] == [set(), set()]
    assert not (project.folder / ".s.o.kept").exists()


def test_missing_file_of_embed(project: Project) -> None:
    """It is an error, as of the driver: passes with a depfile, of which clang 22 is silent."""
    project.edit("s.hip", "__global__", 'const char data[] = {\n#embed "data"\n};\n__global__')
    done = project.ours()
    assert (done.returncode, "'data' file not found" in done.stderr) == (1, True)
    assert not (project.folder / "s.o").exists()


@pytest.mark.parametrize("flags", [f"{OLD} -O1", f"{NEW} -O1 -g", f"{OLD} -fgpu-rdc", "-flto"])
@pytest.mark.parametrize("bad", ["__gfx942__", "__gfx90a__", "host"])
def test_error_of_one_pass(bad: str, flags: str, project: Project, tmp_path: Path) -> None:
    """The next call after an error runs the pass that failed; the first one ran all."""
    project.flags += ["--offload-arch=gfx942", *flags.split()]
    project.more["OFFLOAD_LAUNCH_JOBS"] = "4"
    condition = "#ifndef __HIP_DEVICE_COMPILE__" if bad == "host" else f"#ifdef {bad}"
    header = project.folder / "only_here.h"
    header.write_text("#error of one target\n")
    project.edit("s.hip", "int run", f'{condition}\n#include "only_here.h"\n#endif\nint run')
    assert project.ours().returncode == 1
    header.write_text("")
    also = {"host"} if flags == "-flto" else set()
    assert project.ran() == {bad.strip("_"), *also}
    assert project.ran() == set()
    header.write_text("#error of one target\n")
    assert project.ours().returncode == 1
    header.write_text("int here(); // not read before\n")
    project.write("only_gfx90a.h", "inline int not_read_before();\n")
    assert project.ran() == {bad.strip("_"), "gfx90a", *also}


@pytest.mark.parametrize("damage", ["missing", "cut", "of another", "manifest"])
def test_damaged_results_after_an_error(damage: str, project: Project) -> None:
    """Results that are not those that were kept are none."""
    project.build()
    project.edit("s.hip", "return 0", "return none")
    assert project.ours().returncode == 1
    kept = project.folder / ".s.o.kept"
    data = kept.read_bytes()
    kept.unlink()
    if damage != "missing":
        kept.write_bytes({"cut": data[:-1], "of another": data[:1000]}.get(damage, data))
    if damage == "manifest":
        path = project.folder / MANIFEST
        path.write_text(re.sub(r'"kept": "[0-9 ]+"', '"kept": "1 x -5"', path.read_text()))
    project.edit("s.hip", "return none", "return 0")
    assert [project.ran(), project.ran()] == [ALL, set()]


def test_full_disk(project: Project) -> None:
    """An object that does not fit is an error; without space for a manifest it is right."""
    inside = 'mount -t tmpfs -o size="$1" x out || exit 99; shift; "$@"; status=$?'
    inside += "; ls -A out; cp out/s.o kept; exit $status"
    (project.folder / "out").mkdir()
    command = [*project.command("out/s.o"), "-MF", "s.d"]
    assert run(project.command("driver.o"), project.folder).returncode == 0
    expected = (project.folder / "driver.o").read_bytes()
    pages = -(-len(expected) // os.sysconf("SC_PAGE_SIZE"))
    for size, left in ((pages - 1, []), (pages, ["s.o"]), (500, [MANIFEST, "s.o"])):
        launch = ["unshare", "-rm", "sh", "-c", inside, "-", f"{size * 4}k", *LAUNCH, *command]
        done = run(launch, project.folder)
        if done.returncode == 99 or "unshare" in done.stderr:
            pytest.skip("no file system can be mounted here")
        assert (done.returncode == 0, done.stdout.split()) == (bool(left), left), done.stderr
        kept = project.folder / "kept"
        assert not left or kept.read_bytes() == expected
        kept.unlink(missing_ok=True)


@pytest.mark.parametrize("line", ["#warning text", "#error text"])
def test_messages_that_do_not_fit(line: str, project: Project) -> None:
    """If the folder for temporary files is full, result and messages are the driver's."""
    project.flags.append("-ferror-limit=0")
    project.add(f"{line} {'x' * 99}\n" * 1000)
    driver = run(project.command("driver.o"), project.folder)
    inside = 'mount -t tmpfs -o size=100k x "$TMPDIR" || exit 99; exec "$@"'
    more = {"TMPDIR": str(project.folder / "tmp")}
    (project.folder / "tmp").mkdir()
    launch = ["unshare", "-rm", "sh", "-c", inside, "-", *LAUNCH, *project.command()]
    done = run(launch, project.folder, more)
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("no file system can be mounted here")
    assert done.returncode == driver.returncode
    assert done.stderr.endswith(driver.stderr)
    made = [project.folder / name for name in ("s.o", "driver.o") if not driver.returncode]
    assert len({path.read_bytes() for path in made}) == len(made) / 2


def test_genco(project: Project) -> None:
    """Hipcc's word for device code alone is remembered, for several targets."""
    swap = 'for x; do shift; [ "$x" = --genco ] && x=--offload-device-only; set -- "$@" "$x"; done'
    project.clang = script(project.folder / "hipcc", f'{swap}\nexec {project.clang} "$@"')
    project.flags.append("--genco")
    assert [project.ran(), project.ran()] == [ALL - {"host"}, set()]
    project.write("only_gfx90a.h", "#undef VALUE\n#define VALUE 7\n")
    assert [project.ran(), project.ran()] == [{"gfx90a"}, set()]


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("-save-temps", "is kept"),
        ("-ftime-trace", "it also writes 's.json'"),
        ("-DNOW=__TIME__", "is of the time"),
        ("-MV", "is not known"),
        (
            "-Xclang -remap-file -Xclang v.h;value.h",
            "no depfile lists .* '-remap-file'",
        ),
        ("", "OFFLOAD_LAUNCH_MEMORY=0"),
    ],
)
def test_not_remembered(flag: str, reason: str, project: Project) -> None:
    """Compiles with more outputs, or with unknown inputs, have no manifest, as is said."""
    project.flags += flag.split()
    project.more["OFFLOAD_LAUNCH_MEMORY"] = "1" if flag else "0"
    done = project.ours()
    assert done.returncode == 0
    assert re.search(f"not remembered: .*{reason}", done.stderr)
    assert not (project.folder / MANIFEST).exists()


@pytest.mark.parametrize("macro", ["__TIME__", "P(__TIME, STAMP__)", "P(_, _DATE__)"])
def test_time(macro: str, project: Project) -> None:
    """A pass that reads the time runs each time."""
    define = "#define Q(a, b) a##b\n#define P(a, b) Q(a, b)\n"
    project.write("only_gfx90a.h", f"{define}inline const char *when() {{ return {macro}; }}")
    project.build()
    assert project.ran() == {"gfx90a"}


def test_times_of_files(project: Project) -> None:
    """A pass with a warning about the age of a file runs each time."""
    project.write("only_gfx90a.h", '#pragma GCC dependency "value.h"\n')
    project.build()
    assert project.ran() == {"gfx90a"}


def test_time_in_a_system_header(project: Project) -> None:
    """A pass that reads the time in a header of the system runs each time."""
    system = f"{project.folder}/system/"
    patch = f"from offload_tool.io import file_digests; file_digests._SYSTEM = {system!r}"
    run_main = "import sys; from offload_tool.cli import main; sys.exit(main(sys.argv[1:]))"
    project.launch = (sys.executable, "-c", f"{patch}; {run_main}", "launch")
    project.flags += ["-isystem", system]
    project.write("system/when.h", "inline const char *when() { return __DATE__; }\n")
    project.write("only_gfx90a.h", "#include <when.h>\n")
    project.build()
    assert project.ran() == {"gfx90a"}


def test_launcher(tmp_path: Path, project: Project) -> None:
    """A launcher gets the passes that must run."""
    project.more["OFFLOAD_LAUNCHER"] = counting(tmp_path)
    assert project.build()["host"].startswith("from the launcher: it has no manifest")
    assert project.ran() == set()
    project.write("only_gfx90a.h", "#undef VALUE\n#define VALUE 7\n")
    assert project.ran() == {"gfx90a"}
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 4
    assert "--offload-arch=gfx90a" in lines[-1]


@pytest.mark.parametrize("flags", [f"{OLD} -O1", f"{OLD} -O2 -fPIC", f"{NEW} -O1"])
def test_cut_off(flags: str, project: Project) -> None:
    """Only passes whose unoptimised bitcode differs run to their end."""
    project.launch = ALWAYS_IN_STAGES
    project.flags += flags.split()

    def compiled() -> set[str]:
        outcomes = project.build()
        assert not any(outcome == "current" for outcome in outcomes.values())
        return {name for name, outcome in outcomes.items() if outcome.startswith("compiled")}

    assert compiled() == ALL
    project.edit("s.hip", "int run", "// a\nint run")
    compiled()  # a first pass without HIP's headers is one job
    project.edit("s.hip", "// a", "// a comment")
    assert compiled() == set()
    for texts in (("// a comment", "// a"), ("// a", "// a comment")):
        project.edit("s.hip", *texts)
        assert project.ran() == set()
    project.edit(*EDITS["a kernel"])
    assert compiled() == ALL - {"host"}
    project.edit(*EDITS["host code"])
    assert compiled() == {"host"}
    for texts in (("return 1", "int same = 1; return same"), ("x[0] =", "float *y = x; y[0] =")):
        project.edit("s.hip", *texts)
        project.build()  # the optimised code is the same
        for there_and_back in (texts[::-1], texts):
            project.edit("s.hip", *there_and_back)
            assert project.ran() == set()
    project.edit("value.h", "#pragma once", "#pragma once\n#define UNUSED\n")
    assert compiled() == set()
    project.edit("s.hip", "// a comment", "mistake")
    assert project.ours().returncode == 1
    project.edit("s.hip", "mistake", "// a comment without")
    assert compiled() == set()
    project.more["OFFLOAD_CUTOFF"] = "0"
    project.edit("s.hip", "// a comment without", "// another")
    assert compiled() == ALL


@pytest.mark.parametrize("flags", [f"{OLD} -O1", f"{NEW} -O2"])
def test_cut_off_with_check(flags: str, project: Project) -> None:
    """OFFLOAD_CUTOFF_CHECK=1 runs all backends; another result is an error by name."""
    project.launch, project.more["OFFLOAD_CUTOFF_CHECK"] = ALWAYS_IN_STAGES, "1"
    project.flags += flags.split()
    project.build()
    for texts in (("int run", "// a\nint run"), ("// a", "// b"), ("// b", "// c")):
        project.edit("s.hip", *texts)
        outcomes = project.build()
        assert {outcomes[name].split(":")[0] for name in ALL} == {"compiled"}
    project.launch = WITH_EQUAL_BITCODE
    project.edit("s.hip", "// c", "// d")
    project.build()
    project.edit(*EDITS["a kernel"])
    done = project.ours()
    assert done.returncode == 1
    assert "although the bitcode is equal; this is an error of this tool" in done.stderr


@pytest.mark.parametrize("name", ["OFFLOAD_CUTOFF", "OFFLOAD_CUTOFF_CHECK"])
def test_wrong_switch(name: str, project: Project) -> None:
    """A value that is neither 0 nor 1 is refused by name, and nothing is written."""
    project.more[name] = "maybe"
    done = project.ours()
    assert (done.returncode, list(project.folder.glob("*.o"))) == (1, [])
    assert f"{name}: expected 0 or 1, found 'maybe'" in done.stderr


def test_bitcode_is_a_temporary_file(project: Project) -> None:
    """Where the host pass writes the object itself, no bitcode is left beside that."""
    project.launch = ALWAYS_IN_STAGES
    project.flags += ["-O1", "-flto", "-ffat-lto-objects"]
    project.build()
    names = {*project.folder.iterdir()}
    project.edit(*EDITS["a comment"])
    project.build()
    assert {*project.folder.iterdir()} == names


def test_messages_of_both_stages(project: Project) -> None:
    """What the front end prints is printed if the backend runs, too."""
    project.launch = ALWAYS_IN_STAGES
    project.flags += ["-O1", "-Wall"]
    project.edit("s.hip", "int run", "int unused(int x) { int y; return 1; }\nint run")
    project.build()
    project.edit(*EDITS["host code"])
    assert "unused variable 'y'" in project.ours().stderr
    project.edit(*EDITS["a kernel"])
    assert "unused variable 'y'" in project.ours().stderr


def test_messages_of_the_backend(project: Project) -> None:
    """They name the place in the source, as the driver's: a pass that has such is one job."""
    project.launch = ALWAYS_IN_STAGES
    project.flags += ["-O2", OLD, "-Xclang", "-fdump-record-layouts"]
    loop = "#pragma clang loop unroll(full)\nfor (int i = 0; i < n; ++i) x[i] *= n;\n"
    project.add(f"__global__ void loops(float *x, int n) {{\n{loop}}}\n")

    def outcome(number: int) -> str:
        project.edit("s.hip", f"return {number}", f"return {number + 1}")
        outcome = project.build()["gfx906"]
        project.edit("s.hip", f"return {number + 1}", f"return {number + 1} + 0")
        ours, driver = project.ours(), run(project.command("driver.o"), project.folder)
        lines = driver.stderr.splitlines()
        assert ("s.hip:8:17: warning: loop not unrolled" in driver.stderr) == (number < 3)
        assert {*ours.stderr.splitlines()} >= {line for line in lines if " generated " not in line}
        assert len(ours.stdout) == len(driver.stdout) > 0
        project.edit("s.hip", f"return {number + 1} + 0", f"return {number + 1}")
        project.ours()
        return outcome.partition(":")[0]

    assert [outcome(number) for number in range(3)] == ["compiled"] * 3
    project.edit("s.hip", "unroll(full)", "unroll(disable)")
    assert [outcome(number) for number in (3, 4)] == ["compiled", "front end only"]


def test_names_that_the_backend_numbers(project: Project) -> None:
    """They continue the front end's numbers, as the driver's: a pass that has such is one job."""
    project.launch = ALWAYS_IN_STAGES
    project.flags += ["-O2", OLD]
    calls = "".join(f'printf("%d {word}", n); printf("{word}\\n"); ' for word in ("one", "two"))
    project.add(f'extern "C" int printf(const char *, ...);\nvoid say(int n) {{ {calls}}}\n')
    project.build()
    for text in ("// a", "// a comment", "// another"):
        project.edit("s.hip", "int run", f"{text}\nint run")
        outcomes = project.build()
        assert outcomes["host"].startswith("compiled")
    assert {outcomes[name] for name in ALL - {"host"}} == {"front end only: 's.hip' changed"}


_CASES = """
__attribute__((device, noinline)) unsigned walk(unsigned a, unsigned b, unsigned *p) {
    unsigned c = 0;
    switch (a) {
    case 4:
        a = c;
    case 5:
        for (unsigned i = 0; i < a; ++i) for (unsigned j = 0; j < b; ++j) {}
        switch (b) {
        default:
            switch (b & 7u) { case 4: c = a; a = b; }
            for (unsigned j = 0; j < ((b | 1u) & 15u); ++j) c = (a - b + c) >> 2;
            if (b & 16u)
                switch (a + b) {
                case 3: b = b + b;
                case 4: c = a + p[b & 63];
                default: a = a - b + p[b & 63];
                }
        }
    }
    return a + b + c;
}
__global__ void walks(unsigned *p, unsigned a) { p[0] = walk(4, 4 + p[a & 63], p); }
"""
"""Cases that others fall through to: blocks whose predecessors have two orders."""


def test_order_of_predecessors(project: Project) -> None:
    """The backend has blocks' predecessors in the front end's order, if it reads bitcode, too."""
    project.launch = ALWAYS_IN_STAGES
    project.flags += ["-O2", OLD]
    project.add(_CASES)
    project.build()
    project.edit("s.hip", "int run", "// a\nint run")
    assert project.build()["gfx906"].startswith("compiled")
    project.edit("s.hip", "// a", "// another")
    assert project.build()["gfx906"] == "front end only: 's.hip' changed"


def test_why(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """``offload-tool why`` has a block for each pass, and knows an object that is another file."""
    project.build()
    output = project.folder / "s.o"
    assert main(["why", str(output)]) == 0
    messages = capsys.readouterr().out
    for name in ALL:
        assert f"{output}: {name}: current\n  compiled because: it has no manifest" in messages
    project.write("only_gfx90a.h", "// a comment\n")
    assert main(["why", str(output)]) == 1
    messages = capsys.readouterr().out
    assert f"{output}: gfx90a: stale: 'only_gfx90a.h' changed\n" in messages
    assert f"{output}: host: current\n" in messages
    output.write_text("by hand")
    assert main(["why", str(output)]) == 1
    assert capsys.readouterr().out == f"{output}: stale: it is not the file that was made\n"
