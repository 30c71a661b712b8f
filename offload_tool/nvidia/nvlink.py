"""NVIDIA's device linkers: they link cubins of all sources to one, for one processor.

They are a program and a library::

    nvlink              in a CUDA toolkit, and in NVIDIA's wheel nvidia-cuda-nvcc of CUDA 13
    libnvJitLink.so.NN  in a toolkit, and in the wheels nvidia-nvjitlink(-cu12)

A separate process (`NVJITLINK`) loads the library, which writes to standard error at any time and
may end the process. Inputs are cubins of ``ptxas --compile-only``, and fat binaries with one
source's code for several processors, of which the linker takes the one that fits. Both linkers go
by file suffixes (nvlink 12.9 to 13.5, observed: it silently skips unknown ones), so each input gets
a new name. This module reads archives of these itself; nvlink expects host objects in archives.

Kernels that start kernels need NVIDIA's device runtime, ``libcudadevrt.a``. nvlink links the parts
that earlier inputs reference (12.9 to 13.5, observed). The library would link all of it, needed or
not, and so gets it only after a link without it has failed for lack of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from offload_tool.clang.driver import query
from offload_tool.containers.walk import open_file_or_members
from offload_tool.errors import CodeObjectError, CompilerError
from offload_tool.formats.magic import CUDA_FATBIN, begins
from offload_tool.formats.objects.elf.reader import is_elf
from offload_tool.io import InputFile, StrPath, replace_file
from offload_tool.io.temporary_directory import temporary_output_folder
from offload_tool.passes.cuda import DEVICE_RUNTIME
from offload_tool.toolchain.identity import (
    find_program,
    identity_text,
    nvidia_packages,
    program_identity,
)
from offload_tool.util.escape import printable
from offload_tool.util.frozen import frozen
from offload_tool.util.memoize import memoized
from offload_tool.util.which import which

NVJITLINK = str(Path(__file__).with_name("nvjitlink_process.py"))
RUNTIME_SYMBOL = "__cudaCDP"
"""Part of the names of the functions by which device code starts kernels, of CUDA 12 and later."""
NO_RUNTIME = f"kernels that start kernels need {DEVICE_RUNTIME}, which is not there"
_LONGEST_STEM = 200
"""Characters; file systems allow 255 bytes for a name."""


@frozen
class NvLinker:
    """One of NVIDIA's device linkers."""

    command: tuple[str, ...]
    identity: str
    """Its version text and the digest of its files; goes into signatures."""
    libraries: tuple[str, ...] = ()
    """NVIDIA's device libraries of its installation."""

    def arguments(self, processor: str) -> list[str]:
        """Return the arguments that select the processor."""
        return [f"-arch={processor}", *([] if NVJITLINK in self.command else ["-m64"])]


@memoized(16)
def find_nvlink(
    named: str, toolkit: str, ptxas: str, environ: Mapping[str, str] = os.environ
) -> NvLinker:
    """Find a device linker: the one `named` (program or library), else one on this machine.

    Each installation may have ``nvlink``, else ``libnvJitLink``. The order is that of `ptxas`, the
    directory `toolkit`, PATH, the usual paths, wheels. Raise CompilerError if there is none.
    """
    found = None
    if named.lower() != "none":
        paths = [named] if named else _candidates(toolkit, ptxas, environ)
        commands = (
            (sys.executable, NVJITLINK, path) if ".so" in Path(path).name else (path,)
            for path in paths
        )
        found = find_program("OFFLOAD_NVLINK", named, commands, "unset it to let one be found")
    if found is None:
        raise CompilerError(
            "relocatable CUDA code cannot be linked: neither nvlink nor libnvJitLink is on this "
            "machine; install a CUDA toolkit or NVIDIA's wheel nvidia-nvjitlink (CUDA 12: "
            "nvidia-nvjitlink-cu12), or name one with OFFLOAD_NVLINK"
        )
    command, version = found
    path = command[-1]
    identity = identity_text([f"nvlink {version}", program_identity(which(path) or path)])
    return NvLinker(command, identity, device_libraries(path, toolkit))


def link_cubins(
    output: StrPath,
    linker: Sequence[str],
    inputs: Sequence[StrPath],
    environment: Mapping[str, str],
    libraries: Sequence[str] = (),
) -> None:
    """Link relocatable cubins, fat binaries of them, and archives of both to one cubin.

    `linker` is the command with its arguments. The needed parts of NVIDIA's `libraries` are linked,
    too. Raise CompilerError, with the messages on standard error, and FileError; CodeObjectError or
    FormatError for another input.
    """
    with temporary_output_folder(output, "linked.cubin") as folder:
        named = [*named_inputs(inputs, folder)]
        linked = folder / "linked.cubin"
        first = () if NVJITLINK in linker else libraries
        result = query([*linker, *named, *first, "-o", str(linked)], environment)
        if result.status and not first and RUNTIME_SYMBOL in result.errors:
            result = query([*linker, *named, *libraries, "-o", str(linked)], environment)
        if result.status or not os.path.isfile(linked):
            text = (result.errors + result.output).strip().replace(f"{folder}/", "")
            sys.stderr.writelines(f"{printable(line)}\n" for line in text.splitlines())
            name = "libnvJitLink" if NVJITLINK in linker else Path(linker[0]).name
            why = "its messages are above" if text else "it printed nothing"
            if RUNTIME_SYMBOL in text and not libraries:
                why = NO_RUNTIME
            raise CompilerError(f"{name} cannot link '{output}': {why}")
        sys.stderr.write(result.errors.replace(f"{folder}/", ""))


def named_inputs(inputs: Iterable[StrPath], folder: Path) -> Iterator[str]:
    """Yield files, of inputs and of members of archives, with the suffixes that linkers want."""
    for path in inputs:
        for file in open_file_or_members(path):
            name = f"{Path(path).stem}.{file.names[-1]}" if file.names else Path(path).name
            unused = _unused_path(folder, name, _suffix(file.source, file.label))
            if file.names:
                with replace_file(unused) as out:
                    out.copy(file.source)
            else:
                unused.symlink_to(Path(path).absolute())
            yield str(unused)


def _unused_path(folder: Path, name: str, suffix: str) -> Path:
    """Return an unused name, with characters that all linkers accept."""
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    stem = plain.removesuffix(suffix).lstrip("-")[:_LONGEST_STEM] or "input"
    names = (f"{stem}{number or ''}{suffix}" for number in range(1 << 20))
    return next(folder / name for name in names if not os.path.lexists(folder / name))


def _suffix(source: InputFile, label: str) -> str:
    if is_elf(source.data):
        return ".cubin"
    if begins(source.data, CUDA_FATBIN):
        return ".fatbin"
    raise CodeObjectError(
        f"'{label}': expected a relocatable cubin or a CUDA fat binary, "
        f"found {bytes(source.data[:4])!r}"
    )


def _candidates(toolkit: str, ptxas: str, environ: Mapping[str, str]) -> list[str]:
    """Return the linkers to try, `ptxas`'s own first: others may reject its output."""
    usual = environ.get("CUDA_PATH", ""), "/usr/local/cuda"
    path = environ.get("PATH")
    named = [_installation(ptxas, path), toolkit, _installation("nvlink", path), *usual]
    folders = [Path(name) for name in named if name]
    for package in nvidia_packages():
        folders += [*sorted(package.glob("cu[0-9]*")), package / "nvjitlink"]
    return list(dict.fromkeys(name for folder in folders for name in _linkers_in(folder)))


def _installation(program: str, path: str | None) -> str:
    found = which(program, path) if program else None
    return os.path.dirname(os.path.dirname(os.path.realpath(found))) if found else ""


def _linkers_in(folder: Path) -> list[str]:
    program = str(folder / "bin/nvlink")
    libraries = sorted(map(str, folder.glob("lib*/libnvJitLink.so*")), reverse=True)
    return [program, *libraries] if os.access(program, os.X_OK) else libraries


def device_libraries(linker: str, toolkit: str) -> tuple[str, ...]:
    """Return the device functions' library in the installation of `linker`, or in `toolkit`."""
    own = Path(os.path.realpath(linker)).parent.parent
    folders = [own] if linker else []
    folders += [Path(toolkit)] if toolkit else []
    folders += [own.parent / "cuda_runtime"] if linker else []
    found = (folder / name / DEVICE_RUNTIME for folder in folders for name in ("lib64", "lib"))
    return tuple(str(path) for path in found if os.path.isfile(path))[:1]
