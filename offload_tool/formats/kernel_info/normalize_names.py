"""Names of kernels without what compilers put in of the folder, the file or the moment of a build.

::

    _ZL1kPi.intern.f31826be6faec592         clang: static kernels, with the hash of the CUID
    _ZL1kPi.static.f31826be6faec592
    _ZL1kPi__static__f31826be6faec592
    _GLOBAL__N__f824cfd9_10_onerank_cu_fdf47990     nvcc: unnamed namespaces and static kernels,
                                                    with the length and name of the file
    __omp_offloading_10302_1e2f3a_main_l5   clang: device and inode of the source

Each such number becomes ``*``. Source: clang 22.1.8, nvcc 12 and 13, observed.
"""

from __future__ import annotations

import re

_NUMBERS = (
    (re.compile(r"(\.|__)(intern|static)(\.|__)[0-9a-f]{1,16}"), r"\1\2\3*"),
    (re.compile(r"[0-9a-f]{8}_(\d+_[A-Za-z_]\w*?)_[0-9a-f]{8}"), r"*_\1_*"),
    (re.compile(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_"), "__omp_offloading_*_"),
)


def stable_name(name: str) -> str:
    """Return the name that a kernel has in all builds of the same source."""
    for pattern, replacement in _NUMBERS:
        name = pattern.sub(replacement, name)
    return name
