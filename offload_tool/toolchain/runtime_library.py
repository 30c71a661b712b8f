"""Find what host code needs of an installation: headers, the runtime library, and macros.

====  ==================================  =====================================================
HIP   ``libamdhip64``                     as ``hipconfig --cpp_config`` and ``hipcc`` give them
CUDA  ``libcudart``; NVIDIA's wheels      as nvcc gives them; the archive needs ``dl``, ``rt``
      have ``libcudart_static.a`` alone   and ``pthread``
====  ==================================  =====================================================

Sources: hipcc's and hipconfig's output of ROCm 6.4; nvcc 12.9 and 13.0 with ``--dryrun``; the files
of Debian's libamdhip64-dev 6.4, TheRock's wheels and nvidia-cuda-runtime 13.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from offload_tool.errors import CompilerError
from offload_tool.util.frozen import frozen

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
    """Macros."""
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
        if folder.is_dir() and not _OF_THE_SYSTEM.fullmatch(os.path.realpath(folder))
    ]
