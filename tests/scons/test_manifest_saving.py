"""A file that is saved while clang compiles is not taken for compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.scons.conftest import KERNEL, ONE, TWO, Project, contents
from tests.scons.judging import assert_as_clean_build, compiler_script

NODES = "env.OffloadBundle('k.hip')\nenv.OffloadHostObject('k.hip')\n"
OUTPUTS = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.hipfb", "k.host.o"]
BODY = "#include <value.h>\n" + KERNEL.replace("VALUE", "HERE + OWN")


@pytest.mark.parametrize(
    ("when", "file", "decider"),
    [
        ("before", "include/value.h", "content"),
        ("before", "k.hip", "content-timestamp"),
        ("after", "include/value.h", "timestamp-match"),
        ("after", "k.hip", "content"),
    ],
)
def test_saved_during_a_compile(project: Project, when: str, file: str, decider: str) -> None:
    """One run after a file was saved in mid-compile, all outputs are of the saved file."""
    texts = {
        "include/value.h": ["#define HERE 1\n", "#define HERE 2\n"],
        "k.hip": [f"#define OWN {number}\n" + BODY for number in (1, 2)],
    }
    for name in texts:
        project.write(name, texts[name][0])
    save = f"[ ! -e new ] || mv new {file}"
    project.environment["OFFLOAD_CLANG"] = compiler_script(project, "saving", **{when: save})
    project.sconstruct(f"env.Decider({decider!r})\nenv['CCFLAGS'] = ['-Iinclude']\n" + NODES)
    project.write("new", texts[file][1])
    project.run("-j1")  # may fail, and say that the file was changed
    assert not (project.folder / "new").exists()
    project.build("-j1")
    assert_as_clean_build(project, OUTPUTS)
    project.assert_up_to_date()


def test_hard_link_during_a_compile(project: Project) -> None:
    """A hard link to a source, as SCons makes for another variant directory, is no change."""
    script = compiler_script(project, "linking", after="ln -f k.hip another.hip")
    project.environment["OFFLOAD_CLANG"] = script
    project.write("k.hip", KERNEL.replace("VALUE", "1"))
    project.sconstruct(NODES).build("-j1")
    project.assert_up_to_date()


@dataclass(frozen=True)
class Meanwhile:
    """What happens after the compiler has read everything, and before it is done."""

    line: str
    """Of shell; once, when there is a file or folder ``new``."""
    files: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ("-Ifirst", "-Isecond")
    head: str = "#include <value.h>\n"


SECOND = {"second/value.h": ONE, "first/no": "", "new": TWO}
ONCE = "#pragma once\n#ifdef V\n#define W\n#endif\n#define V\n"
COUNTED = "#ifdef W\n" + TWO + "#else\n" + ONE + "#endif\n"
ASKED = "#if __has_include(<more.h>)\n" + TWO + "#else\n" + ONE + "#endif\n"
MEANWHILE = {
    "header that goes before another": Meanwhile("mv new first/value.h", SECOND),
    "link of a link": Meanwhile(
        "rm new; ln -sfn v2 now",
        {"v1/in/value.h": ONE, "v2/in/value.h": TWO, "new": ""},
        {"now": "v1", "place": "now/in"},
        ("-Iplace",),
    ),
    "folder of a nested folder": Meanwhile(
        "mv first/lib first/old; mv new first/lib",
        {"first/lib/deep/value.h": ONE, "new/deep/value.h": TWO},
        head="#include <lib/deep/value.h>\n",
    ),
    "header that is asked for": Meanwhile(
        "mv new first/more.h", {"first/no": "", "new": ""}, head=ASKED
    ),
    "link that becomes a copy": Meanwhile(
        "rm new first/x.h; cp second/x.h first/x.h",
        {"second/x.h": ONCE, "first/no": "", "new": ""},
        {"first/x.h": "../second/x.h"},
        head='#include "first/x.h"\n#include "second/x.h"\n' + COUNTED,
    ),
    "configuration file": Meanwhile(
        "mv new first/f.cfg",
        {"second/f.cfg": "-DHERE=1\n", "first/no": "", "new": "-DHERE=2\n"},
        flags=("--config-user-dir=first", "--config-system-dir=second", "--config=f.cfg"),
        head="",
    ),
}


def by_scons(project: Project, flags: tuple[str, ...]) -> None:
    project.sconstruct(f"env.Append(CCFLAGS={[*flags]!r})\n" + NODES).done("-j1")


def by_compile(project: Project, flags: tuple[str, ...]) -> None:
    passes = {OUTPUTS[0]: ["--target-id", "gfx906"], OUTPUTS[3]: ["--host"]}
    for output, which in passes.items():
        command = [sys.executable, "-m", "offload_tool", "compile", "k.hip", "-o", output, *which]
        command += ["--", "-nogpuinc", "-nogpulib", "-DVALUE=1", *flags]
        subprocess.run(command, cwd=project.folder, env=project.environment, check=True)


@pytest.mark.parametrize(
    ("before", "build"), [(0, by_compile), (1, by_scons)], ids=["first build", "second build"]
)
@pytest.mark.parametrize("case", MEANWHILE.values(), ids=MEANWHILE.keys())
def test_what_is_found_changes_during_a_compile(
    project: Project,
    case: Meanwhile,
    before: int,
    build: Callable[[Project, tuple[str, ...]], None],
) -> None:
    """What comes, or leads elsewhere, after the compiler has looked is seen by the next build."""
    for name, text in case.files.items():
        if before and name.split("/")[0] == "new":
            continue
        project.write(name, text)
    for name, target in case.links.items():
        (project.folder / name).symlink_to(target)
    project.environment["OFFLOAD_CLANG"] = compiler_script(
        project,
        "changing",
        after=f'case "$*" in *k.hip*) [ ! -e new ] || {{ {case.line}; }};; esac',
    )
    project.write("k.hip", case.head + KERNEL.replace("VALUE", "HERE"))
    if before:
        build(project, case.flags)
        for name, text in case.files.items():
            project.write(name, text)
        project.write("k.hip", case.head + KERNEL.replace("VALUE", "HERE + 5"))
    build(project, case.flags)
    assert not (project.folder / "new").exists()
    build(project, case.flags)
    outputs = [OUTPUTS[0], OUTPUTS[3]]
    found = contents(project.folder, outputs)
    for name in outputs:
        (project.folder / name).unlink()
    build(project, case.flags)
    expected = contents(project.folder, outputs)
    assert [name for name in outputs if found[name] != expected[name]] == []
