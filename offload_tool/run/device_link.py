"""Device links of relocatable code in one command, for build tools that run one per output.

For NVIDIA's GPUs::

    one.sm_80.ptx -- ptxas -c --+
    two.sm_80.cubin ------------+-- nvlink or libnvJitLink -- OUT: a cubin of all sources
    members of lib.a -----------+

Each run assembles the PTX again; pass cubins of ``ptxas --compile-only`` to avoid that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.driver import run_checked
from offload_tool.clang.environment import ImplicitInputs
from offload_tool.errors import CompilerError
from offload_tool.io import InputFile
from offload_tool.manifest.output_state import Work
from offload_tool.run.run_pass import (
    OutputJob,
    Outputs,
    check_names,
    compiler_depfile,
    produce_output,
    run_command,
)

if TYPE_CHECKING:
    from offload_tool.formats.targets.compile_target import CompileTarget
    from offload_tool.passes.cuda import Ptxas
    from offload_tool.toolchain.probe import Toolchain

_TO_PTXAS = "-Xcuda-ptxas"


def run_device_link(
    device: CompileTarget,
    kind: str,
    toolchain: Toolchain,
    inputs: Sequence[str],
    outputs: Outputs,
    *,
    environ: Mapping[str, str],
    flags: Sequence[str] = (),
) -> int:
    """Link relocatable device code and archives; return the status. Errors as of `run_pass`.

    For CUDA, `flags` are those of the linker, and of ptxas behind ``-Xcuda-ptxas``; of `environ`,
    ``OFFLOAD_PTXAS`` and ``OFFLOAD_NVLINK`` override the toolkit's.

    :raises CompilerError: a program is missing or failed.
    """
    check_names(inputs, outputs)
    if kind == "openmp":
        return _link_openmp(device, toolchain, inputs, outputs, flags)
    if kind == "cuda":
        return _link_cuda(device, toolchain, inputs, outputs, environ, flags)
    from offload_tool.clang.depfile import read_depfile
    from offload_tool.passes.hip import link_arguments, linker

    target_id, tool = linker(device, toolchain)
    depfile = compiler_depfile(outputs.file)
    args = [*tool, *link_arguments(target_id), *flags]
    # Only the host code tells which kernels of an archive are needed.
    end = ["-o", outputs.file, "--whole-archive", *inputs, "--no-whole-archive"]
    work = _work([*args, *end], inputs, outputs, toolchain, lambda: read_depfile(depfile))
    command = [*args, f"--dependency-file={depfile}", *end]
    return produce_output(
        OutputJob(work, command, outputs, tool, partial(_check_image, device, outputs))
    )


def _link_openmp(
    device: CompileTarget,
    toolchain: Toolchain,
    inputs: Sequence[str],
    outputs: Outputs,
    flags: Sequence[str],
) -> int:
    from offload_tool.passes.openmp import (
        device_runtimes,
        gpu_flags,
        image_link_flags,
        packaged_arch,
    )
    from offload_tool.run.openmp_jobs import link_image

    own, _ = image_link_flags(device, toolchain, ())
    args = [*toolchain.cxx, *gpu_flags(device, toolchain), *own, *flags]
    args += ["-o", outputs.file, *inputs]
    listed = [*inputs, *device_runtimes(toolchain, device)]
    work = _work(args, inputs, outputs, toolchain, lambda: listed)
    if device.target_id is None:  # the linker finds libraries
        work = work._replace(names_all_inputs=False)
    target = device, packaged_arch(device, toolchain)

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        return link_image(command, inputs, target, environment, run_command)

    check = partial(_check_image, device, outputs)
    return produce_output(OutputJob(work, args, outputs, toolchain.cxx, check), run)


def _link_cuda(
    device: CompileTarget,
    toolchain: Toolchain,
    inputs: Sequence[str],
    outputs: Outputs,
    environ: Mapping[str, str],
    flags: Sequence[str],
) -> int:
    from offload_tool.nvidia.nvlink import find_nvlink, link_cubins
    from offload_tool.passes.cuda import find_ptxas

    toolkit = toolchain.cuda or environ.get("OFFLOAD_CUDA_PATH", "")
    ptxas = find_ptxas(environ.get("OFFLOAD_PTXAS", ""), toolkit, environ)
    ptxas_program = ptxas.command[0] if ptxas is not None else ""
    linker = find_nvlink(environ.get("OFFLOAD_NVLINK", ""), toolkit, ptxas_program, environ)
    pairs = [*zip(("", *flags), (*flags, ""), strict=True)]
    assembling = [arg for before, arg in pairs if before == _TO_PTXAS]
    linking = [arg for before, arg in pairs if arg and _TO_PTXAS not in (before, arg)]
    args = [*linker.command, *linker.arguments(device.name), *linking]
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
                _assembled(name, ptxas, device.name, folder, environment, assembling)
                for name in inputs
            ]
            link_cubins(outputs.file, command, named, environment, linker.libraries)
        return 0

    check = partial(_check_image, device, outputs)
    return produce_output(OutputJob(work, args, outputs, linker.command, check), link)


def _assembled(
    name: str,
    ptxas: Ptxas | None,
    processor: str,
    folder: Path,
    environment: Mapping[str, str],
    flags: Sequence[str],
) -> str:
    """Return the cubin of a PTX module, assembled in `folder`; return other inputs unchanged."""
    from offload_tool.formats.cuda.ptx import is_ptx
    from offload_tool.passes.cuda import check_ptxas, cubin_arguments

    with InputFile(name) as source:
        if not is_ptx(source.data):
            return name
    if ptxas is None:
        raise CompilerError(
            f"'{name}' is PTX, and there is no ptxas to assemble it; install a CUDA toolkit or "
            "NVIDIA's wheel nvidia-cuda-nvcc, or name one with OFFLOAD_PTXAS"
        )
    check_ptxas(ptxas, processor)
    number = sum(1 for _ in folder.iterdir())  # inputs may share a base name
    cubin = folder / f"{number}" / f"{Path(name).stem}.cubin"
    cubin.parent.mkdir()
    arguments = [*cubin_arguments(processor, rdc=True), *flags]
    args = [*ptxas.command, *arguments, "-o", str(cubin), name]
    run_checked(f"the cubin of '{name}'", args, environment)
    return str(cubin)


def _work(
    args: Sequence[str],
    inputs: Sequence[str],
    outputs: Outputs,
    toolchain: Toolchain,
    listed: Callable[[], list[str]],
) -> Work:
    environment = {**os.environ, **dict(toolchain.environment)}
    begin = (outputs.file, args, environment, toolchain.identity, tuple(inputs))
    return Work(*begin, ImplicitInputs, listed)


def _check_image(device: CompileTarget, outputs: Outputs) -> None:
    from offload_tool.passes.verify_output import check_image

    check_image(outputs.file, device)
