"""The help of ``offload-tool launch``, apart from what runs for each compile of a build."""

from __future__ import annotations

import argparse


def launch_parser(tool: str) -> argparse.ArgumentParser:
    """Return the parser of the words behind ``launch``; `tool` is the name for messages."""
    parser = argparse.ArgumentParser(
        prog=tool,
        usage="%(prog)s COMPILER ARGS...",
        description="Run a compiler's command as a compiler launcher does. The compile of one HIP "
        "or CUDA source for several targets becomes one pass for each and one for the host, side "
        "by side; the result is that of the compiler. All else is run as it is given.",
        epilog="OFFLOAD_LAUNCH_VERBOSE=1 says what is done and why. As many processes run as the "
        "jobserver of GNU make or Ninja says, else -j of MAKEFLAGS, else OFFLOAD_LAUNCH_JOBS, else "
        "one for each core. The exit status is the compiler's.",
        allow_abbrev=False,
    )
    parser.add_argument("compiler", metavar="COMPILER", help="the compiler")
    parser.add_argument("arguments", nargs="...", metavar="ARGS", help="its command line")
    return parser
