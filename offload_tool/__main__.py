"""``python -m offload_tool`` and the script ``offload-tool``: the command line as a process."""

import atexit
import gc
import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until the command line installs its handlers, Ctrl-C ends the process without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from offload_tool.cli import main

# Objects of a run live until it ends: a garbage collection every 700 objects finds nothing.
gc.set_threshold(100_000, 20, 20)
# A collection at exit finds nothing either, and takes as long as loading twenty modules.
atexit.register(gc.freeze)

if __name__ == "__main__":
    sys.exit(main())
