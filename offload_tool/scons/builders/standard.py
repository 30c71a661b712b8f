"""SCons's own builders for offload sources: they act as ours of the same name.

Otherwise ``env.Program("p", ["a.hip"])`` would pass the text of the source to the linker, and
``env.StaticLibrary`` would archive it. In an environment with this tool, these calls run
OffloadProgram and OffloadStaticLibrary. So do links of objects and libraries with device code that
the build declares. Other calls are SCons's own, and so are all calls if the user has given its
builders an action for such a source; their links check that no file has device code to be linked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import SCons.Errors
import SCons.Node
import SCons.Tool
import SCons.Util

from offload_tool.passes.source_kind import KIND_OF_SUFFIX, kind_of_suffix
from offload_tool.scons.builders.configure import CheckedAction, is_check
from offload_tool.scons.graph.link_inputs import look_into
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Environment, Node

Method = Callable[..., Any]
_LINKS = {"Program": "LINK", "SharedLibrary": "SHLINK", "LoadableModule": "LDMODULE"}
"""The prefix of each link's variables."""
_LIBRARIES = ("StaticLibrary", "Library", "SharedLibrary", "LoadableModule")


def accept_offload_sources(
    env: Environment, methods: Mapping[str, Method], check: Callable[[str], Method]
) -> None:
    """Make SCons's builders of these names call the methods for offload sources.

    In a ``Configure`` context, they call `check` of their name for all.

    Only this environment and its clones change. If the tool is loaded before SCons's own, so that
    builders are missing, they reject offload sources.
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
    """One of SCons's builders, except for calls with offload sources."""

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
        libs = SCons.Util.flatten([local.get("LIBS", [])]) if self._name in _LINKS else []
        if not any(self._is_own(local, item) for item in given) and not any(map(_has_code, libs)):
            made = builder(env, target, source, *arguments, **overrides)
            if self._name in _LINKS:
                look_into(env, made[0], _LINKS[self._name])
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
            if self._name in _LINKS and _has_code(item):
                return True
            name = str(item)
        elif isinstance(item, str):
            name = env.subst(item)
        else:
            return False
        return kind_of_suffix(name) is not None and not _has_action(env, name)


def _has_code(item: Any) -> bool:
    """Return True if a node has device code to be linked, as far as it is declared."""
    if not isinstance(item, SCons.Node.Node):  # a library's name
        return False
    info = info_of(item)
    return bool(info.code_kinds or info.device_nodes)


def _has_action(env: Environment, name: str) -> bool:
    """Return True if the user has given SCons an action for such a source."""
    known = env["BUILDERS"]["StaticObject"].src_suffixes(env)
    return SCons.Util.splitext(name)[1] in known
