"""Pack a compiler into an archive that runs on a machine with nothing but a kernel.

A compile server unpacks it as the root directory of each compile::

    usr/lib/llvm-22/bin/clang                    programs, under their local paths
    usr/lib/llvm-22/bin/lld
    usr/lib/llvm-22/lib/libclang-cpp.so.22.1 ->  every symbolic link on the path of a file
    usr/lib/x86_64-linux-gnu/libclang-cpp.so.22.1
    lib -> usr/lib, lib64 -> usr/lib64           the loader's path
    tmp/                                         clang's temporary files, which lld links

sccache's own packer leaves out lld, without which no device code can be linked. Equal inputs give
equal bytes: names are sorted, times and owners are zero.
"""

from __future__ import annotations

import gzip
import os
import shlex
import tarfile
from collections.abc import Iterable
from typing import TYPE_CHECKING

from offload_tool.errors import CompilerError
from offload_tool.io import OutputFile
from offload_tool.io.paths import naming
from offload_tool.toolchain.programs import interpreter_of, libraries_of
from offload_tool.util.which import which

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

_LEVEL = 1  # of gzip: a tenth larger than at 6, in a third of the time


def compiler_programs(toolchain: Toolchain) -> list[str]:
    """Return the files that a device compile opens, the compiler first, and its configuration.

    :raises CompilerError: the compiler is not a single program file.
    """
    clang = os.path.abspath(which(toolchain.clang[0]) or toolchain.clang[0])
    is_program = os.path.realpath(clang) in map(os.path.realpath, toolchain.programs)
    if len(toolchain.clang) != 1 or not is_program:
        raise CompilerError(
            f"'{shlex.join(toolchain.clang)}' ({toolchain.origin}) cannot be distributed: expected "
            "the clang program itself, not a launcher, a script or options; name it by --clang"
        )
    return list(dict.fromkeys([clang, *toolchain.programs, *toolchain.configuration]))


def pack_programs(programs: Iterable[str], output: OutputFile) -> None:
    """Append an archive of `programs` and their dependencies; raise CompilerError or FileError."""
    paths = set(filter(os.path.islink, ("/lib", "/lib64")))
    for program in programs:
        paths |= {program, *_libraries(program)}
    members: set[str] = set()
    for path in paths:
        with naming(path):
            os.stat(path)  # no end of links is found otherwise
        members |= _steps(path)
    with (
        gzip.GzipFile("", "wb", compresslevel=_LEVEL, fileobj=output, mtime=0) as packed,  # type: ignore[call-overload]
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(temporary)
        for member in sorted(members):
            with naming(member):
                archive.add(member, recursive=False, filter=_portable)


def _libraries(program: str) -> list[str]:
    loader = interpreter_of(program)
    if loader is None:
        return []
    found = libraries_of(program, loader, options=["--inhibit-cache"])
    if not found.missing:
        return found.libraries
    found = libraries_of(program, loader)
    if found.missing:
        raise CompilerError(
            f"'{program}' does not find {', '.join(found.missing)}; a compiler that needs "
            "LD_LIBRARY_PATH cannot be distributed"
        )
    return [*found.libraries, "/etc/ld.so.cache"]


def _steps(path: str) -> set[str]:
    """Return the directories and links on the way to a file, and the file."""
    folder, name = os.path.split(path)
    if name in ("", ".", ".."):
        return _steps(folder) if folder != path else set()
    at = os.path.join(os.path.realpath(folder), name)
    found = {at} | _steps(folder)
    if os.path.islink(at):
        found |= _steps(os.path.join(os.path.dirname(at), os.readlink(at)))
    return found


def _portable(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without the times and owners of this machine."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o111 else 0o644
    return member
