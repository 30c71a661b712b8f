"""Device link of relocatable CUDA code in one command, for build tools that run one per output.

::

    one.sm_80.ptx -- ptxas -c --+
    two.sm_80.cubin ------------+-- nvlink or libnvJitLink -- OUT: a cubin of all sources
    members of lib.a -----------+

Each run assembles the PTX again; pass cubins of ``ptxas --compile-only`` to avoid that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.driver import run_checked
from offload_tool.clang.environment import ImplicitInputs
from offload_tool.errors import CompilerError
from offload_tool.io import InputFile
from offload_tool.manifest import Work
from offload_tool.nvidia.nvlink import find_nvlink, link_cubins
from offload_tool.passes.cuda import Ptxas, check_ptxas, cubin_arguments, find_ptxas
from offload_tool.passes.verify_output import check_cubin
from offload_tool.run.run_pass import OutputJob, Outputs, check_names, produce_output

if TYPE_CHECKING:
    from offload_tool.formats.targets.target_id import TargetID

_TO_PTXAS = "-Xcuda-ptxas"


def run_cuda_link(
    target_id: TargetID,
    inputs: Sequence[str],
    outputs: Outputs,
    *,
    environ: Mapping[str, str],
    toolkit: str = "",
    flags: Sequence[str] = (),
) -> int:
    """Link PTX, cubins, fat binaries and archives of these for `target_id`; return 0.

    ``OFFLOAD_PTXAS`` and ``OFFLOAD_NVLINK`` override `toolkit`. The linker gets `flags`, ptxas
    those behind ``-Xcuda-ptxas``.

    :raises CompilerError, CodeObjectError: a program is missing or failed, or code is unexpected.
    :raises UsageError, FileError: as `run_pass.run_pass` does.
    """
    check_names(inputs, outputs)
    toolkit = toolkit or environ.get("OFFLOAD_CUDA_PATH", "")
    ptxas = find_ptxas(environ.get("OFFLOAD_PTXAS", ""), toolkit, environ)
    ptxas_program = ptxas.command[0] if ptxas is not None else ""
    linker = find_nvlink(environ.get("OFFLOAD_NVLINK", ""), toolkit, ptxas_program, environ)
    pairs = [*zip(("", *flags), (*flags, ""), strict=True)]
    assembling = [arg for before, arg in pairs if before == _TO_PTXAS]
    linking = [arg for before, arg in pairs if arg and _TO_PTXAS not in (before, arg)]
    args = [*linker.command, *linker.arguments(str(target_id)), *linking]
    assembler = " ".join([ptxas.identity, *assembling]) if ptxas is not None else ""

    work = Work(
        outputs.file,
        [*args, "-o", outputs.file, *inputs],
        environ,
        f"{linker.identity}, {assembler}",
        tuple(inputs),
        ImplicitInputs,
        lambda: [*inputs, *linker.libraries],
    )

    def link(command: Sequence[str], environment: Mapping[str, str]) -> int:
        from offload_tool.io.temporary_directory import temporary_folder

        with temporary_folder() as folder:
            named = [
                _assembled(name, ptxas, target_id, folder, environment, assembling)
                for name in inputs
            ]
            link_cubins(outputs.file, command, named, environment, linker.libraries)
        return 0

    def check() -> None:
        check_cubin(outputs.file)

    return produce_output(OutputJob(work, args, outputs, tool=linker.command, check=check), link)


def _assembled(
    name: str,
    ptxas: Ptxas | None,
    target_id: TargetID,
    folder: Path,
    environment: Mapping[str, str],
    flags: Sequence[str],
) -> str:
    """Return the cubin of a PTX module, assembled in `folder`; return other inputs unchanged."""
    from offload_tool.formats.cuda.ptx import is_ptx

    with InputFile(name) as source:
        if not is_ptx(source.data):
            return name
    if ptxas is None:
        raise CompilerError(
            f"'{name}' is PTX, and there is no ptxas to assemble it; install a CUDA toolkit or "
            "NVIDIA's wheel nvidia-cuda-nvcc, or name one with OFFLOAD_PTXAS"
        )
    check_ptxas(ptxas, str(target_id))
    number = sum(1 for _ in folder.iterdir())  # inputs may share a base name
    cubin = folder / f"{number}" / f"{Path(name).stem}.cubin"
    cubin.parent.mkdir()
    arguments = [*cubin_arguments(str(target_id), rdc=True), *flags]
    args = [*ptxas.command, *arguments, "-o", str(cubin), name]
    run_checked(f"the cubin of '{name}'", args, environment)
    return str(cubin)
