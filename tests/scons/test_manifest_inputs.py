"""All that a compile reads is an input: also what the command line brings in by other ways."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.scons.conftest import ALL, BODY, BOTH, KERNEL, Project, contents, passes
from tests.scons.conftest import NODES as OBJECTS
from tests.scons.judging import assert_as_clean_build, own_clang

NODES = "env.OffloadBundle('k.hip')\nenv.OffloadHostObject('k.hip')\n"
OUTPUTS = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.hipfb", "k.host.o"]


def test_configuration_of_cxx(project: Project) -> None:
    """The configuration of clang++ applies to C++ and HIP alone, though the compiler is clang."""
    settings = project.folder.parent / "settings"
    settings.mkdir()
    (settings / "clang.cfg").write_text("-DIN_C\n")
    project.write("k.hip", f"#ifdef IN_C\n#error\n#endif\n{BODY}")
    project.write("o.cpp", "#ifndef HERE\n#error\n#endif\n")
    project.write("o.c", "#ifndef IN_C\n#error\n#endif\n")
    openmp = "OFFLOAD_KIND='openmp', OFFLOAD_ARCH='gfx906'"
    hosts = "".join(f"env.OffloadHostObject('{n}.o', '{n}', {openmp})\n" for n in ("o.c", "o.cpp"))
    command = f"{own_clang()} --config-user-dir={settings}"
    project.sconstruct(f"env['OFFLOAD_CLANG'] = {command!r}\n{NODES}{hosts}")
    for number in (1, 2):
        (settings / "clang++.cfg").write_text(f"-DHERE={number}\n")
        assert {*ALL} < {*project.build_once()}
    assert_as_clean_build(project, OUTPUTS)


def linker(project: Project, version: int) -> Path:
    """Write an lld that says it has this version, and leaves a trace of it in what it links."""
    real = own_clang().resolve().parent / "lld"
    if not real.exists():
        pytest.skip("the compiler has no lld beside it")
    script = project.script(
        "../tools/lld",
        "#!/bin/sh\n"
        f'case "$*" in *--version*) echo "LLD {version}.0.0 (compatible with GNU linkers)"; exit;;'
        " esac\n"
        f'exec {real} "$@" --defsym=linked_by={version}\n',
    )
    return script.parent


PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'], OFFLOAD_RDC=True)\n"
LINKERS = {
    "-B": ("env.Append(OFFLOAD_FLAGS=['-B' + tools])\n", NODES, "k.gfx906.co"),
    "OFFLOAD_CLANG": ("env['OFFLOAD_CLANG'] += ' -B' + tools\n", NODES, "k.gfx906.co"),
    "COMPILER_PATH": ("env['ENV']['COMPILER_PATH'] = tools\n", NODES, "k.gfx906.co"),
    "relocatable": ("env['OFFLOAD_CLANG'] += ' -B' + tools\n", PROGRAM, "prog.gfx906.co"),
}


@pytest.mark.parametrize(("way", "nodes", "output"), LINKERS.values(), ids=LINKERS.keys())
def test_other_linker(project: Project, way: str, nodes: str, output: str) -> None:
    """Another lld under the same clang links the device code again."""
    tools, clang = linker(project, 1), own_clang()
    head = f"tools = {str(tools)!r}\nenv['OFFLOAD_CLANG'] = {str(clang)!r}\n"
    assert project.sconstruct(head + way + nodes).build_once() == ALL
    before = contents(project.folder, [output])
    linker(project, 2)
    expected = (ALL, passes("k.hip", *BOTH)) if nodes is NODES else (ALL, [])
    assert project.build_once() in expected
    assert contents(project.folder, [output]) != before


VARIABLES = {
    "CLANG_NO_DEFAULT_CONFIG": ("1", False, ["k.gfx906.co"]),
    "LLD_VERSION": ("another", False, ["k.gfx906.co"]),
    "LLVM_OVERRIDE_PRODUCER": ("another", True, ["k.gfx906.bc"]),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variables(project: Project, name: str) -> None:
    """A variable of the commands' environment that may change outputs compiles again."""
    value, relocatable, outputs = VARIABLES[name]
    project.write("k.hip", "#ifndef HERE\n#define HERE 0\n#endif\n" + BODY)
    project.write("../configuration/clang.cfg", "-DHERE=1\n")
    clang = f"{own_clang()} --config-user-dir={project.folder.parent}/configuration"
    head = f"env.Replace(OFFLOAD_CLANG={clang!r}, OFFLOAD_RDC={relocatable})\n"
    assert project.sconstruct(head + OBJECTS).build() == ALL
    before = contents(project.folder, outputs)
    assert project.sconstruct(head + f"env['ENV'][{name!r}] = {value!r}\n" + OBJECTS).build() == ALL
    after = contents(project.folder, outputs)
    assert [output for output in outputs if after[output] == before[output]] == []
    project.assert_up_to_date()
    assert_as_clean_build(project, outputs)


@pytest.mark.parametrize("name", ["prog.gfx906.co", "o.host.o"])
def test_variables_of_openmp(project: Project, name: str) -> None:
    """A device link, and the host's code generation, heed variables as compiles do."""
    project.write("o.c", "int main(void) {\n#pragma omp target\n;\nreturn 0; }\n")
    head = (
        "env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_ARCH=['gfx906'], OFFLOAD_DEVICE_RUNTIME=[],\n"
        "    OFFLOAD_FLAGS=['-nogpulib'], OFFLOAD_HOST_FLAGS=[],\n"
        "    OFFLOAD_LINK_FLAGS=['--unresolved-symbols=ignore-all'])\n"
    )
    program = "env.OffloadProgram('prog', 'o.c')\n"
    project.sconstruct(head + program).build()
    before = contents(project.folder, [name])
    more = "env['ENV'].update(LLD_VERSION='another', CCC_OVERRIDE_OPTIONS='# +-O2')\n"
    project.sconstruct(head + more + program).build()
    assert contents(project.folder, [name]) != before
    project.assert_up_to_date()


ASSEMBLED = """\
#define FILE "\\"data\\""
asm(".section .table,\\"a\\"\\n" ".inc" "bin " FILE "\\n.text");
"""
"""Clang assembles it for the host alone."""


def test_files_of_the_assembler(project: Project) -> None:
    """A pass whose text may let the assembler read a file always runs; the summary names it."""
    project.write("inc/asm.h", ASSEMBLED)
    project.write("k.hip", "#include <asm.h>\n" + KERNEL.replace("VALUE", "1"))
    project.write("data", "1111")
    project.sconstruct("env.Append(CCFLAGS=['-Iinc'])\nenv['OFFLOAD_SUMMARY'] = True\n" + NODES)
    assert project.build() == ALL
    project.write("data", "2222")
    run = project.run()
    assert {"k.hip host", "k.hip gfx906"} <= {*run.compiles}
    assert "run in each build: 3, for 'inc/asm.h'" in run.output
    assert_as_clean_build(project, OUTPUTS)


def header_map(names: dict[str, str]) -> bytes:
    """Make a header map of Apple's: names, and the folders and names that stand for them.

    Source: clang 22.1.8, ``clang/Lex/HeaderMapTypes.h``.
    """
    strings, buckets = b"\0", [(0, 0, 0)] * 8
    for name, path in names.items():
        folder, _, last = path.rpartition("/")
        at = []
        for text in (name, f"{folder}/", last):
            at.append(len(strings))
            strings += text.encode() + b"\0"
        buckets[sum(13 * ord(letter) for letter in name.lower()) % 8] = (at[0], at[1], at[2])
    size = 24 + 12 * len(buckets)
    head = struct.pack("<IHHIIII", 0x686D6170, 1, 0, size, len(names), len(buckets), 99)
    return head + b"".join(struct.pack("<III", *bucket) for bucket in buckets) + strings


@pytest.mark.parametrize("flags", ["CPPPATH=['m.hmap', '.']", "CCFLAGS=['-Im.hmap']"])
def test_header_map(project: Project, flags: str) -> None:
    """A header map stands in a folder's place; it is an input, as is what it names."""
    project.write("k.hip", '#include "value.h"\n' + BODY)
    for number in (1, 2):
        project.write(f"real/{number}.h", f"#define HERE {number}\n")
    project.sconstruct(f"env.Append({flags})\n{NODES}")
    for number in (1, 2):
        named = {"value.h": f"{project.folder}/real/{number}.h"}
        (project.folder / "m.hmap").write_bytes(header_map(named))
        assert project.build() == ALL
        assert_as_clean_build(project, OUTPUTS)
    project.assert_up_to_date()
    project.write("real/2.h", "#define HERE 3\n")
    assert project.build() == ALL


def test_ignored_header(project: Project) -> None:
    """A header that env.Ignore names is no input of the pass; without Ignore, it is again."""
    project.write("k.hip", f'#include "a.h"\n#include "b.h"\n{BODY}')
    project.write("a.h", "#define HERE 1\n")
    project.write("b.h", "")
    ignores = f"env.Ignore(env.OffloadDeviceObject('k.hip'), 'a.h')\n{NODES}"
    assert project.sconstruct(ignores).build_once() == ALL
    project.write("a.h", "#define HERE 2\n")
    assert project.build_once() == passes("k.hip", "host")
    project.write("b.h", "#define MORE\n")
    assert project.build_once() == ALL
    project.sconstruct(NODES)
    assert project.build_once() == passes("k.hip", *BOTH)


def test_no_clean(project: Project) -> None:
    """What env.NoClean keeps is current after ``scons -c``: its manifest stays, too."""
    project.sconstruct(f"env.NoClean(env.OffloadHostObject('k.hip'))\n{NODES}")
    assert project.build_once() == ALL
    project.done("-c")
    assert project.build_once() == passes("k.hip", *BOTH)


COPIED = "env.Command('made/{name}', 'given', Copy('$TARGET', '$SOURCE'))\n"
FORMS = {
    "profile": ("k.txt", "env.Append(CCFLAGS=['-fprofile-sample-use=made/k.txt'])\n"),
    "response file": ("k.rsp", "env.Append(CCFLAGS='@made/k.rsp')\n"),
    "attached node": ("k.cfg", "env.Append(CFG=File('made/k.cfg'), CCFLAGS='--config=$CFG')\n"),
    "of passes": (
        "k.cfg",
        "env.Append(OFFLOAD_FLAGS='--config=made/k.cfg', OFFLOAD_HOST_FLAGS='$OFFLOAD_FLAGS')\n",
    ),
}
TEXTS = {"k.txt": "f:{0}:{0}\n 1: {0}\n", "k.rsp": "-DNUMBER={}"}


@pytest.mark.parametrize(("name", "flags"), FORMS.values(), ids=FORMS.keys())
def test_made_by_the_build(project: Project, name: str, flags: str) -> None:
    """A flag's file that the build makes is made before each compile that reads it."""
    project.write("given", TEXTS.get(name, "#{}\n").format(1))
    project.sconstruct(flags + OBJECTS + COPIED.format(name=name))
    assert project.build_once() == ALL
    project.write("given", TEXTS.get(name, "#{}\n").format(2))
    assert project.build_once() == ALL


def test_of_one_target(project: Project) -> None:
    """A file in the flags of one target is an input of its pass alone."""
    project.write("given", "#one\n")
    flags = "env['OFFLOAD_ARCH_FLAGS'] = {'gfx906': '--config=made/k.cfg'}\n"
    project.sconstruct(flags + OBJECTS + COPIED.format(name="k.cfg"))
    assert project.build_once() == ALL
    project.write("given", "#two\n")
    assert project.build_once() == passes("k.hip", "gfx906")


def test_of_a_device_link(project: Project) -> None:
    """A linker script that the build makes is an input of the device link."""
    project.write("given", "{ local: a*; };")
    link = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'], OFFLOAD_RDC=True,\n"
    link += "    OFFLOAD_LINK_FLAGS=['--version-script=made/v.map'])\n"
    project.sconstruct(link + COPIED.format(name="v.map"))
    assert project.build_once() == ALL
    project.write("given", "{ local: b*; };")
    again = project.done()
    assert (again.compiles, "LINK [gfx906] prog.gfx906.co" in again.output) == ([], True)
    project.assert_up_to_date()


_PLACED = "SECTIONS {{ .more : {{ *(.more{}) }} }} INSERT AFTER .text;"
OTHERS = {
    "object of C": ("CCFLAGS='-fprofile-sample-use=made/x'", "f:{0}:{0}\n 1: {0}\n", "runtime.o"),
    "version script": ("LINKFLAGS='-s -Wl,--version-script=made/x'", "{{ local: a{}; }};", "prog"),
    "linker script": ("LINKFLAGS='-T made/x'", _PLACED, "prog"),
    "response file": ("LINKFLAGS='@made/x'", "-Wl,--defsym=x={}", "prog"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_of_other_commands(project: Project, name: str) -> None:
    """A file of the flags of a link, or of C, is made first, and an input of it."""
    flags, text, output = OTHERS[name]
    project.write("given", text.format(1))
    project.sconstruct(
        f"env.OffloadProgram('prog', ['k.hip', 'runtime.c'], {flags})\n"
        "env.Command('made/x', 'given', Copy('$TARGET', '$SOURCE'))\n"
    ).build_once()
    project.write("given", text.format(2))
    assert f"-> {output}" in project.done("-Q").actions
    project.assert_up_to_date()


@pytest.mark.parametrize("word", ["-march=native", "-ffp-contract=fast"])
def test_program_with_the_name_of_a_word(project: Project, word: str) -> None:
    """What a program is made of cannot read it, though a word of the flags is its name."""
    name = word.partition("=")[2]
    flags = f"CCFLAGS=[{word!r}], LINKFLAGS=['-Wl,--defsym=x=main']"
    project.sconstruct(
        f"env.OffloadProgram({name!r}, ['k.hip', 'runtime.c'], {flags})\n"
    ).build_once()


def test_prebuilt_modules(project: Project) -> None:
    """A module in a folder of prebuilt ones is an input, and made first if the build makes it."""
    project.write("m.cppm", "export module m;\nexport constexpr int v = 1;\n")
    project.write("k.cpp", "import m;\nint value() { return v; }\n")
    compile_module = [
        str(own_clang()),
        "-std=c++20",
        "-fopenmp",
        "-nogpulib",
        "--precompile",
        "-o",
        "$TARGET",
    ]
    module = f"env.Command('made/m.pcm', 'm.cppm', {' '.join([*compile_module, '$SOURCE'])!r})\n"
    flags = "env.Append(CXXFLAGS='-std=c++20 -fprebuilt-module-path=made', OFFLOAD_KIND='openmp')\n"
    project.sconstruct(flags + "env.OffloadHostObject('k.cpp')\n" + module)
    assert project.build_once() == ["k.cpp host-ir", "k.host.bc host"]
    before = project.read("k.host.o")
    project.write("m.cppm", "export module m;\nexport constexpr int v = 2;\n")
    assert project.build_once() == ["k.cpp host-ir", "k.host.bc host"]
    assert project.read("k.host.o") != before
