"""Names of files and folders that a shell, SCons or a file format could misread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offload_tool.operations.list_images import list_images
from tests.scons.conftest import Project

NAMES = {
    "blank": "a b",
    "blank-at-the-end": "a ",
    "quote": "a'b",
    "double-quote": 'a"b',
    "percent": "a%b",
    "backslash": "a\\b",
    "ampersand": "a&b",
    "parentheses": "a(1)",
    "semicolon": "a;id>x;b",
    "dollar": "a$b",
    "backtick": "a`id`",
    "newline": "a\nb",
    "tab": "a\tb",
    "hash": "a#b",
    "equals": "a=b",
    "comma": "a,b",
    "brackets": "a[1]*?",
    "braces": "{a,b}",
    "colon": "a:b",
    "at": "@a",
    "dash": "-a",
    "tilde": "~a",
    "dots": "a.b.c",
    "unicode": "ä\u4e2d\U0001f600",
    "long": "n" * 200,
}
HEAD = """\
import os
name = os.fsdecode(bytes.fromhex(ARGUMENTS["name"]))
text = name.replace("$", "$$")
env["OFFLOAD_ARCH"] = ["gfx906"]
ids = ["hip-amdgcn-amd-amdhsa--gfx906"]
"""
IN_PROCESS = """\
a = env.fs.File(name + "/" + name + ".co")
archived = not set(name) & set("\\n")  # for which the format has no place
bundle = env.OffloadBundle(text + "/" + text + ".hipfb", a, OFFLOAD_TARGETS=ids)
env.OffloadUnbundle(bundle, OFFLOAD_TARGETS=ids)
package = env.OffloadPackage(text + "/" + text + ".offload", a, OFFLOAD_TARGETS=ids)
env.OffloadExtract(text + "/out", package)
env.OffloadWrapper(text + "/" + text + ".wrapper.o", bundle)
members = env.fs.File(name + "/" + name + ".bundle.o")
if archived:
    env.OffloadArchive(text + "/" + text, members)
    env.OffloadDeviceArchive(text + "/dsa", env.fs.File(name + "/lib" + name + ".a"))
env.OffloadCompilationDatabase(text + "/" + text + ".json")
"""


def run(project: Project, name: str, *arguments: str) -> tuple[int, str]:
    done = project.run("-Q", f"name={name.encode().hex()}", *arguments)
    return done.status, done.output + done.errors


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_steps_without_a_command(project: Project, name: str) -> None:
    """What is done within SCons takes any name of a file, and of its folder."""
    folder = project.folder / name
    folder.mkdir()
    (folder / f"{name}.co").write_bytes(b"device code")
    project.sconstruct(HEAD + "env.OffloadObject('o.o', 'k.hip', OFFLOAD_RDC=True)\n")
    status, output = run(project, name)
    assert status == 0, output
    (folder / f"{name}.bundle.o").write_bytes((project.folder / "o.o").read_bytes())
    project.sconstruct(HEAD + IN_PROCESS)
    status, output = run(project, name)
    assert status == 0, output
    assert "Traceback" not in output
    for made in (f"{name}.hipfb", f"{name}.offload", f"{name}.gfx906.co", "out.gfx906.co"):
        assert b"device code" in (folder / made).read_bytes()
    if "\n" not in name:
        images = {image.target_id for image in list_images(folder / f"lib{name}.a")}
        assert "gfx906" in images
        assert (folder / "dsa.gfx906.a").read_bytes().startswith(b"!<arch>\n")
    assert json.loads((folder / f"{name}.json").read_text()) == []
    assert sorted(path.name for path in project.folder.iterdir() if path.name == "x") == []
    status, output = run(project, name)
    assert "is up to date" in output, output


COMPILES = """\
source = env.fs.File(name + "/" + name + ".hip")
env.Append(CPPPATH=[env.fs.Dir(name + "/include")])
env.OffloadProgram(text + "/" + text + "p", [source, "runtime.c"])
env.OffloadStaticLibrary(text + "/" + text, source)
env.OffloadCompilationDatabase("commands.json")
"""


REFUSED = {
    "percent": "lld cannot write to a folder with %",
    "newline": "a depfile cannot hold this name",
    "tab": "a depfile cannot hold this name",
    "dash": "clang takes it for an option",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_names(project: Project, name: str) -> None:
    """What clang or lld cannot handle is refused when the SConscript is read."""
    folder = project.folder / NAMES[name]
    folder.mkdir()
    (folder / f"{NAMES[name]}.hip").write_text("")
    project.sconstruct(HEAD + COMPILES)
    status, output = run(project, NAMES[name])
    assert status == 2
    assert REFUSED[name] in output
    assert "rename" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("name", sorted(NAMES.keys() - REFUSED.keys()))
def test_compiled_sources(project: Project, name: str) -> None:
    """A source, its folder and its headers' folder are compiled by any name, and never run."""
    name = NAMES[name]
    folder = project.folder / name
    (folder / "include").mkdir(parents=True)
    (folder / "include" / f"{name}.h").write_text("#define HEADER\n")
    kernel = (project.folder / "k.hip").read_text()
    include = "" if set(name) & set('"\\\n') else f'#include "{name}.h"\n'
    (folder / f"{name}.hip").write_text(include + kernel)
    project.sconstruct(HEAD + "env['OFFLOAD_LAUNCHER'] = ''\n" + COMPILES)
    status, output = run(project, name)
    assert status == 0, output
    assert not (project.folder / "x").exists()
    assert (folder / f"{name}p").exists()
    entries = json.loads((project.folder / "commands.json").read_text())
    assert str(Path(name, f"{name}.hip")) in {entry["file"] for entry in entries}
    status, output = run(project, name)
    assert "is up to date" in output, output
    if include:
        (folder / "include" / f"{name}.h").write_text("#define HEADER 2\nint more;\n")
        status, output = run(project, name)
        assert (status, "HIP [gfx906]" in output) == (0, True), output


def test_line_feed_in_an_archive(project: Project) -> None:
    """A name that the format of archives has no place for is refused by name."""
    project.sconstruct(
        "env.fs.File('a\\nb.o')\nenv.OffloadArchive('l', [env.fs.File('a\\nb.o')])\n"
    )
    project.write("a\nb.o", "")
    run = project.run()
    assert run.status == 2
    assert "expected a plain file name for an archive member" in run.errors


def test_target_given_as_a_node(project: Project) -> None:
    """A target that is a node is that node, in a SConscript of another folder as well."""
    project.write("sub/a.co", "device code")
    project.write(
        "sub/SConscript",
        "Import('env')\n"
        """
ids = ["hip-amdgcn-amd-amdhsa--gfx906"]
bundle = env.OffloadBundle(File("made.hipfb"), "a.co", OFFLOAD_TARGETS=ids)
assert bundle == [File("made.hipfb")], bundle
package = env.OffloadPackage(File("made.offload"), "a.co", OFFLOAD_TARGETS=ids)
assert package == [File("made.offload")]
package = env.OffloadPackage("../k.hip")
assert package == [File("#k.offload")], package[0].path
""",
    )
    project.sconstruct("SConscript('sub/SConscript', exports='env')\n")
    project.build("sub")
    assert (project.folder / "sub/made.hipfb").exists()
