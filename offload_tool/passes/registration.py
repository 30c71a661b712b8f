"""The object that registers a program's HIP code if its host objects do not.

`SOURCE` is compiled for the host once per program; it depends on no device or host code. It is
linked together with the object with the program's bundle (`operations.embed`)::

    one.host.o (entries) --+
    two.host.o (a symbol) -+-- program
    prog.fatbin.o ---------+      the bundle, under the symbols that any of them references
    prog.registration.o ---+      SOURCE: registers all entries
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.driver import run_checked
from offload_tool.io import StrPath
from offload_tool.passes.source_kind import language_flags

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

SOURCE = str(Path(__file__).with_name("runtime") / "hip_registration.c")


def compile_flags(*, is_marker: bool = False) -> list[str]:
    """Return the flags with which ``Toolchain.cc`` compiles `SOURCE`.

    With `is_marker` a kpack marker replaces the bundle.
    """
    return [
        *language_flags(SOURCE),
        "-O2",
        "-fPIC",
        *(["-DOFFLOAD_WRAPPER=0x4B504948"] if is_marker else []),
        "-c",
    ]


def write_registration(toolchain: Toolchain, objects: Sequence[StrPath], output: StrPath) -> None:
    """Write the object, joined with others.

    :raises CompilerError: the compiler, or its linker, failed.
    """
    from offload_tool.io.temporary_directory import temporary_folder

    what = "the object that registers HIP code"
    environment = os.environ | dict(toolchain.environment)
    with temporary_folder() as folder:
        made = str(folder / "registration.o")
        run_checked(what, [*toolchain.cc, *compile_flags(), SOURCE, "-o", made], environment)
        join = [*toolchain.lld, "-r", *map(str, objects), made, "-o", str(output)]
        run_checked(what, join, environment)


def compile_text(command: Sequence[str], environment: Mapping[str, str], text: str) -> bytes:
    """Return the object of a module in LLVM IR: position-independent, unoptimised.

    `command` is the prefix of a host compile.

    :raises CompilerError: the compiler failed.
    """
    from offload_tool.io.temporary_directory import temporary_folder

    with temporary_folder() as folder:
        module, made = folder / "registration.ll", folder / "registration.o"
        module.write_text(text, encoding="utf-8")
        flags = ["-x", "ir", "-O0", "-fPIC", "-Wno-override-module", "-c"]
        args = [*command, *flags, str(module), "-o", str(made)]
        run_checked("the object that registers images", args, environment)
        return made.read_bytes()
