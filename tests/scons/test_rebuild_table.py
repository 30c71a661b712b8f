"""The table of docs/rebuilds.md: each cell is what a real build did after that change."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.passes.openmp import host_runtime
from offload_tool.scons.pch import PCH_FOLDER
from tests.conftest import ROOT, found_toolchain, missing
from tests.scons.conftest import RUNTIME as HIP_RUNTIME
from tests.scons.conftest import Run, empty_project, environment, flagged_clang
from tests.scons.judging import own_clang
from tests.scons.nvidia import RUNTIME as CUDA_RUNTIME
from tests.scons.nvidia import write_tools
from tests.scripts import reporting_clang

PAGE = (ROOT / "docs/rebuilds.md").read_text()
SOURCES, TARGETS = 2, 3

COMMON = """\
#define __global__ __attribute__((global))
struct dim3 { unsigned x, y, z; };
extern "C" int RUNTIMELaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
"""
KERNEL = """\
__global__ void NAME(int* p) { *p = SHARED + SPECIAL; }
int host_NAME() { return HOST; }
"""
REGION = """\
int NAME(void) {
  int value = 0;
#pragma omp target map(from : value)
  value = SHARED + SPECIAL;
  return value + HOST;
}
"""
# The first source has a header for one target alone, and one for the host alone.
ONE = """\
#include "common.h"
#include "shared.h"
#if ONE_TARGET
#include "special.h"
#else
#define SPECIAL 0
#endif
#if ANY_DEVICE
#define HOST 0
#else
#include "host.h"
#endif
"""
TWO = """\
#include "common.h"
#include "shared.h"
#define SPECIAL 0
#define HOST 0
"""
MAIN = "int main(void) { return 0; }\n"
RUNTIMES = {"hip": HIP_RUNTIME, "cuda": CUDA_RUNTIME + MAIN}
SCONSTRUCT = f"""\
{environment(OFFLOAD_PTXAS="none")}
env.Replace(**{{variables!r}})
env.OffloadProgram("prog", {{sources!r}})
"""
# A third user, which is not built.
UNUSED = """\
from offload_tool.scons import pch
pch.SMALLEST = 0
env.OffloadDeviceObject("unused.hip")
env.OffloadHostObject("unused.hip")
Default("prog")
"""


@dataclass(frozen=True)
class Language:
    """How the same project is written in one language."""

    suffix: str
    targets: tuple[str, ...]
    added: str
    one_target: str
    any_device: str
    runtime: str = ""
    flags: tuple[str, ...] = ()
    new_driver: bool = False
    """Whether clang compiles with its new offload driver."""
    variables: Mapping[str, object] = field(default_factory=dict)
    pch: bool = False
    """Whether passes use precompiled headers."""
    arch_flags: tuple[str, ...] = ("-O1",)
    """What changes the code of one target."""


CUDA = functools.partial(
    Language,
    *(".cu", ("sm_70", "sm_80", "sm_90"), "sm_86"),
    one_target="__CUDA_ARCH__ == 800",
    any_device="defined(__CUDA_ARCH__)",
    runtime="cuda",
    flags=("-nocudainc", "-nocudalib"),
)
GPUS = {"targets": ("gfx906", "gfx90a:xnack+", "gfx1100"), "added": "gfx1030"}
HIP = functools.partial(
    Language,
    *(".hip", GPUS["targets"], GPUS["added"]),
    one_target="defined(__gfx90a__)",
    any_device="defined(__HIP_DEVICE_COMPILE__)",
    runtime="hip",
    flags=("-nogpuinc", "-nogpulib"),
)
LANGUAGES = {
    "HIP": HIP(),
    "HIP, relocatable": HIP(variables={"OFFLOAD_RDC": True}),
    "HIP, apart": HIP(variables={"OFFLOAD_KPACK": "demo"}),
    "HIP, relocatable, apart": HIP(variables={"OFFLOAD_KPACK": "demo", "OFFLOAD_RDC": True}),
    "HIP, new driver": HIP(new_driver=True),
    "HIP, precompiled headers": HIP(
        pch=True,
        arch_flags=("-mcode-object-version=4",),
        variables={"OFFLOAD_PCH": True, "CCFLAGS": ["-O1"], "CPPPATH": ["."]},
    ),
    "OpenMP": Language(
        *(".c", GPUS["targets"], GPUS["added"]),
        one_target="defined(__gfx90a__)",
        any_device="defined(__AMDGCN__)",
        flags=("-nogpulib",),
        variables={
            "OFFLOAD_KIND": "openmp",
            # Not every compiler brings the device runtime, and no one runs this program.
            "OFFLOAD_DEVICE_RUNTIME": [],
            "OFFLOAD_LINK_FLAGS": ["--unresolved-symbols=ignore-all"],
        },
    ),
    "CUDA": CUDA(),
    # With stand-ins for NVIDIA's assembler and linker.
    "CUDA, relocatable": CUDA(variables={"OFFLOAD_RDC": True, "OFFLOAD_PTXAS": ""}),
}


@dataclass(frozen=True)
class Counts:
    """What one run of scons did."""

    device: int
    host: int
    later: int
    """Bundles, packages, device links, registration, and the link of the program."""

    def __str__(self) -> str:
        return f"{self.device} / {self.host} / {self.later}"


class Tree:
    """A project that is changed again and again."""

    def __init__(self, folder: Path, language: Language) -> None:
        self.language = language
        self.project = empty_project(folder)
        self.variables: dict[str, object] = {
            "OFFLOAD_ARCH": list(language.targets),
            "OFFLOAD_FLAGS": list(language.flags),
            "OFFLOAD_HOST_FLAGS": list(language.flags),
            "OFFLOAD_LAUNCHER": str(self.project.folder / "count"),
            **language.variables,
        }
        write_tools(self.project)
        self.compiler = ""
        if language.new_driver:
            self.compiler = str(flagged_clang(self.project.folder))
            self.project.environment["OFFLOAD_CLANG"] = self.compiler
        self.sources = [f"{name}{language.suffix}" for name in ("one", "two")]
        body, common, main = REGION, "", MAIN
        if language.runtime:  # a stand-in, which has the main function
            self.project.write("runtime.c", RUNTIMES[language.runtime])
            self.sources.append("runtime.c")
            body, common, main = KERNEL, COMMON.replace("RUNTIME", language.runtime), ""
        self.project.write("common.h", common)
        self.project.write("shared.h", "#define SHARED 1\n")
        self.project.write("special.h", "#define SPECIAL 1\n")
        self.project.write("host.h", "#define HOST 1\n")
        head = ONE.replace("ONE_TARGET", language.one_target)
        head = head.replace("ANY_DEVICE", language.any_device)
        texts = [head + body.replace("NAME", "one"), TWO + body.replace("NAME", "two") + main]
        if language.pch:
            texts = [text.replace('"common.h"', "<common.h>") for text in texts]
            texts = [text.replace('"shared.h"', "<shared.h>") for text in texts]
            self.project.write("unused.hip", texts[1])
        self.one = self.project.write(self.sources[0], texts[0])
        self.project.write(self.sources[1], texts[1])

    def build(self) -> Counts:
        """Build, then build again, which must do nothing."""
        script = SCONSTRUCT.format(variables=self.variables, sources=self.sources)
        self.project.write("SConstruct", script + UNUSED * self.language.pch)
        run = self.project.run("-Q")
        assert run.status == 0, run.output + run.errors
        again = self.project.run("--debug=explain", "-Q")
        assert (again.status, again.compiles, again.up_to_date) == (0, [], True), again.output
        return counts(run)

    def set(self, **variables: object) -> None:
        self.variables.update(variables)


def counts(run: Run) -> Counts:
    hosts = [name for name in run.compiles if name.endswith((" host", " host-ir"))]
    # C and C++ sources are compiled as everywhere in SCons: the one of the stand-in runtime.
    later = [
        action
        for action in run.actions
        if not re.match(r"(HIP|OPENMP|CUDA) \[", action) and action != "-> runtime.o"
    ]
    return Counts(len(run.compiles) - len(hosts), len(hosts), len(later))


def next_compiler(tree: Tree) -> None:
    """Let a script that reports another version stand before the compiler."""
    own_clang()
    clang = find_toolchain(clang=tree.compiler)
    tree.project.environment["OFFLOAD_CLANG"] = reporting_clang(
        tree.project.folder / "clang-next", shlex.join(clang.clang), f"{clang.major}.99.0"
    )


def launcher(tree: Tree) -> None:
    other = tree.project.folder / "other"
    shutil.copy(tree.project.folder / "count", other)
    tree.set(OFFLOAD_LAUNCHER=str(other))


def write(name: str, text: str) -> Callable[[Tree], object]:
    return lambda tree: tree.project.write(name, text)


# In this order, in one tree: the builds before are part of what a change meets.
CHANGES: dict[str, Callable[[Tree], object]] = {
    "the first build": lambda tree: None,
    "nothing": lambda tree: None,
    "`OFFLOAD_ARCH_FLAGS` of one target": lambda tree: tree.set(
        OFFLOAD_ARCH_FLAGS={tree.language.targets[0]: list(tree.language.arch_flags)}
    ),
    "a target added to `OFFLOAD_ARCH`": lambda tree: tree.set(
        OFFLOAD_ARCH=[*tree.language.targets, tree.language.added]
    ),
    "the order of `OFFLOAD_ARCH`": lambda tree: tree.set(
        OFFLOAD_ARCH=[tree.language.added, *reversed(tree.language.targets)]
    ),
    "a target removed": lambda tree: tree.set(OFFLOAD_ARCH=list(tree.language.targets)),
    "`OFFLOAD_FLAGS`": lambda tree: tree.set(OFFLOAD_FLAGS=[*tree.language.flags, "-DX=1"]),
    "`OFFLOAD_HOST_FLAGS`": lambda tree: tree.set(
        OFFLOAD_HOST_FLAGS=[*tree.language.flags, "-DX=1"]
    ),
    "a header that every pass reads": write("shared.h", "#define SHARED 2\n"),
    "a header that one target reads, of one source": write("special.h", "#define SPECIAL 2\n"),
    "a header that the host reads, of one source": write("host.h", "#define HOST 2\n"),
    "a comment at the end of a source": lambda tree: tree.one.write_text(
        tree.one.read_text() + "// a comment\n"
    ),
    "a comment that moves a source's lines": lambda tree: tree.one.write_text(
        "// a comment\n" + tree.one.read_text()
    ),
    "a source saved anew with the same content": lambda tree: tree.project.save_anew(tree.one.name),
    "`OFFLOAD_BUNDLE_ALIGN`": lambda tree: tree.set(OFFLOAD_BUNDLE_ALIGN=256),
    "`OFFLOAD_COMPRESS`": lambda tree: tree.set(OFFLOAD_COMPRESS="zstd"),
    "`OFFLOAD_KPACK_COMPRESS`": lambda tree: tree.set(OFFLOAD_KPACK_COMPRESS="none"),
    "`OFFLOAD_LAUNCHER`": launcher,
    "the compiler's version": next_compiler,
}

# What DESIGN promises: (device, host) compiles.
N, M = SOURCES, TARGETS
PROMISES = dict.fromkeys(CHANGES, (0, 0)) | {
    "the first build": (N * M, N),
    "`OFFLOAD_ARCH_FLAGS` of one target": (N, 0),
    "a target added to `OFFLOAD_ARCH`": (N, 0),
    "`OFFLOAD_FLAGS`": (N * M, 0),
    "`OFFLOAD_HOST_FLAGS`": (0, N),
    "a header that every pass reads": (N * M, N),
    "a header that one target reads, of one source": (1, 0),
    "a header that the host reads, of one source": (0, 1),
    "a comment at the end of a source": (M, 1),
    "a comment that moves a source's lines": (M, 1),
    "the compiler's version": (N * M, N),
}


def page_table() -> dict[str, dict[str, str]]:
    """Read the page's table: {change: {language: cell}}."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    header = rows[0]
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows[1:]}


VARIANTS = (", new driver", ", precompiled headers")
COLUMNS = [name for name in LANGUAGES if not name.endswith(VARIANTS)]
"""The page says that the numbers of the others are the same."""
ALIKE = re.compile(
    r"`OFFLOAD_((HOST_)?FLAGS|.*COMPRESS|BUNDLE_ALIGN|LAUNCHER)`|nothing|.*(order|lines|same)"
)
OF_VARIANTS = [change for change in CHANGES if not ALIKE.match(change)]
"""What is tried of a variant: changes after which it compiles in its own way."""
CELLS = [
    pytest.param(change, language, id=f"{change}-{language}")
    for change in CHANGES
    for language in LANGUAGES
    if language in COLUMNS or change in OF_VARIANTS
]
TABLE = page_table()
CELL = re.compile(r"(?P<counts>(?P<device>\d+) / (?P<host>\d+) / \d+)(?: \((?P<note>[a-z])\))?")


@pytest.fixture(scope="module")
def measure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], dict[str, Counts]]]:
    """Make all changes, once per language that is asked for; return what looks up the counts."""
    cells = [item for item in request.session.items if item.path == request.path]
    asked = {cell.callspec.params["language"] for cell in cells if hasattr(cell, "callspec")}

    def make_all(name: str) -> dict[str, Counts]:
        toolchain = found_toolchain()
        if name == "OpenMP" and host_runtime(toolchain) is None:
            missing("LLVM's offload runtime (liboffload-dev, libomp-dev)")
        tree = Tree(folders[name] / "project", LANGUAGES[name])
        found = {}
        for change in CHANGES if name in COLUMNS else OF_VARIANTS:
            CHANGES[change](tree)
            found[change] = tree.build()
        if LANGUAGES[name].pch:
            assert len(list((tree.project.folder / PCH_FOLDER).glob("*.pch"))) >= TARGETS + 1
        return found

    # Here, because pytest makes the folder around them without a lock.
    folders = {name: tmp_path_factory.mktemp("tree") for name in LANGUAGES}
    with ThreadPoolExecutor(max_workers=2) as pool:
        running = {name: pool.submit(make_all, name) for name in LANGUAGES if name in asked}
        yield lambda name: running[name].result()


@pytest.mark.parametrize(("change", "language"), CELLS)
def test_page_says_what_a_build_does(
    change: str, language: str, measure: Callable[[str], dict[str, Counts]]
) -> None:
    """After each change, the build does what the page's cell says, and then nothing more."""
    column = functools.reduce(str.removesuffix, VARIANTS, language)
    cell = TABLE[change][column]
    match = CELL.fullmatch(cell)
    assert match is not None, cell
    assert str(measure(language)[change]) == match["counts"]


@pytest.mark.parametrize("language", COLUMNS)
@pytest.mark.parametrize("change", CHANGES)
def test_promises_hold_or_the_page_says_why(change: str, language: str) -> None:
    """A cell that differs from the promise points to a reason on the page; no other does."""
    match = CELL.fullmatch(TABLE[change][language])
    assert match is not None, TABLE[change][language]
    kept = (int(match["device"]), int(match["host"])) == PROMISES[change]
    assert kept == (match["note"] is None)
    if match["note"]:
        assert re.search(rf"^\({match['note']}\) \S", PAGE, re.MULTILINE)


def test_table_is_complete() -> None:
    """The page has every change that is tried, for every language, and no others."""
    assert list(TABLE) == list(CHANGES) == list(PROMISES)
    assert all(list(row) == COLUMNS for row in TABLE.values())
