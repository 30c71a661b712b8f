"""What a compile's result depends on beside the contents of the files that it lists.

Each case is built, changed and built again, by scons and by ``offload-tool compile``; a clean
build of a copy is the judge: the same bytes, or a failure where that one fails. Files on search
paths are those of `tests/manifest/test_include_search`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import identity, run_tool
from tests.scons.conftest import BODY, NODES, ONE, TWO, Project, passes

ASSEMBLED = 'asm(".section .table,\\"a\\"\\n.incbin \\"data\\"\\n.text");\n'
ON_DEVICE = """\
#ifdef __HIP_DEVICE_COMPILE__
__attribute__((global)) void more() {
  asm volatile(".pushsection .data\\n.incbin \\"data\\"\\n.popsection");
}
#endif
"""
WORDS = '-DWORDS=\'".section .table,\\\\"a\\\\"\\\\n.incbin \\\\"data\\\\"\\\\n.text"\'\n'
FILES = {"response": ["@f.txt"], "configuration": ["--config", "./f.txt"]}

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
            *(
                (f"macro of a {kind} file", "asm(WORDS);", {"f.txt": WORDS}, flags)
                for kind, flags in FILES.items()
            ),
        )
    },
    **{
        f"has_include by a macro of a {kind} file": Case(
            asks("NAME", TWO) + "#include <no>\n#define OTHER <no>\n",
            [writes("a/v.h", "")],
            {"a/no": "", "f.txt": "-DNAME='<v.h>'\n"},
            flags=["-Ia", *flags],
        )
        for kind, flags in FILES.items()
    },
    **{
        f"CPATH{more}": Case(
            "#include <x.h>\n",
            [writes("a/x.h", TWO), removes("a/x.h"), writes("b/x.h", TWO)],
            {"a/no": "", "b/x.h": ONE},
            flags=more.split(),
            variables={"CPATH": "a:b"},
        )
        for more in ("", " --save-temps")
    },
    "script of a linker": Case(
        ONE,
        [writes("w.ld", "more = 2;\n")],
        {"v.ld": "INPUT(w.ld)\n", "w.ld": "more = 1;\n"},
        flags=["-Xoffload-linker", "v.ld"],
        runs_again=["by-scons", "by-compile"],
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
    "configuration file of a folder comes": Case(
        "",
        [writes("user/f.cfg", "-DHERE=2\n")],
        {"system/f.cfg": "-DHERE=1\n", "user/no": ""},
        flags=["--config-user-dir=user", "--config-system-dir=system", "--config=f.cfg"],
    ),
    "file that a configuration file names": Case(
        ONE,
        [removes("p.csv")],
        {"f.cfg": "-mllvm -forceattrs-csv-path=<CFGDIR>/p.csv\n", "p.csv": ""},
        flags=["-O1", "--config", "./f.cfg"],
    ),
    **{
        f"folder that appears in {prefix}{root}": Case(
            "#include <one.h>\n",
            [writes(f"{root}/usr/include/x86_64-linux-gnu/one.h", TWO)],
            {f"{root}/usr/include/one.h": ONE},
            flags=[f"--sysroot={prefix}{root}", "-nostdinc++"],
        )
        for prefix, root in (("", "sr"), ("FOLDER/", "sr"), ("FOLDER/", "../sr"))
    },
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


OUTPUTS = ("k.gfx906.co", "k.host.o")
QUIET = ("-nogpuinc", "-nogpulib")


Builder = Callable[[Project, Case, Sequence[str]], tuple[bool, str]]


def by_scons(project: Project, case: Case, flags: Sequence[str]) -> tuple[bool, str]:
    """Build with scons."""
    head = f"env['OFFLOAD_ARCH'] = ['gfx906']\nenv.Append(CCFLAGS={list(flags)!r})\n"
    variables = f"env['ENV'].update({dict(case.variables)!r})\n"
    done = project.sconstruct(head + variables + NODES).run()
    return done.status == 0, done.output + done.errors


def by_compile(project: Project, case: Case, flags: Sequence[str]) -> tuple[bool, str]:
    """Build with one command for each output."""
    messages = ""
    for output, which in zip(OUTPUTS, (["--target-id", "gfx906"], ["--host"]), strict=True):
        args = ["compile", "k.hip", "-o", output, *which, "--depfile", f"{output}.d", "--"]
        done = project.tool(*args, *QUIET, "-DVALUE=1", *flags, **case.variables)
        messages += done.stdout + done.stderr
        if done.returncode:
            return False, messages
    return True, messages


BUILDERS: dict[str, Builder] = {"by-scons": by_scons, "by-compile": by_compile}


def clean(
    project: Project, case: Case, flags: Sequence[str], builder: Builder
) -> tuple[bool, dict[str, bytes]]:
    """Build a copy from nothing at the same place."""
    aside = project.folder.with_name("aside")
    shutil.rmtree(aside, ignore_errors=True)
    project.folder.rename(aside)
    run_tool("cp", "-a", aside, project.folder)
    for name in [*OUTPUTS, "cache", ".sconsign.dblite"]:
        path = project.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in project.folder.glob(".*.manifest"):
        path.unlink()
    good, _ = builder(project, case, flags)
    made = {name: project.read(name) for name in OUTPUTS} if good else {}
    shutil.rmtree(project.folder)
    aside.rename(project.folder)
    return good, made


BY_SCONS = (
    *("link becomes a copy", "assembly: device pass", "has_include by a macro of a response file"),
    *("overlay whose file comes", "module map", "default configuration file of a folder"),
    *("CPATH --save-temps", "folder that appears in FOLDER/../sr"),
)
"""One of each kind; ``offload-tool compile`` has all, and the verdict is of the same engine."""
TRIED = [
    *((name, "by-scons") for name in BY_SCONS),
    # Two commands with --save-temps write the same temporaries; scons knows of both.
    *((name, "by-compile") for name in CASES if "save-temps" not in name),
]


@pytest.mark.parametrize(("name", "by"), TRIED, ids=[f"{name}-{by}" for name, by in TRIED])
def test_as_a_clean_build(project: Project, name: str, by: str) -> None:
    """After each change, a build gives what a clean one gives, or fails where that fails."""
    case, builder = CASES[name], BUILDERS[by]
    folder = project.folder
    project.write("k.hip", case.head + case.body)
    for file, text in case.files.items():
        project.write(file, text.replace("FOLDER", str(folder)))
    for change in case.first:
        change(folder)
    flags = [word.replace("FOLDER", str(folder)) for word in case.flags]
    good, output = builder(project, case, flags)
    assert good, output
    for number, change in enumerate(case.changes):
        change(folder)
        expected, made = clean(project, case, flags, builder)
        good, output = builder(project, case, flags)
        assert good == expected, f"change {number}: clean {expected}\n{output}"
        if expected:
            found = {name: (folder / name).read_bytes() for name in OUTPUTS}
            assert [n for n in OUTPUTS if made[n] != found[n]] == [], f"change {number}\n{output}"
            before = [identity(folder / name) for name in OUTPUTS]
            good, output = builder(project, case, flags)
            settled = [identity(folder / name) for name in OUTPUTS] == before
            assert (good, settled) == (True, by not in case.runs_again), (
                f"change {number}\n{output}"
            )


def test_library_that_a_linker_finds(project: Project) -> None:
    """Which file a linker takes for ``-l``, nobody records: such a pass runs in each build."""
    project.write("libmore.a", "!<arch>\n")
    args = ["-Xoffload-linker", "-L.", "-Xoffload-linker", "-lmore"]
    given = f"env.Replace(OFFLOAD_ARCH='gfx906', OFFLOAD_FLAGS=env['OFFLOAD_FLAGS'] + {args!r})\n"
    for _ in range(2):
        assert passes("k.hip", "gfx906")[0] in project.sconstruct(given + NODES).build()
