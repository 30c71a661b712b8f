"""Read files by mapping, replace outputs atomically, and copy ranges inside the kernel.

Memory does not grow with file sizes: inputs are mapped, and ``copy_file_range`` copies their bytes
to outputs. An output is written to a temporary file next to it and renamed when it is complete.
"""

from __future__ import annotations

from offload_tool.io.atomic_write import replace_all, replace_file
from offload_tool.io.input_file import FileRange, InputFile
from offload_tool.io.output_file import OutputFile
from offload_tool.io.paths import STDIN, STDOUT, StrPath

__all__ = [
    "STDIN",
    "STDOUT",
    "FileRange",
    "InputFile",
    "OutputFile",
    "StrPath",
    "replace_all",
    "replace_file",
]
