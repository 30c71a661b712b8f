"""What a user sees of a build: messages, reasons, commands, summary, progress, and a report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import ROOT, needs_demangler, run_tool
from tests.scons.conftest import BOTH, KERNEL, NODES, SCONSTRUCT, Project
from tests.scripts import reporting_clang
from tests.terminal import Terminal

SPECIAL = '#ifdef __gfx90a__\n#include "special.h"\n#endif\n' + KERNEL


def reasons(output: str) -> dict[str, str]:
    """Read what ``--debug=explain`` says: {node: reason}."""
    text = re.sub(r"\n +", " ", output)
    return dict(re.findall(r"^scons: rebuilding `(.*)' because:? (.*)$", text, re.MULTILINE))


def test_explain_names_the_changed_header(project: Project) -> None:
    """``--debug=explain`` gives the changed input of each target's node, and no other."""
    project.write("k.hip", SPECIAL)
    project.write("special.h", "")
    project.sconstruct(NODES).build()
    project.write("special.h", "// changed\n")
    run = project.run("--debug=explain")
    assert reasons(run.output) == {"k.gfx90a_xnack+.co": "'special.h' changed"}
    project.write("k.hip", SPECIAL + "// changed\n")
    run = project.run("--debug=explain")
    names = ("k.gfx906.co", "k.gfx90a_xnack+.co", "k.host.o")
    assert reasons(run.output) == dict.fromkeys(names, "'k.hip' changed")


def test_explain_names_the_compiler(project: Project) -> None:
    """``--debug=explain`` names the compiler that was replaced, and the new one."""
    project.sconstruct(NODES).build()
    fake = reporting_clang(project.folder / "clang-next", "clang-22", "99.0.0")
    project.environment["OFFLOAD_CLANG"] = fake
    run = project.run("--debug=explain", "-k")
    assert re.search(r"`.*clang version 99\.0\.0.*' is a new dependency", run.output)
    assert re.search(r"`.*clang version 22.*' is no longer a dependency", run.output)


def test_commands_are_shown_on_request(project: Project) -> None:
    """An empty OFFLOAD*COMSTR shows the command; by default, one short line per target."""
    project.sconstruct(NODES)
    assert project.run("-Q").actions == [f"HIP [{name}] k.hip" for name in (*BOTH, "host")]
    project.build("-c")
    project.sconstruct("env['OFFLOADDEVICECOMSTR'] = ''\n" + NODES)
    lines = project.run("-Q").output.splitlines()
    assert sum(line.startswith("offload: using clang ") for line in lines) == 1
    commands = [line for line in lines if "--offload-arch=gfx906" in line]
    assert len(commands) == 1
    assert commands[0].startswith(str(project.folder / "count"))
    assert commands[0].endswith("-o k.gfx906.co k.hip")
    assert "HIP [host] k.hip" in lines


def test_compile_commands(project: Project) -> None:
    """compile_commands.json has an entry per source and target, the host's first, that runs."""
    project.write("two.hip", KERNEL)
    project.sconstruct(
        "env.OffloadCompilationDatabase()\n"
        "env.OffloadProgram('prog', ['two.hip', 'k.hip', 'runtime.c'])\n"
    ).build("compile_commands.json")
    entries = json.loads((project.folder / "compile_commands.json").read_text())
    found = [(entry["file"], entry["output"]) for entry in entries]
    suffixes = ("host.o", "gfx906.co", "gfx90a_xnack+.co")
    expected = [(f"{name}.hip", f"{name}.{end}") for name in ("two", "k") for end in suffixes]
    assert [pair for pair in found if pair[0] != "runtime.c"] == expected
    assert ("runtime.c", "runtime.o") in found
    for entry in entries[:3]:
        assert entry["directory"] == str(project.folder)
        assert "count" not in entry["arguments"][0]
        run_tool(*entry["arguments"], cwd=entry["directory"])
        assert (project.folder / entry["output"]).exists()
    project.assert_up_to_date("compile_commands.json")
    project.sconstruct(
        "env.OffloadCompilationDatabase()\nenv['CPPDEFINES']['VALUE'] = 2\n"
        "env.OffloadDeviceObject('k.hip')\n"
    ).build("compile_commands.json")
    entries = json.loads((project.folder / "compile_commands.json").read_text())
    assert ["-DVALUE=2" in entry["arguments"] for entry in entries] == [True, True]


def summary(output: str) -> dict[str, list[float]]:
    """Read the summary: {target ID: [compiled, from cache, up to date, failed, seconds]}."""
    pattern = r"^offload: (\S+) +(\d+) +0" + r" +(\d+)" * 3 + r" +([\d.]+)$"
    rows = re.findall(pattern, output, re.MULTILINE)
    return {name: [float(number) for number in numbers] for name, *numbers in rows}


def test_summary(project: Project) -> None:
    """OFFLOAD_SUMMARY tells per target ID what was compiled, fetched or up to date."""
    cache = str(project.folder.parent / "cache")
    slow = project.script("slow", '#!/bin/sh\nsleep 0.1\nexec "$@"\n')
    body = (
        f"env.Replace(OFFLOAD_SUMMARY=True, OFFLOAD_LAUNCHER={str(slow)!r})\n"
        f"env.CacheDir({cache!r})\n" + NODES
    )
    project.sconstruct(body)
    rows = summary(project.run().output)
    assert list(rows) == ["host", *BOTH]
    assert all(row[:3] == [1, 0, 0] for row in rows.values())
    assert all(row[4] > 0 for row in rows.values())
    rows = summary(project.run().output)
    assert all(row == [0, 0, 1, 0, 0] for row in rows.values())
    project.build("-c")
    rows = summary(project.run().output)
    assert all(row == [0, 1, 0, 0, 0] for row in rows.values())
    project.sconstruct("env['OFFLOAD_ARCH_FLAGS'] = {'gfx906': '-O1'}\n" + body)
    rows = summary(project.run().output)
    assert [row[:3] for row in rows.values()] == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    project.sconstruct(NODES)
    assert summary(project.run().output) == {}


def test_summary_of_a_dry_run(project: Project) -> None:
    """``scons -n`` counts what it would compile as compiled, and what it would fetch as fetched."""
    cache = f"env['OFFLOAD_SUMMARY'] = True\nenv.CacheDir({str(project.folder.parent / 'c')!r})\n"
    project.sconstruct(cache + NODES)
    assert {tuple(row[:3]) for row in summary(project.run("-n").output).values()} == {(1, 0, 0)}
    project.build()
    project.build("-c")
    assert {tuple(row[:3]) for row in summary(project.run("-n").output).values()} == {(0, 1, 0)}


def test_summary_as_json(project: Project) -> None:
    """A file for CI: what became of each pass, why, and which were the slowest."""
    project.write("k.hip", '#ifdef __gfx90a__\n#error "not for this"\n#endif\n' + KERNEL)
    project.sconstruct("env['OFFLOAD_SUMMARY'] = '#out/summary.json'\n" + NODES).run("-n")
    summary_file = project.folder / "out/summary.json"
    assert not summary_file.exists()
    (project.folder / "out").mkdir()
    project.run("-k")
    value = json.loads(summary_file.read_text())
    names = ("compiled", "front_end_only", "from_cache", "up_to_date", "failed")
    assert value["targets"] == {
        "host": dict(zip(names, (1, 0, 0, 0, 0), strict=True)),
        "gfx906": dict(zip(names, (1, 0, 0, 0, 0), strict=True)),
        "gfx90a:xnack+": dict(zip(names, (0, 0, 0, 0, 1), strict=True)),
    }
    assert {*value["slowest"]} == {found["output"] for found in value["passes"]}
    assert value["seconds"] >= value["critical_path"]["seconds"] > 0
    project.write("k.hip", KERNEL)
    project.build()
    value = json.loads(summary_file.read_text())
    by_target = {found["target"]: found for found in value["passes"]}
    assert by_target["gfx906"]["outcome"] == "compiled"
    assert by_target["gfx906"]["why"] == "'k.hip' changed"
    project.build()
    value = json.loads(summary_file.read_text())
    assert {(found["outcome"], found["why"]) for found in value["passes"]} == {("up to date", "")}
    assert value["critical_path"]["outputs"] == []


def on_terminal(project: Project) -> str:
    """Run scons with its output on a terminal."""
    command = [sys.executable, "-m", "SCons", "-Q"]
    with Terminal() as terminal:
        streams = {"stdout": terminal.descriptor, "stderr": terminal.descriptor}
        subprocess.run(command, cwd=project.folder, env=project.environment, check=True, **streams)
        return terminal.end().decode()


def test_progress(project: Project) -> None:
    """On a terminal, OffloadProgress shows the position and target ID of each pass."""
    project.sconstruct("Progress(env.OffloadProgress)\n" + NODES)
    shown = on_terminal(project)
    for number, name in enumerate(("gfx906", "gfx90a:xnack+", "host"), start=1):
        assert f"[{number}/3] [{name}] k." in shown
    assert "/3]" not in project.run().output


def test_compilers_passed_over_are_told_once(project: Project) -> None:
    """The compiler in use is named in each build; others, once for a machine and their state."""
    broken = project.script("bin/clang-99", "#!/bin/sh\nexit 1\n")
    path = f"{broken.parent}{os.pathsep}{project.environment['PATH']}"
    project.environment |= {"PATH": path, "XDG_CACHE_HOME": str(project.folder / "cache")}
    project.environment.pop("OFFLOAD_CLANG", None)
    project.sconstruct(NODES)
    outputs = [project.run("-Q").output for _ in range(2)]
    assert all("offload: using clang" in output for output in outputs)
    assert ["clang-99" in output for output in outputs] == [True, False]


INCLUDING = "env.Append(CPPPATH=['one', 'two'])\nenv.OffloadDeviceObject('k.hip')\n"
OUTPUT = "k.gfx906.co"
CACHE = "CacheDir('cache')\n"


@pytest.fixture
def built(project: Project) -> Project:
    """Return a project with a header in the second folder of headers, built."""
    project.write("two/h.h", "#define ADD 1\n")
    project.write("one/other.h", "")
    project.write("k.hip", '#include "h.h"\n' + KERNEL)
    project.sconstruct(INCLUDING).build()
    return project


def why(project: Project, *outputs: str) -> tuple[int, list[str]]:
    """Return the exit status and the lines of the command."""
    done = project.tool("why", *(outputs or (OUTPUT,)))
    assert "Traceback" not in done.stderr
    return done.returncode, (done.stdout or done.stderr).splitlines()


def change_flag(project: Project) -> None:
    project.sconstruct("env.Append(CCFLAGS=['-DADDED=2'])\n" + INCLUDING)


EDITS: dict[str, tuple[Callable[[Project], object], str, str]] = {
    "a header that appears earlier": (
        lambda p: p.write("one/h.h", "#define ADD 3\n"),
        ": not sure: 'one/h.h' may be read now; the next build asks the preprocessor",
        "'one/h.h' may be read now",
    ),
    "a flag": (change_flag, ": current", "its command changed (with -DADDED=2)"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edits(built: Project, edit: str) -> None:
    """Before the build, the state of the files; after it, why it ran."""
    assert why(built)[0] == 0
    change, before, after = EDITS[edit]
    change(built)
    status, lines = why(built)
    assert lines[0] == OUTPUT + before
    assert status == int(before != ": current")
    assert built.build()
    status, lines = why(built)
    assert (status, lines[0]) == (0, f"{OUTPUT}: current")
    assert lines[1] == f"  compiled because: {after}"


def test_what_it_was_made_of(built: Project) -> None:
    """The project's files by name, from any folder; others are counted."""
    status, lines = why(Project(built.folder / "two", built.environment), f"../{OUTPUT}")
    assert status == 0
    assert lines[0] == f"../{OUTPUT}: current"
    assert "  made of: k.hip, two/h.h" in lines
    assert lines[1] == "  compiled because: it has no manifest of an earlier compile"


def test_misses_of_a_cache(built: Project) -> None:
    """A CacheDir's nearest result, and which of its inputs is another one."""
    built.sconstruct(CACHE + INCLUDING)
    (built.folder / OUTPUT).unlink()
    built.build()
    assert why(built)[1][1].endswith("no result of this command is in the CacheDir")
    built.write("two/h.h", "#define ADD 4\n")
    built.build()
    assert why(built)[1][1] == (
        "  compiled because: 'two/h.h' changed; the nearest result in the CacheDir has 1 other "
        "file: 'two/h.h' changed"
    )
    built.write("two/h.h", "#define ADD 1\n")
    assert "k.hip gfx906" not in built.build()
    assert why(built)[1][1].endswith("; a CacheDir had the result")


def test_no_manifest(built: Project) -> None:
    """Files that no compile has made are refused by name."""
    status, lines = why(built, "k.hip")
    assert status == 1
    assert "'k.hip': no manifest (.k.hip.manifest) of this version is there" in lines[0]


_COMPILED = shutil.ignore_patterns("__pycache__")


def test_comparison(project: Project) -> None:
    """The page compares what is built with what was kept, and is made anew when either changes."""
    pytest.importorskip("plotly")
    pytest.importorskip("itables")
    needs_demangler()
    project.sconstruct(
        "env.OffloadReport('page.html', env.OffloadBundle('k.hip'),\n"
        "    OFFLOAD_REPORT_BEFORE='#kept builds/old.hipfb', OFFLOAD_REPORT_FLAGS=['--demangle'])\n"
    ).build("k.hipfb")
    kept = project.folder / "kept builds" / "old.hipfb"
    kept.parent.mkdir()
    kept.write_bytes(project.read("k.hipfb"))
    assert "REPORT page.html" in project.run().output
    page = project.folder / "page.html"
    assert '"Nothing changed."' in page.read_text()
    assert "REPORT" not in project.run().output
    project.write(
        "k.hip", KERNEL.replace("*p = VALUE;", "for (int i = 0; i < *p; i++) p[i] /= p[1];")
    )
    assert "REPORT page.html" in project.run().output
    assert '"changed-targets"' in page.read_text()
    kept.write_bytes(project.read("k.hipfb"))
    assert "REPORT page.html" in project.run().output
    assert '"Nothing changed."' in page.read_text()


def test_maker_is_asked_late(project: Project) -> None:
    """What makes the page is looked at when the page is decided about, and not in other builds."""
    project.sconstruct(
        "import offload_tool.scons.builders.report\n"
        "offload_tool.scons.builders.report._generator_digest = lambda: 1 / 0\n"
        "env.OffloadReport('page.html', env.OffloadBundle('k.hip'))\n"
    ).done("k.hipfb")
    assert "ZeroDivisionError" in project.run("page.html").errors


def test_another_tool(project: Project) -> None:
    """The page is made anew when what makes it has changed: the package, in a project's copy."""
    pytest.importorskip("plotly")
    pytest.importorskip("itables")
    shutil.copytree(ROOT / "offload_tool", project.folder / "offload_tool", ignore=_COMPILED)
    shutil.copytree(ROOT / "site_scons", project.folder / "site_scons", ignore=_COMPILED)
    head = "".join(line for line in SCONSTRUCT.splitlines(keepends=True) if "toolpath" not in line)
    project.sconstruct("env.OffloadReport('page.html', env.OffloadBundle('k.hip'))\n", head)
    assert "REPORT page.html" in project.run().output
    assert "REPORT" not in project.run().output
    style = project.folder / "offload_tool/report/page.css"
    style.write_text(style.read_text() + "/* another look */\n")
    assert "REPORT page.html" in project.run().output
    page = (project.folder / "page.html").read_text()
    assert all(text in page for text in ("/* another look */", "gfx90a:xnack+", "k.hipfb"))
    assert "REPORT" not in project.run().output
