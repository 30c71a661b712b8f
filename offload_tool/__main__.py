"""``python -m offload_tool``: the command line without the installed script."""

import sys

from offload_tool.cli import main

if __name__ == "__main__":
    sys.exit(main())
