"""Make the folder that ``OFFLOAD_DIST`` names; see `config` for what is in it."""

from __future__ import annotations

import json
import os
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.errors import FileError, UsageError
from offload_tool.io import OutputFile, StrPath, replace_all
from offload_tool.io.temporary_directory import made_folder
from offload_tool.sccache_dist import config
from offload_tool.sccache_dist.pack_toolchain import (
    compiler_names,
    compiler_programs,
    pack_programs,
)
from offload_tool.sccache_dist.scheduler import (
    SchedulerStatus,
    ask_scheduler,
    check_token,
    read_url,
)

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

_TOKEN_BYTES = 4096  # at most; a token of sccache-dist has 43
_FILES = (
    *(config.ARCHIVE, ".gitignore", config.CLIENT, config.ENVIRONMENT),
    config.SETUP,
)
"""In the order in which they get their names: the one that describes the others is the last."""
_IDLE_SECONDS = 3600  # then the local sccache server ends by itself

# Each of the four choices below is needed (seen with sccache 0.16 and clang 22):
# - a toolchain of our own: sccache's packer leaves out lld
# - rewrite_includes_only: else "-x hip-cpp-output" is sent, which gives an empty code object
# - preprocessor cache mode off: with it, a cache hit does not write the depfile
# - device libraries: shipped and hashed where HIP_DEVICE_LIB_PATH names them; see `commands`
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


@dataclass(frozen=True, slots=True)
class MadeSetup:
    """What `set_up` made."""

    folder: Path
    status: SchedulerStatus
    files: int
    """Regular files in the archive."""
    archive_size: int
    """In bytes."""


def read_token(path: StrPath) -> str:
    """Return the token that a file holds, alone on its line.

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


def set_up(folder: StrPath, scheduler: str, token: str, toolchain: Toolchain) -> MadeSetup:
    """Check the scheduler and the token, pack the compiler, and write the folder.

    Nothing is written where a check fails.

    :raises CompilerError: this compiler cannot be distributed.
    :raises UsageError: `scheduler` is not an address, or refuses the token.
    :raises SchedulerError: the scheduler does not answer.
    """
    config.find_sccache()
    url = read_url(scheduler)
    programs, names = compiler_programs(toolchain), compiler_names(toolchain)
    status = ask_scheduler(url)
    if not check_token(url, token):
        raise UsageError(
            f"--token-file: the scheduler {url} refuses this token; expected the one under "
            "[client_auth] in its configuration"
        )
    made = Path(os.path.abspath(folder))
    with made_folder(made), replace_all([made / name for name in _FILES]) as files:
        archive, ignored, client, environment, described = files
        made.chmod(_FOLDER_MODE)  # whatever the umask allows to others
        archive.set_mode(_FILE_MODE)
        packed = pack_programs([*names, *programs], archive)
        _write(ignored, "# A token and 100 MB of compiler belong into no repository.\n*\n")
        _write(client, _client(made, url, token, names), mode=0o600)
        _write(environment, _environment(made))
        _write(described, _description(made, url, names, packed, toolchain))
    return MadeSetup(made, status, len(packed), archive.position)


def _description(
    made: Path, url: str, names: list[str], packed: list[Path], toolchain: Toolchain
) -> str:
    setup = {
        "version": config.SETUP_VERSION,
        "folder": str(made),
        "scheduler": url,
        "compilers": names,
        "identity": toolchain.own_identity,
        "files": [astuple(config.PackedFile.of(path)) for path in packed],
    }
    return json.dumps(setup, indent=1) + "\n"


def _client(folder: Path, url: str, token: str, names: list[str]) -> str:
    archive = _quoted(folder / config.ARCHIVE)
    return _CLIENT.format(
        scheduler=_quoted(url),
        dist=_quoted(folder / "dist"),
        toolchains="".join(_TOOLCHAIN.format(path=_quoted(n), archive=archive) for n in names),
        token=_quoted(token),
        cache=_quoted(folder / "cache"),
    )


def _environment(folder: Path) -> str:
    variables = {
        "SCCACHE_CONF": folder / config.CLIENT,
        "SCCACHE_SERVER_UDS": config.socket_of(folder),
        "SCCACHE_IDLE_TIMEOUT": _IDLE_SECONDS,
    }
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _quoted(text: StrPath) -> str:
    """Return a TOML string."""
    return json.dumps(os.fspath(text), ensure_ascii=False)


def _write(file: OutputFile, text: str, mode: int = _FILE_MODE) -> None:
    file.set_mode(mode)
    file.write(text.encode())
