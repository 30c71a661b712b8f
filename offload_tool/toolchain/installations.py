"""Find the installations of ROCm, its device libraries and CUDA, and what host code needs of them.

Each is searched in the order given here. A path that the user names excludes the others; without
one, all are candidates, and a trial of the compiler selects the first that works.

=================  ==================================================================
ROCm               ``OFFLOAD_ROCM_PATH``, ``$ROCM_PATH``, ``$HIP_PATH``; TheRock's wheels
(HIP's headers)    (``rocm-sdk path --root``); ``/opt/rocm``, ``/opt/rocm/core-*``,
                   ``/opt/rocm-*``; ``/usr`` (Debian, Fedora)
device libraries   ``OFFLOAD_DEVICE_LIB_PATH``, ``$HIP_DEVICE_LIB_PATH``; the compiler's own;
                   those of the ROCm above; Debian's of another LLVM
CUDA               ``OFFLOAD_CUDA_PATH``, ``$CUDA_PATH``, ``$CUDA_HOME``; the ``nvcc`` on PATH;
                   ``/usr/local/cuda``, ``/opt/cuda``, ``/usr/lib/cuda``; NVIDIA's wheels of CUDA 13
=================  ==================================================================

Host code needs headers, the runtime library and macros of an installation:

====  ==================================  =====================================================
HIP   ``libamdhip64``                     as ``hipconfig --cpp_config`` and ``hipcc`` give them
CUDA  ``libcudart``; NVIDIA's wheels      as nvcc gives them; the archive needs ``dl``, ``rt``
      have ``libcudart_static.a`` alone   and ``pthread``
====  ==================================  =====================================================

Sources: Debian's rocm-device-libs-17 and -21, libamdhip64-dev 5.7 and 6.4; ROCm's directories as of
7; TheRock's wheels and its docs/packaging/python_packaging.md. Observed: clang 22.1.8; hipcc's and
hipconfig's output of ROCm 6.4; nvcc 12.9 and 13.0 with ``--dryrun``; nvidia-cuda-runtime 13.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from offload_tool.clang.environment import INSTALLATIONS
from offload_tool.errors import CompilerError, UsageError
from offload_tool.io.file_digests import content_of
from offload_tool.toolchain.identity import files_digest
from offload_tool.util.frozen import frozen
from offload_tool.util.which import which

_HIP_HEADER = "include/hip/hip_runtime.h"
_CUDA_HEADER = "include/cuda.h"
_LIBRARY = "ockl.bc"
_BITCODE = (
    *("amdgcn/bitcode", "lib/llvm/amdgcn/bitcode", "llvm/amdgcn/bitcode", "lib/amdgcn/bitcode"),
    *("lib/llvm/lib/clang/*/lib/amdgcn/bitcode", "lib/clang/*/lib/amdgcn/bitcode"),
    *("lib/clang/*/amdgcn/bitcode", "lib/*-linux-gnu/amdgcn/bitcode"),
    *("lib/llvm-*/lib/clang/*/amdgcn/bitcode", "lib64/rocm/llvm/lib/clang/*/amdgcn/bitcode"),
)
"""Below a ROCm installation, or ``/usr``."""
_COMPILERS = ("llvm/bin/clang", "lib/llvm/bin/clang")
_WHEELS = ("_rocm_sdk_devel*", "_rocm_sdk_core*")
"""Directories next to Python's packages; the first has all, the second what a compiler needs."""
_HIP_VERSION = re.compile(
    rb"^\s*#?\s*(?:define\s+)?HIP_VERSION_(MAJOR|MINOR|PATCH)[ \t=]+(\d+)", re.M
)
_CUDA_VERSION = re.compile(rb"^\s*#\s*define\s+CUDA_VERSION\s+(\d+)", re.MULTILINE)
_NAMED = {
    "hip": ("OFFLOAD_ROCM_PATH", ("ROCM_PATH", "HIP_PATH"), _HIP_HEADER),
    "cuda": ("OFFLOAD_CUDA_PATH", ("CUDA_PATH", "CUDA_HOME"), _CUDA_HEADER),
}
"""Our variable that names an installation, the shell's, and the header that identifies one."""


@frozen
class Installation:
    """An installation and its version."""

    path: str
    origin: str
    """The origin of its path, for messages: ``$ROCM_PATH``; empty for a usual path."""
    version: str = ""
    """``6.4.43484``; empty if not known."""
    identity: str = ""
    """A digest of its main headers and of the files with its version."""

    def __str__(self) -> str:
        where = f"{self.origin}: {self.path}" if self.origin else self.path
        return f"{self.version} ({where})" if self.version else where


def rocm_installations(environ: Mapping[str, str]) -> list[Installation]:
    """Return the directories with HIP's headers; raise UsageError for OFFLOAD_ROCM_PATH."""
    _named(environ, "OFFLOAD_ROCM_PATH", _HIP_HEADER, "ROCm")
    paths = _rocm_paths(environ)
    return [_hip(path, origin) for path, origin in paths if _has(path, _HIP_HEADER)]


def rocm_compilers(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the clang of each ROCm installation, and its origin."""
    for path, origin in _rocm_paths(environ):
        for name in _COMPILERS:
            file = os.path.join(path, name)
            if os.access(file, os.X_OK):
                yield file, f"{origin}: {file}" if origin else file
                break


def _rocm_paths(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    if named := environ.get("OFFLOAD_ROCM_PATH"):
        return [(named, "OFFLOAD_ROCM_PATH")]
    paths = [(environ.get(name, ""), f"${name}") for name in _NAMED["hip"][1]]
    paths += [(path, "wheel rocm-sdk") for path in _wheels(_WHEELS)]
    others = [*_newest("/opt/rocm", "core-*"), *_newest("/opt", "rocm-*")]
    paths += [(path, "") for path in ("/opt/rocm", *others, "/usr")]
    return _distinct((path, origin) for path, origin in paths if path and os.path.isdir(path))


def device_library_folders(
    environ: Mapping[str, str], roots: Iterable[str], resources: str
) -> list[str]:
    """Return the folders of AMD's device libraries; `resources` is the compiler's own folder."""
    variable = "OFFLOAD_DEVICE_LIB_PATH"
    if named := _named(environ, variable, _LIBRARY, "AMD's device libraries"):
        return [named]
    found = [environ.get("HIP_DEVICE_LIB_PATH", "")]
    found += (f"{resources}/{name}/bitcode" for name in ("amdgcn", "lib/amdgcn"))
    usual = (path for path, _ in _rocm_paths(environ))
    for root in dict.fromkeys([*roots, *usual, "/opt/rocm", "/usr"]):
        for pattern in _BITCODE:
            found += _newest(root, pattern)
    distinct = _distinct((path, "") for path in found if path and _has(path, _LIBRARY))
    return [path for path, _ in distinct]


def cuda_installations(environ: Mapping[str, str]) -> list[Installation]:
    """Return the CUDA toolkits with headers; raise UsageError for OFFLOAD_CUDA_PATH."""
    if named := _named(environ, "OFFLOAD_CUDA_PATH", _CUDA_HEADER, "a CUDA toolkit"):
        return [_cuda(named, "OFFLOAD_CUDA_PATH")]
    paths = [(environ.get(name, ""), f"${name}") for name in _NAMED["cuda"][1]]
    nvcc = which("nvcc", environ.get("PATH", os.defpath))
    if nvcc is not None:
        paths.append((str(Path(os.path.realpath(nvcc)).parent.parent), nvcc))
    paths += [(path, "") for path in ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")]
    paths += [(path, "") for path in _newest("/usr/local", "cuda-*")]
    paths += [(path, "wheels of nvidia") for path in _wheels(("nvidia/cu*",))]
    found = ((path, origin) for path, origin in paths if path and _has(path, _CUDA_HEADER))
    return [_cuda(path, origin) for path, origin in _distinct(found)]


def unusable_variables(environ: Mapping[str, str], kind: str) -> list[str]:
    """Return the shell variables whose directories have no installation, to be reported."""
    own, names, header = _NAMED[kind]
    return [
        f"${name}='{environ[name]}' has no {header}"
        for name in names
        if environ.get(name) and not environ.get(own) and not _has(environ[name], header)
    ]


def installation_folders(environ: Mapping[str, str]) -> list[str]:
    """Return the directories in which an installation can appear, disappear or change."""
    named = [environ[name] for name in INSTALLATIONS if environ.get(name)]
    fixed = ["/opt", "/opt/rocm", "/opt/cuda", "/usr/local", "/usr/local/cuda", "/usr/lib"]
    below = [f"{path}/include/hip" for path in (*named, "/opt/rocm", "/usr")]
    compilers = map(str, Path("/usr/lib").glob("llvm-*/lib/clang/*"))
    return [*named, *fixed, *below, *compilers, *_package_folders()]


def _hip(path: str, origin: str) -> Installation:
    files = [f"{path}/{name}" for name in ("share/hip/version", "bin/.hipVersion")]
    headers = sorted(str(file) for file in Path(path, "include/hip").rglob("*.h*"))
    files.append(f"{path}/include/hip/hip_version.h")
    matches = [match for file in files for match in _HIP_VERSION.finditer(content_of(file))]
    numbers = {match[1].decode(): match[2].decode() for match in matches}
    version = ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH") if part in numbers)
    # Headers count, because those of an installation that has moved are in no depfile.
    return Installation(path, origin, version, files_digest([*files[:2], *headers]))


def _cuda(path: str, origin: str) -> Installation:
    match = _CUDA_VERSION.search(content_of(f"{path}/{_CUDA_HEADER}"))
    number = int(match[1]) if match else 0
    version = f"{number // 1000}.{number % 1000 // 10}" if number else ""
    # Clang reads the version from the first two files; old ones have the third.
    files = [f"{path}/{name}" for name in (_CUDA_HEADER, "version.json", "version.txt")]
    files += sorted(str(file) for file in Path(path, "include").glob("*.h"))
    return Installation(path, origin, version, files_digest(files))


def _distinct(paths: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for path, origin in paths:
        found.setdefault(os.path.realpath(path), (path, origin))
    return list(found.values())


def _has(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _newest(folder: str, pattern: str) -> list[str]:
    if "*" not in pattern:
        return [f"{folder}/{pattern}"]
    found = map(str, Path(folder).glob(pattern))
    return sorted(
        found, key=lambda path: [int(text) for text in re.findall(r"\d+", path)], reverse=True
    )


def _wheels(patterns: Iterable[str]) -> list[str]:
    folders = _package_folders()
    return [path for pattern in patterns for name in folders for path in _newest(name, pattern)]


def _package_folders() -> list[str]:
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def _named(environ: Mapping[str, str], variable: str, name: str, what: str) -> str:
    """Return the path in our variable, or ""; raise UsageError if the folder lacks `name`."""
    path = environ.get(variable, "")
    if path and not _has(path, name):
        raise UsageError(
            f"{variable}='{path}' is not a folder of {what}: '{path}/{name}' is not there; "
            "set it to another folder, or unset it to let one be found"
        )
    return path


# -- what host code needs ------------------------------------------------------------------

HIP_RUNTIME, CUDA_RUNTIME = "amdhip64", "cudart"
_DEFINES = {"hip": ("__HIP_PLATFORM_AMD__",), "cuda": ()}
_HEADERS = {"hip": ("include",), "cuda": ("include", "include/cccl")}
_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib/*-linux-gnu")
_OF_THE_SYSTEM = re.compile(r"(/usr(/local)?)?/(include|lib(32|64)?(/[\w-]+-linux-gnu)?)")
"""Folders that compilers, linkers and the loader search anyway. ``-I/usr/include`` would hide the
headers of C++ from those of C."""


@frozen
class RuntimeLibrary:
    """What host code that calls HIP or CUDA is compiled and linked with."""

    defines: tuple[str, ...]
    headers: tuple[str, ...]
    """Folders of headers; none of the system's own."""
    libraries: tuple[str, ...]
    """Names for ``-l``, or the path of one file."""
    folder: str
    """The folder of the library; empty if it is one of the system's."""
    is_shared: bool
    """Whether a program needs the library when it starts."""


def find_runtime(kind: str, root: str) -> RuntimeLibrary:
    """Return the runtime library of an installation of HIP or CUDA; raise CompilerError."""
    name = HIP_RUNTIME if kind == "hip" else CUDA_RUNTIME
    folders = [path for pattern in _FOLDERS for path in sorted(Path(root).glob(pattern))]
    shared = _first(folders, f"lib{name}.so")
    archive = _first(folders, f"lib{name}_static.a")
    versioned = _first(folders, f"lib{name}.so.*")
    file = shared or archive or versioned
    if file is None:
        raise CompilerError(
            f"'{root}': no lib{name}.so in {', '.join(_FOLDERS)}; install the runtime of that "
            f"version, or add the folder and the name of your own to LIBPATH and LIBS"
        )
    libraries: tuple[str, ...] = (str(file),)
    if file == shared:
        libraries = (name,)
    elif file == archive:
        libraries = (f"{name}_static", "rt", "pthread", "dl")
    return RuntimeLibrary(
        _DEFINES[kind],
        tuple(_not_of_the_system(Path(root, part) for part in _HEADERS[kind])),
        libraries,
        "".join(_not_of_the_system([file.parent])),
        is_shared=file != archive,
    )


def _first(folders: Iterable[Path], pattern: str) -> Path | None:
    return next((file for folder in folders for file in sorted(folder.glob(pattern))), None)


def _not_of_the_system(folders: Iterable[Path]) -> list[str]:
    return [
        str(folder)
        for folder in folders
        if os.path.isdir(folder) and not _OF_THE_SYSTEM.fullmatch(os.path.realpath(folder))
    ]
