"""``offload-tool launch COMPILER ARGS...``: a compiler launcher that runs each pass of a compile.

Most commands of a build have nothing to split: `passthrough` detects these before other modules
are imported, and the compiler replaces this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.launch.passthrough import why_not_split

if TYPE_CHECKING:
    import argparse

_VERBOSE = "OFFLOAD_LAUNCH_VERBOSE"
_CACHE = "OFFLOAD_LAUNCH_CACHE"
_TOOL = "offload-tool launch"
_USAGE = f"usage: {_TOOL} COMPILER ARGS..."
_WRONG_USAGE = 2


def launch(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a compiler command; return its exit status, unless the compiler replaces the process."""
    if args[:1] in (["-h"], ["--help"]):
        from offload_tool.cli.printing import print_text

        print_text(launch_parser(_TOOL).format_help(), sys.stdout)
        return 0
    args = args[1:] if args[:1] == ["--"] else args  # as `compile` has it before the command
    if not args or args[0].startswith("-"):
        from offload_tool.cli.printing import print_lines

        print_lines([_USAGE])
        return _WRONG_USAGE
    if environ.get(_CACHE):
        _print(f"error: {_CACHE}: launch keeps no results itself; set OFFLOAD_LAUNCHER=ccache")
        return _WRONG_USAGE
    return _run(args, environ)


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    reason = why_not_split(args[0], args[1:], environ)
    if reason:
        return _pass_through(args, environ, reason)
    from offload_tool.cli._main import guarded
    from offload_tool.launch.query_plan import PassedThroughError
    from offload_tool.launch.split_compile import run_split

    passed = ""

    def run() -> int:
        nonlocal passed
        from offload_tool.cli.printing import print_bytes
        from offload_tool.errors import OffloadError

        try:
            status, stdout, stderr = run_split(
                args, environ, lambda text: _print_decision(environ, text)
            )
        except OffloadError:
            raise
        except PassedThroughError as error:
            passed = str(error)
            return 0
        except Exception as error:  # a defect here must not break the user's build
            from offload_tool.io.paths import removed_folder

            passed = removed_folder()
            if passed:
                return 0
            if os.environ.get("OFFLOAD_TRACEBACK"):
                raise
            _print(f"warning: {type(error).__name__}: {error}; please report it")
            passed = "of a mistake in here"
            return 0
        if stdout:
            print_bytes(stdout, sys.stdout)
        print_bytes(stderr)
        return status

    status = guarded(run)
    return _pass_through(args, environ, passed) if passed else status


def launch_as_hipcc(invoked: str, args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command of ``hipcc``, called through a link of that name; return its exit status."""
    from offload_tool.launch.passthrough import find_hipcc

    compiler = find_hipcc(invoked, environ)
    if compiler is None:
        _print(f"error: '{invoked}' is a link to offload-tool, and PATH has no other hipcc")
        return 1
    return launch([compiler, *args], environ)


def _pass_through(args: Sequence[str], environ: Mapping[str, str], reason: str) -> int:
    """Replace this process by the compiler; return only if it cannot be started."""
    _print_decision(environ, f"passed through: {reason}")
    sys.stdout.flush()
    try:
        os.execvpe(args[0], list(args), environ)  # noqa: S606 - no shell is wanted
    except OSError as error:
        _print(f"error: '{args[0]}' cannot be run: {error.strerror}")
        return 1


def _print_decision(environ: Mapping[str, str], text: str) -> None:
    if environ.get(_VERBOSE, "") not in ("", "0"):
        _print(text)


def _print(text: str) -> None:
    from offload_tool.cli.printing import print_lines

    print_lines([f"{_TOOL}: {text}"])


def launch_parser(tool: str) -> argparse.ArgumentParser:
    """Return the parser of the arguments of ``launch``, for its help; `tool` is its name."""
    import argparse  # compiles do not need it

    parser = argparse.ArgumentParser(
        prog=tool,
        usage="%(prog)s COMPILER ARGS...",
        description="Run a compiler's command, as a compiler launcher does. A compile of one HIP "
        "or CUDA source for several targets becomes one pass for each target and one "
        "for the host, in parallel; the output is the compiler's, byte for byte. All "
        "other commands run unchanged.",
        epilog="A manifest beside each object (.NAME.o.manifest) remembers each pass, and only "
        "passes whose inputs have changed run; OFFLOAD_LAUNCH_MEMORY=0 turns that off. "
        "OFFLOAD_PCH=NAME:... names headers to precompile, for the sources that begin with them. "
        "OFFLOAD_LAUNCH_VERBOSE=1 prints each decision and its reason. The jobserver of GNU make "
        "or Ninja limits the number of processes; else -j in MAKEFLAGS, else OFFLOAD_LAUNCH_JOBS, "
        "else the number of cores. The exit status is the compiler's.",
        allow_abbrev=False,
    )
    parser.add_argument("compiler", metavar="COMPILER", help="the compiler")
    parser.add_argument("arguments", nargs="...", metavar="ARGS", help="its command line")
    return parser
