"""Sources and what happens to what they find, for `test_unseen_inputs`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.scons.conftest import BODY, ONE, TWO

ASSEMBLED = 'asm(".section .table,\\"a\\"\\n.incbin \\"data\\"\\n.text");\n'
ON_DEVICE = """\
#ifdef __HIP_DEVICE_COMPILE__
__attribute__((global)) void more() {
  asm volatile(".pushsection .data\\n.incbin \\"data\\"\\n.popsection");
}
#endif
"""
WORDS = '-DWORDS=\'".section .table,\\\\"a\\\\"\\\\n.incbin \\\\"data\\\\"\\\\n.text"\'\n'
CONFIGURED = ["--config", "./f.cfg"]

Change = Callable[[Path], None]


def writes(name: str, text: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


def removes(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def links(name: str, target: str) -> Change:
    return lambda folder: (folder / name).symlink_to(target)


def copies(name: str, source: str) -> Change:
    """Put a copy in the place of a link."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        shutil.copy2(folder / source, folder / name)

    return change


def overlay(kind: str, name: str, target: str) -> str:
    """Return an overlay of clang's that puts a file or folder in another place."""
    root = f"'type': '{kind}', 'name': 'FOLDER/{name}', 'external-contents': 'FOLDER/{target}'"
    return f"{{'version': 0, 'roots': [{{{root}}}]}}"


@dataclass(frozen=True)
class Case:
    """A source, what is beside it, and what happens to that, one after the other."""

    head: str
    changes: Sequence[Change]
    files: Mapping[str, str] = field(default_factory=dict)
    first: Sequence[Change] = ()
    """Done before the first build."""
    flags: Sequence[str] = ()
    body: str = BODY
    variables: Mapping[str, str] = field(default_factory=dict)
    runs_again: Collection[str] = ()
    """The ways to build that compile this in each build, changed or not."""


ONCE = "#pragma once\ninline int once() { return 1; }\n"
BOTH = '#include "a/x.h"\n#include "b/x.h"\n' + ONE


def asks(name: str, found: str, condition: str = "__has_include") -> str:
    return f"#if {condition}({name})\n{found}\n#else\n{ONE}#endif\n"


CASES: dict[str, Case] = {
    "link becomes a copy": Case(
        BOTH, [copies("a/x.h", "b/x.h")], {"b/x.h": ONCE, "a/no": ""}, [links("a/x.h", "../b/x.h")]
    ),
    **{
        f"assembly: {name}": Case(
            f"{head}\n{ONE}",
            [writes("data", ".long 2\n")],
            {"data": ".long 1\n", **dict(files)},
            flags=flags,
            runs_again=["by-scons", "by-compile"],
        )
        for name, head, files, flags in (
            ("header", '#include "asm.h"', {"asm.h": ASSEMBLED}, []),
            ("device pass", ON_DEVICE, {}, []),
            ("macro of a response file", "asm(WORDS);", {"f.txt": WORDS}, ["@f.txt"]),
            ("macro of a configuration file", "asm(WORDS);", {"f.cfg": WORDS}, CONFIGURED),
        )
    },
    "has_include by a macro of a response file": Case(
        asks("NAME", TWO) + "#include <no>\n#define OTHER <no>\n",
        [writes("a/v.h", "")],
        {"a/no": "", "f.txt": "-DNAME='<v.h>'\n"},
        flags=["-Ia", "@f.txt"],
    ),
    "has_include by a macro of a configuration file": Case(
        asks("NAME", TWO) + "#include <no>\n#define OTHER <no>\n",
        [writes("a/v.h", "")],
        {"a/no": "", "f.cfg": "-DNAME='<v.h>'\n"},
        flags=["-Ia", "--config", "./f.cfg"],
    ),
    "has_embed by a macro": Case(
        "#define NAME(x) <x.bin>\n" + asks("NAME(v)", TWO, "__has_embed"),
        [writes("a/v.bin", "1")],
        {"a/no": ""},
        flags=["--embed-dir=a"],
    ),
    "embed with a limit": Case(
        "constexpr unsigned char data[] = {\n#embed <v.bin> limit(1) if_empty(7)\n};\n"
        "#define HERE data[0]\n",
        [writes("b/v.bin", "2"), writes("b/v.bin", ""), writes("a/v.bin", "3"), removes("a/v.bin")],
        {"a/no": "", "b/v.bin": "1"},
        flags=["--embed-dir=a", "--embed-dir=b"],
    ),
    "overlay that renames a folder": Case(
        "#include <x.h>\n",
        [writes("real/x.h", TWO)],
        {"b/x.h": ONE, "real/no": "", "o.yaml": overlay("directory-remap", "virtual", "real")},
        flags=["-ivfsoverlay", "o.yaml", "-IFOLDER/virtual", "-Ib"],
    ),
    "overlay whose file comes": Case(
        asks("<x.h>", "#include <x.h>"),
        [writes("real/x.h", TWO)],
        {"b/no": "", "real/no": "", "o.yaml": overlay("file", "virtual/x.h", "real/x.h")},
        flags=["-ivfsoverlay", "o.yaml", "-IFOLDER/virtual", "-Ib"],
    ),
    "framework": Case(
        "#include <Lib/x.h>\n",
        [writes("f/Lib.framework/Headers/x.h", TWO)],
        {"b/Lib/x.h": ONE, "f/no": ""},
        flags=["-Ff", "-idirafter", "b"],
    ),
    "modules": Case(
        "#include <x.h>\n",
        [
            writes("b/module.modulemap", 'module x { header "x.h" }\n'),
            writes("b/x.h", TWO),
            writes("b/module.modulemap", 'module x { header "x.h" config_macros HERE }\n'),
        ],
        {"b/x.h": ONE},
        flags=["-Ib", "-fmodules", "-fmodules-cache-path=cache"],
        runs_again=["by-compile"],
    ),
    "module map": Case(
        "#include <x.h>\n",
        [
            writes("m.map", 'module y { header "b/x.h" header "b/z.h" }\n'),
            writes("b/z.h", "#define Z\n"),
            writes("b/x.h", TWO),
        ],
        {"b/x.h": ONE, "b/z.h": "", "m.map": 'module y { header "b/x.h" }\n'},
        flags=["-Ib", "-fmodules", "-fmodule-map-file=m.map", "-fmodules-cache-path=cache"],
        runs_again=["by-compile"],
    ),
    "configuration file that includes another": Case(
        "",
        [writes("deep/g.cfg", "-DHERE=2\n")],
        {"f.cfg": "@deep/g.cfg\n", "deep/g.cfg": "-DHERE=1\n"},
        flags=["--config", "./f.cfg"],
    ),
    "configuration file of a folder": Case(
        "",
        [writes("user/f.cfg", "-DHERE=2\n")],
        {"user/f.cfg": "-DHERE=1\n"},
        flags=["--config-user-dir=user", "--config", "f.cfg"],
    ),
    "configuration file of a folder comes": Case(
        "",
        [writes("user/f.cfg", "-DHERE=2\n")],
        {"system/f.cfg": "-DHERE=1\n", "user/no": ""},
        flags=["--config-user-dir=user", "--config-system-dir=system", "--config=f.cfg"],
    ),
    "default configuration file of a folder": Case(
        "#ifndef HERE\n#define HERE 1\n#endif\n",
        [
            writes("user/x86_64-unknown-linux-gnu-clang.cfg", "-DHERE=2\n"),
            writes("user/clang.cfg", "-DHERE=3\n"),
            writes("user/x86_64-pc-linux-gnu-clang.cfg", "-DHERE=4\n"),
        ],
        {"user/no": ""},
        flags=["--config-user-dir=user"],
    ),
}


@dataclass(frozen=True)
class Found:
    """A way in which a source finds a file, and the file that goes before it when it appears."""

    head: str = "#include <value.h>\n"
    flags: Sequence[str] = ("-Ifirst", "-Isecond")
    appears: tuple[str, str] = ("first/value.h", TWO)
    files: Mapping[str, str] = field(default_factory=lambda: {"second/value.h": ONE})
    variables: Mapping[str, str] = field(default_factory=dict)

    def case(self) -> Case:
        """Return the case in which the file appears and goes, and the one found is edited."""
        changes = [writes(*self.appears), removes(self.appears[0])]
        changes += [writes(name, TWO) for name, text in self.files.items() if text == ONE]
        return Case(self.head, changes, self.files, (), self.flags, BODY, self.variables)


EMBEDDED = "constexpr unsigned char data[] = {{\n#embed {}\n}};\n#define HERE data[0]\n"
NOT_THERE = {"second/no.h": ""}

FOUND: dict[str, Found] = {  # tests/manifest/test_include_search has directives and folders
    "-I": Found(),
    "--save-temps": Found(flags=["-Ifirst", "-Isecond", "--save-temps"]),
    "-save-temps=obj": Found(flags=["-Ifirst", "-Isecond", "-save-temps=obj"]),
    "CPATH": Found(flags=[], variables={"CPATH": "first:second"}),
    "CPLUS_INCLUDE_PATH": Found(flags=[], variables={"CPLUS_INCLUDE_PATH": "first:second"}),
    "-include": Found("", ["-Ifirst", "-Isecond", "-include", "value.h"]),
    "-include, top folder": Found("", ["-Isecond", "-include", "value.h"], ("value.h", TWO)),
    "-imacros": Found("", ["-Ifirst", "-Isecond", "-imacros", "value.h"]),
    "-Xclang -include": Found(
        "", ["-Ifirst", "-Isecond", "-Xclang", "-include", "-Xclang", "value.h"]
    ),
    "#include_next": Found(
        flags=["-Ifirst", "-Isecond", "-Ithird"],
        appears=("second/value.h", TWO),
        files={"first/value.h": "#include_next <value.h>\n", "third/value.h": ONE, **NOT_THERE},
    ),
    "__has_include": Found(asks("<value.h>", TWO), ["-Ifirst"], files={"first/no.h": ""}),
    "#embed <>": Found(
        EMBEDDED.format("<value.bin>"),
        ["--embed-dir=first", "--embed-dir=second"],
        ("first/value.bin", "2"),
        {"second/value.bin": "1"},
    ),
    '#embed ""': Found(
        EMBEDDED.format('"value.bin"'),
        ["--embed-dir=second"],
        ("value.bin", "2"),
        {"second/value.bin": "1"},
    ),
    "__has_embed": Found(
        asks("<value.bin>", TWO, "__has_embed"),
        ["--embed-dir=first"],
        ("first/value.bin", "2"),
        {"first/no.h": ""},
    ),
}
CASES.update((name, found.case()) for name, found in FOUND.items())
