"""Flags that would take a word of ours, or name files that are named elsewhere, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import UsageError
from offload_tool.run.validate_flags import check_depfile_flags, check_flags


@pytest.mark.parametrize(
    "flags", ["-Xclang", "-O2 -mllvm", "-DA -include", "-D", "-Xarch_device", "-Xclang -mllvm -x"]
)
def test_value_wanted(flags: str) -> None:
    """The last flag would take the next word."""
    args = flags.split()
    with pytest.raises(UsageError, match=f"'{args[-1]}' at the end of the flags wants a value"):
        check_flags(args)


@pytest.mark.parametrize("flags", ["-o", "-o x.o", "-O2 -o x.o -g"])
def test_output(flags: str) -> None:
    """The output is named once."""
    with pytest.raises(UsageError, match="'-o' among the flags"):
        check_flags(flags.split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-arch=sm_80", "'-arch=sm_80' among the flags: targets are those of OFFLOAD_ARCH"),
        ("-gencode arch=compute_80", "'-gencode' among the flags: targets are those of OFFLOAD_AR"),
        ("--amdgpu-target=gfx906", "targets are those of OFFLOAD_ARCH"),
        ("-fopenmp-targets=amdgcn-amd-amdhsa", "targets are those of OFFLOAD_ARCH"),
        ("--offload-targets=amdgcn-amd-amdhsa", "targets are those of OFFLOAD_ARCH"),
        ("-march=gfx906", "targets are those of OFFLOAD_ARCH"),
        ("-Xopenmp-target=amdgcn -march=gfx906", "flags of one target are OFFLOAD_ARCH_FLAGS"),
        ("--offload-device-only", "which pass is run is the builder's choice"),
        ("-Xcompiler -fPIC", "is nvcc's: flags of the host compile are OFFLOAD_HOST"),
        ("--offload-compress", "compression is OFFLOAD_COMPRESS='zstd'"),
        ("-O3;-Wall", "is a list of CMake's; write ' ' for ';'"),
        ("-dc", "is nvcc's: relocatable device code is OFFLOAD_RDC=True"),
        ("--threads 0", "is nvcc's: clang needs no flag"),
        ("-G -O3", "is nvcc's: write -g"),
        ("--fmad=false", "is nvcc's: write -ffp-contract=off"),
        ("-ftz=true", "is nvcc's: write -fgpu-flush-denormals-to-zero"),
        ("--default-stream per-thread", "is nvcc's: write -Xclang -fgpu-default-stream="),
        ("-rdc=true", "is nvcc's: relocatable device code is OFFLOAD_RDC=True"),
        ("--extended-lambda", "is nvcc's: clang needs no flag"),
        ("--use_fast_math", "is nvcc's: write -ffast-math"),
        ("-maxrregcount=64", "is nvcc's: flags of ptxas are OFFLOAD_PTXAS_FLAGS"),
        ("-ccbin g++", "is nvcc's: clang compiles host code itself"),
        ("-lineinfo", "is nvcc's: write -gline-tables-only"),
        ("-E", "the compiler would make no object"),
        ("-S", "the compiler would make no object"),
        ("--version", "the compiler would make no object"),
    ],
)
def test_flags_of_others(flags: str, message: str) -> None:
    """What other tools call so, or what makes no object, is refused with what to write."""
    args = flags.split()
    with pytest.raises(UsageError) as error:
        check_flags(args)
    assert str(error.value).startswith(f"'{args[0]}' among the flags")
    assert message in str(error.value)


@pytest.mark.parametrize("flags", ["-include /dev/stdin", "-include/dev/fd/63"])
def test_open_file(flags: str) -> None:
    """What is open already may be something else for the compiler."""
    with pytest.raises(UsageError, match="is a file that is open already"):
        check_flags(flags.split())


@pytest.mark.parametrize(
    "flags",
    [
        *("", "-O2", "-Xclang -o -Xclang x", "-I inc -D A", "-Iinc -DA", "-mllvm -o", "-x hip"),
        *("-Xarch_device -O3", "-foptimization-record-file=/dev/stderr", "-include -Xclang"),
    ],
)
def test_others(flags: str) -> None:
    """Values are no flags, and flags with their values are complete."""
    check_flags(flags.split())


def test_in_response_files(tmp_path: Path) -> None:
    """What a response file holds is among the flags."""
    (tmp_path / "words").write_text("-O2 -Xclang\n")
    with pytest.raises(UsageError, match="'-Xclang' at the end"):
        check_flags([f"@{tmp_path / 'words'}"])


@pytest.mark.parametrize(
    ("flags", "depfile", "refused"),
    [
        ("-MD", None, "-MD"),
        ("-MMD -MT x", None, "-MMD"),
        ("-MD -MF x.d", None, "-MD"),
        ("-MF x.d", None, "-MF"),
        ("-MFx.d", "y.d", "-MF"),
        ("-MD -MF x.d", "y.d", "-MF"),
        ("-MD -MF x.d", "x.d", ""),
        ("-MD", "x.d", ""),
        ("-O2", None, ""),
    ],
)
def test_depfiles(flags: str, depfile: str | None, refused: str) -> None:
    """A depfile that is asked for by flags is the one that is written."""
    if not refused:
        check_depfile_flags(flags.split(), depfile)
        return
    with pytest.raises(UsageError, match=f"'{refused}' among the flags; name the depfile by"):
        check_depfile_flags(flags.split(), depfile)


def test_flag_of_relocatable_code() -> None:
    """A pass of relocatable code may have its flag; no other pass may."""
    check_flags(["-fgpu-rdc"], rdc=True)
    with pytest.raises(UsageError, match="'-fgpu-rdc' among the flags: relocatable device code"):
        check_flags(["-fgpu-rdc"])
