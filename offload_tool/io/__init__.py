"""Read files by mapping, replace outputs atomically, and copy ranges inside the kernel.

Memory does not grow with file sizes: inputs are mapped, and ``copy_file_range`` copies their bytes
to outputs. An output is written to a temporary file next to it and renamed when it is complete.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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

_HOMES = {
    "FileRange": "input_file",
    "InputFile": "input_file",
    "OutputFile": "output_file",
    "replace_all": "atomic_write",
    "replace_file": "atomic_write",
}


if not TYPE_CHECKING:  # a compile that has nothing to do loads none of them

    def __getattr__(name: str) -> Any:
        module = f"offload_tool.io.{_HOMES.get(name, 'paths')}"
        found = globals()[name] = getattr(__import__(module, fromlist=[name]), name)
        return found
