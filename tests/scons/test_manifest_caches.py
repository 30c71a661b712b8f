"""A CacheDir gives what a compile of these very files would: never another file's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scons.conftest import ALL, BODY, ONE, TWO, Project, checkout, contents
from tests.scons.judging import assert_as_clean_build

BUNDLE = "env.OffloadBundle('k.hipfb', 'k.hip')\nenv.OffloadHostObject('k.hip')\n"
OUTPUTS = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.hipfb", "k.host.o"]

VALUE = "#include <value.h>\n"
I_FOLDER = "env['CCFLAGS'] = ['-Ii']\n"
FOUND = {  # a source, a setting, and a file by which the code differs
    "CCFLAGS=-I": (VALUE, I_FOLDER, "i/value.h", "#define HERE {}\n"),
    "CPATH": (VALUE, "env['ENV']['CPATH'] = 'i'\n", "i/value.h", "#define HERE {}\n"),
    "configuration file": (
        *("", "env['CCFLAGS'] = ['--config', './f.cfg']\n"),
        *("included/g.cfg", "-DHERE={}\n"),
    ),
}
"""`test_unseen_inputs` has more ways in which a source finds a file."""


def prepare(project: Project, head: str, setting: str) -> None:
    project.write("h/no.h", "")
    project.write("i/value.h", ONE)
    project.write("k.hip", head + BODY)
    cache = str(project.folder.parent / "cache")
    project.sconstruct(f"env.CacheDir({cache!r})\n" + setting + BUNDLE)


@pytest.mark.parametrize(("head", "setting", "file", "text"), FOUND.values(), ids=FOUND.keys())
def test_other_checkout(
    project: Project, tmp_path: Path, head: str, setting: str, file: str, text: str
) -> None:
    """Another checkout takes all if its files are the same, and nothing if they are not."""
    prepare(project, head, setting)
    project.write("f.cfg", "@included/g.cfg\n")
    project.write(file, text.format(1))
    assert project.build() == ALL
    same = checkout(project, tmp_path / "deep/other")
    assert same.build() == []
    assert contents(same.folder, OUTPUTS) == contents(project.folder, OUTPUTS)
    same.assert_up_to_date()
    same.write(file, text.format(2))
    assert same.build_once() == ALL
    assert contents(same.folder, ["k.hipfb"]) != contents(project.folder, ["k.hipfb"])
    different = checkout(project, tmp_path / "deep/different")
    different.write(file, text.format(3))
    assert different.build() == ALL
    assert_as_clean_build(different, OUTPUTS)


def test_links_and_copies_have_entries_of_their_own(project: Project, tmp_path: Path) -> None:
    """A header that is a link in one checkout and a copy in another does not share its entry."""
    prepare(project, '#include "i/a.h"\n#include "i/b.h"\n' + ONE, "")
    project.write("i/a.h", "/* no guard */\n")
    (project.folder / "i/b.h").symlink_to("a.h")
    assert project.build() == ALL
    for name, built in (("first", ALL), ("second", [])):
        copy = checkout(project, tmp_path / "deep" / name)
        (copy.folder / "i/b.h").unlink()
        copy.write("i/b.h", "/* no guard */\n")
        assert copy.build() == built, name


def test_header_that_appears(project: Project, tmp_path: Path) -> None:
    """A header that goes before the found one makes other code, in the cache as well."""
    prepare(project, "#include <value.h>\n", "env['CCFLAGS'] = ['-Ih', '-Ii']\n")
    assert project.build() == ALL
    other = checkout(project, tmp_path / "deep/other")
    other.write("h/value.h", TWO)
    assert other.build() == ALL
    assert_as_clean_build(other, OUTPUTS)
    (other.folder / "h/value.h").unlink()
    assert other.build() == []
    assert contents(other.folder, OUTPUTS) == contents(project.folder, OUTPUTS)


def test_damaged_entry(project: Project) -> None:
    """An entry of the cache that was cut off is not taken for device code."""
    prepare(project, "#include <value.h>\n", "env['CPPPATH'] = ['i']\n")
    assert project.build() == ALL
    before = contents(project.folder, OUTPUTS)
    for file in sorted((project.folder.parent / "cache").rglob("*")):
        if file.is_file() and file.read_bytes() in before.values():
            _cut(file)
    project.build("-c")
    project.build()
    assert contents(project.folder, OUTPUTS) == before


def _cut(file: Path) -> None:
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-100])
