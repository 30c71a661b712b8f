"""``offload-tool dist init`` writes the folder that ``OFFLOAD_DIST`` names.

::

    DIR/client.toml        sccache's configuration; holds the token, readable by its owner only
    DIR/toolchain.tar.gz   the compiler, packed
    DIR/env                NAME=value lines: sccache's variables, and the packed compiler
    DIR/cache, DIR/dist    sccache's, made when it runs, as its socket is
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.errors import UsageError
from offload_tool.io import StrPath, replace_all
from offload_tool.io.file_digests import digest_of
from offload_tool.io.paths import naming
from offload_tool.io.temporary_directory import create_folder

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

CLIENT, ENVIRONMENT, ARCHIVE = "client.toml", "env", "toolchain.tar.gz"
_FILES = (".gitignore", CLIENT, ARCHIVE, ENVIRONMENT)
"""In the order of their final renames: the one that describes the others is the last."""
_TOKEN_BYTES = 4096  # at most; a token of sccache-dist has 43
_FOLDER_MODE, _FILE_MODE, _SECRET_MODE = 0o755, 0o644, 0o600

# Each of the four choices below is needed (seen with sccache 0.16 and clang 22):
# - a toolchain of our own: sccache's packer leaves out lld
# - rewrite_includes_only: else "-x hip-cpp-output" is sent, which gives an empty code object
# - preprocessor cache mode off: with it, a cache hit does not write the depfile
# - device libraries: shipped and hashed where HIP_DEVICE_LIB_PATH names them; see `eligibility`
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
    """Pack the compiler, and write the folder; return the archive's size in bytes.

    :raises CompilerError, UsageError: it cannot be distributed, or `scheduler` is no address.
    """
    from offload_tool.sccache_dist.pack_toolchain import compiler_programs, pack_programs

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
