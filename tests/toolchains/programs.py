"""The programs, how a user builds each, and what it must register.

Their sources are in ``programs/<name>``; ``device.h`` is put beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Program:
    """One program, and how much it registers."""

    name: str
    lines: str
    """What its SConstruct has after the README's ``env = Environment(...)``."""
    calls: dict[str, int]
    """How many calls of each sort; -1: at least one, as a library of headers decides."""
    own: tuple[str, ...] = ()
    """How clang builds it by itself: flags and sources. Nothing: not with one command."""
    modules: tuple[str, ...] = ()
    """Fat binaries that are built beside it, to be loaded when a program runs."""
    sources: str = ""
    """The folder of its sources, where it is not called like the program."""

    @property
    def folder(self) -> Path:
        return FOLDER / (self.sources or self.name)


RDC = 'env["OFFLOAD_RDC"] = True\n'
PROGRAMS = [
    Program(
        "saxpy",
        "",  # the README's own lines, and sources
        {"binary": 1, "function": 1},
        own=("saxpy.hip", "main.o"),  # plain C++ is compiled as such, in both
        modules=("kernels.hipfb",),
    ),
    Program(
        "primitives",
        'env.OffloadProgram("primitives", ["reduce.hip", "sort.hip"], LIBS=["amdhip64"])\n',
        {"binary": 2, "function": -1},
        own=("reduce.hip", "sort.hip"),
    ),
    Program(
        "rdc",
        RDC + 'env.OffloadProgram("rdc", Glob("*.hip"), LIBS=["amdhip64"])\n',
        {"binary": 1, "function": 2, "variable": 3},
        own=("-fgpu-rdc", "constants.hip", "forces.hip", "main.hip"),
    ),
    Program(
        "textures",
        'env.OffloadProgram("textures", "textures.hip", LIBS=["amdhip64"])\n',
        {"binary": 1, "function": 1, "variable": 1},
        own=("textures.hip",),
    ),
    Program(
        "cooperative",
        'env.OffloadProgram("cooperative", "groups.hip", LIBS=["amdhip64"])\n',
        {"binary": 1, "function": 1},
        own=("groups.hip",),
    ),
    Program(
        "virtual_functions",
        'env.OffloadProgram("virtual_functions", "shapes.hip", LIBS=["amdhip64"])\n',
        {"binary": 1, "function": 3},
        own=("shapes.hip",),
    ),
    Program(
        "printf_assert",
        'env.OffloadProgram("printf_assert", "talk.hip", LIBS=["amdhip64"])\n',
        {"binary": 1, "function": 1},
        own=("talk.hip",),
    ),
    Program(
        "managed",
        'env["OFFLOAD_COMPRESS"] = "zstd"\n'
        'env.OffloadProgram("managed", "managed.hip", LIBS=["amdhip64"])\n',
        {"binary": 1, "function": 1, "managed": 2},
        own=("managed.hip",),
    ),
    Program(
        "shared_library",
        'env.OffloadSharedLibrary("filter", "filter.hip", LIBS=["amdhip64"])\n'
        'env.OffloadProgram("shared_library", "main.hip", LIBS=["filter", "amdhip64"], '
        'LIBPATH=["."], RPATH=[Dir(".").abspath])\n',
        {"binary": 2, "function": 2, "variable": 1},
        own=("main.hip", "filter.hip"),
    ),
    Program(
        "complete_library",
        'library = env.OffloadStaticLibrary("filter", "filter.hip")\n'
        'env.OffloadProgram("complete_library", ["main.hip", library], LIBS=["amdhip64"])\n',
        {"binary": 2, "function": 2, "variable": 1},
        own=("main.hip", "filter.hip"),
        sources="shared_library",
    ),
    Program(
        "static_library",
        RDC + 'library = env.OffloadArchive("dot", ["dot.hip", "product.hip"])\n'
        'env.OffloadProgram("static_library", ["main.hip", library], LIBS=["amdhip64"])\n',
        {"binary": 1, "function": 2, "variable": 1},
        own=("-fgpu-rdc", "dot.hip", "product.hip", "main.hip"),
    ),
    Program(
        "modules",
        'env.OffloadBundle("kernels.hipfb", "kernels.hip")\n'
        "env.MergeFlags(env.OffloadRocmFlags())\n"
        'env.OffloadProgram("modules", "main.cpp")\n',
        {"module": 1},
        modules=("kernels.hipfb",),
    ),
]
