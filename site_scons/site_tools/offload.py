"""The tool for this repository and for projects that copy ``site_scons/``.

SCons finds it without a toolpath: ``Environment(tools=["default", "offload"])``. The
package is the installed one, or else the folder ``offload_tool`` next to ``site_scons``.
"""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("offload_tool") is None:
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from offload_tool.scons.offload import exists, generate

__all__ = ["exists", "generate"]
