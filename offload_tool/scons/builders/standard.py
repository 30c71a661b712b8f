"""SCons's own builders for offload sources: they act as ours of the same name.

Otherwise ``env.Program("p", ["a.hip"])`` would pass the text of the source to the linker. In an
environment with this tool, such calls run OffloadProgram and its like; so do links of objects and
libraries with device code that the build declares. Other calls are SCons's own, and so are all if
the user has given its builders an action for such a source; their links check that no file has
device code to be linked.

A check of a ``Configure`` context builds one file now. It has no nodes of passes: the environment's
compiler compiles an offload source as the driver does, host and device. SCons links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import SCons.Action
import SCons.Builder
import SCons.Errors
import SCons.Node
import SCons.Tool
import SCons.Util

from offload_tool.passes.languages import compile_pass
from offload_tool.passes.source_kind import CXX_MODE, KIND_OF_SUFFIX, kind_of_suffix
from offload_tool.scons import compat, found_tools, offload_arch
from offload_tool.scons.graph import units
from offload_tool.scons.graph.links import depfile_flags, look_into
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Environment, Node
from offload_tool.toolchain.probe import Toolchain

Method = Callable[..., Any]
LINKS = {"Program": "LINK", "SharedLibrary": "SHLINK", "LoadableModule": "LDMODULE"}
"""The prefix of each link's variables."""
_LIBRARIES = ("StaticLibrary", "Library", "SharedLibrary", "LoadableModule")
OF_CHECKS = {
    "OffloadObject": "Object",
    "OffloadProgram": "Program",
    "OffloadSharedLibrary": "SharedLibrary",
}
"""Our builders that checks may use, and SCons's builders of the same names and suffixes."""
_FLAGS = (
    *("$CXXFLAGS", "$CCFLAGS", "$CPPFLAGS", "$_CPPDEFFLAGS", "$_OFFLOAD_INCLUDES"),
    "$OFFLOAD_FLAGS",
)
_END = ("-o", "$TARGET", "$SOURCE")
_NOWHERE = ("-o", "/dev/null", "$SOURCE")


def accept_offload_sources(
    env: Environment, methods: Mapping[str, Method], check: Callable[[str], Method]
) -> None:
    """Make SCons's builders call `methods` for offload sources, and `check` in a ``Configure``.

    Only this environment and its clones change. Builders reject offload sources if this tool is
    loaded before SCons's own.
    """
    builders = env["BUILDERS"]
    if "StaticObject" not in builders:
        for builder in SCons.Tool.createObjBuilders(env):
            for suffix in KIND_OF_SUFFIX:
                builder.add_action(suffix, _refuse)
                builder.add_emitter(suffix, _refuse)
        return
    for name, method in methods.items():
        if name in builders and not isinstance(builders[name], _Accepting):
            builders[name] = _Accepting(builders[name], name, method, check(name))
    if "_OFFLOAD_LINK_DEPFILE" not in env:  # not in LINKFLAGS, which the user may still change
        env["_OFFLOAD_LINK_DEPFILE"] = depfile_flags
        env["_LIBDIRFLAGS"] = f"$( $_OFFLOAD_LINK_DEPFILE $) {env['_LIBDIRFLAGS']}"


def builder_of_scons(env: Environment, name: str) -> Any:
    """Return SCons's original builder."""
    builder = env["BUILDERS"][name]
    return builder.get() if isinstance(builder, _Accepting) else builder


def _refuse(target: list[Node], source: list[Node], env: Environment) -> Any:
    raise SCons.Errors.UserError(
        f"'{source[0]}' is an offload source; use env.OffloadProgram and its like, or load the "
        "tool last: Environment(tools=['default', 'offload'])"
    )


class _Accepting(SCons.Util.Proxy):  # type: ignore[misc]
    def __init__(self, builder: Any, name: str, method: Method, check: Method) -> None:
        super().__init__(builder)
        self._name = name
        self._method = method
        self._check = check

    @property
    def action(self) -> Any:
        """The action, for checks of ``Configure``."""
        return CheckedAction(self.get().action)

    def __call__(
        self,
        env: Environment,
        target: Any = None,
        source: Any = None,
        *arguments: Any,
        **overrides: Any,
    ) -> Any:
        builder = self.get()
        given = SCons.Util.flatten([source])
        if is_check(overrides):
            return self._check(env, target, source, **overrides)
        local = env.Override(overrides) if overrides else env
        libs = SCons.Util.flatten([local.get("LIBS", [])]) if self._name in LINKS else []
        if not any(self._is_own(local, item) for item in given) and not any(map(_has_code, libs)):
            try:
                made = builder(env, target, source, *arguments, **overrides)
            except SCons.Errors.UserError as error:
                raise _explained(error, self._name) from None
            if self._name in LINKS:
                look_into(env, made[0], LINKS[self._name])
            return made
        if self._name.endswith("Object"):
            made = SCons.Node.NodeList()
            for item in given:  # only a single source may have a target
                call = self._method if self._is_own(local, item) else builder
                made += call(env, target, [item], *arguments, **overrides)
            return made
        if target is None and self._name in _LIBRARIES:  # as SCons does
            target = SCons.Util.splitext(str(given[0]))[0]
        return self._method(env, target, given, **overrides)

    def _is_own(self, env: Environment, item: Any) -> bool:
        """Return True if a source is for our builder: by suffix, or as part of a device link."""
        if isinstance(item, SCons.Node.Node):
            if self._name in LINKS and _has_code(item):
                return True
            name = str(item)
        elif isinstance(item, str):
            name = env.subst(item)
        else:
            return False
        known = env["BUILDERS"]["StaticObject"].src_suffixes(env)
        return kind_of_suffix(name) is not None and SCons.Util.splitext(name)[1] not in known


compat.blame_caller(_Accepting.__call__)


def _explained(error: Exception, name: str) -> Any:
    """Return an error that says what to do if SCons and this tool make the same object."""
    if not str(error).startswith("Two environments with different actions"):
        return error
    return SCons.Errors.UserError(
        f"{str(error).splitlines()[0]}, the offload compiler's of OffloadProgram or its like; "
        f"call {name} before them, or name its object: env.Object('other', source)"
    )


def _has_code(item: Any) -> bool:
    if not isinstance(item, SCons.Node.Node):  # a library's name
        return False
    info = info_of(item)
    return bool(info.code_kinds or info.device_nodes)


# -- checks of Configure contexts -----------------------------------------------------------


def is_check(overrides: dict[str, Any]) -> bool:
    """Return True if a ``Configure`` context calls a builder: SCons passes this variable then."""
    return "SCONF_NODE" in overrides


class BuilderMethod(compat.AddedMethod):
    """A builder as a method, which ``TryBuild`` of a ``Configure`` context accepts."""

    @property
    def builder(self) -> Any:
        """The builder that decides names of outputs; raise UserError."""
        if self.name not in OF_CHECKS:
            raise SCons.Errors.UserError(
                f"TryBuild: env.{self.name} builds no check; give env.{', env.'.join(OF_CHECKS)}"
            )
        return self.object["BUILDERS"][OF_CHECKS[self.name]]


compat.blame_caller(vars(BuilderMethod)["builder"].fget)


class CheckedAction(SCons.Util.Proxy):  # type: ignore[misc]
    """The action of one of SCons's builders, which has contents for offload sources, too."""

    def get_contents(self, target: Any, source: Any, env: Environment) -> bytes:
        """Return what names the outputs of a check."""
        try:
            return bytes(self.get().get_contents(target, source, env))
        except SCons.Errors.UserError:  # no action for the suffix
            return b"offload"


def check(env: Environment, builder: Any, name: str, target: Any, given: list[Any]) -> Any:
    """Declare the file of a check: with SCons's `builder` of a name, and our compiler."""
    # With ``scons -c`` as well: checks decide what a SConscript declares.
    found = found_tools.toolchain(env, lenient=compat.is_build())
    variables: dict[str, Any] = {"ENV": {**env["ENV"], **dict(found.environment)}}
    variables["OFFLOAD_FLAGS"] = SCons.Util.CLVar(env["OFFLOAD_FLAGS"])  # part of a list
    for prefix in ("", "SH"):
        variables |= {f"{prefix}CC": list(found.cc), f"{prefix}CXX": list(found.cxx)}
        variables[f"{prefix}LINK"] = list(found.cxx)
    local = env.Override({**variables, "SCONF_NODE": True})
    nodes = local.arg2nodes(given, env.fs.File)
    kinds = {node: units.kind_of(env, node) or "" for node in nodes}
    if not {"hip", "cuda"} & {*kinds.values()}:
        return builder(local, target, nodes)
    if name.endswith("Object"):
        return _object(local, found, kinds[nodes[0]], target, nodes[0])
    suffix = env.subst("$OBJSUFFIX")
    objects = [
        _object(local, found, kinds[node], f"{node}{suffix}", node)
        if kinds[node] in ("hip", "cuda")
        else node
        for node in nodes
    ]
    return builder(local, target, objects)


def _object(env: Environment, toolchain: Toolchain, kind: str, target: Any, source: Node) -> Any:
    devices = offload_arch.devices(env, kind)
    make = partial(compile_pass, kind, cuid="check", source=source.name)
    host = make("host")
    if kind == "hip":  # the driver links device code by itself
        local = host.local_flags(toolchain)
        targets = [f"--offload-arch={device.name}" for device in devices]
        lines = [[*toolchain.clang, *local, CXX_MODE, "-x", "hip", *targets, *_FLAGS, "-c", *_END]]
    else:
        passes = [(make("device", device=device), _NOWHERE) for device in devices]
        passes.append((host, _END))
        lines = [[*each.command(toolchain, _FLAGS).args, *end] for each, end in passes]
    action = SCons.Action.ListAction([SCons.Action.Action([line]) for line in lines])
    return SCons.Builder.Builder(action=action)(env, target, [source])
