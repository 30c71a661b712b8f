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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from offload_tool.clang.driver import run_checked
from offload_tool.io import StrPath
from offload_tool.io.temporary_directory import temporary_folder, temporary_output_folder
from offload_tool.passes.source_kind import language_flags
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.frozen import frozen

SOURCE = str(Path(__file__).with_name("runtime") / "hip_registration.c")


_SECTIONS = ("llvm_offload_entries", "hip_offloading_entries", "cuda_offloading_entries")
_TAKEN = "*(.llvm.offloading) *(__CLANG_OFFLOAD_BUNDLE__*)"
"""Sections with the device code that is linked."""
_SYMBOLS = (
    *("__hip_fatbin", "__hip_gpubin_handle", "__offload_cuda_fatbin", "__offload_cuda_sources"),
    *(f"__{end}_{name}" for name in _SECTIONS for end in ("start", "stop")),
)
"""What a program has once, and each library with a device link of its own."""


def library_flags(library: str) -> list[str]:
    """Return the flags with which a registration serves the `library` with this ID alone."""
    return [f"-D{name}={name}_{library}" for name in _SYMBOLS] if library else []


def merge_library(
    output: StrPath,
    linker: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[StrPath],
    libraries: Sequence[StrPath],
    library: str,
) -> None:
    """Write a library's host objects and registration as one object; raise CompilerError.

    Its entries get a section of their own, which no other walks and no link drops.
    """
    lines = ["SECTIONS {"]
    for name in _SECTIONS:
        begin, end = (f"__{each}_{name}_{library} = .;" for each in ("start", "stop"))
        lines.append(f"  {name}_{library} : {{ {begin} *({name}) {end} }}")
    with temporary_output_folder(output, "library.o") as folder:
        script = folder / "entries.ld"
        lines.append(f"  /DISCARD/ : {{ {_TAKEN} }}\n}}\n")
        script.write_text("\n".join(lines), encoding="utf-8")
        whole = ["--whole-archive", *map(str, libraries), "--no-whole-archive"]
        args = [*linker, "-r", "-T", str(script), *map(str, files), *whole]
        args += ["-o", f"{folder}/library.o"]
        run_checked("the object with linked device code", args, environment)


def compile_flags(*, is_marker: bool = False, library: str = "") -> list[str]:
    """Return the flags for `SOURCE` with a bundle or a marker; `library` as in `library_flags`."""
    return [
        *language_flags(SOURCE),
        "-O2",
        "-fPIC",
        *(["-DOFFLOAD_WRAPPER=0x4B504948"] if is_marker else []),
        *library_flags(library),
        "-c",
    ]


def write_registration(toolchain: Toolchain, objects: Sequence[StrPath], output: StrPath) -> None:
    """Write the object, joined with others; raise CompilerError."""
    what = "the object that registers HIP code"
    environment = os.environ | dict(toolchain.environment)
    with temporary_folder() as folder:
        made = str(folder / "registration.o")
        run_checked(what, [*toolchain.cc, *compile_flags(), SOURCE, "-o", made], environment)
        join = [*toolchain.lld, "-r", *map(str, objects), made, "-o", str(output)]
        run_checked(what, join, environment)


@frozen
class HostCompiler:
    """Compiles modules in LLVM IR with clang, by the prefix of a host compile."""

    command: Sequence[str]
    environment: Mapping[str, str]

    def assemble(self, text: Iterable[str], triple: str, /) -> bytes:
        """Return the bitcode of a module; raise CompilerError, as does the other method."""
        return self._compiled(text, triple, "-emit-llvm")

    def compile_object(self, text: str, triple: str, /) -> bytes:
        """Return the object of a module: position-independent, unoptimised."""
        return self._compiled([text], triple, "-fPIC")

    def _compiled(self, text: Iterable[str], triple: str, flag: str) -> bytes:
        with temporary_folder() as folder:
            module, made = folder / "registration.ll", folder / "registration.o"
            with module.open("w", encoding="utf-8") as file:
                file.writelines(text)
            flags = [f"--target={triple}", "-x", "ir", "-O0", flag, "-Wno-override-module", "-c"]
            args = [*self.command, *flags, str(module), "-o", str(made)]
            run_checked("the module that registers images", args, self.environment)
            return made.read_bytes()
