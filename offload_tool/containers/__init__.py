"""Containers of device images: file formats, the walk through files, and the content.

This layer uses the formats; `offload_tool.operations` uses it.
"""
