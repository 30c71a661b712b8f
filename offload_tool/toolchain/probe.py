"""Query a compiler for its version, host, lld and identity."""

from __future__ import annotations

import functools
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from offload_tool.clang.driver import output_of, query_front_end
from offload_tool.errors import CompilerError
from offload_tool.toolchain.driver_cache import cached_compiler_result
from offload_tool.toolchain.identity import (
    all_configuration_files,
    command_identity,
    configuration_files,
    file_digest,
    identity_text,
    is_script,
    program_identity,
)
from offload_tool.util.frozen import frozen
from offload_tool.util.which import which

CUDA_PATH = "--cuda-path"
OLDEST_CLANG = 19
"""The first version that can compile offload sources for one target at a time."""
EMBEDDED = "embedded: "
"""The beginning of `Toolchain.origin` for the compiler of the ``ziglang`` wheel."""
_VERSION = re.compile(r"^(?P<line>.*?clang version (?P<version>(\d+)\.\d+\.\d+).*)$", re.MULTILINE)
CLANG_NAME = re.compile(r"clang(-(?P<major>\d+))?")
_TARGET = re.compile(r"^Target: (?P<triple>\S+)$", re.MULTILINE)
_OTHER_JOBS = (
    ("--driver-mode=gcc",),
    ("--driver-mode=g++",),
    ("--target=amdgcn-amd-amdhsa",),
    ("--target=nvptx64-nvidia-cuda",),
)
"""Besides plain compiles; each of these modes may read its own configuration files."""


@frozen
class Toolchain:
    """A compiler and its linkers; each command is the arguments before its options."""

    clang: tuple[str, ...]
    """Compiles one pass, for host or device."""
    cxx: tuple[str, ...]
    """Compiles plain C++ and links host programs."""
    cc: tuple[str, ...]
    lld: tuple[str, ...]
    local_flags: tuple[str, ...]
    """Flags of every pass that only name paths of this machine."""
    version: str
    identity: str
    """The identity of this compiler, without paths; goes into signatures.

    It holds the version text, the arguments that were given with it, its lld, and the configuration
    files that it reads by default: see `toolchain.identity`."""
    origin: str
    """The location or variable where it was found, for messages."""
    host_triple: str
    """The triple of host objects, as this compiler spells it."""
    environment: tuple[tuple[str, str], ...] = ()
    rocm_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    openmp_flags: tuple[str, ...] = ()
    """Flags of OpenMP passes that name ROCm's device libraries, and the toolkit."""
    cuda: str = ""
    """The CUDA toolkit's directory; empty if none is used."""
    installations: str = ""
    """Other installations that it uses, for messages."""
    installed: tuple[str, ...] = ()
    """Files of the installations that no depfile names."""
    own_identity: str = ""
    """`identity` without the installations."""
    configuration: tuple[str, ...] = ()
    """The configuration files that it reads by default."""
    passed_over: tuple[str, ...] = ()
    """Preferred compilers that were rejected, and what each lacks."""
    doubts: tuple[str, ...] = ()
    """Failed trials of a compiler that is used nevertheless."""
    programs: tuple[str, ...] = ()
    """Its programs: the front end, which a script may run, and lld."""

    @property
    def is_embedded(self) -> bool:
        """Return whether this is the compiler of the ``ziglang`` wheel."""
        return self.origin.startswith(EMBEDDED)

    @property
    def is_driver_alone(self) -> bool:
        """Whether `clang` is the driver alone: ``zig clang`` is, ``ccache clang`` is not."""
        return len(self.clang) == 1 or self.is_embedded

    @property
    def rocm(self) -> str:
        """The ROCm installation's directory; empty if none is named to the compiler."""
        named = (flag for flag in self.rocm_flags if flag.startswith("--rocm-path="))
        return next(named, "").partition("=")[2]

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".", 1)[0])

    @property
    def used(self) -> str:
        """The compiler and its installations, for messages."""
        with_these = f", {self.installations}" if self.installations else ""
        return f"clang {self.version} ({self.origin}){with_these}"

    def __str__(self) -> str:
        others = f"; skipped: {'; '.join(self.passed_over)}" if self.passed_over else ""
        return f"{self.used}{others}"


def probe(
    command: tuple[str, ...], origin: str, path: str, library_path: str = "", *, amdgpu: bool = True
) -> Toolchain:
    """Query a clang, by programs in `path` and libraries in `library_path`; raise CompilerError."""
    match = version_of(command, path)
    version = match["version"]
    if int(version.split(".")[0]) < OLDEST_CLANG:
        raise CompilerError(f"{command[0]} is clang {version}, but >= {OLDEST_CLANG} is needed")
    facts = _facts(command, match, path)
    if amdgpu and not facts.amdgpu:
        raise CompilerError(f"{command[0]} (clang {version}) was built without the AMDGPU target")
    # clang searches for lld in its own directory; another directory on PATH needs ``-B``.
    lld = which(facts.lld, path)
    if lld is None:
        raise CompilerError(
            f"{command[0]} (clang {version}) finds no lld, which links device code; "
            "install the lld of the same version"
        )
    target = _TARGET.search(match.string)
    parts = [match["line"].strip(), target[0] if target else ""]
    parts += command_identity(command, path, library_path)
    parts += (program_identity(program, library_path) for program in facts.front_ends)
    linker = program_identity(lld, library_path)
    parts += (f"lld: {part}" for part in (facts.lld_version, linker))
    configuration = all_configuration_files(facts.configuration)
    parts += (f"configuration {file_digest(path)}" for path in configuration)
    return Toolchain(
        clang=command,
        cxx=(*command, "--driver-mode=g++"),
        cc=(*command, "--driver-mode=gcc"),
        lld=(lld, "-flavor", "gnu"),
        local_flags=() if Path(facts.lld).is_absolute() else (f"-B{Path(lld).parent}",),
        version=version,
        identity=identity_text(dict.fromkeys(parts)),
        origin=origin,
        programs=(*facts.front_ends, lld),
        host_triple=target["triple"] if target else "x86_64-unknown-linux-gnu",
        configuration=tuple(configuration),
    )


class _Facts(NamedTuple):
    amdgpu: bool
    lld: str
    """As the compiler runs it: a path, or the bare name if not in the compiler's directory."""
    lld_version: str
    configuration: list[str]
    """The files that it reads by default for some job."""
    front_ends: list[str]
    """The programs that it runs to compile: usually itself."""


def _facts(command: tuple[str, ...], version: re.Match[str], path: str) -> _Facts:
    """Query a compiler of this version text, cached between runs; raise CompilerError."""
    environment = {**os.environ, "PATH": path}

    def find() -> list[Any]:
        targets = output_of(command, "-print-targets")
        lld = output_of(command, "-print-prog-name=lld").strip()
        found = which(lld, path)
        jobs = query_front_end([*command, "-x", "c"], environment).jobs
        lld_version = ""
        with suppress(CompilerError):  # the link reports it
            lld_version = output_of((found, "-flavor", "gnu"), "--version") if found else ""
        texts = [version.string, *(output_of(command, *job, "--version") for job in _OTHER_JOBS)]
        return [
            re.search(r"^\s*amdgcn\s", targets, re.MULTILINE) is not None,
            lld,
            lld_version.strip(),
            list(dict.fromkeys(file for text in texts for file in configuration_files(text))),
            list(dict.fromkeys(job[0] for job in jobs)),
        ]

    def dependencies(result: list[Any]) -> list[str]:
        linker = which(result[1], path) or result[1]
        files = [linker, *result[3], *result[4]]
        return [*files, *map(os.path.dirname, result[3])]

    key = ["facts", *command, version.string]
    if not command[0].startswith("/"):
        key.append(os.getcwd())
    return _Facts(*cached_compiler_result(key, command, environment, find, dependencies))


def version_of(command: tuple[str, ...], path: str = "") -> re.Match[str]:
    """Query a clang, scripts in each run, for its version; raise CompilerError."""
    program = os.path.realpath(which(command[0], path or None) or "")
    if len(command) == 1 and CLANG_NAME.fullmatch(Path(program).name) and not is_script(program):
        variables = {**os.environ, "PATH": path} if path else os.environ
        key = ["version", program, *command]
        find = functools.partial(output_of, command, "--version")
        output = cached_compiler_result(key, command, variables, find)
        if match := _VERSION.search(str(output)):
            return match
    match = _VERSION.search(output_of(command, "--version"))  # never from the disk cache
    if match is None:
        raise CompilerError(f"{command[0]} --version does not name a clang version")
    return match
