"""Where a preprocessor looks for files: nothing that clang would find is missed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offload_tool.clang.depfile import parse_depfile
from offload_tool.clang.environment import ImplicitInputs, front_end_of
from offload_tool.io.file_digests import DigestCache
from offload_tool.manifest.include_search import Lookups, appeared, expected_lookups, found_in
from tests.conftest import Tool, try_tool

PLACES = (".", "quoted", "one", "one/s", "two", "s")
NAMES = ("x.h", "y.h", "s/x.h", "s/y.h")
OPTIONS = ("-iquote", "quoted", "-I", "one", "-Ione/s", "-I", "link", "-isystem", "two", "-I.")
"""``link`` is a symbolic link to ``s``."""
OPTIONS += ("-idirafter", "base", "--embed-dir=one", "--embed-dir=base")
FORCED = ((), ("-include", "x.h"), ("-imacros", "y.h"), ("-Xclang", "-include", "-Xclang", "s/x.h"))
SPELLED = (*NAMES, "../x.h", "../s/y.h", "link/x.h", "./x.h", "s/../y.h")
FORMS = (
    '#include "{0}"\n',
    "#include <{0}>\n",
    "# include /* where? */ <{0}> // here\n",
    "%:include \\\n <{0}>\n",
    "#import <{0}>\n",
    '#define NAME "{0}"\n#include NAME\n#undef NAME\n',
    "#embed <{0}>\n",
    '#embed "{0}"\n',
)
ASKING = (
    '#if __has_include("{0}")\n#include "{0}"\n#endif\n',
    "#ifdef __has_include\n#if __has_include(<{0}>)\n#include <{0}>\n#endif\n#endif\n",
    "#if __has_include_next(<{0}>)\n#include_next <{0}>\n#endif\n",
    "#if __has_include \\\n( <{0}> )\nint asked;\n#endif\n",
    "#if __has_embed(<{0}>)\n#embed <{0}>\n#endif\n",
)
DIRECTIVES = st.one_of(
    st.builds(str.format, st.sampled_from(FORMS), st.sampled_from(NAMES)),
    st.builds(str.format, st.sampled_from(ASKING), st.sampled_from(SPELLED)),
)
TEXTS = st.lists(DIRECTIVES, max_size=3).map("".join)
FILES = st.dictionaries(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES)), TEXTS, max_size=4
)
NEW = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES)), min_size=1, max_size=4, unique=True
)


def write(place: str, name: str, text: str) -> Path:
    path = Path(place, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#pragma once\n{text}")
    return path


def read_by(command: Sequence[str], source: str) -> list[str]:
    """Return what clang reads, in its order; it names embedded files by their whole paths."""
    done = try_tool(*command, "-M", source)
    assert done.returncode == 0, done.stderr
    names = (name.removeprefix(f"{Path.cwd()}/") for name in parse_depfile(done.stdout))
    return list(dict.fromkeys(names))


@pytest.mark.llvm
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    source=TEXTS,
    files=FILES,
    base=st.lists(TEXTS, min_size=4, max_size=4),
    new=NEW,
    forced=st.sampled_from(FORCED),
)
def test_nothing_is_missed(
    llvm: Tool,
    source: str,
    files: dict[tuple[str, str], str],
    base: list[str],
    new: list[tuple[str, str]],
    forced: tuple[str, ...],
) -> None:
    """A file whose appearance makes clang read another set of files is among what appeared."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for place in PLACES:
                Path(place).mkdir(exist_ok=True)
            Path("link").symlink_to("s")
            for name, text in zip(NAMES, base, strict=True):
                write("base", name, text)
            for (place, name), text in files.items():
                write(place, name, text)
            Path("source.cpp").write_text(source)
            _check([llvm("clang"), *forced], new)
        finally:
            os.chdir(here)


def _check(clang: list[str], new: list[tuple[str, str]]) -> None:
    command = [*clang, "-nostdinc", "-Wno-everything", *OPTIONS]
    before = read_by(command, "source.cpp")
    folders = front_end_of([*command, "-c"], dict(os.environ)).folders
    assert {"quoted", "one", "one/s", "link", "two", ".", "base"} <= set(folders)
    lookups = expected_lookups(before, folders, command, DigestCache())
    assert not lookups.unknown
    read = frozenset(before)
    assert appeared(lookups, read, DigestCache()) == []
    for place, name in new:
        if Path(place, name).exists():
            continue
        path = write(place, name, "")
        after = read_by(command, "source.cpp")
        found = set(appeared(lookups, read, DigestCache()))
        # With its folder, also files that were there before are found through it: "s/../y.h".
        assert after == before or found & set(after), (str(path), after, found)
        path.unlink()


FOLDERS = [("early", f"inc{slashes}") for slashes in ("", "/", "//", "///", "////")]
FOLDERS += [("./early", "."), ("early", "./."), (".//early", "./inc"), ("././/early/", ".//inc/")]


@pytest.mark.llvm
@pytest.mark.parametrize(("early", "late"), FOLDERS)
def test_how_folders_are_spelled(
    early: str, late: str, llvm: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header that appears in an earlier folder is found, however flags spell the folders."""
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    Path("src/source.cpp").write_text("#include <s/x.h>\n")
    write(late, "s/x.h", "")
    flags = [f"-I{early}", f"-I{late}"]
    read = read_by([llvm("clang"), *flags], "src/source.cpp")
    lookups = expected_lookups(read, [flag[2:] for flag in flags], flags, DigestCache())
    write(early, "s/x.h", "")
    after = read_by([llvm("clang"), *flags], "src/source.cpp")
    assert appeared(lookups, frozenset(read), DigestCache()) == after[1:]


def lookups_of(*sources: Path, folders: tuple[str, ...] = (), words: Sequence[str] = ()) -> Lookups:
    return expected_lookups([str(path) for path in sources], folders, words, DigestCache())


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ("#if __has_include(NAME)", "-DNAME=<x.h>"),
        ("#if __has_embed(NAME)", '-DNAME="x.h"'),
        ("#if NAME", "-DNAME=__has_include(<x.h>)"),
    ],
)
def test_name_of_a_macro(tmp_path: Path, form: str, word: str) -> None:
    """A name that a macro of the command may spell is unknown."""
    source = tmp_path / "k.hip"
    source.write_text(f"{form}\n#endif\n")
    assert lookups_of(source, words=[word]).unknown


@pytest.mark.parametrize("pieces", ["__has_, include", "__, has_include_next", "__has_emb, ed"])
def test_pasted(tmp_path: Path, pieces: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that a project's file may paste together has unknown names."""
    monkeypatch.chdir(tmp_path)
    Path("k.hip").write_text(f"#if Q({pieces})(<x.h>)\n#endif\n// {pieces}\n")
    assert lookups_of(Path("k.hip")).unknown
    Path("k.hip").write_text(f"// {pieces}\nint __has_feature_x, has_includes;\n")
    assert not lookups_of(Path("k.hip")).unknown


def test_folder_that_appears(tmp_path: Path) -> None:
    """A file that appears together with its folder, or the search folder itself, is seen."""
    source = tmp_path / "k.hip"
    source.write_text("#if __has_include(<deep/er/x.h>)\n#endif\n")
    folder = tmp_path / "late"
    lookups = lookups_of(source, folders=(str(folder),))
    assert appeared(lookups, frozenset([str(source)]), DigestCache()) == []
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/x.h").touch()
    found = appeared(lookups, frozenset([str(source)]), DigestCache())
    assert found == [str(folder / "deep/er/x.h")]


def test_root_folder() -> None:
    """Files in the root folder are found; so are those in its folders."""
    assert found_in(("/",), ("etc", "etc/passwd"), DigestCache()) == {"/etc", "/etc/passwd"}


def test_what_is_there_is_not_new(tmp_path: Path) -> None:
    """A file of such a name that was there and was not read has not appeared."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.h").touch()
    source = tmp_path / "k.hip"
    source.write_text("#include <x.h>\n")
    folders = (str(tmp_path / "one"), str(tmp_path / "two"))
    lookups = lookups_of(source, tmp_path / "one/x.h", folders=folders)
    assert lookups.present == (str(tmp_path / "two/x.h"),)
    read = frozenset([str(source), str(tmp_path / "one/x.h")])
    assert appeared(lookups, read, DigestCache()) == []


@pytest.mark.llvm
def test_search_folders(llvm: Tool) -> None:
    """Folders of flags and variables are told, in whatever way they are given."""
    flags = ["-Ia", "-I", "b", "-iquote", "c", "-isystem", "d", "-idirafter", "e", "--embed-dir=f"]
    variables = {**os.environ, "CPATH": "g:h", "CPLUS_INCLUDE_PATH": "i"}
    folders = front_end_of([llvm("clang"), *flags, "-c"], variables).folders
    assert set("abcdefghi") <= set(folders)


def test_compiler_that_does_not_answer() -> None:
    """Where nobody tells the folders, there are none; the working directory may be anywhere."""
    assert front_end_of(["/nowhere/clang"], {}) == ImplicitInputs((), True)
    assert front_end_of(["false"], dict(os.environ)) == ImplicitInputs((), True)
