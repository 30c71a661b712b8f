"""Names of files and folders that a shell, SCons or a file format could misread."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
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
env["OFFLOAD_ARCH"] = ["gfx906"]
ids = ["hip-amdgcn-amd-amdhsa--gfx906"]
for name in map(os.fsdecode, map(bytes.fromhex, NAMES)):
    text = name.replace("$", "$$")
"""
IN_PROCESS = """\
    a = env.fs.File(name + "/" + name + ".co")
    bundle = env.OffloadBundle(text + "/" + text + ".hipfb", a, OFFLOAD_TARGETS=ids)
    env.OffloadUnbundle(bundle, OFFLOAD_TARGETS=ids)
    package = env.OffloadPackage(text + "/" + text + ".offload", a, OFFLOAD_TARGETS=ids)
    env.OffloadExtract(text + "/out", package)
    env.OffloadWrapper(text + "/" + text + ".wrapper.o", bundle)
    members = env.fs.File(name + "/" + name + ".bundle.o")
    if "\\n" not in name:  # for which the format has no place
        env.OffloadArchive(text + "/" + text, members)
        env.OffloadDeviceArchive(text + "/dsa", env.fs.File(name + "/lib" + name + ".a"))
    env.OffloadCompilationDatabase(text + "/" + text + ".json")
"""
COMPILES = """\
    source = env.fs.File(name + "/" + name + ".hip")
    one = env.Clone()
    one.Append(CPPPATH=[env.fs.Dir(name + "/include")])
    one.OffloadProgram(text + "/" + text + "p", [source, "runtime.c"])
    one.OffloadStaticLibrary(text + "/" + text, source)
env.OffloadCompilationDatabase("commands.json")
"""


def declare(project: Project, names: Iterable[str], body: str) -> None:
    """Write a SConstruct that has this body for each name."""
    project.sconstruct(HEAD.replace("NAMES", repr([name.encode().hex() for name in names])) + body)


def done(project: Project) -> str:
    """Build; return what is printed."""
    run = project.done("-Q")
    assert not (project.folder / "x").exists()  # what a name would write if a shell ran it
    return run.output


def test_steps_without_a_command(project: Project) -> None:
    """What is done within SCons takes any name of a file, and of its folder."""
    project.sconstruct("env.OffloadObject('o.o', 'k.hip', OFFLOAD_RDC=True, OFFLOAD_ARCH='gfx906')")
    project.build()
    for name in NAMES.values():
        (project.folder / name).mkdir()
        (project.folder / name / f"{name}.co").write_bytes(b"device code")
        shutil.copy(project.folder / "o.o", project.folder / name / f"{name}.bundle.o")
    declare(project, NAMES.values(), IN_PROCESS)
    done(project)
    for name in NAMES.values():
        folder = project.folder / name
        for made in (f"{name}.hipfb", f"{name}.offload", f"{name}.gfx906.co", "out.gfx906.co"):
            assert b"device code" in (folder / made).read_bytes()
        assert json.loads((folder / f"{name}.json").read_text()) == []
        if "\n" not in name:
            images = {image.target_id for image in list_images(folder / f"lib{name}.a")}
            assert "gfx906" in images
            assert (folder / "dsa.gfx906.a").read_bytes().startswith(b"!<arch>\n")
    project.assert_up_to_date()


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
    declare(project, [NAMES[name]], COMPILES)
    errors = project.fails("-Q").errors
    assert REFUSED[name] in errors
    assert "rename" in errors


def test_compiled_sources(project: Project) -> None:
    """A source, its folder and its headers' folder are compiled by any name, and never run."""
    names = [name for key, name in NAMES.items() if key not in REFUSED]
    included = [name for name in names if not set(name) & set('"\\\n')]
    kernel = (project.folder / "k.hip").read_text()
    for name in names:
        (project.folder / name / "include").mkdir(parents=True)
        (project.folder / name / "include" / f"{name}.h").write_text("#define HEADER\n")
        include = f'#include "{name}.h"\n' if name in included else ""
        (project.folder / name / f"{name}.hip").write_text(include + kernel)
    declare(project, names, "    env['OFFLOAD_LAUNCHER'] = ''\n" + COMPILES)
    done(project)
    entries = json.loads((project.folder / "commands.json").read_text())
    files = {entry["file"] for entry in entries}
    for name in names:
        assert (project.folder / name / f"{name}p").exists()
        assert str(Path(name, f"{name}.hip")) in files
    project.assert_up_to_date()
    for name in included:
        (project.folder / name / "include" / f"{name}.h").write_text(
            "#define HEADER 2\nint more;\n"
        )
    assert done(project).count("HIP [gfx906]") == len(included)


def test_cleaning(project: Project) -> None:
    """``scons -c`` removes the manifest and the depfile of an output with a dollar in its name."""
    project.sconstruct("env.OffloadDeviceObject('a$$b', 'k.hip', OFFLOAD_ARCH='gfx906')\n")
    made = [project.write(name, "") for name in (".a$b.gfx906.co.manifest", "a$b.gfx906.co.d")]
    project.done("-c")
    assert [file for file in made if file.exists()] == []


def test_line_feed_in_an_archive(project: Project) -> None:
    """A name that the format of archives has no place for is refused by name."""
    project.sconstruct(
        "env.fs.File('a\\nb.o')\nenv.OffloadArchive('l', [env.fs.File('a\\nb.o')])\n"
    )
    project.write("a\nb.o", "")
    assert "expected a plain file name for an archive member" in project.fails().errors


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
    project.sconstruct("SConscript('sub/SConscript', exports='env')\n").build("sub")
    assert (project.folder / "sub/made.hipfb").exists()
