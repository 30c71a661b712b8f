"""The nodes of CUDA's device code.

For one source and two target IDs::

    add.cu --+-- add.sm_80.ptx ---+-- add.sm_80.cubin --+
             |                    +---------------------+
             +-- add.sm_90.ptx ---+-- add.sm_90.cubin --+-- add.fatbin --+
             |                    +---------------------+                +-- add.o -- program
             +-- add.host.o ---------------------------------------------+

With relocatable device code, the cubins of all sources are linked first, once per target ID. The
program also gets the PTX, which the CUDA driver links for later devices::

    a.cu -- a.sm_80.rdc.ptx -- a.sm_80.rdc.cubin --+
         |                                         +-- prog.sm_80.cubin -- prog.fatbin --+
    b.cu -- b.sm_80.rdc.ptx -- b.sm_80.rdc.cubin --+                                     |
         |                                                                prog.fatbin.o--+-- program
         +-- b.rdc.fatbin (PTX of all target IDs) ----------------------------+          |
                                                            prog.registration.o ---------+

Host objects of clang's old offload driver embed ``b.rdc.fatbin`` themselves, as with nvcc. Objects
for the links of others also embed the cubins.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offload_tool.errors import CompilerError, UsageError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.passes.cuda import CUBIN, DEVICE_RUNTIME, PTX, check_ptxas, cubin_arguments
from offload_tool.scons import actions, compat, found_tools, settings, spawn
from offload_tool.scons.graph.compile_nodes import device_nodes, uses_new_driver, with_host
from offload_tool.scons.graph.links import DeviceLink
from offload_tool.scons.graph.units import Stem, Unit, add_identity, label
from offload_tool.scons.state.node_info import code_of
from offload_tool.scons.state.node_resolver import ptxas_flags
from offload_tool.scons.types import Environment, Node

if TYPE_CHECKING:
    from offload_tool.nvidia.nvlink import NvLinker

_COMPILE_ONLY = "--compile-only  "
"""The driver's options for the assembler of PTX to be linked, spelled as by nvcc."""


_LEVEL = 3


def cuda_object(env: Environment, unit: Unit, names: Iterable[Node]) -> Node:
    """Declare the host object of a CUDA source that embeds its fat binary."""
    unit, host = with_host(env, unit)
    images = [
        image
        for ptx in device_nodes(env, unit)
        for image in (*_cubin(env, unit, ptx), *_later(env, ptx))
    ]
    fatbin = _fatbin(env, unit.stem.files(env, ".fatbin"), images)
    return actions.EMBED_CUDA.first_free(env, names, [host, fatbin])


def _fatbin(env: Environment, names: Iterable[Node], images: list[Node], **options: Any) -> Node:
    processors = [str(code_of(image).device.target_id) for image in images]
    method, level, *_ = settings.compression(env)
    if method == "zlib":
        raise UsageError(
            "OFFLOAD_COMPRESS: 'zlib' is for bundles; images of CUDA are compressed with 'zstd'"
        )
    if method is not None:
        options["level"] = _LEVEL if level is None else level
    return actions.FATBIN.first_free(env, names, images, processors=processors, **options)


def _later(env: Environment, ptx: Node) -> list[Node]:
    return [ptx] if PTX in settings.cuda_images(env, code_of(ptx).device) else []


def _cubin(env: Environment, unit: Unit, ptx: Node) -> list[Node]:
    device = code_of(ptx).device
    images = settings.cuda_images(env, device)
    if CUBIN not in images:
        return []
    ptxas = found_tools.ptxas(env)
    if ptxas is None:
        if PTX not in images:
            raise CompilerError(
                f"OFFLOAD_ARCH has {device.name} without PTX, and there is no ptxas to make its "
                f"cubin; name one with OFFLOAD_PTXAS, or write '{device.name}+ptx'"
            )
        return []
    if compat.is_build():
        check_ptxas(ptxas, device.name)
    node = actions.PTXAS.first_free(
        env,
        unit.stem.files(env, f".{device.filename}{'.rdc' if unit.rdc else ''}.cubin"),
        [ptx],
        ESCAPE=shlex.quote,
        SPAWN=spawn.command_spawn(ptxas.command, env["SPAWN"]),
        _OFFLOAD_PTXAS=list(ptxas.command),
        _OFFLOAD_PTXAS_ARGUMENTS=cubin_arguments(device.name, rdc=unit.rdc),
        _OFFLOAD_PTXAS_FLAGS=_driver_flags,
        _OFFLOAD_TARGET_ID=device.name,
        IMPLICIT_COMMAND_DEPENDENCIES=False,
    )
    env.Depends(node, env.Value(ptxas.identity))
    label(env, node, unit.kind, device, relocatable=unit.rdc)
    return [node]


def _driver_flags(
    target: list[Any], source: list[Any], env: Environment, for_signature: bool
) -> list[str]:
    return [*ptxas_flags(source[0])] if compat.is_build() else []


# -- relocatable device code -----------------------------------------------------------


@dataclass
class RelocatableCuda:
    """The nodes of one source, for a link of several."""

    unit: Unit
    host: Node
    modules: list[Node]
    """For each target ID the cubin, or the PTX if there is none."""
    ptx: list[Node]
    has_entries: bool
    """Whether the new offload driver made the host object, which is then complete."""

    def ptx_fatbin(self, env: Environment) -> Node:
        """Declare the fat binary of the PTX, which may be empty."""
        names = self.unit.stem.files(env, ".rdc.fatbin")
        images = [image for ptx in self.ptx for image in _later(env, ptx)]
        return _fatbin(env, names, images, options=_COMPILE_ONLY, may_be_empty=True)

    def whole_fatbin(self, env: Environment) -> Node:
        """Declare the fat binary of cubins and PTX, for the device links of others."""
        pairs = [
            (module, *_later(env, ptx)) for module, ptx in zip(self.modules, self.ptx, strict=True)
        ]
        images = list(dict.fromkeys(image for pair in pairs for image in pair))
        names = self.unit.stem.files(env, ".rdc.all.fatbin")
        return _fatbin(env, names, images, options=_COMPILE_ONLY)


def relocatable_code(env: Environment, unit: Unit) -> RelocatableCuda:
    """Declare one source's inputs of a link of several sources."""
    unit, host = with_host(env, unit)
    if not compat.is_build():  # these are of the old offload driver
        suffixes = (".rdc.all.fatbin", ".rdc$OBJSUFFIX", f".rdc{settings.shared_suffix(env)}")
        env.Clean(host, [unit.stem.file(env, suffix) for suffix in suffixes])
    ptx = device_nodes(env, unit)
    modules = [next(iter(_cubin(env, unit, each)), each) for each in ptx]
    return RelocatableCuda(unit, host, modules, ptx, uses_new_driver(env, unit))


def is_device_runtime(file: Node) -> bool:
    """Return True for NVIDIA's library of device functions, ``libcudadevrt.a``."""
    return bool(file.name == DEVICE_RUNTIME)


def linked_objects(
    env: Environment,
    stem: Stem,
    devices: Iterable[CompileTarget],
    part: DeviceLink,
    library: str = "",
) -> list[Node]:
    """Declare a program's device links, and the objects that embed their results."""
    from offload_tool.nvidia import linked_fatbin, nvlink  # other builds do not need them

    images = []
    assembler = found_tools.ptxas(env)
    if assembler is None and env.subst("$OFFLOAD_NVLINK").lower() not in {"", "none"}:
        found_tools.nvlink(env)  # which checks what is named; nothing is linked with it
    if assembler is not None:  # otherwise the CUDA driver links PTX itself
        linker = found_tools.nvlink(env)
        images = [
            _link_node(env, stem, linker, device, part.of(device))
            for device in devices
            if CUBIN in settings.cuda_images(env, device)
        ]
        runtimes = linker.libraries
    else:
        runtimes = nvlink.device_libraries("", found_tools.toolchain(env).cuda)
    own = [host for host in part.hosts if is_device_runtime(host)]
    libraries = [] if own else [compat.exact_file(env.fs, name) for name in runtimes]
    linked = _fatbin(env, stem.files(env, ".fatbin"), images, may_be_empty=True)
    variables = spawn.toolchain_variables(env, found_tools.toolchain(env).cc)
    variables["_OFFLOAD_LINK_LIBRARIES"] = [str(file) for file in own or libraries]
    names = stem.files(env, "$OFFLOADEMBEDSUFFIX")
    files = [linked, *part.sources, *part.registration_callers]
    given = {"variables": variables, "sources": len(part.sources), "library": library}
    embedded = actions.EMBED_LINKED_CUDA.first_free(env, names, files, **given)
    names = stem.files(env, ".registration$OBJSUFFIX")
    source = compat.exact_file(env.fs, linked_fatbin.SOURCE)
    files = [source, *part.sources, *part.registration_callers]
    registration = actions.REGISTER_CUDA.first_free(env, names, files, **given)
    for node in (embedded, registration):
        env.Depends(node, libraries)
    # The linker takes the device runtime from its library if a kernel starts kernels.
    return [add_identity(env, embedded), add_identity(env, registration), *libraries]


def _link_node(
    env: Environment, stem: Stem, linker: NvLinker, device: CompileTarget, inputs: list[Node]
) -> Node:
    flags = settings.substituted(env, "$OFFLOAD_LINK_FLAGS")
    arguments = [*linker.arguments(str(device.target_id)), *flags]
    node = actions.LINK_CUDA.first_free(
        env,
        stem.files(env, f".{device.filename}.cubin"),
        inputs,
        variables={
            "_OFFLOAD_LINKER": list(linker.command),
            "_OFFLOAD_LINK_LIBRARIES": list(linker.libraries),
            "_OFFLOAD_TARGET_ID": device.name,
        },
        arguments=arguments,
    )
    env.Depends(node, env.Value(linker.identity))
    env.Depends(node, [compat.exact_file(env.fs, name) for name in linker.libraries])
    label(env, node, "cuda", device)
    return node
