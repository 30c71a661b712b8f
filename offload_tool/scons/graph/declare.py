"""Declare nodes: the same one as often as it is used, and never two by one name."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import SCons.Action
import SCons.Builder

from offload_tool.errors import UsageError
from offload_tool.scons import compat, readers
from offload_tool.scons.state.node_classes import Output

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

Names = Callable[[str], "Iterable[Node]"]
"""Gives the names of one thing with a suffix: the plain one first."""


class DeclaredOtherwiseError(UsageError):
    """A node was declared before, to be made of something else or in another way."""

    def __init__(self, message: str, declaration: str) -> None:
        super().__init__(message)
        self.declaration = declaration
        """A digest of how it was to be made now: equal for equal declarations of one node."""


class NodeBuilder:
    """A builder of SCons for one target, which several of ours may declare alike.

    Several programs may use one source, for example. SCons takes that for a mistake when
    they were given different variables, even where these mean nothing to the node.
    """

    def __init__(self, action: Any, node_class: type = Output, **arguments: Any) -> None:
        self._builder = SCons.Builder.Builder(action=action, **arguments)
        self._node_class = node_class

    def __call__(self, env: Environment, node: Node, sources: Any, **variables: Any) -> list[Node]:
        """Return the node, in a list.

        :raises DeclaredOtherwiseError: it was declared before, and not so.
        :raises UsageError: SCons would not build it.
        """
        compat.check_builder_of_nodes(node)
        if not node.has_explicit_builder():
            nodes = list(self._builder(env, node, sources, **variables))
            compat.adopt(node, self._node_class)
            return nodes
        given = sources if isinstance(sources, list) else [sources]
        action = self._builder.action
        new = _declaration(action, node, given, env.Override(variables))
        if given != node.sources or new != _declaration(
            node.builder.action, node, node.sources, node.env
        ):
            before, now = (", ".join(map(str, nodes)) for nodes in (node.sources, given))
            how = f"of {before} and of {now}"
            if before == now:
                how = f"of {now} with different variables"
            raise DeclaredOtherwiseError(
                f"'{node}' is made twice, {how}; give one of them another name",
                hashlib.sha256(repr((list(map(str, given)), new)).encode()).hexdigest(),
            )
        return [node]


def declare_free(names: Iterable[Node], declare: Callable[[Node], Node]) -> Node:
    """Declare a node that the user has not named, by the first of `names` that is free.

    `declare` gets a node of a name, declares it, and gives the result. The first name is the
    plain one. Where something else has it, an equal node is looked for among those that had to go
    by another name, so that what is equal is made once. Digests tell which may be equal, so that
    a thousand variants of one node are not compared with each other.

    :raises DeclaredOtherwiseError: none of the names is free.
    """
    others = iter(names)
    plain = next(others)
    try:
        return declare(plain)
    except DeclaredOtherwiseError as error:
        problem = error
    attributes = plain.attributes
    if not hasattr(attributes, "offload_variants"):
        attributes.offload_variants = {}
    equal: list[Node] = attributes.offload_variants.setdefault(problem.declaration, [])
    for node in itertools.chain(tuple(equal), others):  # a node is made of a name when it is tried
        with suppress(DeclaredOtherwiseError):
            made = declare(node)
            if node not in equal:
                equal.append(node)
            return made
    raise problem


def declared(
    builder: NodeBuilder, env: Environment, names: Iterable[Node], sources: Any, **variables: Any
) -> Node:
    """Declare a node that a builder makes, by the first of `names` that is free."""
    return declare_free(names, lambda node: builder(env, node, sources, **variables)[0])


_NOT_IN_RESULTS = {"OFFLOAD_LAUNCHER": "", "_OFFLOAD_DEPENDENCY_FLAGS": []}


def _declaration(action: Any, node: Node, sources: list[Node], env: Environment) -> list[Any]:
    """Return all that a declaration says of how a node is made, the places of programs included."""
    made: list[Any] = []
    local = env.Override(_NOT_IN_RESULTS)
    for part in getattr(action, "list", [action]):
        if isinstance(part, SCons.Action.CommandAction):
            lines = local.subst_list(part.cmd_list, target=[node], source=sources)
            made.append([[str(word) for word in line] for line in lines])
        else:
            made.append(part.get_contents([node], sources, env))
    return [*made, env.get("_OFFLOAD_IDENTITY"), readers.result_variables(env)]
