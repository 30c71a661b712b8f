"""The modules that a run of the command line loads."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.conftest import try_tool

_PROGRAM = (
    "import sys; before = {*sys.modules}; "
    "from offload_tool.cli import main; status = main(sys.argv[1:]); "
    "print(*{*sys.modules} - before, file=sys.stderr); sys.exit(status)"
)


def loaded_modules(args: Sequence[str]) -> set[str]:
    """Run a command that must succeed without messages; return the names of loaded modules.

    Modules that the interpreter loaded before, such as coverage, are left out.
    """
    done = try_tool(sys.executable, "-c", _PROGRAM, *args)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())
