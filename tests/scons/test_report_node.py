"""``env.OffloadReport`` in real builds."""

from __future__ import annotations

import shutil

import pytest

from tests.conftest import ROOT, needs_demangler
from tests.scons.conftest import KERNEL, SCONSTRUCT, Project

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
