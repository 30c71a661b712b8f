"""Where ROCm, device libraries and CUDA are looked for, and what host code needs of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError, UsageError
from offload_tool.toolchain.installations import (
    RuntimeLibrary,
    cuda_installations,
    device_library_folders,
    find_runtime,
    rocm_compilers,
    rocm_installations,
)
from tests.scripts import script
from tests.toolchain.installed import write_rocm


def write_cuda(root: Path, version: int) -> Path:
    (root / "include").mkdir(parents=True)
    (root / "include/cuda.h").write_text(f"#define CUDA_VERSION {version}\n")
    return root


def write_program(file: Path) -> Path:
    file.parent.mkdir(parents=True)
    return Path(script(file, ""))


def bitcode(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "ockl.bc").write_bytes(b"BC")
    return str(folder)


def test_rocm_of_variables(tmp_path: Path) -> None:
    """What is named goes alone; else ROCM_PATH before HIP_PATH; one without headers is none."""
    first = write_rocm(tmp_path / "a", version="6.4.2")
    second = write_rocm(tmp_path / "b", version="7.0.1")
    (tmp_path / "empty").mkdir()
    environ = {"ROCM_PATH": str(first), "HIP_PATH": str(second)}
    found = rocm_installations(environ)[:2]
    assert [str(item) for item in found] == [
        f"6.4.2 ($ROCM_PATH: {first})",
        f"7.0.1 ($HIP_PATH: {second})",
    ]
    (named,) = rocm_installations({**environ, "OFFLOAD_ROCM_PATH": str(second)})
    assert (named.path, named.origin) == (str(second), "OFFLOAD_ROCM_PATH")
    paths = [item.path for item in rocm_installations({"ROCM_PATH": str(tmp_path / "empty")})]
    assert str(tmp_path / "empty") not in paths


def test_named_folder_without_headers(tmp_path: Path) -> None:
    """A folder that is named and is none of the kind is an error, with the file it lacks."""
    with pytest.raises(UsageError, match=r"OFFLOAD_ROCM_PATH=.*hip_runtime.h' is not there"):
        rocm_installations({"OFFLOAD_ROCM_PATH": str(tmp_path)})
    with pytest.raises(UsageError, match=r"OFFLOAD_CUDA_PATH=.*cuda.h' is not there"):
        cuda_installations({"OFFLOAD_CUDA_PATH": str(tmp_path)})
    with pytest.raises(UsageError, match=r"OFFLOAD_DEVICE_LIB_PATH=.*ockl.bc' is not there"):
        device_library_folders({"OFFLOAD_DEVICE_LIB_PATH": str(tmp_path)}, [], "")


def test_identity_is_by_content(tmp_path: Path) -> None:
    """Two installations of one version have one identity; another version has another."""
    versions = {"a": "6.4.2", "b": "6.4.2", "c": "6.4.3"}
    first, second, third = (
        rocm_installations({"OFFLOAD_ROCM_PATH": str(rocm)})[0].identity
        for rocm in (write_rocm(tmp_path / name, version=text) for name, text in versions.items())
    )
    assert first == second != third


def test_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TheRock's and NVIDIA's wheels beside this Python's packages are installations."""
    packages = tmp_path / "site-packages"
    write_rocm(packages / "_rocm_sdk_core", version="7.1.0")
    write_rocm(packages / "_rocm_sdk_devel", version="7.1.0")
    clang = write_program(packages / "_rocm_sdk_devel/lib/llvm/bin/clang")
    write_cuda(packages / "nvidia/cu13", 13000)
    monkeypatch.setattr(sys, "path", [str(packages)])
    found = [item for item in rocm_installations({}) if item.origin == "wheel rocm-sdk"]
    assert [Path(item.path).name for item in found] == ["_rocm_sdk_devel", "_rocm_sdk_core"]
    assert next(rocm_compilers({})) == (str(clang), f"wheel rocm-sdk: {clang}")
    versions = [item.version for item in cuda_installations({"PATH": ""}) if "wheels" in str(item)]
    assert versions == ["13.0"]


def test_cuda_of_variables_and_path(tmp_path: Path) -> None:
    """CUDA_PATH goes before CUDA_HOME, and that before the toolkit of the nvcc on PATH."""
    folders = [write_cuda(tmp_path / name, 12090) for name in "abc"]
    nvcc = write_program(folders[2] / "bin/nvcc")
    environ = {"CUDA_PATH": str(folders[0]), "CUDA_HOME": str(folders[1]), "PATH": str(nvcc.parent)}
    found = cuda_installations(environ)[:3]
    assert [item.path for item in found] == list(map(str, folders))
    assert {item.version for item in found} == {"12.9"}


def test_device_libraries(tmp_path: Path) -> None:
    """The shell's folder, the compiler's own, ROCm's, and Debian's, the newest LLVM first."""
    shell = bitcode(tmp_path / "shell")
    own = bitcode(tmp_path / "clang/amdgcn/bitcode")
    rocm = bitcode(tmp_path / "rocm/amdgcn/bitcode")
    old = bitcode(tmp_path / "usr/lib/llvm-9/lib/clang/9/amdgcn/bitcode")
    new = bitcode(tmp_path / "usr/lib/llvm-21/lib/clang/21/amdgcn/bitcode")
    roots = [str(tmp_path / "rocm"), str(tmp_path / "usr")]
    resources = str(tmp_path / "clang")
    found = device_library_folders({"HIP_DEVICE_LIB_PATH": shell}, roots, resources)
    assert found[:5] == [shell, own, rocm, new, old]
    assert device_library_folders({"OFFLOAD_DEVICE_LIB_PATH": old}, roots, resources) == [old]


def installation(root: Path, *files: str) -> str:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return str(root)


def test_runtime_of_rocm(tmp_path: Path) -> None:
    """ROCm's library is linked by its name, and found by its folder when a program starts."""
    root = installation(tmp_path, "lib/libamdhip64.so", "lib/libamdhip64.so.7", "include/hip/a.h")
    assert find_runtime("hip", root) == RuntimeLibrary(
        ("__HIP_PLATFORM_AMD__",), (f"{root}/include",), ("amdhip64",), f"{root}/lib", True
    )


def test_runtime_of_a_toolkit(tmp_path: Path) -> None:
    """The library goes before the archive, and CUDA 13's folder of CCCL is one of headers."""
    root = installation(
        tmp_path, "lib64/libcudart.so", "lib64/libcudart_static.a", "include/cccl/cub/cub.cuh"
    )
    found = find_runtime("cuda", root)
    assert found.headers == (f"{root}/include", f"{root}/include/cccl")
    assert (found.libraries, found.folder, found.is_shared) == (("cudart",), f"{root}/lib64", True)


def test_runtime_of_cuda_wheels(tmp_path: Path) -> None:
    """Without the name that links take, it is the archive, with what that needs."""
    root = installation(tmp_path, "lib/libcudart.so.13", "lib/libcudart_static.a")
    found = find_runtime("cuda", root)
    assert found.libraries == ("cudart_static", "rt", "pthread", "dl")
    assert not found.is_shared


def test_runtime_of_rocm_wheels(tmp_path: Path) -> None:
    """A library that has only its whole name is linked by its path."""
    root = installation(tmp_path, "lib/libamdhip64.so.7")
    assert find_runtime("hip", root).libraries == (f"{root}/lib/libamdhip64.so.7",)


@pytest.mark.skipif(not Path("/usr/include").is_dir(), reason="there is no /usr/include")
def test_folders_of_the_system(tmp_path: Path) -> None:
    """Folders that compilers search anyway are not named: `-I/usr/include` hides C++'s headers."""
    (tmp_path / "include").symlink_to("/usr/include")
    root = installation(tmp_path, "lib/libamdhip64.so")
    assert find_runtime("hip", root).headers == ()


def test_no_runtime(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    with pytest.raises(CompilerError, match=r"no libamdhip64\.so in lib64, lib, .*; install"):
        find_runtime("hip", str(tmp_path))
