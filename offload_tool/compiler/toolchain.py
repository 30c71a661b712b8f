"""Find the compiler: clang >= 17 that can generate AMDGPU code and link it.

Searched in this order, the first usable one is taken:

1. ``OFFLOAD_CLANG``: a command; the word ``embedded`` means the ``ziglang`` wheel
2. ``$ROCM_PATH/llvm/bin/clang``
3. ``/opt/rocm/llvm/bin/clang``
4. the newest ``clang-NN`` or ``clang`` on PATH
5. the ``ziglang`` wheel

One that was named (1) and cannot be used is an error; the others are passed over, and
their reasons are told when nothing usable is left.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.errors import CompilerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Toolchain", "find_toolchain", "is_clang_name"]

_OLDEST_CLANG = 17
_PROBE_SECONDS = 60
_EMBEDDED = "embedded: "
_VERSION = re.compile(r"^(?P<line>.*?clang version (?P<version>(\d+)\.\d+\.\d+).*)$", re.MULTILINE)
_CLANG_NAME = re.compile(r"clang(-(?P<major>\d+))?")
_TARGET = re.compile(r"^Target: (?P<triple>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler and the linkers that go with it; each command is the words before its options."""

    clang: tuple[str, ...]
    """Compiles one pass, for host or device."""
    cxx: tuple[str, ...]
    """Compiles plain C++ and links host programs."""
    cc: tuple[str, ...]
    """Compiles plain C."""
    lld: tuple[str, ...]
    """lld with its GNU command line."""
    local_flags: tuple[str, ...]
    """Flags of every pass that only say where things are on this machine."""
    version: str
    """``22.1.8``."""
    identity: str
    """What tells this compiler from another one, without paths; goes into signatures."""
    origin: str
    """Where it was found, for people."""
    host_triple: str
    """The triple of host objects, as this compiler spells it."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that its programs need."""

    @property
    def is_embedded(self) -> bool:
        """Tell whether this is the compiler of the ``ziglang`` wheel."""
        return self.origin.startswith(_EMBEDDED)

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".", 1)[0])

    def __str__(self) -> str:
        return f"clang {self.version} ({self.origin})"


def find_toolchain(environ: Mapping[str, str] | None = None, clang: str | None = None) -> Toolchain:
    """Find the compiler as the module's documentation says.

    `environ` is the OS environment (default: this process's); `clang` is a command that
    goes before everything else. The answer is remembered for this process.

    :raises CompilerError: none is usable; the message gives each candidate's reason.
    """
    environ = os.environ if environ is None else environ
    return _find(
        clang or environ.get("OFFLOAD_CLANG", ""),
        environ.get("ROCM_PATH", ""),
        environ.get("PATH", os.defpath),
    )


@functools.lru_cache(maxsize=32)
def _find(named: str, rocm_path: str, path: str) -> Toolchain:
    if named:
        return _named(named, path)
    reasons = []
    for command, origin in _candidates(rocm_path, path):
        try:
            return _probe(command, origin, path)
        except CompilerError as error:
            reasons.append(str(error))
    try:
        return _embedded()
    except CompilerError as error:
        reasons.append(str(error))
    raise CompilerError(
        "no usable compiler: " + "; ".join(reasons) + ". Install a clang >= 17 with lld and put "
        "it on PATH, set OFFLOAD_CLANG to one, or: pip install 'offload-tool[embedded]'"
    )


def _named(named: str, path: str) -> Toolchain:
    # Imported here and below: where the answer is remembered, nothing of this is needed.
    import shlex
    import shutil

    try:
        command = tuple(shlex.split(named))
    except ValueError as error:
        raise CompilerError(f"OFFLOAD_CLANG={named!r} is no command: {error}") from error
    if command == ("embedded",) or command[-2:] == ("ziglang", "clang"):
        return _embedded()
    hint = f"set OFFLOAD_CLANG to a clang >= {_OLDEST_CLANG}, or unset it to let one be found"
    if not command or shutil.which(command[0], path=path) is None:
        raise CompilerError(
            f"OFFLOAD_CLANG names '{named}', which is not an executable file or on PATH; {hint}"
        )
    try:
        return _probe(command, named, path)
    except CompilerError as error:
        raise CompilerError(f"{error}; {hint}") from error


def is_clang_name(name: str) -> bool:
    """Tell whether a program on PATH with this name may be chosen: ``clang``, ``clang-22``."""
    return _CLANG_NAME.fullmatch(name) is not None


def _candidates(rocm_path: str, path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give the (command, origin) pairs to try, best first."""
    for folder, name in ((rocm_path, "$ROCM_PATH"), ("/opt/rocm", "/opt/rocm")):
        clang = Path(folder, "llvm/bin/clang")
        if folder and os.access(clang, os.X_OK):
            yield (str(clang),), f"{name}: {clang}"
    found = [
        (int(match["major"] or 0), file)
        for folder in path.split(os.pathsep)
        if folder and Path(folder).is_dir()
        for file in sorted(Path(folder).iterdir())
        if (match := _CLANG_NAME.fullmatch(file.name)) and os.access(file, os.X_OK)
    ]
    plain = [(_plain_major(file), file) for major, file in found if not major]
    numbered = [(major, file) for major, file in found if major]
    for _, file in sorted(plain + numbered, key=lambda item: -item[0]):
        yield (str(file),), str(file)


def _plain_major(file: Path) -> int:
    """Give the major version of a program called plain ``clang``; 0 where it has none."""
    try:
        return int(_version((str(file),))["version"].split(".")[0])
    except CompilerError:
        return 0


def _probe(command: tuple[str, ...], origin: str, path: str) -> Toolchain:
    """Ask a clang what it is.

    :raises CompilerError: it is too old, or lacks the AMDGPU target or lld.
    """
    import shutil

    match = _version(command)
    version = match["version"]
    if int(version.split(".")[0]) < _OLDEST_CLANG:
        raise CompilerError(f"{command[0]} is clang {version}, but >= {_OLDEST_CLANG} is needed")
    if not re.search(r"^\s*amdgcn\s", _ask(command, "-print-targets"), re.MULTILINE):
        raise CompilerError(f"{command[0]} (clang {version}) was built without the AMDGPU target")
    lld = shutil.which(_ask(command, "-print-prog-name=lld").strip(), path=path)
    if lld is None:
        raise CompilerError(
            f"{command[0]} (clang {version}) finds no lld, which links device code; "
            "install the lld of the same version"
        )
    # clang looks for lld beside itself; where it is elsewhere on PATH, it must be told.
    beside = Path(_ask(command, "-print-prog-name=lld").strip()).is_absolute()
    target = _TARGET.search(match.string)
    cxx = (*command, "--driver-mode=g++")
    return Toolchain(
        clang=command,
        cxx=cxx,
        cc=command,
        lld=(lld, "-flavor", "gnu"),
        local_flags=() if beside else (f"-B{Path(lld).parent}",),
        version=version,
        identity=match["line"].strip(),
        origin=origin,
        host_triple=target["triple"] if target else "x86_64-unknown-linux-gnu",
    )


def _version(command: tuple[str, ...]) -> re.Match[str]:
    match = _VERSION.search(_ask(command, "--version"))
    if match is None:
        raise CompilerError(f"{command[0]} --version does not name a clang version")
    return match


@functools.lru_cache(maxsize=64)
def _ask(command: tuple[str, ...], question: str) -> str:
    import subprocess

    try:
        answer = subprocess.run(
            [*command, question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"{command[0]} cannot be run: {error}") from error
    if answer.returncode != 0:
        message = (answer.stderr or answer.stdout).strip().splitlines() or ["no message"]
        raise CompilerError(f"{command[0]} {question} failed: {message[-1]}")
    return answer.stdout


def _embedded() -> Toolchain:
    from offload_tool.compiler import embedded

    found = embedded.locate()
    version = _version((*found.zig, "clang"))
    return Toolchain(
        clang=(*found.zig, "clang"),
        cxx=(*found.zig, "c++", "-target", found.zig_target, "-fno-sanitize=undefined"),
        cc=(*found.zig, "cc", "-target", found.zig_target, "-fno-sanitize=undefined"),
        lld=(*found.zig, "ld.lld"),
        local_flags=found.local_flags,
        version=version["version"],
        identity=f"{version['line'].strip()} (ziglang {found.release})",
        origin=f"{_EMBEDDED}ziglang {found.release}",
        host_triple=found.host_triple,
        environment=tuple(embedded.environment().items()),
    )
