"""Embed a bundle in a host object, under the symbol that the host code expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.files import InputFile, replace_file
from offload_tool.formats.hip_fatbin import plan_embedding

if TYPE_CHECKING:
    from offload_tool.files import StrPath

__all__ = ["embed_bundle"]


def embed_bundle(output: StrPath, bundle: StrPath, *, cuid: str, host_triple: str) -> None:
    """Write the object whose section ``.hip_fatbin`` holds the file `bundle`.

    It completes the host object that was compiled with ``-cuid=<cuid>`` and depends on
    nothing else of it. The bundle's bytes are copied inside the kernel.

    :raises UsageError: the host architecture is not one that this package can write.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(bundle) as source:
        layout = plan_embedding(cuid, len(source), host_triple)
        with replace_file(output) as out:
            out.write(layout.head)
            out.pad_to(layout.offset)
            out.copy(source)
            out.write(layout.tail)
