"""``scons --interactive``: several builds in one process, with changes between them."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import try_tool
from tests.scons.conftest import Project, described, passes

OBJECTS = "env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906', CPPPATH=['one', 'two'])\n"
SOURCE = """\
#if __has_include(<extra.h>)
#include <extra.h>
#endif
#include "value.h"
__attribute__((device)) int value = HEADER;
"""
ONCE = ["k.hip gfx906"]


def builds(project: Project, *steps: str, fails: bool = False) -> list[list[str]]:
    """Build, then for each step run it in a shell and build again; return what each compiled.

    A step that begins with ``build`` is such a command itself.
    """
    log = project.folder / "compiles.log"
    lines = ["build"]
    for number, step in enumerate(steps):
        commands = f"mv compiles.log log.{number} 2>&-\n"
        if not step.startswith("build"):
            commands += step
        project.write(f"step.{number}", f"{commands}\n:\n")  # SCons runs it without a shell
        lines += [f"shell sh step.{number}", step if step.startswith("build") else "build"]
    done = try_tool(
        *(sys.executable, "-m", "SCons", "-Q", "--interactive"),
        cwd=project.folder,
        env=project.environment,
        input="\n".join([*lines, "exit"]) + "\n",
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("error" in done.stderr) == fails, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    logs = [project.folder / f"log.{number}" for number in range(len(steps))]
    found = []
    for path in (*logs, log):
        text = path.read_text() if path.exists() else ""
        found.append(sorted(described(line) for line in text.splitlines()))
    return found


@pytest.fixture
def headers(project: Project) -> Project:
    """Return a project whose source includes a header of the second folder on its path."""
    project.write("k.hip", SOURCE)
    project.write("one/other.h", "")
    project.write("two/value.h", "#define HEADER 1\n")
    project.sconstruct(OBJECTS)
    return project


CHANGES = {
    "nothing": (["true"], [[]]),
    "touched": (["touch two/value.h k.hip"], [[]]),
    "source": (["echo 'int x;' >>k.hip"], [ONCE]),
    "header": (["echo '#define HEADER 2' >two/value.h"], [ONCE]),
    "shadowed, and not": (["echo '#define HEADER 2' >one/value.h", "rm one/value.h"], [ONCE, ONCE]),
    "beside-the-source": (["echo '#define HEADER 2' >value.h"], [ONCE]),
    "new-include": (["sed -i '1i #include \"other.h\"' k.hip"], [ONCE]),
    "asked-for": (["echo '#define MORE' >two/extra.h"], [ONCE]),
    "deleted-output": (["rm k.gfx906.co"], [ONCE]),
}


@pytest.mark.parametrize(("changes", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_change_between_builds(
    headers: Project, changes: list[str], expected: list[list[str]]
) -> None:
    """A change between two builds of one process is seen, once, and is right afterwards."""
    assert builds(headers, *changes, "build") == [ONCE, *expected, []]
    headers.assert_up_to_date()


def test_shadowing_header_of_a_variant(headers: Project) -> None:
    """A header that appears beside the sources of a variant folder is copied there, and seen."""
    for name in ("one/other.h", "two/value.h", "k.hip"):
        (headers.folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (headers.folder / name).rename(headers.folder / "src" / name)
    headers.write("src/SConscript", "Import('env')\n" + OBJECTS)
    headers.sconstruct("SConscript('src/SConscript', 'env', variant_dir='out', duplicate=True)\n")
    steps = ["echo '#define HEADER 2' >src/one/value.h", "rm src/one/value.h", "build"]
    once = ["out/k.hip gfx906"]
    assert builds(headers, *steps) == [once, once, once, []]


def test_shadowing_header_of_the_system(headers: Project) -> None:
    """A header that appears in a folder of the system between two builds is seen."""
    (headers.folder / "two/value.h").unlink()
    system = headers.folder.parent
    for name, text in (("first/other.h", ""), ("second/value.h", "#define HEADER 1\n")):
        headers.write(f"../{name}", text)
    headers.write("k.hip", SOURCE.replace('"value.h"', "<value.h>"))
    folders = f"['-isystem', '{system}/first', '-isystem', '{system}/second']"
    headers.sconstruct(
        "from offload_tool.io import file_digests\n"
        f"file_digests._SYSTEM = '{system}/'  # instead of /usr\n"
        f"env['CCFLAGS'] = {folders}\n" + OBJECTS
    )
    step = f"echo '#define HEADER 2' >{system}/first/value.h"
    assert builds(headers, "true", step, "build") == [ONCE, [], ONCE, []]


def test_generated_header(headers: Project) -> None:
    """A header that the build makes is made anew, and what reads it after it."""
    (headers.folder / "two/value.h").unlink()
    headers.write("value.txt", "1")
    headers.sconstruct(
        "def write(target, source, env):\n"
        "    text = source[0].get_text_contents()\n"
        "    open(str(target[0]), 'w').write('#define HEADER ' + text)\n"
        "env.Command('two/value.h', 'value.txt', write)\n" + OBJECTS
    )
    assert builds(headers, "echo 2 >value.txt", "build") == [ONCE, ONCE, []]


def test_include_error_and_repair(headers: Project) -> None:
    """A compile that fails between two builds is made again when its cause is gone."""
    headers.sconstruct("env['CCFLAGS'] = ['-w']\n" + OBJECTS)
    steps = ["mv two/value.h two/away.h", "mv two/away.h two/value.h", "build"]
    assert builds(headers, *steps, fails=True)[2:] == [ONCE, []]
    assert (headers.folder / "k.gfx906.co").exists()


def test_target_ids(project: Project) -> None:
    """``build`` takes target IDs in any spelling."""
    project.sconstruct(
        "env.OffloadBundle('k.hip')\nDefault(env.Command('x', [], Touch('$TARGET')))\n"
    )
    found = builds(project, "build gfx906", "build gfx90a", "build gfx90a:xnack+ gfx906")
    assert found == [[], passes("k.hip", "gfx906"), passes("k.hip", "gfx90a:xnack+"), []]


def test_cache_dir(headers: Project) -> None:
    """With a CacheDir, an edit is compiled and its reversal fetched, within one process."""
    headers.sconstruct("CacheDir('cache')\n" + OBJECTS)
    steps = [
        "echo '#define HEADER 2' >two/value.h",
        "echo '#define HEADER 1' >two/value.h",
        "build",
    ]
    assert builds(headers, *steps) == [ONCE, ONCE, [], []]
