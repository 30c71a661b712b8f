"""Device links of several sources, one for each device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from offload_tool.errors import UsageError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.passes import hip, openmp
from offload_tool.passes.languages import LANGUAGES
from offload_tool.scons import actions, compat, found_tools, settings, spawn
from offload_tool.scons.graph.containers import package_node, wrap_node
from offload_tool.scons.graph.link_inputs import files_of_flags
from offload_tool.scons.graph.units import Stem, add_environment, add_identity, label
from offload_tool.scons.state.node_info import code_of, info_of
from offload_tool.scons.types import Environment, Node


@dataclass
class DeviceLink:
    """The inputs of a link: host files, and the device code of each."""

    hosts: list[Node] = field(default_factory=list)
    modules: list[dict[CompileTarget, list[Any]]] = field(default_factory=list)
    device_code: defaultdict[CompileTarget, list[Any]] = field(
        default_factory=partial(defaultdict, list)
    )
    """Device code without a host part."""
    sources: list[Node] = field(default_factory=list)
    """CUDA's fat binaries of sources whose host objects reserve no space for them."""
    registration_callers: list[Node] = field(default_factory=list)
    """Host files that may call a registration function of CUDA for their modules by name."""

    def add(self, host: Node, nodes: list[Node]) -> None:
        """Add a host file and its device code."""
        self.hosts.append(host)
        found: defaultdict[CompileTarget, list[Any]] = defaultdict(list)
        for node in nodes:
            found[code_of(node).device].append(node)
        self.modules.append(found)

    def add_existing(self, host: Node, nodes: list[Node]) -> None:
        """Add an object or library and its device code, possibly from another build."""
        self.add(host, nodes)
        sources = info_of(host).source_fatbins
        if sources is None:
            self.registration_callers.append(host)
        else:
            self.sources += sources

    def of(self, device: CompileTarget) -> list[Any]:
        """Return the inputs for one device; raise UsageError if a file has no code for it."""
        for host, found in zip(self.hosts, self.modules, strict=True):
            if device not in found:
                names = ", ".join(other.name for other in found)
                raise UsageError(
                    f"'{host}' has device code for {names}, not for {device.name}; "
                    "build it for this target, too"
                )
        if self.device_code and device not in self.device_code:
            given = ", ".join(str(node) for nodes in self.device_code.values() for node in nodes)
            raise UsageError(
                f"of the device code given ({given}), none is for {device.name}; "
                "build some for it, or take it out of OFFLOAD_ARCH"
            )
        own = [node for modules in self.modules for node in modules[device]]
        return list(dict.fromkeys([*own, *self.device_code.get(device, ())]))


def link_node(
    env: Environment, stem: Stem, kind: str, device: CompileTarget, inputs: list[Node]
) -> Node:
    """Declare the link of `inputs` for one device; raise CompilerError without a runtime."""
    suffix = "$OFFLOADDEVICESUFFIX" if device.target_id is not None else "$SHLIBSUFFIX"
    names = stem.files(env, f".{device.filename}{suffix}")
    if LANGUAGES[kind].has_host_ir:
        node = _openmp_link(env, stem, names, device, inputs)
    else:
        node = _hip_link(env, names, device, inputs)
    add_environment(env, node)
    add_identity(env, node)
    label(env, node, kind, device)
    return node


def _hip_link(
    env: Environment, names: Iterable[Node], device: CompileTarget, inputs: list[Node]
) -> Node:
    target_id, linker = hip.linker(device, found_tools.toolchain(env))
    level = hip.level_arguments(settings.host_link_flags(env))
    return actions.LINK.first_free(
        env,
        names,
        inputs,
        **spawn.toolchain_variables(env, linker),
        _OFFLOAD_LINKER=list(linker),
        _OFFLOAD_LINK_ARGUMENTS=[*hip.link_arguments(target_id), *level],
        # The link includes all members of archives.
        _OFFLOAD_LINK_INPUTS=["--whole-archive", "$SOURCES", "--no-whole-archive"],
        _OFFLOAD_TARGET_ID=device.name,
    )


def _openmp_link(
    env: Environment, stem: Stem, names: Iterable[Node], device: CompileTarget, inputs: list[Node]
) -> Node:
    """Declare the driver's link of an image; a CPU's takes the program's libraries, too."""
    toolchain = found_tools.toolchain(env)
    runtimes = found_tools.needed_runtimes(env, device)
    own, for_linker = openmp.image_link_flags(
        device,
        toolchain,
        settings.substituted(env, "$OFFLOAD_LINK_FLAGS"),
        runtimes if env["OFFLOAD_DEVICE_RUNTIME"] is not None or not runtimes else None,
    )
    is_shared = stem.owner is not None and stem.owner.is_shared
    libraries = ["$__RPATH", "$_LIBDIRFLAGS", "$_LIBFLAGS"] if device.target_id is None else []
    variables = spawn.toolchain_variables(env)
    target = device, openmp.packaged_arch(device, toolchain)
    variables[compat.OWN_SPAWN] = spawn.pass_spawn(spawn.openmp_linker(inputs, target))
    node = actions.OPENMP_LINK.first_free(
        env,
        names,
        inputs,
        **variables,
        _OFFLOAD_LINKER=[*toolchain.cxx, *openmp.gpu_flags(device, toolchain)],
        _OFFLOAD_LINK_ARGUMENTS=[
            *(*own, *settings.link_flags(env), "$SHLINKFLAGS" if is_shared else "$LINKFLAGS")
        ],
        OFFLOAD_LINK_FLAGS=for_linker,
        _OFFLOAD_LINK_INPUTS=["$SOURCES", *libraries],
        _OFFLOAD_TARGET_ID=device.name,
    )
    env.Depends(node, [env.File(name, env.fs.Top) for name in runtimes])
    if libraries:
        by_name, others = files_of_flags(env, "$SHLINKFLAGS" if is_shared else "$LINKFLAGS")
        env.Depends(node, [*by_name, *others])
    return node


def openmp_registration(env: Environment, stem: Stem, images: list[Node]) -> Node:
    """Declare the object that registers images, each in a package, of which it reads the target."""
    packages = []
    for image in images:
        names = Stem(image.dir, image.name).files(env, "$OFFLOADPACKAGESUFFIX")
        packages.append(package_node(env, names, [image]))
    names = stem.files(env, ".registration$OBJSUFFIX")
    return wrap_node(env, names, packages, "openmp", finds_entries=True)
