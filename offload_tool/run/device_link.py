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
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.clang.depfile import read_depfile
from offload_tool.clang.driver import run_checked
from offload_tool.clang.environment import ImplicitInputs
from offload_tool.errors import CompilerError
from offload_tool.formats.cuda.ptx import is_ptx
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.io import InputFile
from offload_tool.io.temporary_directory import temporary_folder
from offload_tool.manifest.output_state import Work
from offload_tool.nvidia.nvlink import find_nvlink, link_cubins
from offload_tool.passes import openmp
from offload_tool.passes.cuda import Ptxas, check_ptxas, cubin_arguments, find_ptxas
from offload_tool.passes.hip import link_arguments, linker
from offload_tool.passes.verify_output import check_image
from offload_tool.run.openmp_jobs import link_image
from offload_tool.run.run_pass import (
    OutputJob,
    Outputs,
    check_names,
    compiler_depfile,
    produce_output,
    run_command,
)
from offload_tool.toolchain.probe import Toolchain

if TYPE_CHECKING:
    from offload_tool.run.run_pass import Runner

    _Found = tuple[Work, Sequence[str], Sequence[str], Runner | None]
    """What is known of a link, its command, its program, and what runs it."""

_TO_PTXAS = "-Xcuda-ptxas"


class WantedLink(NamedTuple):
    """A link for one device."""

    device: CompileTarget
    kind: str
    toolchain: Toolchain
    inputs: Sequence[str]
    """Relocatable device code, and archives of it."""
    outputs: Outputs
    environ: Mapping[str, str]
    """For CUDA, ``OFFLOAD_PTXAS`` and ``OFFLOAD_NVLINK`` override the toolkit's."""
    flags: Sequence[str] = ()
    """Those of the linker; for CUDA, also those of ptxas behind ``-Xcuda-ptxas``."""

    def work(self, args: Sequence[str], listed: Callable[[], list[str]]) -> Work:
        """Return its description for the manifest; `listed` returns the files that it has read."""
        environment = {**os.environ, **dict(self.toolchain.environment)}
        begin = (self.outputs.file, args, environment, self.toolchain.identity, tuple(self.inputs))
        return Work(*begin, ImplicitInputs, listed)


def run_device_link(link: WantedLink) -> int:
    """Link device code; return the exit status. Errors as of `run_pass`; raise CompilerError."""
    check_names(link.inputs, link.outputs)
    find = {"hip": _hip_link, "openmp": _openmp_link, "cuda": _cuda_link}[link.kind]
    work, command, tool, run = find(link)

    check = partial(check_image, link.outputs.file, link.kind, link.device)
    return produce_output(OutputJob(work, command, link.outputs, tool, check), run)


def _hip_link(link: WantedLink) -> _Found:
    target_id, tool = linker(link.device, link.toolchain)
    output, depfile = link.outputs.file, compiler_depfile(link.outputs.file)
    args = [*tool, *link_arguments(target_id), *link.flags]
    # Only the host code tells which kernels of an archive are needed.
    end = ["-o", output, "--whole-archive", *link.inputs, "--no-whole-archive"]
    work = link.work([*args, *end], lambda: read_depfile(depfile))
    return work, [*args, f"--dependency-file={depfile}", *end], tool, None


def _openmp_link(link: WantedLink) -> _Found:
    device, toolchain, inputs = link.device, link.toolchain, link.inputs
    own, _ = openmp.image_link_flags(device, toolchain, ())
    args = [*toolchain.cxx, *openmp.gpu_flags(device, toolchain), *own, *link.flags]
    args += ["-o", link.outputs.file, *inputs]
    listed = [*inputs, *openmp.device_runtimes(toolchain, device)]
    work = link.work(args, lambda: listed)
    if device.target_id is None:  # the linker finds libraries
        work = work._replace(names_all_inputs=False)
    target = device, openmp.packaged_arch(device, toolchain)

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        return link_image(command, inputs, target, environment, run_command)

    return work, args, toolchain.cxx, run


def _cuda_link(link: WantedLink) -> _Found:
    environ, flags, processor = link.environ, link.flags, link.device.name
    toolkit = link.toolchain.cuda or environ.get("OFFLOAD_CUDA_PATH", "")
    ptxas = find_ptxas(environ.get("OFFLOAD_PTXAS", ""), toolkit, environ)
    ptxas_program = ptxas.command[0] if ptxas is not None else ""
    linker = find_nvlink(environ.get("OFFLOAD_NVLINK", ""), toolkit, ptxas_program, environ)
    pairs = [*zip(("", *flags), (*flags, ""), strict=True)]
    assembling = [arg for before, arg in pairs if before == _TO_PTXAS]
    linking = [arg for before, arg in pairs if arg and _TO_PTXAS not in (before, arg)]
    args = [*linker.command, *linker.arguments(processor), *linking]
    assembler = " ".join([ptxas.identity, *assembling]) if ptxas is not None else ""
    whole = [*args, "-o", link.outputs.file, *link.inputs]
    work = link.work(whole, lambda: [*link.inputs, *linker.libraries])
    work = work._replace(environment=environ, compiler=f"{linker.identity}, {assembler}")

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        with temporary_folder() as folder:

            def assembled(name: str) -> str:
                return _assembled(name, ptxas, processor, folder, environment, assembling)

            named = [*map(assembled, link.inputs)]
            link_cubins(link.outputs.file, command, named, environment, linker.libraries)
        return 0

    return work, args, linker.command, run


def _assembled(
    name: str,
    ptxas: Ptxas | None,
    processor: str,
    folder: Path,
    environment: Mapping[str, str],
    flags: Sequence[str],
) -> str:
    """Return the cubin of a PTX module, assembled in `folder`; return other inputs unchanged."""
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
