"""SCons tool ``offload``: GPU offload builds with one node per target ID.

SCons loads this file by its name, as the module ``offload``.
"""

from __future__ import annotations

import atexit
import gc
from typing import Any

from offload_tool.io.paths import reserve_streams
from offload_tool.scons import builders, compat, variables
from offload_tool.scons.graph.aliases import look_up
from offload_tool.scons.types import Environment

# A build keeps nearly all that it makes. Looking for garbage among its nodes takes a tenth of the
# time of a null build, and at the end of a small one another tenth.
_NEW_OBJECTS = (50_000, 20, 50)
if 0 < gc.get_threshold()[0] < _NEW_OBJECTS[0]:
    gc.set_threshold(*_NEW_OBJECTS)
atexit.register(gc.freeze)


def generate(env: Environment, **overrides: Any) -> None:
    """Add the Offload builders and variables to a construction environment.

    This neither searches, runs nor prints anything: the search for a compiler starts with the first
    node that needs one.
    """
    reserve_streams(writes_fail=False)
    variables.set_defaults(env, overrides)
    builders.add_builders(env)
    builders.extend_builders(env)
    compat.add_lookup(look_up)
    compat.refuse_ninja_tool()
    compat.suppress_false_cycles()


def exists(env: Environment) -> bool:
    """Return True: the tool can be loaded; the search for a compiler comes later."""
    return True
