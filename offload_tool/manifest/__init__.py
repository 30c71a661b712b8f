"""The inputs of a compile, and whether its output is current."""

from __future__ import annotations

from offload_tool.io.paths import sibling


def manifest_path(output: str) -> str:
    """Return the name of the hidden file next to an output that holds its manifest."""
    return sibling(output, ".manifest")
