"""The command line: ``offload-tool COMMAND ...`` or ``python -m offload_tool COMMAND ...``."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


_DROP_INS = {
    "bundler": ("clang-offload-bundler",),
    "packager": ("llvm-offload-binary", "clang-offload-packager"),
    "wrapper": ("llvm-offload-wrapper", "clang-offload-wrapper"),
}
"""Commands with the command line of an LLVM tool, by that tool's names.

A link with such a name to ``offload-tool`` runs the command, too.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 1 for an error, 2 for wrong usage; see `cli._main`."""
    args = sys.argv[1:] if arguments is None else [*arguments]
    if args[:1] == ["launch"]:  # a build calls it for each compile, and it passes most through
        from offload_tool.cli.launch import launch

        return launch(args[1:], os.environ)
    if arguments is None and sys.argv[0].rpartition("/")[2] == "hipcc":
        from offload_tool.cli.launch import launch_as_hipcc

        return launch_as_hipcc(sys.argv[0], args, os.environ)
    from offload_tool.cli._main import guarded

    def run() -> int:
        status = _run_drop_in(args, sys.argv[0] if arguments is None else "")
        if status is not None:
            return status
        from offload_tool.cli.parser import run_command  # argparse is slow to load

        return run_command(args)

    return guarded(run)


def _run_drop_in(args: list[str], invoked: str) -> int | None:
    """Run a drop-in, if the first argument or our program name names one."""
    name = invoked.rpartition("/")[2]
    for command, tools in _DROP_INS.items():
        if name.startswith(tools):
            return _drop_in(command, invoked, args)
        if args[:2] == [command, "--restat"]:  # our option; the tool's parser does not know it
            return _drop_in(command, f"offload-tool {command}", args[2:], keep_equal=True)
        if args[:1] == [command]:
            return _drop_in(command, f"offload-tool {command}", args[1:])
    if args[:1] == ["compile"]:  # parses its own command line, to start fast
        return _drop_in("compile", "offload-tool compile", args[1:])
    return None


def _drop_in(command: str, tool: str, args: list[str], **options: bool) -> int:
    from importlib import import_module

    module = import_module(f"offload_tool.cli.{'llvm.' if command in _DROP_INS else ''}{command}")
    status: int = getattr(module, f"run_{command}")(tool, args, os.environ, **options)
    return status
