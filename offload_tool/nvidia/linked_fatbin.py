"""The two objects that hold a program's relocatable CUDA code.

::

    one.host.o (entries) --------+
    two.o (calls for its own) ---+-- program
    prog.fatbin.o ---------------+      the linked fat binary, and those of the sources
    prog.registration.o ---------+      cuda_registration.c: registers all of them

The first one::

    .nv_fatbin       __offload_cuda_fatbin:        the fat binary with an image per target ID
    __nv_relfatbin                                 the fat binaries of sources, 16-aligned each
    .data.rel.ro     __offload_cuda_sources:       pointers to these, and 0

If a kernel starts kernels, it also refers to NVIDIA's device runtime, so that the linker takes that
from its library. The CUDA driver needs it if it links the sources for a later device.

The sections have nvcc's names, so that NVIDIA's tools find all code in the program. Pointers lead
to each fat binary, so that a tool may shorten one, and remove the pages behind it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from offload_tool import passes
from offload_tool.clang.driver import run_checked
from offload_tool.containers.find import find_containers
from offload_tool.containers.walk import open_file_or_members
from offload_tool.errors import (
    CodeObjectError,
    CompilerError,
    FormatError,
    NoContainerError,
    UsageError,
)
from offload_tool.formats.cuda.object_section import ALIGNMENT, RELOCATABLE_SECTION, SECTION
from offload_tool.formats.host_symbols import CudaHostCode, cuda_host_code, union
from offload_tool.formats.objects.elf.reader import is_elf, read_elf_tables
from offload_tool.io import StrPath
from offload_tool.io.temporary_directory import temporary_folder, temporary_output_folder
from offload_tool.nvidia.nvlink import NO_RUNTIME, RUNTIME_SYMBOL
from offload_tool.passes.source_kind import language_flags
from offload_tool.toolchain.probe import Toolchain

SOURCE = str(Path(passes.__file__).with_name("runtime") / "cuda_registration.c")
_MODULE_ID = re.compile(r"\w+", re.ASCII)
_SYMBOL_BYTES = RUNTIME_SYMBOL.encode()
_SYMBOL = "__offload_cuda_"


def read_cuda_host_files(paths: Iterable[StrPath]) -> CudaHostCode:
    """Read the relocatable CUDA code of host objects and archives.

    Raise CodeObjectError for kernels that nothing registers; FormatError, FileError.
    """
    found = CudaHostCode()
    for path in paths:
        for file in open_file_or_members(path):
            if not is_elf(file.source.data):
                continue
            code = cuda_host_code(read_elf_tables(file.source.data, path=file.label))
            if code.unregistered:
                raise CodeObjectError(
                    f"'{file.label}': no code registers the kernel {min(code.unregistered)}; was "
                    "it compiled as CUDA, with relocatable device code?"
                )
            found = union(found, code)
    return found


def compile_registration(
    output: StrPath,
    command: Sequence[str],
    environment: Mapping[str, str],
    host_files: Iterable[StrPath] = (),
    runtimes: Iterable[StrPath] = (),
) -> None:
    """Compile the object that registers entries, and the modules that `host_files` reference.

    `command` is the prefix of a host compile. The modules of the libraries `runtimes`, which the
    link takes for code that starts kernels, are registered, too. Raise CompilerError, and errors of
    `read_cuda_host_files`.
    """
    ids = dict.fromkeys([*_module_ids(host_files), *_module_ids(runtimes)])
    modules = " ".join(f"X({name})" for name in ids)
    with temporary_output_folder(output, "registration.o") as folder:
        # A file, as the list may exceed the length of a command.
        source = folder / "registration.c"
        text = f"#define MODULES {modules}\n"
        text += Path(SOURCE).read_text(encoding="utf-8")
        source.write_text(text, encoding="utf-8")
        flags = [*language_flags(SOURCE), "-O2", "-fPIC", "-c", str(source)]
        args = [*command, *flags, "-o", f"{folder}/registration.o"]
        run_checked("the object that registers CUDA code", args, environment)


def _module_ids(paths: Iterable[StrPath]) -> list[str]:
    ids = read_cuda_host_files(paths).unresolved
    for name in ids:
        if not _MODULE_ID.fullmatch(name):
            raise FormatError(f"expected a CUDA module ID that C can name, found {name!r}")
    return ids


def starts_kernels(path: StrPath) -> bool:
    """Return whether device code in a file starts kernels, and so needs the device runtime."""
    try:
        return any(
            image.refusal(found.label) is None and _SYMBOL_BYTES in bytes(image.content.view())
            for found in find_containers(path, confined=False)
            for image in found.images
            if image.kind == "cuda"
        )
    except NoContainerError:
        return False


def embed_fat_binaries(
    output: StrPath,
    command: Sequence[str],
    environment: Mapping[str, str],
    linked: StrPath,
    sources: Sequence[StrPath] = (),
    *,
    others: Sequence[StrPath] = (),
    runtimes: Sequence[StrPath] = (),
    library: str = "",
) -> None:
    """Write the object with a program's `linked` fat binary and those of its `sources`.

    `command` is the prefix of a run of the host assembler. If the sources, or device code in the
    files `others`, start kernels, the object refers to the modules of the libraries `runtimes`.
    `library` is as in `registration.library_flags`. Raise CompilerError, also without a runtime.
    """
    modules: list[str] = []
    if any(map(starts_kernels, (*sources, *others))):
        modules = _module_ids(runtimes)
        if not modules:
            raise CompilerError(f"'{output}': {NO_RUNTIME}; name it among the sources")
    with temporary_output_folder(output, "fatbin.o") as folder:
        names = []
        for number, path in enumerate([linked, *sources]):
            name = folder / f"{number}.fatbin"  # a name that needs no escapes in assembly
            name.symlink_to(Path(path).absolute())
            names.append(str(name))
        text = folder / "fatbin.s"
        text.write_text(_assembler_text(names[0], names[1:], modules, library), encoding="utf-8")
        args = [*command, "-c", str(text), "-o", f"{folder}/fatbin.o"]
        run_checked("the object with the fat binaries of CUDA", args, environment)


def write_linked_cuda(
    toolchain: Toolchain,
    linked: StrPath,
    sources: Sequence[StrPath],
    host_files: Sequence[StrPath],
    output: StrPath,
) -> None:
    """Write both objects as one, for `host_files`; raise UsageError, CompilerError.

    Other errors are those of `read_cuda_host_files`.
    """
    found = read_cuda_host_files(host_files)
    if not (found.has_entries or found.unresolved):
        listed = ", ".join(f"'{name}'" for name in host_files)
        raise UsageError(f"no host object has relocatable CUDA code to register (in {listed})")
    environment = os.environ | dict(toolchain.environment)
    with temporary_folder() as folder:
        parts = [str(folder / name) for name in ("fatbin.o", "registration.o")]
        embed_fat_binaries(
            parts[0],
            toolchain.cc,
            environment,
            linked,
            sources,
            others=host_files,
            runtimes=host_files,
        )
        compile_registration(parts[1], toolchain.cc, environment, host_files)
        join = [*toolchain.lld, "-r", *parts, "-o", str(output)]
        run_checked("the object with linked CUDA code", join, environment)


def _assembler_text(
    linked: str, sources: Sequence[str], modules: Iterable[str], library: str
) -> str:
    end = f"_{library}" if library else ""
    lines = [f'.section {SECTION},"a",%progbits', *_labelled(f"fatbin{end}")]
    lines.append(f'.incbin "{linked}"')
    lines += [f'.section {RELOCATABLE_SECTION},"a",%progbits']
    for number, name in enumerate(sources):
        lines += [f".balign {ALIGNMENT}", f".Lsource{number}:", f'.incbin "{name}"']
    lines += ['.section .data.rel.ro,"aw",%progbits', *_labelled(f"sources{end}")]
    lines += [f".quad .Lsource{number}" for number in range(len(sources))]
    lines += [".quad 0", *(f".quad __fatbinwrap{name}" for name in modules)]
    lines += ['.section .note.GNU-stack,"",%progbits']
    return "\n".join([*lines, ""])


def _labelled(name: str) -> list[str]:
    symbol = f"{_SYMBOL}{name}"
    return [f".balign {ALIGNMENT}", f".hidden {symbol}", f".globl {symbol}", f"{symbol}:"]
