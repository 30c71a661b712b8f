"""Declare nodes: the same one as often as it is used, and never two by one name."""

from __future__ import annotations

from typing import Any

import SCons.Builder

from offload_tool.errors import UsageError

__all__ = ["NodeBuilder"]


class NodeBuilder:
    """A builder of SCons for one target, which several of ours may declare alike.

    Several programs may use one source, for example. SCons takes that for a mistake when
    they were given different variables, even where these mean nothing to the node.
    """

    def __init__(self, action: Any, **arguments: Any) -> None:
        self._builder = SCons.Builder.Builder(action=action, **arguments)

    def __call__(self, env: Any, node: Any, sources: Any, **variables: Any) -> list[Any]:
        """Give the node, in a list.

        :raises UsageError: it was declared otherwise before.
        """
        if not node.has_explicit_builder():
            return list(self._builder(env, node, sources, **variables))
        given = sources if isinstance(sources, list) else [sources]
        action = self._builder.action
        made = action.get_contents([node], given, env.Override(variables))
        known = node.builder.action.get_contents([node], node.sources, node.env)
        if given != node.sources or made != known:
            old, new = (", ".join(map(str, nodes)) for nodes in (node.sources, given))
            how = f"of {old} and of {new}" if old != new else f"of {old} with different variables"
            raise UsageError(f"'{node}' is made twice, {how}; give one of them another name")
        return [node]
