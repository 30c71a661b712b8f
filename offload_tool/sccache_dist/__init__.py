"""Compiles on other machines: an sccache-dist cluster, or any launcher that can lose a node.

- `config` writes the folder that ``OFFLOAD_DIST`` names, with the compiler of `pack_toolchain`
- `eligibility` decides which compiles may leave this machine, and in which form
- `cluster` runs them through sccache; `fallback` runs a compile again here after a failure
"""
