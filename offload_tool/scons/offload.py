"""SCons tool ``offload``: GPU offload builds with one node per target ID.

SCons loads this file by its name, as the module ``offload``.
"""

from __future__ import annotations

import atexit
import gc
from typing import TYPE_CHECKING, Any

from offload_tool.scons import builders, compat, readers
from offload_tool.scons.graph.aliases import look_up_target_ids

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment

# When Python ends it looks for garbage among all nodes: a tenth of a small build, in vain.
atexit.register(gc.freeze)


def generate(env: Environment, **overrides: Any) -> None:
    """Add the Offload builders and variables to a construction environment.

    Nothing is searched for, run or printed here: a compiler is looked for when the
    first node that needs one is declared.
    """
    readers.set_defaults(env, overrides)
    builders.add_builders(env)
    builders.extend_builders(env)
    look_up_target_ids()
    compat.refuse_ninja_tool()
    compat.tell_failures_from_cycles()


def exists(env: Environment) -> bool:
    """Return SCons that the tool can be loaded; which compiler there is shows later."""
    return True
