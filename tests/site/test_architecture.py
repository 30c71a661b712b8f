"""docs/architecture.md: its boxes and arrows are the imports, its flows are what is entered."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from graphlib import TopologicalSorter
from pathlib import Path
from xml.etree import ElementTree

import grimp
import pytest

from offload_tool.operations.archive import create_archive
from offload_tool.operations.package import PackagedImage, package_images
from tests.conftest import ROOT
from tests.formats.object_files import make_elf
from tests.operations.fatbins import HOST, code, make_bundle
from tests.site.conftest import load

architecture = load("architecture")
SVG = "{http://www.w3.org/2000/svg}"
REMEDY = "the imports have changed: look whether that was meant, run docs/architecture.py, commit"


def seen(name: str) -> tuple[dict[str, list[str]], set[tuple[str, str]]]:
    """Return the boxes of a picture with their lines, and its arrows."""
    boxes, arrows = {}, set()
    for group in ElementTree.parse(ROOT / f"docs/{name}.svg").iter(f"{SVG}g"):
        title = group.findtext(f"{SVG}title") or ""
        if group.get("class") == "node":
            boxes[title] = [text.text or "" for text in group.iter(f"{SVG}text")]
        elif group.get("class") == "edge":
            importer, imported = title.split("->")
            arrows.add((importer, imported))
    return boxes, arrows


@pytest.mark.parametrize("name", architecture.PICTURES)
def test_picture_is_true(name: str) -> None:
    """Its boxes are the packages, with what their docstrings say; its arrows are the imports."""
    real = architecture.look(architecture.PICTURES[name])
    boxes, arrows = seen(name)
    assert arrows == set(real.arrows), REMEDY
    assert boxes == {box: architecture.lines(box, text) for box, text in real.boxes.items()}, REMEDY


@pytest.mark.parametrize("name", architecture.PICTURES)
def test_description_is_what_was_drawn(name: str) -> None:
    """The text from which a picture is made has the same arrows."""
    text = (ROOT / f"docs/{name}.dot").read_text()
    assert set(re.findall(r'^  "(.+)" -> "(.+)";$', text, re.MULTILINE)) == seen(name)[1], REMEDY
    assert text == architecture.description(architecture.look(architecture.PICTURES[name])), REMEDY


def test_no_circles_of_modules() -> None:
    """No module imports itself through others, inside functions either; types may."""
    graph = grimp.build_graph("offload_tool", exclude_type_checking_imports=True)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    inside = "offload_tool.scons.graph.units", "offload_tool.operations.package"
    assert inside[1] in imports[inside[0]]
    TopologicalSorter(imports).prepare()


TRACE = """
import sys
sys.path[:0] = [{root!r}]
entered = {{}}
def note(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and frame.f_code.co_name != "<module>" and name.startswith({package!r}):
        entered[name[len({package!r}):-len(".py")]] = None
from offload_tool.cli import main
sys.setprofile(note)
status = main({arguments!r})
sys.setprofile(None)
print(*entered, sep="\\n", file=sys.stderr)
sys.exit(status)
"""


def flow(title: str) -> list[str]:
    """Return the modules that the page names in one of its flows."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, found, rest = text.partition(f"**{title}**")
    assert found
    names = re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", rest.partition("**")[0].partition("\n")[2])
    assert len(names) > 10
    return names


def entered(*arguments: str) -> set[str]:
    """Return the modules whose functions a command enters, and the folders that they are in."""
    package = f"{ROOT / 'offload_tool'}/"
    script = TRACE.format(root=str(ROOT), package=package, arguments=list(arguments))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = run.stderr.split()
    return {*modules, *(module.rpartition("/")[0] for module in modules)}


def test_flow_of_a_program_names_modules() -> None:
    """What the page says that a build enters, is there."""
    names = flow("A `.hip` source becomes a program")
    assert len(names) > 20
    package = ROOT / "offload_tool"
    assert [
        n for n in names if not ((package / f"{n}.py").exists() or (package / n).is_dir())
    ] == []


def test_flow_of_a_list(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b.hipfb", {HOST: b"", "gfx906": b"one"})
    package_images([PackagedImage(bundle, {"arch": "gfx90a"}, "hip")], tmp_path / "p.out")
    library = make_elf(extra={b".hip_fatbin": bundle.read_bytes()})
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("lib/a.so", library)
        wheel.write(tmp_path / "p.out", "lib/p.out")
    missing = set(flow("A wheel is listed")) - entered("list", str(tmp_path / "a.whl"))
    assert missing == set()


def test_flow_of_an_archive(tmp_path: Path) -> None:
    make_bundle(tmp_path / "b.o", {HOST: b"", "gfx906": code("gfx906"), "gfx90a": code("gfx90a")})
    create_archive([("b.o", tmp_path / "b.o")], tmp_path / "a.a")
    targets = ",".join(f"hipv4-amdgcn-amd-amdhsa--{target}" for target in ("gfx906", "gfx90a"))
    arguments = [f"-targets={targets}", f"-input={tmp_path / 'a.a'}"]
    arguments += [f"-output={tmp_path / name}" for name in ("one.a", "two.a")]
    seen = entered("bundler", "-unbundle", "-type=a", *arguments)
    assert set(flow("An archive becomes one archive per target ID")) - seen == set()
