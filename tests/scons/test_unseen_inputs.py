"""What a compile's result depends on beside the contents of the files that it lists.

Each case is built, changed and built again, by scons and by ``offload-tool compile``; a clean
build of a copy is the judge: the same bytes, or a failure where that one fails.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

import pytest

from tests.conftest import identity
from tests.scons.conftest import NODES, Project, passes
from tests.scons.unseen_cases import CASES, Case

OUTPUTS = ("k.gfx906.co", "k.host.o")
QUIET = ("-nogpuinc", "-nogpulib")


Builder = Callable[[Project, Case, Sequence[str]], tuple[bool, str]]


def by_scons(project: Project, case: Case, flags: Sequence[str]) -> tuple[bool, str]:
    """Build with scons."""
    head = f"env['OFFLOAD_ARCH'] = ['gfx906']\nenv.Append(CCFLAGS={list(flags)!r})\n"
    variables = f"env['ENV'].update({dict(case.variables)!r})\n"
    done = project.sconstruct(head + variables + NODES).run()
    return done.status == 0, done.output + done.errors


def by_compile(project: Project, case: Case, flags: Sequence[str]) -> tuple[bool, str]:
    """Build with one command for each output."""
    said = ""
    for output, which in zip(OUTPUTS, (["--target-id", "gfx906"], ["--host"]), strict=True):
        words = ["compile", "k.hip", "-o", output, *which, "--depfile", f"{output}.d", "--"]
        done = project.tool(*words, *QUIET, "-DVALUE=1", *flags, **case.variables)
        said += done.stdout + done.stderr
        if done.returncode:
            return False, said
    return True, said


BUILDERS: dict[str, Builder] = {"by-scons": by_scons, "by-compile": by_compile}


def clean(
    project: Project, case: Case, flags: Sequence[str], builder: Builder
) -> tuple[bool, dict[str, bytes]]:
    """Build a copy from nothing at the same place."""
    aside = project.folder.with_name("aside")
    shutil.rmtree(aside, ignore_errors=True)
    project.folder.rename(aside)
    subprocess.run(["cp", "-a", aside, project.folder], check=True)
    for name in [*OUTPUTS, "cache", ".sconsign.dblite"]:
        path = project.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in project.folder.glob(".*.manifest"):
        path.unlink()
    good, _ = builder(project, case, flags)
    made = {name: project.read(name) for name in OUTPUTS} if good else {}
    shutil.rmtree(project.folder)
    aside.rename(project.folder)
    return good, made


BY_SCONS = (
    *("link becomes a copy", "assembly: device pass", "has_include by a macro of a response file"),
    *("overlay whose file comes", "module map", "default configuration file of a folder", "-I"),
    *("--save-temps", "-save-temps=obj", "CPATH", "__has_include", "#embed <>"),
)
"""One of each kind; ``offload-tool compile`` has all, and the verdict is of the same engine."""
TRIED = [
    *((name, "by-scons") for name in BY_SCONS),
    # Two commands with --save-temps write the same temporaries; scons knows of both.
    *((name, "by-compile") for name in CASES if "save-temps" not in name),
]


@pytest.mark.parametrize(("name", "by"), TRIED, ids=[f"{name}-{by}" for name, by in TRIED])
def test_as_a_clean_build(project: Project, name: str, by: str) -> None:
    """After each change, a build gives what a clean one gives, or fails where that fails."""
    case, builder = CASES[name], BUILDERS[by]
    folder = project.folder
    project.write("k.hip", case.head + case.body)
    for file, text in case.files.items():
        project.write(file, text.replace("FOLDER", str(folder)))
    for change in case.first:
        change(folder)
    flags = [word.replace("FOLDER", str(folder)) for word in case.flags]
    good, output = builder(project, case, flags)
    assert good, output
    for number, change in enumerate(case.changes):
        change(folder)
        expected, made = clean(project, case, flags, builder)
        good, output = builder(project, case, flags)
        assert good == expected, f"change {number}: clean {expected}\n{output}"
        if expected:
            found = {name: (folder / name).read_bytes() for name in OUTPUTS}
            assert [n for n in OUTPUTS if made[n] != found[n]] == [], f"change {number}\n{output}"
            before = [identity(folder / name) for name in OUTPUTS]
            good, output = builder(project, case, flags)
            settled = [identity(folder / name) for name in OUTPUTS] == before
            assert (good, settled) == (True, by not in case.runs_again), (
                f"change {number}\n{output}"
            )


def test_library_that_a_linker_finds(project: Project) -> None:
    """Which file a linker takes for ``-l``, nobody records: such a pass runs in each build."""
    project.write("libmore.a", "!<arch>\n")
    args = ["-Xoffload-linker", "-L.", "-Xoffload-linker", "-lmore"]
    given = f"env.Replace(OFFLOAD_ARCH='gfx906', OFFLOAD_FLAGS=env['OFFLOAD_FLAGS'] + {args!r})\n"
    for _ in range(2):
        assert passes("k.hip", "gfx906")[0] in project.sconstruct(given + NODES).build()
