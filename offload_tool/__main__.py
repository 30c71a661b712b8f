"""``python -m offload_tool`` and the script ``offload-tool``: the command line as a process."""

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the command line has its own handlers, Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from offload_tool.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
