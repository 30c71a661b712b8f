"""The inputs of a compile, and whether its output is current."""

MANIFEST = ".manifest"
"""Suffix of the hidden file next to an output that holds its manifest."""
