"""Compiles on other machines: an sccache-dist cluster, or any launcher that can lose a node.

Two users stand on it, the SCons tool and the command line; it knows neither.

- `packing` makes the compiler portable, `setup` writes the folder that ``OFFLOAD_DIST`` names
- `config` reads that folder, `scheduler` and `engine` talk to the cluster and to sccache
- `commands` says which compiles may leave this machine, and in which form
- `fallback` runs a compile; one that failed for the engine's reasons runs again here
- `session` joins these for one build, and says at the end what was distributed
"""
