"""Declaration of nodes: each node once, however many builders use it, under a unique name."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import SCons.Action

from offload_tool.errors import UsageError
from offload_tool.scons import compat, settings
from offload_tool.scons.state.node_classes import Output, adopt
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Environment, Node

T = TypeVar("T")
Made = TypeVar("Made")


class DeclaredOtherwiseError(UsageError):
    """An earlier declaration of the node has other sources or another command."""

    def __init__(self, message: str, declaration: str) -> None:
        super().__init__(message)
        self.declaration = declaration
        """A digest of the new declaration: equal for equal declarations of one node."""


class NodeBuilder:
    """A builder of SCons for one target, which several of ours may declare in the same way.

    Several programs may use one source, for example. SCons rejects that if their variables differ,
    even variables without effect on the node.
    """

    def __init__(self, action: Any, node_class: type = Output, **arguments: Any) -> None:
        self._builder = compat.SingleNodeBuilder(action=action, **arguments)
        self._node_class = node_class

    def __call__(
        self, env: Environment, node: Node, sources: list[Node], /, **variables: Any
    ) -> Node:
        """Declare the node; raise DeclaredOtherwiseError, or UsageError if it is not built."""
        compat.check_builder_of_nodes(node)
        if not node.has_explicit_builder():
            self._builder.declare(env, node, sources, variables)
            adopt(node, self._node_class)
            return node
        new = _declaration(self._builder.action, node, sources, env.Override(variables))
        if sources != node.sources or new != _declaration(
            node.builder.action, node, node.sources, node.env
        ):
            before, now = (", ".join(map(str, nodes)) for nodes in (node.sources, sources))
            how = f"of {before} and of {now}"
            if before == now:
                how = f"of {now} with different variables"
            raise DeclaredOtherwiseError(
                f"'{node}' is made twice, {how}; give one of them another name",
                hashlib.sha256(repr((list(map(str, sources)), new)).encode()).hexdigest(),
            )
        return node

    def first_free(
        self, env: Environment, names: Iterable[Node], sources: list[Node], /, **variables: Any
    ) -> Node:
        """Declare a node under the first free of `names`; raise DeclaredOtherwiseError."""
        return first_free(names, lambda node: self(env, node, sources, **variables))


def first_free(
    choices: Iterable[T], declare: Callable[[T], Made], node: Node | None = None
) -> Made:
    """Return the result of `declare` for the first choice that no other declaration has taken.

    If the first is taken, a choice of an equal earlier declaration is reused. Digests in the
    `NodeInfo` of `node`, by default the first choice, preselect these, so that a thousand variants
    of one node are not compared with each other. Raise DeclaredOtherwiseError if none is free.
    """
    others = iter(choices)
    plain: Any = next(others)
    try:
        return declare(plain)
    except DeclaredOtherwiseError as error:
        problem = error
    equal: list[T] = info_of(node or plain).variants.setdefault(problem.declaration, [])
    for choice in itertools.chain(tuple(equal), others):  # lazily: trying a name creates its node
        with suppress(DeclaredOtherwiseError):
            made = declare(choice)
            if choice not in equal:
                equal.append(choice)
            return made
    raise problem


_NOT_IN_RESULTS = {"OFFLOAD_LAUNCHER": "", "_OFFLOAD_DEPENDENCY_FLAGS": []}


def _declaration(action: Any, node: Node, sources: list[Node], env: Environment) -> list[Any]:
    """Return the parts of a declaration that decide how a node is made, with programs' paths."""
    made: list[Any] = []
    local = env.Override(_NOT_IN_RESULTS)
    for part in getattr(action, "list", [action]):
        if isinstance(part, SCons.Action.CommandAction):
            lines = local.subst_list(compat.command_of(part), target=[node], source=sources)
            made.append([[str(arg) for arg in line] for line in lines])
        else:
            made.append(part.get_contents([node], sources, env))
    return [*made, env.get("_OFFLOAD_IDENTITY"), settings.result_variables(env["ENV"])]
