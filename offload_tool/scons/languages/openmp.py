"""The images of OpenMP sources for NVIDIA GPUs.

::

    a.sm_80.bc --+
                 +-- prog.sm_80.ptx -- prog.sm_80.co
    b.sm_80.bc --+
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.errors import CompilerError
from offload_tool.formats.target.compile_target import CompileTarget
from offload_tool.passes.cuda import ptxas_flags
from offload_tool.scons import actions, readers
from offload_tool.scons.graph.units import Stem, identified, label
from offload_tool.scons.languages.cuda import assembled
from offload_tool.scons.spawn import toolchain_variables

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node


def openmp_image(
    env: Environment, stem: Stem, kind: str, device: CompileTarget, inputs: list[Node]
) -> Node:
    """Declare the image of all sources for one GPU.

    :raises CompilerError: there is no device runtime for it, or no ptxas.
    """
    from offload_tool.nvidia import openmp_link  # other builds do not need it

    ptxas = readers.ptxas(env)
    if ptxas is None:
        raise CompilerError(openmp_link.no_ptxas(device.name))
    runtimes = readers.needed_runtimes(env, device)
    flags = readers.device_link_flags(env)
    arguments = [*openmp_link.link_arguments(device.name), *flags]
    variables = toolchain_variables(env)
    words = [*variables["_OFFLOAD_CLANG"], *variables["_OFFLOAD_LOCAL_FLAGS"], *arguments]
    assembling = [*ptxas_flags([*words, "-x", "ir"], env["ENV"])]
    ptx = actions.LINK_PTX.first_free(
        env,
        stem.files(env, f".{device.filename}.ptx"),
        inputs,
        **variables,
        _OFFLOAD_RUNTIMES=runtimes,
        _OFFLOAD_SPEC=readers.spec(arguments=arguments),
        _OFFLOAD_TARGET_ID=device.name,
    )
    env.Depends(ptx, [env.File(name, env.fs.Top) for name in runtimes])
    readers.add_environment(env, ptx)
    identified(env, [ptx])
    label(env, ptx, kind, device)
    names = stem.files(env, f".{device.filename}$OFFLOADDEVICESUFFIX")
    return assembled(env, ptxas, names, kind, ptx, flags=assembling)
