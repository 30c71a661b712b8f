"""Compiles on other machines: an sccache-dist cluster, or any launcher that can lose a node.

- `config` packs the compiler, and writes the folder that ``OFFLOAD_DIST`` names
- `cluster` decides which compiles may leave this machine, and runs them through sccache
- `fallback` runs a compile again here after a failure
"""
