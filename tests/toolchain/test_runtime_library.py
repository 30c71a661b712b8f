"""The runtime library of an installation, and what else host code needs of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.toolchain.installations import RuntimeLibrary, find_runtime


def installation(root: Path, *files: str) -> str:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return str(root)


def test_rocm(tmp_path: Path) -> None:
    """ROCm's library is linked by its name, and found by its folder when a program starts."""
    root = installation(tmp_path, "lib/libamdhip64.so", "lib/libamdhip64.so.7", "include/hip/a.h")
    assert find_runtime("hip", root) == RuntimeLibrary(
        ("__HIP_PLATFORM_AMD__",), (f"{root}/include",), ("amdhip64",), f"{root}/lib", True
    )


def test_toolkit(tmp_path: Path) -> None:
    """The library goes before the archive, and CUDA 13's folder of CCCL is one of headers."""
    root = installation(
        tmp_path, "lib64/libcudart.so", "lib64/libcudart_static.a", "include/cccl/cub/cub.cuh"
    )
    found = find_runtime("cuda", root)
    assert found.headers == (f"{root}/include", f"{root}/include/cccl")
    assert (found.libraries, found.folder, found.is_shared) == (("cudart",), f"{root}/lib64", True)


def test_wheels_of_cuda(tmp_path: Path) -> None:
    """Without the name that links take, it is the archive, with what that needs."""
    root = installation(tmp_path, "lib/libcudart.so.13", "lib/libcudart_static.a")
    found = find_runtime("cuda", root)
    assert found.libraries == ("cudart_static", "rt", "pthread", "dl")
    assert not found.is_shared


def test_wheels_of_rocm(tmp_path: Path) -> None:
    """A library that has only its whole name is linked by its path."""
    root = installation(tmp_path, "lib/libamdhip64.so.7")
    assert find_runtime("hip", root).libraries == (f"{root}/lib/libamdhip64.so.7",)


@pytest.mark.skipif(not Path("/usr/include").is_dir(), reason="there is no /usr/include")
def test_folders_of_the_system(tmp_path: Path) -> None:
    """Folders that compilers search anyway are not named: `-I/usr/include` hides C++'s headers."""
    (tmp_path / "include").symlink_to("/usr/include")
    root = installation(tmp_path, "lib/libamdhip64.so")
    assert find_runtime("hip", root).headers == ()


def test_none(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    with pytest.raises(CompilerError, match=r"no libamdhip64\.so in lib64, lib, .*; install"):
        find_runtime("hip", str(tmp_path))
