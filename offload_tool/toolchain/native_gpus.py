"""The target IDs of the GPUs in this machine, as the compiler's own programs tell them.

Source: ``offload-arch``, ``amdgpu-arch`` and ``nvptx-arch`` of LLVM 22.1.8 and 19.1.7: one
target ID on each line, without features that are off; without a GPU nothing, or a message
and another exit status.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.driver import output_of
from offload_tool.errors import CompilerError, TargetIDError
from offload_tool.formats.target.target_id import TargetID
from offload_tool.util.memoize import remembered

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

NATIVE = "native"
_PROGRAMS = {
    "hip": ("amdgpu-arch", "offload-arch"),
    "cuda": ("nvptx-arch", "offload-arch"),
    "openmp": ("offload-arch", "amdgpu-arch", "nvptx-arch"),
}
_PROCESSORS = {"hip": ("gfx",), "cuda": ("sm_",), "openmp": ("gfx", "sm_")}


@remembered(8)
def native_targets(toolchain: Toolchain, kind: str) -> list[str]:
    """Return the target IDs of this machine's GPUs that sources of `kind` are compiled for.

    :raises CompilerError: there is none; the message says what was asked.
    """
    said = []
    for name in _PROGRAMS[kind]:
        program = _beside(toolchain, name)
        if program is None:
            said.append(f"{name} is not there")
            continue
        try:
            lines = output_of((program,)).split()
        except CompilerError as error:
            said.append(str(error))
            continue
        found = _readable(lines, kind)
        if found:
            return found
        said.append(f"{program} names no GPU")
    raise CompilerError(
        f"OFFLOAD_ARCH: 'native' stands for the GPUs of this machine, and none was found for "
        f"{kind} ({'; '.join(said)}); give target IDs, such as gfx90a or sm_80"
    )


def _beside(toolchain: Toolchain, name: str) -> str | None:
    """Return a program of the compiler's folder."""
    try:
        found = output_of((*toolchain.clang,), f"-print-prog-name={name}").strip()
    except CompilerError:
        return None
    return found if Path(found).is_absolute() and Path(found).is_file() else None


def _readable(words: Sequence[str], kind: str) -> list[str]:
    """Return the target IDs among words, each once."""
    found = dict.fromkeys(word for word in words if word.startswith(_PROCESSORS[kind]))
    for word in found:
        try:
            TargetID.parse(word, allow_unknown=True)
        except TargetIDError:
            return []
    return list(found)
