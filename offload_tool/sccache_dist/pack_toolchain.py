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
import shutil
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from offload_tool.clang.driver import jobs_of, query, query_plan
from offload_tool.errors import CompilerError, ContentError, FileError
from offload_tool.io import OutputFile
from offload_tool.toolchain.identity import configuration_files
from offload_tool.toolchain.programs import interpreter_of, is_script, libraries_of

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

_ROOT_LINKS = ("/lib", "/lib64")
_LAUNCHERS = ("ccache", "sccache", "distcc", "icecc")
_LINKS_AT_MOST = 40  # on one path, as in Linux
_LEVEL = 1  # of gzip: a tenth larger than at 6, in a third of the time
# A fixed environment, as the command runs on the server: nothing of this shell is packed.
_PLAIN = {"PATH": os.defpath}


def compiler_programs(toolchain: Toolchain) -> list[str]:
    """Return the absolute paths of the files that a device compile with this compiler opens.

    These are the programs of the driver's plan, and its configuration files.

    :raises CompilerError: the compiler is not a single program file; the message says why.
    """
    if toolchain.origin.startswith("embedded"):
        raise CompilerError(
            "the embedded compiler (ziglang) cannot be distributed: it is a Python program, which "
            "sccache does not know as a compiler; name a clang with its lld by --clang"
        )
    if len(toolchain.clang) != 1:
        raise CompilerError(
            f"'{shlex.join(toolchain.clang)}' cannot be distributed: expected the path of clang "
            "alone, without a launcher or options; options belong into OFFLOAD_FLAGS"
        )
    clang = compiler_names(toolchain)[0]
    name = Path(os.path.realpath(clang)).name
    if name in _LAUNCHERS:
        raise CompilerError(f"'{clang}' is {name}, not a compiler; name the clang that it runs")
    args = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx906", "--no-gpu-bundle-output"]
    args += ["-nogpulib", "-nogpuinc", *toolchain.local_flags, "-c", os.devnull, "-o", "x"]
    jobs = jobs_of(query_plan([clang, *args], _PLAIN))
    configured = configuration_files(query([clang, "--version"], _PLAIN).output)
    programs = [clang, *(job[0] for job in jobs), *configured]
    if not any("lld" in Path(program).name for program in programs):
        raise CompilerError(f"'{clang}' names no lld for its device links; install its lld")
    return list(dict.fromkeys(programs))


def compiler_names(toolchain: Toolchain) -> list[str]:
    """Return the absolute paths by which a build may call the compiler: each link, and the file.

    :raises CompilerError: there is no such file.
    """
    found = shutil.which(toolchain.clang[0])
    if found is None:
        raise CompilerError(
            f"'{toolchain.clang[0]}' is not an executable file or on PATH; "
            "give --clang the path of a clang"
        )
    names = [os.path.abspath(found)]
    while len(names) < _LINKS_AT_MOST and Path(names[-1]).is_symlink():
        last = Path(names[-1])
        names.append(os.path.abspath(last.parent / last.readlink()))
    return list(dict.fromkeys([*names, os.path.realpath(found)]))


def pack_programs(programs: Iterable[str], output: OutputFile) -> list[Path]:
    """Append the archive of `programs` and their dependencies; return its regular files, sorted.

    :raises CompilerError: a shared library of a program is missing.
    :raises FileError: a file cannot be read, or `output` not be written.
    """
    wanted: dict[str, None] = {}
    cache_needed = False
    for program in programs:
        wanted[program] = None
        libraries, from_cache = _libraries(program)
        wanted.update(dict.fromkeys(libraries))
        cache_needed |= from_cache
    if cache_needed:
        wanted["/etc/ld.so.cache"] = None
    members: dict[Path, str | None] = {}
    for path in (*wanted, *_ROOT_LINKS):
        if path in wanted or Path(path).is_symlink():
            members.update(_steps(path))
    _write(output, members)
    return sorted(path for path, link in members.items() if link is None and path.is_file())


def _libraries(program: str) -> tuple[list[str], bool]:
    """Return a program's loader and libraries, and whether they need the loader's cache."""
    if is_script(program):
        raise CompilerError(f"'{program}' is a script; name the compiler that it runs by --clang")
    try:
        loader = interpreter_of(program)
    except ContentError as error:
        raise CompilerError(
            f"'{program}' is not a readable ELF program: {error}; "
            "give --clang the compiler itself, not a script"
        ) from error
    if loader is None:
        return [], False
    found = libraries_of(program, loader, options=["--inhibit-cache"])
    from_cache = bool(found.missing)
    if from_cache:
        found = libraries_of(program, loader)
    if found.missing:
        raise CompilerError(
            f"'{program}' does not find {', '.join(found.missing)}; a compiler that needs "
            "LD_LIBRARY_PATH cannot be distributed"
        )
    return found.libraries, from_cache


def _steps(path: str) -> dict[Path, str | None]:
    """Return the steps of a path: directories and files (None), links (their targets)."""
    found: dict[Path, str | None] = {}
    at = Path("/")
    remaining = list(PurePosixPath(path).parts[1:])
    links = 0
    while remaining:
        name = remaining.pop(0)
        if name == "..":
            at = at.parent
            continue
        at /= name
        if not at.is_symlink():
            found[at] = None
            continue
        links += 1
        if links > _LINKS_AT_MOST:
            raise FileError(path, "too many symbolic links")
        link = found[at] = str(at.readlink())
        parts = PurePosixPath(link).parts
        at = at.parent
        if parts[:1] == ("/",):
            at, parts = Path("/"), parts[1:]
        remaining = [*parts, *remaining]
    return found


def _write(file: OutputFile, members: dict[Path, str | None]) -> None:
    with (
        gzip.GzipFile("", "wb", compresslevel=_LEVEL, fileobj=file, mtime=0) as packed,  # type: ignore[call-overload]
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(temporary)
        for path, link in sorted(members.items()):
            _add(archive, path, link)


def _add(archive: tarfile.TarFile, path: Path, link: str | None) -> None:
    member = tarfile.TarInfo(str(path.relative_to("/")))
    if link is not None:
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, link, 0o777
        archive.addfile(member)
        return
    try:
        if path.is_dir():
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
            return
        with path.open("rb") as content:
            status = os.fstat(content.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FileError(path, "expected a regular file")
            member.size = status.st_size
            member.mode = 0o755 if status.st_mode & 0o111 else 0o644
            archive.addfile(member, content)
    except OSError as error:
        raise FileError(path, error) from error
