"""The modules that a run of the command line loads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

_PROGRAM = (
    "import sys; before = {*sys.modules}; "
    "from offload_tool.cli import main; status = main(sys.argv[1:]); "
    "print(*{*sys.modules} - before, file=sys.stderr); sys.exit(status)"
)


def loaded_modules(args: Sequence[str]) -> set[str]:
    """Run a command that must succeed without messages; return the names of loaded modules.

    Modules that the interpreter loaded before, such as coverage, are left out.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *args], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())
