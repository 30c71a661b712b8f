"""``python -m offload_tool`` and the script ``offload-tool``: the command line as a process."""

import atexit
import gc
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the command line has its own handlers, Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from offload_tool.cli import main

# What a run makes of a file lives until it ends: looking for garbage every 700 objects is in vain.
gc.set_threshold(100_000, 20, 20)
# Nor at all there is when Python ends: that takes as long as loading twenty modules.
atexit.register(gc.freeze)

if __name__ == "__main__":
    sys.exit(main())
