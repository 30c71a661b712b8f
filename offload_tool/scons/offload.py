"""SCons tool ``offload``: GPU offload builds with one node per target ID.

SCons loads this file by its name, as the module ``offload``.
"""

from __future__ import annotations

import atexit
import gc
from typing import Any

from offload_tool.scons import builders, compat, variables
from offload_tool.scons.graph.aliases import look_up
from offload_tool.scons.types import Environment

# Skip Python's final garbage collection of all nodes: a tenth of a small build, to no effect.
atexit.register(gc.freeze)


def generate(env: Environment, **overrides: Any) -> None:
    """Add the Offload builders and variables to a construction environment.

    This neither searches, runs nor prints anything: the search for a compiler starts with the first
    node that needs one.
    """
    variables.set_defaults(env, overrides)
    builders.add_builders(env)
    builders.extend_builders(env)
    compat.add_lookup(look_up)
    compat.refuse_ninja_tool()
    compat.suppress_false_cycles()


def exists(env: Environment) -> bool:
    """Return True: the tool can be loaded; the search for a compiler comes later."""
    return True
