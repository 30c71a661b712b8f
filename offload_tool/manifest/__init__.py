"""What a compile read, and whether its output is still what these files make."""

MANIFEST = ".manifest"
"""Suffix of the hidden file beside an output that holds its manifest."""
