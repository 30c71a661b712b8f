"""SConscripts in folders: what nodes and names mean there is what commands take them for."""

from __future__ import annotations

import subprocess

from offload_tool.toolchain.select import find_toolchain
from tests.scons.conftest import Project, passes

READ = "SConscript('sub/SConscript', exports='env')\n"
STAY = f"SConscriptChdir(0)\n{READ}"


def in_folder(project: Project, body: str, head: str = READ) -> Project:
    """Let a SConscript in the folder ``sub`` build what is there."""
    project.sconstruct(head)
    project.write("sub/k.hip", (project.folder / "k.hip").read_text())
    project.write("sub/SConscript", f"Import('env')\n{body}")
    return project


def test_node_among_flags(project: Project) -> None:
    """A file that flags name by a node is looked at where it is, and a change compiles again."""
    project.write("sub/own.cfg", "-DVALUE=1\n")
    flags = "env.Append(OFFLOAD_FLAGS=['--config', File('own.cfg')], CPPDEFINES='OWN')\n"
    in_folder(project, flags + "env.OffloadDeviceObject('k.hip', CPPDEFINES={})\n")
    both = passes("sub/k.hip", "gfx906", "gfx90a:xnack+")
    assert project.build_once() == both
    project.write("sub/own.cfg", "-DVALUE=2\n")
    assert project.build_once() == both


def test_given_object(project: Project) -> None:
    """An object that is there is found also where SConscripts are read without going there."""
    in_folder(project, "env.OffloadSharedLibrary('s', ['k.hip', 'plain.o'])\n", STAY)
    plain = project.write("plain.c", "int plain(void) { return 1; }\n")
    found = find_toolchain()
    args = [*found.cc, *found.local_flags, "-fPIC", "-c", plain, "-o", "sub/plain.o"]
    subprocess.run(args, cwd=project.folder, check=True)
    project.done("-Q", "-n")


def test_launcher_node(project: Project) -> None:
    """A launcher that is a node is the one that commands begin with, in each SConscript."""
    body = "env['OFFLOAD_LAUNCHER'] = File('#tools/count')\nenv.OffloadDeviceObject('k.hip')\n"
    in_folder(project, body)
    failing = '#!/bin/sh\necho "$*" >>compiles.log\nexit 99\n'
    project.script("tools/count", failing)
    run = project.run("-Q")
    assert run.status == 0, run.errors  # each ran again without a launcher that failed by itself
    assert run.compiles == passes("sub/k.hip", "gfx906", "gfx90a:xnack+")


def test_pages_before(project: Project) -> None:
    """What a page compares with is the file beside the SConscript."""
    project.write("sub/before.co", "")
    page = "env.OffloadReport('page.html', code, OFFLOAD_REPORT_BEFORE=['before.co', '#k.hip'])\n"
    shown = "env['OFFLOADREPORTCOMSTR'] = ''\ncode = env.OffloadDeviceObject('k.hip')\n"
    in_folder(project, shown + page)
    assert "--compare sub/before.co --compare k.hip" in project.done("-Q", "-n").output
