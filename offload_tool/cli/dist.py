"""``offload-tool dist init|status|stop``: compile on other machines, by sccache-dist."""

from __future__ import annotations

import argparse
import os
import sys

from offload_tool.cli.printing import print_lines

_MEGABYTE = 1_000_000


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "dist",
        help="compile on other machines",
        description="Compile HIP device code on an sccache-dist cluster.",
    )
    steps = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    init = steps.add_parser(
        "init",
        help="pack the compiler and make the folder for OFFLOAD_DIST",
        description="Check the scheduler and the token, pack the compiler, and make the folder "
        "that OFFLOAD_DIST names.",
    )
    init.add_argument("--scheduler", required=True, metavar="URL", help="http://HOST:PORT")
    init.add_argument(
        "--token-file", required=True, metavar="F", help="the file with the clients' token"
    )
    init.add_argument("-o", dest="output", required=True, metavar="DIR", help="the folder to make")
    init.add_argument("--clang", metavar="C", help="the compiler (default: that of builds)")
    init.set_defaults(step=_init)
    status = steps.add_parser(
        "status",
        help="print the state of the cluster and of the local sccache server",
        description="Print the state of the cluster and of the local sccache server.",
        epilog="The exit status is 1 if nothing would be distributed.",
    )
    stop = steps.add_parser(
        "stop",
        help="stop the local sccache server",
        description="Stop the local sccache server. The next build that needs it starts it again.",
    )
    for step, run_step in ((status, _status), (stop, _stop)):
        step.add_argument("folder", metavar="DIR", help="the folder that 'dist init' made")
        step.set_defaults(step=run_step)


def run(options: argparse.Namespace) -> int:
    """Run one of the steps; return its exit status."""
    status: int = options.step(options)
    return status


def _print(line: str) -> None:
    print_lines([line], sys.stdout)


def _init(options: argparse.Namespace) -> int:
    """Create the folder; print its contents and how to use it."""
    from offload_tool.sccache_dist.config import read_token, set_up
    from offload_tool.toolchain.select import find_toolchain

    token = read_token(options.token_file)
    toolchain = find_toolchain(clang=options.clang)
    status, files, size = set_up(options.output, options.scheduler, token, toolchain)
    _print(f"{toolchain}: {files} files packed, {size / _MEGABYTE:.0f} MB")
    _print(f"the scheduler answers and accepts the token: {status}")
    if not status.servers:
        _print("warning: until a server joins, everything is compiled on this machine")
    folder = os.path.relpath(os.path.abspath(options.output))
    _print(
        f"use it: OFFLOAD_DIST={folder}, in a construction environment of "
        "SCons, or in the shell for 'offload-tool compile'"
    )
    return 0


def _status(options: argparse.Namespace) -> int:
    """Print the state of cluster and local engine; return 1 if nothing would be distributed."""
    from offload_tool.sccache_dist.cluster import Engine, query_scheduler
    from offload_tool.sccache_dist.config import load_distribution
    from offload_tool.sccache_dist.session import Session

    distribution = load_distribution(options.folder)
    problem = Session(distribution).find_problem()
    if problem:
        _print(f"cluster: {problem}")
    else:
        _print(f"cluster: {distribution.scheduler}: {query_scheduler(distribution.scheduler)}")
    engine = Engine(distribution)
    if engine.is_running():
        counted = engine.counters()
        _print(
            f"local sccache server: {'' if engine.is_connected() else 'not '}connected; since its "
            f"start: {counted.requests} compiles, {counted.distributed} sent to servers, "
            f"{counted.cache_hits} from the cache, {counted.dist_errors} again locally"
        )
    else:
        _print("local sccache server: not running; a build starts it")
    return int(bool(problem))


def _stop(options: argparse.Namespace) -> int:
    """Stop the local sccache server of a folder."""
    from offload_tool.sccache_dist.cluster import Engine
    from offload_tool.sccache_dist.config import load_distribution

    Engine(load_distribution(options.folder)).stop()
    return 0
