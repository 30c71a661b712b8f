"""What a compile's result depends on beside the contents of the files that it lists.

Each case is built, changed and built again, by scons and by ``offload-tool compile``; a clean
build of a copy is the judge: the same bytes, or a failure where that one fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from offload_tool.compiler.toolchain import find_toolchain
from tests.scons.conftest import KERNEL, Project, empty_project

OUTPUTS = ("k.gfx906.co", "k.host.o")
BODY = KERNEL.replace("VALUE", "HERE")
ONE, TWO = "#define HERE 1\n", "#define HERE 2\n"
QUIET = ("-nogpuinc", "-nogpulib")
ASSEMBLED = 'asm(".section .table,\\"a\\"\\n.incbin \\"data\\"\\n.text");\n'
ASSEMBLED_ALSO = 'asm(".section .table,\\"a\\"\\n.include \\"data\\"\\n.text");\n'
NODES = "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"

WORDS = '-DWORDS=\'".section .table,\\\\"a\\\\"\\\\n.incbin \\\\"data\\\\"\\\\n.text"\'\n'

Change = Callable[[Path], None]


def writes(name: str, text: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


def removes(name: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    return change


def links(name: str, target: str) -> Change:
    """Put a symbolic link in the place of a file or folder."""

    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        path.symlink_to(target)

    return change


def links_hard(name: str, target: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.link(folder / target, folder / name)

    return change


def copies(name: str, source: str) -> Change:
    """Put a copy in the place of a link."""

    def change(folder: Path) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        found = folder / source
        shutil.copytree(found, path) if found.is_dir() else shutil.copy2(found, path)

    return change


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


ONCE = "#pragma once\ninline int once() { return 1; }\n"
BOTH = '#include "a/x.h"\n#include "b/x.h"\n' + ONE
COUNTS = "#pragma once\n#ifdef V\n#define W\n#endif\n#define V\n"
COUNTED = "#ifdef W\n" + TWO + "#else\n" + ONE + "#endif\n"

CASES: dict[str, Case] = {
    "link becomes a copy": Case(
        BOTH, [copies("a/x.h", "b/x.h")], {"b/x.h": ONCE, "a/no": ""}, [links("a/x.h", "../b/x.h")]
    ),
    "copy becomes a link": Case(
        '#include "a/x.h"\n#include "b/x.h"\n' + COUNTED,
        [links("a/x.h", "../b/x.h")],
        {"a/x.h": COUNTS, "b/x.h": COUNTS},
    ),
    "hard link becomes a copy": Case(
        BOTH,
        [copies("a/x.h", "b/x.h")],
        {"b/x.h": ONCE, "a/no": ""},
        [links_hard("a/x.h", "b/x.h")],
    ),
    "#import of a link": Case(
        '#import "a/x.h"\n#import "b/x.h"\n' + ONE,
        [copies("a/x.h", "b/x.h")],
        {"b/x.h": "inline int once() { return 1; }\n", "a/no": ""},
        [links("a/x.h", "../b/x.h")],
    ),
    "source's own folder by a link": Case(
        '#include "sub/x.h"\n#include "x.h"\n' + ONE,
        [copies("sub", "real")],
        {"real/x.h": ONCE},
        [links("sub", "real")],
        ["-Ireal"],
    ),
    "folder of a link becomes a copy": Case(
        "#include <x.h>\n",
        [copies("b", "a")],
        {
            "a/x.h": "#define HERE 1\n#include_next <x.h>\n".replace(
                "#define HERE 1\n", "#ifdef V\n#define W\n#else\n#define V\n#endif\n"
            ),
            "c/x.h": "#ifdef W\n#define HERE 2\n#else\n#define HERE 1\n#endif\n",
        },
        [links("b", "a")],
        ["-Ia", "-Ib", "-Ic"],
    ),
    "folder of a copy becomes a link": Case(
        "#include <x.h>\n",
        [links("b", "a")],
        {
            "a/x.h": "#ifdef V\n#define W\n#else\n#define V\n#endif\n#include_next <x.h>\n",
            "b/x.h": "#ifdef V\n#define W\n#else\n#define V\n#endif\n#include_next <x.h>\n",
            "c/x.h": "#ifdef W\n#define HERE 2\n#else\n#define HERE 1\n#endif\n",
        },
        [],
        ["-Ia", "-Ib", "-Ic"],
    ),
    "order of folders by links": Case(
        "#include <x.h>\n",
        [copies("s", "a")],
        {"a/y.h": "", "b/x.h": ONE, "a/x.h": TWO},
        [links("s", "a")],
        ["-Ia", "-Ib", "-isystem", "s"],
    ),
    "dangling link gets a target": Case(
        "#include <x.h>\n",
        [writes("elsewhere/x.h", TWO)],
        {"b/x.h": ONE, "a/no": ""},
        [links("a/x.h", "../elsewhere/x.h")],
        ["-Ia", "-Ib"],
    ),
    "folder called like a header": Case(
        "#include <x.h>\n",
        [removes("a/x.h"), writes("a/x.h", TWO)],
        {"b/x.h": ONE, "a/x.h/no": ""},
        flags=["-Ia", "-Ib"],
    ),
    "folder called like a header at once": Case(
        "#include <x.h>\n",
        [lambda f: (removes("a/x.h")(f), writes("a/x.h", TWO)(f))],
        {"b/x.h": ONE, "a/x.h/no": ""},
        flags=["-Ia", "-Ib"],
    ),
    "link of a folder leads elsewhere": Case(
        "#include <x.h>\n",
        [links("now", "v2")],
        {"v1/x.h": ONE, "v2/x.h": TWO},
        [links("now", "v1")],
        ["-Inow"],
    ),
    "dangling link of a folder": Case(
        "#include <x.h>\n",
        [writes("v1/x.h", TWO)],
        {"b/x.h": ONE},
        [links("now", "v1")],
        ["-Inow", "-Ib"],
    ),
    "incbin found earlier": Case(
        ASSEMBLED + ONE,
        [writes("a/data", "2222"), writes("data", "3333"), removes("data")],
        {"b/data": "1111", "a/no": ""},
        flags=["-Ia", "-Ib"],
    ),
    "incbin, folders that come": Case(
        ASSEMBLED + ONE, [writes("a/data", "2222")], {"b/data": "1111"}, flags=["-Ia", "-Ib"]
    ),
    "include of the assembler found earlier": Case(
        ASSEMBLED_ALSO + ONE,
        [writes("a/data", ".long 2\n")],
        {"b/data": ".long 1\n", "a/no": ""},
        flags=["-Ia", "-Ib"],
    ),
    "incbin by CPATH": Case(
        ASSEMBLED + ONE,
        [writes("a/data", "2222")],
        {"b/data": "1111", "a/data": "3333"},
        flags=["-Ib"],
        variables={"CPATH": "a"},
    ),
    "incbin by CPATH alone": Case(
        ASSEMBLED + ONE, [writes("a/data", "2222")], {"a/data": "3333"}, variables={"CPATH": "a"}
    ),
    "incbin by -Wa,-I": Case(
        ASSEMBLED + ONE,
        [writes("a/data", "2222")],
        {"b/data": "1111", "a/data": "3333"},
        flags=["-Wa,-Ia", "-idirafter", "b"],
    ),
    "incbin by -Xclang -I": Case(
        ASSEMBLED + ONE,
        [writes("a/data", "2222")],
        {"b/data": "1111", "a/data": "3333"},
        flags=["-Xclang", "-Ia", "-idirafter", "b"],
    ),
    "incbin by a configuration file": Case(
        ASSEMBLED + ONE,
        [writes("a/data", "2222")],
        {"b/data": "1111", "a/data": "3333", "f.cfg": "-Ia\n"},
        flags=["--config", "./f.cfg", "-idirafter", "b"],
    ),
    "incbin in joined strings": Case(
        'asm(".section .table,\\"a\\"\\n.inc" "bin \\"data\\"\\n.text");\n' + ONE,
        [writes("data", "2222")],
        {"data": "1111"},
    ),
    "incbin by a macro of a response file": Case(
        "asm(WORDS);\n" + ONE,
        [writes("data", "2222")],
        {"data": "1111", "f.txt": WORDS},
        flags=["@f.txt"],
    ),
    "incbin by a macro of a configuration file": Case(
        "asm(WORDS);\n" + ONE,
        [writes("data", "2222")],
        {"data": "1111", "f.cfg": WORDS},
        flags=["--config", "./f.cfg"],
    ),
    "has_include by a macro with a parameter": Case(
        "#define HAS(x) __has_include(<x/v.h>)\n#if HAS(lib)\n"
        + TWO
        + "#else\n"
        + ONE
        + "#endif\n#include <no>\n",
        [writes("a/lib/v.h", "")],
        {"a/no": ""},
        flags=["-Ia"],
    ),
    "has_include by a made string": Case(
        "#define TEXT(x) #x\n#if __has_include(TEXT(v.h))\n"
        + TWO
        + "#else\n"
        + ONE
        + "#endif\n#include <no>\n",
        [writes("a/v.h", "")],
        {"a/no": ""},
        flags=["-Ia"],
    ),
    "has_include of a macro's folder": Case(
        "#define LIB lib\n#define HAS __has_include(<LIB/v.h>)\n#if HAS\n"
        + TWO
        + "#else\n"
        + ONE
        + "#endif\n#include <no>\n",
        [writes("a/lib/v.h", "")],
        {"a/no": ""},
        flags=["-Ia"],
    ),
    "has_include by another name": Case(
        "#define HAS __has_include\n#if HAS(<v.h>)\n"
        + TWO
        + "#else\n"
        + ONE
        + "#endif\n#include <no>\n",
        [writes("a/v.h", "")],
        {"a/no": ""},
        flags=["-Ia"],
    ),
    "has_include of a macro of the command": Case(
        "#if __has_include(NAME)\n" + TWO + "#else\n" + ONE + "#endif\n#include <no>\n",
        [writes("a/v.h", "")],
        {"a/no": ""},
        flags=["-Ia", "-DNAME=<v.h>"],
    ),
    "has_include by a macro of a response file": Case(
        "#if __has_include(NAME)\n"
        + TWO
        + "#else\n"
        + ONE
        + "#endif\n#include <no>\n#define OTHER <no>\n",
        [writes("a/v.h", "")],
        {"a/no": "", "f.txt": "-DNAME='<v.h>'\n"},
        flags=["-Ia", "@f.txt"],
    ),
    "has_include by a macro of a configuration file": Case(
        "#if __has_include(NAME)\n"
        + TWO
        + "#else\n"
        + ONE
        + "#endif\n#include <no>\n#define OTHER <no>\n",
        [writes("a/v.h", "")],
        {"a/no": "", "f.cfg": "-DNAME='<v.h>'\n"},
        flags=["-Ia", "--config", "./f.cfg"],
    ),
    "has_embed by a macro": Case(
        "#define NAME(x) <x.bin>\n#if __has_embed(NAME(v))\n" + TWO + "#else\n" + ONE + "#endif\n",
        [writes("a/v.bin", "1")],
        {"a/no": ""},
        flags=["--embed-dir=a"],
    ),
    "has_embed with a limit": Case(
        "#if __has_embed(<v.bin> limit(1)) == 1\n" + TWO + "#else\n" + ONE + "#endif\n",
        [writes("a/v.bin", "1"), writes("a/v.bin", ""), removes("a/v.bin")],
        {"a/no": ""},
        flags=["--embed-dir=a"],
    ),
    "embed with a limit": Case(
        "constexpr unsigned char data[] = {\n#embed <v.bin> limit(1) if_empty(7)\n};\n#define HERE data[0]\n",
        [writes("b/v.bin", "2"), writes("b/v.bin", ""), writes("a/v.bin", "3"), removes("a/v.bin")],
        {"a/no": "", "b/v.bin": "1"},
        flags=["--embed-dir=a", "--embed-dir=b"],
    ),
    "overlay that renames a folder": Case(
        "#include <x.h>\n",
        [writes("real/x.h", TWO)],
        {
            "b/x.h": ONE,
            "real/no.h": "",
            "o.yaml": "{'version': 0, 'overlay-relative': 'true', 'roots': [{'type': 'directory-remap', 'name': 'FOLDER/virtual', 'external-contents': 'FOLDER/real'}]}",
        },
        flags=["-ivfsoverlay", "o.yaml", "-IFOLDER/virtual", "-Ib"],
    ),
    "overlay with a file": Case(
        "#include <x.h>\n",
        [writes("real/x.h", TWO)],
        {
            "b/x.h": ONE,
            "real/x.h": ONE,
            "o.yaml": "{'version': 0, 'roots': [{'type': 'file', 'name': 'FOLDER/virtual/x.h', 'external-contents': 'FOLDER/real/x.h'}]}",
        },
        flags=["-ivfsoverlay", "o.yaml", "-IFOLDER/virtual", "-Ib"],
    ),
    "overlay with a file of its own name": Case(
        "#include <x.h>\n",
        [writes("real/x.h", TWO)],
        {
            "b/x.h": ONE,
            "real/x.h": ONE,
            "o.yaml": "{'version': 0, 'use-external-names': 'false', 'roots': [{'type': 'file', 'name': 'FOLDER/virtual/x.h', 'external-contents': 'FOLDER/real/x.h'}]}",
        },
        flags=["-ivfsoverlay", "o.yaml", "-IFOLDER/virtual", "-Ib"],
    ),
    "overlay whose file comes": Case(
        "#if __has_include(<x.h>)\n#include <x.h>\n#else\n" + ONE + "#endif\n",
        [writes("real/x.h", TWO)],
        {
            "b/no.h": "",
            "real/no": "",
            "o.yaml": "{'version': 0, 'roots': [{'type': 'file', 'name': 'FOLDER/virtual/x.h', 'external-contents': 'FOLDER/real/x.h'}]}",
        },
        flags=["-ivfsoverlay", "o.yaml", "-IFOLDER/virtual", "-Ib"],
    ),
    "framework": Case(
        "#include <Lib/x.h>\n",
        [writes("f/Lib.framework/Headers/x.h", TWO)],
        {"b/Lib/x.h": ONE, "f/no": ""},
        flags=["-Ff", "-idirafter", "b"],
    ),
    "iframework": Case(
        "#include <Lib/x.h>\n",
        [writes("f/Lib.framework/Headers/x.h", TWO)],
        {"b/Lib/x.h": ONE, "f/no": ""},
        flags=["-iframework", "f", "-idirafter", "b"],
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
    ),
    "module map that another one names": Case(
        "#include <x.h>\n",
        [writes("n.map", 'module z { header "b/z.h" }\n')],
        {"b/x.h": ONE, "b/z.h": "", "n.map": "", "m.map": 'extern module z "n.map"\n'},
        flags=[
            "-Ib",
            "-fmodule-map-file=m.map",
            "-fmodules-strict-decluse",
            "-fmodule-name=k",
            "-Wno-error",
        ],
    ),
    "include of a flag found earlier": Case(
        "",
        [writes("a/x.h", TWO), writes("x.h", "#define HERE 3\n")],
        {"b/x.h": ONE, "a/no": ""},
        flags=["-include", "x.h", "-Ia", "-Ib"],
    ),
    "precompiled header that appears": Case(
        "",
        [writes("b/y.h", TWO)],
        {"b/x.h": "#include <y.h>\n", "a/y.h": ONE},
        flags=["-Ib", "-Ia", "-include", "x.h"],
    ),
    "default profile": Case(
        ONE + "__attribute__((noinline)) int hot(int n) { return n > 3 ? n * 5 : n; }\n",
        [writes("PROFILE", "2")],
        {"PROFILE": "1"},
        flags=["-O2", "-fprofile-use"],
    ),
    "ignore list": Case(
        ONE + "int at(int* p, int n) { return p[n] + n; }\n",
        [writes("list.txt", "fun:*\n")],
        {"list.txt": "\n"},
        flags=[
            "-Xarch_host",
            "-fsanitize=signed-integer-overflow",
            "-Xarch_host",
            "-fsanitize-ignorelist=list.txt",
        ],
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
    "response file in a response file": Case(
        "#include <x.h>\n",
        [writes("g.txt", "-Ia\n")],
        {"a/x.h": TWO, "b/x.h": ONE, "f.txt": "@g.txt\n", "g.txt": "-Ib\n"},
        flags=["@f.txt"],
    ),
    "response file that comes": Case(
        "#ifndef HERE\n#define HERE 1\n#endif\n",
        [writes("g.txt", "-DHERE=2\n")],
        {"f.txt": "-DX=1\n"},
        flags=["@f.txt"],
    ),
    "folder of the response file": Case(
        "#include <x.h>\n",
        [writes("a/x.h", TWO)],
        {"a/no": "", "b/x.h": ONE, "f.txt": "-Ia -Ib\n"},
        flags=["@f.txt"],
    ),
    "C_INCLUDE_PATH": Case(
        "#include <x.h>\n",
        [writes("a/x.h", TWO)],
        {"a/no": "", "b/x.h": ONE},
        flags=["-idirafter", "b"],
        variables={"CPLUS_INCLUDE_PATH": "a"},
    ),
    "empty part of CPATH": Case(
        "#include <x.h>\n",
        [writes("x.h", TWO)],
        {"b/x.h": ONE},
        flags=["-idirafter", "b"],
        variables={"CPATH": ":nowhere"},
    ),
    "header of another case": Case(
        "#include <X.h>\n",
        [writes("a/x.h", TWO), writes("a/X.h", TWO)],
        {"b/X.h": ONE, "a/no": ""},
        flags=["-Ia", "-Ib"],
    ),
    "up and down": Case(
        '#include "sub/../x.h"\n',
        [writes("sub/no", ""), removes("x.h")],
        {"b/x.h": TWO, "x.h": ONE, "sub/yes": "", "b/sub/no": ""},
        flags=["-Ib"],
    ),
    "way that comes": Case(
        '#include "sub/../x.h"\n',
        [writes("sub/no", "")],
        {"b/x.h": TWO, "x.h": ONE, "b/sub/no": ""},
        flags=["-Ib"],
    ),
    "way through a link": Case(
        '#include "sub/../x.h"\n',
        [links("sub", "real/deep")],
        {"x.h": ONE, "real/x.h": TWO, "real/deep/no": "", "sub/no": ""},
    ),
    "sysroot": Case(
        "#include <x.h>\n",
        [
            writes("root/usr/include/x.h", TWO),
            writes("root/usr/local/include/x.h", "#define HERE 3\n"),
        ],
        {"root/usr/include/x.h": ONE},
        flags=["--sysroot=root"],
    ),
    "resource folder": Case(
        "#include <x.h>\n",
        [writes("res/include/x.h", TWO)],
        {"b/x.h": ONE, "res/include/no": ""},
        flags=["-resource-dir", "res", "-idirafter", "b"],
    ),
    "__include_next in the folder of the source": Case(
        '#include "x.h"\n',
        [writes("a/x.h", TWO)],
        {"x.h": "#include_next <x.h>\n", "b/x.h": ONE, "a/no": ""},
        flags=["-Ia", "-Ib"],
    ),
    "prefix": Case(
        "#include <x.h>\n",
        [writes("pre/a/x.h", TWO)],
        {"b/x.h": ONE, "pre/a/no": ""},
        flags=["-iprefix", "pre/", "-iwithprefixbefore", "a", "-Ib"],
    ),
    "linker's library": Case(
        ONE,
        [writes("LIB", "2")],
        {"LIB": "1"},
        flags=[
            "-Xoffload-linker",
            "-L.",
            "-Xoffload-linker",
            "-lmore",
            "-Xoffload-linker",
            "--whole-archive",
        ],
    ),
}


@dataclass
class Scons:
    """Builds with scons."""

    setting: str = ""

    def prepare(self, project: Project, case: Case, flags: Sequence[str]) -> None:
        variables = f"env['ENV'].update({dict(case.variables)!r})\n"
        project.sconstruct(
            f"env['OFFLOAD_ARCH'] = ['gfx906']\nenv.Append(CCFLAGS={list(flags)!r})\n"
            + variables
            + self.setting
            + NODES
        )

    def __call__(self, project: Project, case: Case, flags: Sequence[str]) -> tuple[bool, str]:
        done = project.run()
        return done.status == 0, done.output + done.errors


class Compile:
    """Builds with one command for each output."""

    def prepare(self, project: Project, case: Case, flags: Sequence[str]) -> None:
        pass

    def __call__(self, project: Project, case: Case, flags: Sequence[str]) -> tuple[bool, str]:
        said = ""
        for output, which in zip(OUTPUTS, (["--target-id", "gfx906"], ["--host"]), strict=True):
            done = subprocess.run(
                [sys.executable, "-m", "offload_tool", "compile", "k.hip", "-o", output, *which]
                + ["--depfile", f"{output}.d", "--", *QUIET, "-DVALUE=1", *flags],
                cwd=project.folder,
                env={**project.environment, **case.variables},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            said += done.stdout + done.stderr
            if done.returncode:
                return False, said
        return True, said


BUILDERS = {
    "by-scons": Scons(),
    "by-driver": Scons("env['OFFLOAD_DIRECT'] = False\n"),
    "by-compile": Compile(),
}


def makes_of_words(folder: Path) -> None:
    """Make what a compiler reads and no editor writes, by the number that stands in a text."""
    profile = folder / "PROFILE"
    if profile.exists():
        number = profile.read_text()
        text = f"hot\n# Func Hash:\n0\n# Num Counters:\n1\n# Counter Values:\n{number}\n\n"
        text = f":ir\n_Z3hoti\n146835646621254984\n2\n{number}000\n1\n\n"
        (folder / "p.proftext").write_text(text)
        tool = shutil.which("llvm-profdata-22") or shutil.which("llvm-profdata")
        if tool is None:
            pytest.skip("no llvm-profdata")
        subprocess.run(
            [tool, "merge", "p.proftext", "-o", "default.profdata"], cwd=folder, check=True
        )
    library = folder / "LIB"
    if library.exists():
        clang = find_toolchain().clang
        (folder / "more.c").write_text(f"int more = {library.read_text()};\n")
        words = [
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx906",
            "-nogpulib",
            "-c",
            "more.c",
            "-o",
            "more.obj",
        ]
        subprocess.run([*clang, *words], cwd=folder, check=True)
        (folder / "libmore.a").unlink(missing_ok=True)
        subprocess.run(["llvm-ar-22", "rc", "libmore.a", "more.obj"], cwd=folder, check=True)


def clean(
    project: Project, case: Case, flags: Sequence[str], builder: Callable
) -> tuple[bool, dict[str, bytes]]:
    """Build a copy from nothing at the same place."""
    aside = project.folder.with_name("aside")
    shutil.rmtree(aside, ignore_errors=True)
    project.folder.rename(aside)
    subprocess.run(["cp", "-a", aside, project.folder], check=True)
    for name in [*OUTPUTS, "cache", ".sconsign.dblite"]:
        path = project.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in project.folder.glob(".*.manifest"):
        path.unlink()
    good, _ = builder(project, case, flags)
    made = {name: (project.folder / name).read_bytes() for name in OUTPUTS} if good else {}
    shutil.rmtree(project.folder)
    aside.rename(project.folder)
    return good, made


@pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS.keys())
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_as_a_clean_build(project: Project, case: Case, builder: Callable) -> None:
    folder = project.folder
    project.write("k.hip", case.head + case.body)
    for name, text in case.files.items():
        project.write(name, text.replace("FOLDER", str(folder)))
    for change in case.first:
        change(folder)
    flags = [word.replace("FOLDER", str(folder)) for word in case.flags]
    builder.prepare(project, case, flags)
    makes_of_words(folder)
    good, said = builder(project, case, flags)
    assert good, said
    for number, change in enumerate(case.changes):
        change(folder)
        makes_of_words(folder)
        expected, made = clean(project, case, flags, builder)
        good, said = builder(project, case, flags)
        assert good == expected, f"change {number}: clean {expected}\n{said}"
        if expected:
            found = {name: (folder / name).read_bytes() for name in OUTPUTS}
            assert [n for n in OUTPUTS if made[n] != found[n]] == [], f"change {number}\n{said}"
