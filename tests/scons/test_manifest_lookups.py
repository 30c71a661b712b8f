"""What an include finds is what the preprocessor finds: however it is spelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.scons.conftest import KERNEL, Project, passes

NODES = (
    "env['OFFLOAD_ARCH'] = ['gfx906']\n"
    "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
)
ALL = passes("k.hip", "host", "gfx906")
BODY = KERNEL.replace("VALUE", "HERE")
ONE, TWO = "#define HERE 1\n", "#define HERE 2\n"
FOLDERS = "env['CPPPATH'] = ['first', 'second']\n"
EMBEDDED = "constexpr unsigned char data[] = {{\n#embed {}\n}};\n#define HERE data[0]\n"


@dataclass(frozen=True)
class Spelling:
    """A way in which a source finds a file, and the file that goes before it when it appears."""

    head: str
    setting: str = FOLDERS
    appears: tuple[str, str] = ("first/value.h", TWO)
    files: Mapping[str, str] = field(default_factory=lambda: {"second/value.h": ONE})


def flags(*words: str) -> str:
    return f"env.Append(CCFLAGS={list(words)!r})\n"


def asks(name: str, found: str, condition: str = "__has_include") -> str:
    return f"#if {condition}({name})\n{found}\n#else\n{ONE}#endif\n"


SPELLINGS = {
    "beside the source, -I": Spelling(
        '#include "value.h"\n', flags("-Isecond"), appears=("value.h", TWO)
    ),
    "-I -I": Spelling("#include <value.h>\n", flags("-Ifirst", "-Isecond")),
    "CPPPATH -isystem": Spelling(
        "#include <value.h>\n", "env['CPPPATH'] = ['first']\n" + flags("-isystem", "second")
    ),
    "-isystem -isystem": Spelling(
        "#include <value.h>\n", flags("-isystem", "first", "-isystem", "second")
    ),
    "-iquote": Spelling('#include "value.h"\n', flags("-iquote", "first", "-Isecond")),
    "-idirafter": Spelling(
        "#include <value.h>\n", flags("-idirafter", "first", "-idirafter", "second")
    ),
    "CPATH": Spelling("#include <value.h>\n", "env['ENV']['CPATH'] = 'first:second'\n"),
    "-include": Spelling("", FOLDERS + flags("-include", "value.h")),
    "-include, top folder": Spelling(
        "", FOLDERS + flags("-include", "value.h"), appears=("value.h", TWO)
    ),
    "-imacros": Spelling("", FOLDERS + flags("-imacros", "value.h")),
    "-Xclang -include": Spelling("", FOLDERS + flags("-Xclang", "-include", "-Xclang", "value.h")),
    "#include MACRO": Spelling("#define NAME <value.h>\n#include NAME\n"),
    "#include_next": Spelling(
        "#include <value.h>\n",
        "env['CPPPATH'] = ['first', 'second', 'third']\n",
        ("second/value.h", TWO),
        {"first/value.h": "#include_next <value.h>\n", "third/value.h": ONE, "second/no.h": ""},
    ),
    "comment in the directive": Spelling("#include /* where? */ <value.h>\n"),
    "comment before the directive": Spelling("/* one\n two */ # /* three */ include <value.h>\n"),
    "continued line": Spelling("#include \\\n  <value.h>\n"),
    "continued word": Spelling("#inc\\\nlude <value.h>\n"),
    "%:include": Spelling("%:include <value.h>\n"),
    "#import": Spelling("#import <value.h>\n"),
    "__has_include": Spelling(asks("<value.h>", TWO), flags("-Ifirst"), files={"first/no.h": ""}),
    "__has_include(MACRO)": Spelling(
        "#define NAME <value.h>\n" + asks("NAME", "#include NAME"), files={"second/no.h": ""}
    ),
    "__has_include in a macro": Spelling(
        "#define ASK __has_include(<value.h>)\n#if ASK\n" + TWO + "#else\n" + ONE + "#endif\n",
        files={"second/no.h": ""},
    ),
    "__has_include_next": Spelling(
        "#include <value.h>\n",
        appears=("second/value.h", TWO),
        files={
            "first/value.h": asks("<value.h>", "#include_next <value.h>", "__has_include_next"),
            "second/no.h": "",
        },
    ),
    "#embed <>": Spelling(
        EMBEDDED.format("<value.bin>"),
        flags("--embed-dir=first", "--embed-dir=second"),
        ("first/value.bin", "2"),
        {"second/value.bin": "1"},
    ),
    '#embed ""': Spelling(
        EMBEDDED.format('"value.bin"'),
        flags("--embed-dir=second"),
        ("value.bin", "2"),
        {"second/value.bin": "1"},
    ),
    "__has_embed": Spelling(
        asks("<value.bin>", TWO, "__has_embed"),
        flags("--embed-dir=first"),
        ("first/value.bin", "2"),
        {"first/no.h": ""},
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_file_that_appears(project: Project, spelling: Spelling) -> None:
    """A file that goes before the one that was found is seen when it appears, and when it goes."""
    project.write("k.hip", spelling.head + BODY)
    for name, text in spelling.files.items():
        project.write(name, text)
    project.sconstruct(spelling.setting + NODES)
    assert project.build() == ALL
    project.assert_up_to_date()
    new = project.write(*spelling.appears)
    assert project.build() == ALL
    project.assert_up_to_date()
    new.unlink()
    assert project.build() == ALL


def test_source_outside_of_the_top_folder(project: Project) -> None:
    """Beside a source that is outside of the top folder, a header that appears is seen."""
    (project.folder / "k.hip").unlink()
    project.write("../outside/k.hip", '#include "value.h"\n' + BODY)
    project.write("second/value.h", ONE)
    project.sconstruct("env['CPPPATH'] = ['second']\n" + NODES.replace("k.hip", "../outside/k.hip"))
    assert len(project.build("../outside")) == 2
    project.assert_up_to_date("../outside")
    project.write("../outside/value.h", TWO)
    assert len(project.build("../outside")) == 2
    project.assert_up_to_date("../outside")


def test_asked_for_by_one_target(project: Project) -> None:
    """A file for which ``__has_include`` asks for one target alone compiles that target alone."""
    asked = "#if defined(__gfx90a__)\n" + asks("<optional.h>", TWO) + "#else\n" + ONE + "#endif\n"
    project.write("k.hip", asked + BODY)
    project.sconstruct(NODES.replace("['gfx906']", "['gfx906', 'gfx90a']"))
    project.build()
    project.assert_up_to_date()
    project.sconstruct(FOLDERS + NODES.replace("['gfx906']", "['gfx906', 'gfx90a']"))
    project.write("first/other.h", "")
    project.build()
    project.assert_up_to_date()
    project.write("second/optional.h", "")
    assert project.build() == passes("k.hip", "gfx90a")
    project.assert_up_to_date()


NOT_ASKED = {
    "comment": '// __has_include("optional.h")\n',
    "skipped": '#if 0\n#if __has_include("optional.h")\n#endif\n#endif\n',
    "text": 'const char* text = "__has_include(\\"optional.h\\")";\n',
}


@pytest.mark.parametrize("text", NOT_ASKED.values(), ids=NOT_ASKED.keys())
def test_not_asked(project: Project, text: str) -> None:
    """Where the preprocessor does not ask for it, a file that appears means nothing."""
    project.write("k.hip", text + KERNEL)
    project.sconstruct(NODES)
    assert project.build() == ALL
    project.write("optional.h", "")
    project.assert_up_to_date()


EDITED = {
    "-isystem": flags("-isystem", "second"),
    "-idirafter": flags("-idirafter", "second"),
    "-iquote": flags("-iquote", "second"),
    "CPATH": "env['ENV']['CPATH'] = 'second'\n",
    "CPLUS_INCLUDE_PATH": "env['ENV']['CPLUS_INCLUDE_PATH'] = 'second'\n",
}


@pytest.mark.parametrize("setting", EDITED.values(), ids=EDITED.keys())
def test_edited_header(project: Project, setting: str) -> None:
    """An edit of a header is seen, also of one in a folder that counts as the system's."""
    project.write("k.hip", '#include "value.h"\n' + BODY)
    project.write("second/value.h", ONE)
    project.sconstruct(setting + NODES)
    assert project.build() == ALL
    project.write("second/value.h", TWO)
    assert project.build() == ALL
    project.assert_up_to_date()


def gcc(project: Project, version: int, value: str) -> None:
    """Install what clang takes for a GCC, with one header of its C++ library."""
    project.write(f"../gcc/lib/gcc/x86_64-linux-gnu/{version}/crtbegin.o", "")
    project.write(f"../gcc/include/c++/{version}/value.h", value)


NEWER_GCC = {
    "that is read": ("#include <value.h>\n", ALL),
    "that is not read": (ONE, []),
    "that is not read, beside one of the same text": ("// <value.h>\n" + ONE, []),
}


@pytest.mark.parametrize("case", NEWER_GCC.values(), ids=NEWER_GCC.keys())
def test_newer_gcc(project: Project, case: tuple[str, list[str]]) -> None:
    """The headers of a newer GCC, which clang takes by itself, are compiled where they are read."""
    head, expected = case
    gcc(project, 11, ONE)
    project.write("k.hip", head + BODY)
    toolchain = str(project.folder.parent / "gcc")
    project.sconstruct(flags("--gcc-toolchain=" + toolchain) + NODES)
    assert project.build() == ALL
    before = (project.folder / "k.gfx906.co").read_bytes()
    project.assert_up_to_date()
    gcc(project, 12, TWO)
    assert project.build() == expected
    assert ((project.folder / "k.gfx906.co").read_bytes() != before) == bool(expected)
    project.assert_up_to_date()
    project.write("../gcc/include/c++/12/other.h", "")
    project.assert_up_to_date()
