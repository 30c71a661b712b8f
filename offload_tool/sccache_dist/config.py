"""``offload-tool dist init`` writes the folder that ``OFFLOAD_DIST`` names.

::

    DIR/client.toml        sccache's configuration; holds the token, readable by its owner only
    DIR/toolchain.tar.gz   the compiler, packed
    DIR/env                NAME=value lines: sccache's variables, and the packed compiler
    DIR/cache, DIR/dist    sccache's, made when it runs, as its socket is

A compile server unpacks the compiler as the root directory of each compile::

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
import json
import os
import re
import shlex
import tarfile
from collections.abc import Iterable
from pathlib import Path

from offload_tool.errors import CompilerError, UsageError
from offload_tool.io import OutputFile, StrPath, replace_all
from offload_tool.io.file_digests import digest_of
from offload_tool.io.paths import naming
from offload_tool.io.temporary_directory import create_folder
from offload_tool.sccache_dist.cluster import CLIENT, ENVIRONMENT
from offload_tool.toolchain.identity import interpreter_of, libraries_of
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.which import which

ARCHIVE = "toolchain.tar.gz"
_FILES = (".gitignore", CLIENT, ARCHIVE, ENVIRONMENT)
"""In the order of their final renames: the one that describes the others is the last."""
_TOKEN_BYTES = 4096  # at most; a token of sccache-dist has 43
_FOLDER_MODE, _FILE_MODE, _SECRET_MODE = 0o755, 0o644, 0o600

_LEVEL = 1  # of gzip: a tenth larger than at 6, in a third of the time

# Each of the four choices below is needed (seen with sccache 0.16 and clang 22):
# - a toolchain of our own: sccache's packer leaves out lld
# - rewrite_includes_only: else "-x hip-cpp-output" is sent, which gives an empty code object
# - preprocessor cache mode off: with it, a cache hit does not write the depfile
# - device libraries: shipped and hashed where HIP_DEVICE_LIB_PATH names them; see `cluster`
_CLIENT = """\
# Made by 'offload-tool dist init'. It holds a token: keep it to yourself.
[dist]
scheduler_url = "{scheduler}"
rewrite_includes_only = true
cache_dir = "{folder}/dist"

[[dist.toolchains]]
type = "path_override"
compiler_executable = "{compiler}"
archive = "{folder}/toolchain.tar.gz"
archive_compiler_executable = "{compiler}"

[dist.auth]
type = "token"
token = "{token}"

[cache.disk]
dir = "{folder}/cache"

[cache.disk.preprocessor_cache_mode]
use_preprocessor_cache_mode = false
"""

# The digest changes with the compiler and the settings. So a server with old ones is not used
# again, nor a cached result of another compiler: sccache's key lacks the compiler's libraries.
_ENVIRONMENT = """\
SCCACHE_CONF={folder}/client.toml
SCCACHE_SERVER_UDS={folder}/{digest}
SCCACHE_C_CUSTOM_CACHE_BUSTER={digest}
OFFLOAD_CLANG={compiler}
OFFLOAD_IDENTITY={identity}
"""


def read_token(path: StrPath) -> str:
    """Return the token in a file, alone on its line; raise FileError or UsageError."""
    with naming(path), Path(path).open("rb") as file:
        token = file.read(_TOKEN_BYTES + 1).decode("latin-1").strip()
    if not re.fullmatch(rf"[!-~]{{1,{_TOKEN_BYTES}}}", token):
        raise UsageError(
            f"--token-file: '{path}' does not hold a token alone on one line; "
            "write the token of 'sccache-dist auth generate-shared-token' to it"
        )
    return token


def set_up(folder: StrPath, scheduler: str, token: str, toolchain: Toolchain) -> int:
    """Write the folder; return the archive's size in bytes. Raise CompilerError or UsageError."""
    if not scheduler.startswith(("http://", "https://")):
        raise UsageError(f"--scheduler: expected http://HOST:PORT, found {scheduler!r}")
    programs = compiler_programs(toolchain)
    path = Path(os.path.abspath(folder))
    values = {"folder": str(path), "scheduler": scheduler, "token": token, "compiler": programs[0]}
    quoted = {name: json.dumps(text, ensure_ascii=False)[1:-1] for name, text in values.items()}
    client = _CLIENT.format(**quoted)
    values["identity"] = digest_of(toolchain.own_identity.encode())
    values["digest"] = digest_of(f"{client}{values['identity']}".encode())[:16]
    with create_folder(path), replace_all([path / name for name in _FILES]) as files:
        path.chmod(_FOLDER_MODE)  # regardless of the umask
        for file in files:
            file.set_mode(_FILE_MODE)
        files[0].write(b"# A token and 100 MB of compiler belong into no repository.\n*\n")
        files[1].write(client.encode())
        files[1].set_mode(_SECRET_MODE)
        pack_programs(programs, files[2])
        files[3].write(_ENVIRONMENT.format(**values).encode())
        return files[2].position


def compiler_programs(toolchain: Toolchain) -> list[str]:
    """Return the files that a compile opens, the compiler first; CompilerError for a script."""
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
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o111 else 0o644
    return member
