"""``env.OffloadReport`` in real builds."""

from __future__ import annotations

import pytest

from tests.scons.conftest import KERNEL, Project


def test_report(project: Project) -> None:
    """The page is about the files that it is given, and is made anew when one of them changes."""
    pytest.importorskip("plotly")
    project.write("k.hip", KERNEL)
    project.sconstruct("env.OffloadReport('page.html', env.OffloadBundle('k.hip'))\n")
    output = project.run().output
    assert "REPORT page.html" in output
    page = project.folder / "page.html"
    text = page.read_text()
    assert "gfx90a:xnack+" in text
    assert "k.hipfb" in text
    assert "REPORT" not in project.run().output
    project.write(
        "k.hip", KERNEL.replace("*p = VALUE;", "for (int i = 0; i < *p; i++) p[i] /= p[1];")
    )
    assert "REPORT page.html" in project.run().output
    assert page.read_text() != text
