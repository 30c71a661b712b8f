"""Where device images are: formats of files, the one walk through them, and their bytes.

Knows the formats; what is done with the images is in `offload_tool.operations`.
"""
