"""examples/meson_saxpy, in both forms, and docs/meson.md: what is compiled again after a change."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.errors import CompilerError
from offload_tool.passes.choose_compiler import find_toolchain
from tests.conftest import ROOT, missing, program, run_tool, try_tool
from tests.scripts import counting_launcher, script

TARGETS = ["gfx906", "gfx90a:xnack+", "gfx942"]
SOURCES = ["saxpy", "scale"]
HEADERS = """\
#if defined(__gfx90a__)
#include "special.h"
#endif
#ifndef __HIP_DEVICE_COMPILE__
#include "host.h"
#endif
"""
PAGE = (ROOT / "docs/meson.md").read_text()
SIZES = {"0": 0, "1": 1, "N": len(SOURCES), "M": len(TARGETS)}
SIZES["N x M"] = SIZES["N"] * SIZES["M"]
BIN = str(Path(sys.executable).parent)


def counting_environment(folder: Path) -> dict[str, str]:
    """Return the OS environment of a build whose compiles are logged in `folder`."""
    try:
        find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
    cxx = next(filter(None, map(shutil.which, ("c++", "clang++-22", "clang++"))), None)
    if cxx is None:
        missing("a C++ compiler")
    environment = os.environ | {"OFFLOAD_LAUNCHER": counting_launcher(folder), "CXX": cxx}
    environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
    environment.pop("OFFLOAD_DIST", None)
    return environment


def compiles_since(folder: Path) -> list[str]:
    """Return ``<source> <target ID or host>`` of each compile in the log, sorted, and empty it."""
    log = folder / "compiles.log"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return sorted(map(_described, lines))


def _described(command: str) -> str:
    target = re.search(r" --offload-arch=(\S+)", command)
    assert target or " --offload-host-only " in command, command
    (source,) = (Path(word) for word in command.split() if word.endswith(".hip"))
    return f"{source.stem} {target[1] if target else 'host'}"


def passes(*names: str) -> list[str]:
    """Name the passes over all sources."""
    return sorted(f"{source} {name}" for source in SOURCES for name in names)


@dataclass
class Example:
    """An example, copied into a folder; programs run in its folder `build_folder`."""

    folder: Path
    environment: dict[str, str]
    build_folder: Path

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the build folder, whatever becomes of it."""
        found = command[0] if "/" in command[0] else program(command[0])
        options = {"cwd": self.build_folder, "env": self.environment}
        return try_tool(found, *command[1:], stderr=subprocess.STDOUT, timeout=300, **options)


NODES = "nodes/meson.build"
"""The form with a node for each target, which most tests build."""


class Project(Example):
    """The example, with headers that single passes reach."""

    form = NODES

    @property
    def source(self) -> Path:
        return self.folder / "source"

    def write(self, name: str, text: str) -> None:
        (self.source / name).write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.source / name).read_text()
        assert old in text, old
        self.write(name, text.replace(old, new, 1))

    def build_first(self) -> Project:
        """Configure and build, which compiles all, and once."""
        self.build_folder.mkdir()
        folders = (self.build_folder, (self.source / self.form).parent)
        done = self.call("meson", "setup", f"-Dtargets={','.join(TARGETS)}", *map(str, folders))
        assert done.returncode == 0, done.stdout
        assert self.build()[0] == passes("host", *TARGETS)
        self.assert_up_to_date()
        return self

    def set_targets(self, *targets: str) -> None:
        done = self.call("meson", "configure", f"-Dtargets={','.join(targets)}")
        assert done.returncode == 0, done.stdout

    def build(self) -> tuple[list[str], str]:
        """Build, which must work; return what was compiled, and what was said."""
        done = self.call("ninja")
        assert done.returncode == 0, done.stdout
        return compiles_since(self.folder), done.stdout

    def assert_up_to_date(self) -> None:
        compiles, messages = self.build()
        assert compiles == []
        assert "no work to do" in messages, messages


def make_project(folder: Path, kind: type[Project] = Project) -> Project:
    made = kind(folder, counting_environment(folder), folder / "build")
    shutil.copytree(ROOT / "examples/meson_saxpy", made.source)
    made.write("special.h", "")
    made.write("host.h", "")
    made.write("saxpy.hip", HEADERS + (made.source / "saxpy.hip").read_text())
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return the example, not configured yet."""
    return make_project(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return the example, built once for all tests: each leaves it up to date."""
    made = make_project(tmp_path_factory.mktemp("meson"))
    toolchain = find_toolchain()
    if not toolchain.origin.startswith("embedded"):  # which needs more than a script around it
        command = f'exec {shlex.join(toolchain.clang)} "$@"'
        made.environment["OFFLOAD_CLANG"] = script(made.folder / "clang-99", command)
    return made.build_first()


def _newer_compiler(project: Project) -> None:
    clang = project.folder / "clang-99"
    if not clang.exists():
        pytest.skip("the embedded compiler is in the environment that runs the tests")
    clang.write_text(clang.read_text() + "# another version\n")


# Meson forgets after each new configuration that an output came out equal and kept its time
# (see test_configured_anew), so changes that configure come first.
Change = Callable[[Project], None]
ROWS: dict[str, tuple[Change, list[str]]] = {
    "nothing": (lambda _: None, []),
    "flags of one target (`flags_of`)": (
        lambda project: project.edit(NODES, "['-mllvm',", "['-O2', '-mllvm',"),
        passes("gfx942"),
    ),
    "compression or bundle alignment": (
        lambda project: project.edit(NODES, "align=4096'", "align=256', '-compress'"),
        [],
    ),
    "the order of the list": (lambda project: project.set_targets(*reversed(TARGETS)), []),
    "a target added to the list": (
        lambda project: project.set_targets(*TARGETS, "gfx1100"),
        passes("gfx1100"),
    ),
    "a target removed": (lambda project: project.set_targets(*TARGETS), []),
    "a header of one source that only one target's preprocessing reaches": (
        lambda project: project.write("special.h", "constexpr int kNew = 1;\n"),
        ["saxpy gfx90a:xnack+"],
    ),
    "a header of one source that only the host pass reaches": (
        lambda project: project.write("host.h", "constexpr int kNew = 1;\n"),
        ["saxpy host"],
    ),
    "a comment in a source": (
        lambda project: project.edit("scale.hip", "// y = a * y", "// y = a times y"),
        sorted(f"scale {name}" for name in ("host", *TARGETS)),
    ),
    "the compiler's file": (_newer_compiler, passes("host", *TARGETS)),
}


@pytest.mark.parametrize("change", ROWS)
def test_rebuilds(built: Project, change: str) -> None:
    """After each change of the page's table, Ninja compiles what is said there, once."""
    apply, expected = ROWS[change]
    built.assert_up_to_date()
    apply(built)
    compiles, _ = built.build()
    assert compiles == expected
    built.assert_up_to_date()
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {change} |")]
    hosts = sum(name.endswith(" host") for name in expected)
    cells = [cell.strip() for cell in row.split("|")[2:4]]
    assert [SIZES[cell] for cell in cells] == [len(expected) - hosts, hosts]


def test_cutoff(built: Project) -> None:
    """After a comment no bundle is made and nothing is linked: no object came out different."""
    text = (built.source / "scale.hip").read_text()
    built.write("scale.hip", text + "// a comment\n")
    compiles, output = built.build()
    assert len(compiles) == len(TARGETS) + 1
    assert not any(word in output for word in (".hipfb", ".fatbin.o", "Linking")), output
    built.write("scale.hip", text.replace("y[i] *= a", "y[i] += a"))
    _, output = built.build()
    assert "scale.hipfb" in output
    assert "saxpy.hipfb" not in output
    assert "Linking" in output
    built.write("scale.hip", text)
    built.build()


def test_program(built: Project) -> None:
    """The program registers the images of all its targets; `images` lists them, tests pass."""
    found = [image.target_id for image in list_images(built.build_folder / "saxpy")]
    assert sorted(found) == sorted(["", *TARGETS] * len(SOURCES))
    output = built.call("./saxpy").stdout
    assert output.count("fat binary registered") == len(SOURCES) or "no HIP device" in output
    listed = built.call("ninja", "images")
    assert listed.returncode == 0
    assert all(target in listed.stdout for target in TARGETS)
    tested = built.call("meson", "test")
    assert tested.returncode == 0, tested.stdout
    assert re.search(rf"^Ok: +{len(TARGETS)}\s*$", tested.stdout, re.MULTILINE), tested.stdout


def test_precompiled_headers(project: Project) -> None:
    """With ``-Dpch=true`` the same is compiled, to the same bytes, and a body's edit makes none."""
    project.write("saxpy.hip", (project.source / "saxpy.hip").read_text().removeprefix(HEADERS))
    project.build_first()
    outputs = [*project.build_folder.glob("*.co"), *project.build_folder.glob("*.host.o")]
    without = {file: file.read_bytes() for file in outputs}
    for file in outputs:
        file.unlink()
        file.with_name(f".{file.name}.manifest").unlink()
    assert project.call("meson", "configure", "-Dpch=true").returncode == 0
    compiles, output = project.build()
    assert compiles == passes("host", *TARGETS)
    assert "is not used" not in output
    assert {file: file.read_bytes() for file in outputs} == without
    made = {file: file.stat() for file in project.build_folder.glob("*.pch")}
    assert len(made) == len(TARGETS) + 1
    project.edit("scale.hip", "y[i] *= a", "y[i] += a")
    assert project.build()[0] == sorted(f"scale {name}" for name in ("host", *TARGETS))
    assert {file: file.stat() for file in made} == made


def test_generated_header(project: Project) -> None:
    """A header that another target makes is there in the first build, and is followed."""
    project.write("value.txt", "constexpr int kMade = 1;\n")
    project.edit(
        NODES,
        "objects = []\n",
        "made = custom_target(input: '../value.txt', output: 'made.h',\n"
        "  command: ['cp', '@INPUT@', '@OUTPUT@'])\n"
        "flags += '-I' + meson.current_build_dir()\n"
        "objects = []\n",
    )
    for depends in ("depends: pchs.get(target, [])", "depends: pchs.get('host', [])"):
        project.edit(NODES, depends, f"{depends} + (name == 'scale' ? [made] : [])")
    project.write("scale.hip", '#include "made.h"\n' + (project.source / "scale.hip").read_text())
    project.build_first()
    project.write("value.txt", "constexpr int kMade = 2;\n")
    compiles, _ = project.build()
    assert compiles == sorted(f"scale {name}" for name in ("host", *TARGETS))
    project.assert_up_to_date()


def test_error_in_a_source(built: Project) -> None:
    """The build stops with the compiler's message, leaves no output, and goes on when mended."""
    text = (built.source / "scale.hip").read_text()
    built.write("scale.hip", text + "this is not C++\n")
    done = built.call("ninja", "-k", "0")
    assert done.returncode != 0
    assert "scale.hip:16:1: error:" in done.stdout, done.stdout
    assert "Traceback" not in done.stdout
    left = {path.name for path in built.build_folder.iterdir()}
    stems = ["scale.host.o", *(f"scale.{name.replace(':', '_')}.co" for name in TARGETS)]
    assert left.isdisjoint(stems)
    assert not any(name.endswith(".d") for name in left)
    assert "saxpy.gfx906.co" in left
    compiles_since(built.folder)
    built.write("scale.hip", text)
    compiles, _ = built.build()
    assert compiles == sorted(f"scale {name}" for name in ("host", *TARGETS))
    built.assert_up_to_date()


def test_configured_anew(built: Project) -> None:
    """What Meson calls again because it configured is current: nothing is compiled or linked."""
    text = (built.source / "scale.hip").read_text()
    built.write("scale.hip", text + "// a comment\n")
    built.build()
    built.assert_up_to_date()
    built.write(NODES, (built.source / NODES).read_text() + "# a comment\n")
    compiles, output = built.build()
    assert compiles == []
    assert "Linking" not in output, output
    built.assert_up_to_date()


class OneCommand(Project):
    """The form with one command for each source, by ``offload-tool launch``."""

    form = "meson.build"


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> OneCommand:
    """Return the main form, built once for all tests: each leaves it up to date."""
    if not any(map(shutil.which, ("hipcc", "clang++", "clang++-22"))):
        missing("a compiler for HIP")
    return make_project(tmp_path_factory.mktemp("launched"), OneCommand).build_first()


def test_one_command_for_each_source(launched: OneCommand) -> None:
    """The program registers the images of all its targets."""
    found = [image.target_id for image in list_images(launched.build_folder / "saxpy")]
    assert sorted(found) == sorted(["", *TARGETS] * len(SOURCES))
    printed = launched.call("./saxpy").stdout
    assert printed.count("fat binary registered") == len(SOURCES) or "no HIP device" in printed


def test_one_command_compiles_what_has_changed(launched: OneCommand) -> None:
    """After an edit, each command compiles for the targets whose inputs have changed."""
    launched.set_targets(*TARGETS, "gfx1100")
    assert launched.build()[0] == passes("gfx1100")
    launched.write("special.h", "constexpr int kNew = 1;\n")
    assert launched.build()[0] == ["saxpy gfx90a:xnack+"]
    launched.write("host.h", "constexpr int kNew = 1;\n")
    assert launched.build()[0] == ["saxpy host"]
    os.utime(launched.source / "kernels.h")
    assert launched.build()[0] == []
    launched.set_targets(*TARGETS)
    assert launched.build()[0] == []
    launched.edit("scale.hip", "y[i] *= a", "y[i] += a")
    assert launched.build()[0] == sorted(f"scale {name}" for name in ("host", *TARGETS))
    launched.assert_up_to_date()


QUOTED = re.findall(r"^```(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MESON = ROOT / "examples/meson_saxpy"
NODES_TEXT = (MESON / "nodes/meson.build").read_text()
EXAMPLES = {
    "meson": (MESON / "meson.build").read_text() + NODES_TEXT,
    "make": (ROOT / "examples/make_saxpy/Makefile").read_text(),
}


@pytest.mark.parametrize("language", EXAMPLES)
def test_quotations(language: str) -> None:
    """Each quoted piece of an example is in its file, in the order of the file."""
    text = EXAMPLES[language]
    position = 0
    pieces = [block for name, block in QUOTED if name == language]
    assert pieces
    for piece in pieces:
        found = text.find(piece, position)
        assert found >= 0, piece
        position = found + len(piece)


def test_nothing_of_the_example_is_left_out() -> None:
    """The lines of the nodes that are not quoted are the first one, loops and comments."""
    quoted = "".join(block for name, block in QUOTED if name == "meson").splitlines()
    lines = [line for line in NODES_TEXT.splitlines() if line.strip()]
    left = [line.strip() for line in lines if line not in quoted and line.strip()[0] != "#"]
    loops = ("project(", "foreach", "endforeach", "objects = []", "images = []", "entries = [")
    assert [line for line in left if not line.startswith(loops)] == []


def test_every_row_is_tested() -> None:
    """The table of the page has the rows that tests/test_meson.py runs, and no others."""
    table = re.search(r"^\| change \|.*\n\|-.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    assert {row.split("|")[1].strip() for row in table[1].splitlines()} == set(ROWS)


def test_ninja_rule(tmp_path: Path) -> None:
    """The Ninja rule builds, builds nothing twice, and follows headers."""
    (rules,) = [block for name, block in QUOTED if name == "ninja"]
    (tmp_path / "build.ninja").write_text(rules)
    shutil.copy(ROOT / "examples/saxpy/saxpy.hip", tmp_path / "k.hip")
    header = tmp_path / "hip_declarations.h"
    shutil.copy(ROOT / "examples/saxpy/hip_declarations.h", header)
    environment = counting_environment(tmp_path)

    def build() -> list[str]:
        run_tool(program("ninja"), cwd=tmp_path, env=environment)
        return compiles_since(tmp_path)

    assert build() == ["k gfx90a:xnack+", "k host"]
    assert build() == []
    header.write_text(header.read_text() + "// a comment\n")
    assert build() == ["k gfx90a:xnack+", "k host"]
    assert build() == []
