"""Pack the cases for a machine with a GPU: python -m tests.gpu pack FOLDER."""

import sys

from tests.gpu.pack import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
