"""``python -m benchmarks``: every row of the table of aims, against LLVM 22 in the same run.

Needs LLVM 22's clang-offload-bundler and libraries, and 4 GB in the temporary folder. On a
machine that does nothing else it takes some minutes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks import archive, bundle, compress, scheduling


def main() -> int:
    """Run all benchmarks."""
    llvm = shutil.which("/usr/lib/llvm-22/bin/clang-offload-bundler")
    llvm = llvm or shutil.which("clang-offload-bundler-22")
    if llvm is None:
        print("benchmarks: clang-offload-bundler 22 is not installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        bundle.main(Path(folder), llvm)
        archive.main(Path(folder), llvm)
        compress.main(Path(folder), llvm)
        scheduling.main(Path(folder), llvm)
    return 0


if __name__ == "__main__":
    sys.exit(main())
