"""Files: mapped for reading, replaced in one step when written, copied inside the kernel.

Memory does not grow with the size of a file: inputs are mapped, and their bytes go to
an output by ``copy_file_range``. An output appears under its name only when it is
complete: it is written to a temporary beside it and renamed.
"""

from __future__ import annotations

from offload_tool.io.atomic_write import (
    have_same_content,
    replace_all,
    replace_file,
)
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
    "have_same_content",
    "replace_all",
    "replace_file",
]
