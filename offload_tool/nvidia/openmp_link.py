"""The link of OpenMP's device code for an NVIDIA GPU: bitcode of all sources to one PTX module.

::

    a.bc, b.bc, members of lib.a --+
                                   +-- clang's back end -- PTX -- ptxas -- the image
    the device runtime's bitcode --+

Clang links the modules before it optimises them, without nvlink or ``lld``, and drops unused parts
of the runtime. LLVM's runtime loads cubins alone, so ptxas is needed. Source: clang 19.1.7 and
22.1.8, observed: ``-mlink-bitcode-file`` links all of a module, ``-mlink-builtin-bitcode`` only the
referenced parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offload_tool.clang.driver import query, response_text
from offload_tool.errors import CodeObjectError, CompilerError
from offload_tool.io import InputFile, StrPath
from offload_tool.nvidia.nvlink import named_inputs, print_messages
from offload_tool.passes.cuda import ptx_flag


def link_arguments(processor: str) -> list[str]:
    """Return the arguments, after clang's command, of a link for a GPU."""
    return [
        *("--target=nvptx64-nvidia-cuda", f"-march={processor}", ptx_flag(processor)),
        *("-nogpulib", "-O2", "-S", "-Wno-override-module", "-Wno-unused-command-line-argument"),
    ]


def no_ptxas(name: str) -> str:
    """Return the error message for images for the GPU `name` without ptxas."""
    return (
        f"OpenMP code for {name} cannot be linked: there is no ptxas, and LLVM's runtime loads "
        "nothing but its cubins; install a CUDA toolkit or NVIDIA's wheel nvidia-cuda-nvcc, or "
        "name one with OFFLOAD_PTXAS"
    )


def link_bitcode(
    output: StrPath,
    command: Sequence[str],
    inputs: Sequence[StrPath],
    runtimes: Sequence[StrPath],
    environment: Mapping[str, str],
) -> None:
    """Link bitcode files, and archives of them, with device `runtimes` to one PTX module.

    `command` is clang's, with its arguments.

    :raises CodeObjectError: an input is no bitcode.
    :raises CompilerError: the compiler failed; its messages are on standard error.
    :raises FormatError: a broken archive.
    :raises FileError: an input cannot be read.
    """
    from offload_tool.io.temporary_directory import temporary_output_folder

    with temporary_output_folder(output, "linked.ptx") as folder:
        modules = [*named_inputs(inputs, folder, _suffix)]
        own = [*named_inputs(runtimes, folder, _suffix)]
        if not modules:
            raise CodeObjectError(
                f"'{output}': there is nothing to link: all archives are empty; "
                "build them for this target"
            )
        args = [arg for path in modules[1:] for arg in ("-mlink-bitcode-file", path)]
        args += [arg for path in own for arg in ("-mlink-builtin-bitcode", path)]
        response = folder / "arguments"
        response.write_bytes(response_text(flag for arg in args for flag in ("-Xclang", arg)))
        last = ["-o", f"{folder}/linked.ptx", "-x", "ir", modules[0]]
        result = query([*command, f"@{response}", *last], environment)
        if result.status:
            print_messages(result, folder)
            raise CompilerError(f"'{command[0]}' cannot link '{output}'; its messages are above")


def _suffix(source: InputFile, label: str) -> str:
    from offload_tool.formats.bitcode.module import is_bitcode

    if not is_bitcode(source.data):
        raise CodeObjectError(
            f"'{label}': expected bitcode for an NVIDIA GPU, found {bytes(source.data[:4])!r}"
        )
    return ".bc"
