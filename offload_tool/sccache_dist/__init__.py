"""Compiles on other machines: an sccache-dist cluster, or any launcher that can lose a node.

Two users stand on it, the SCons tool and the command line; it knows neither.

- `pack_toolchain` makes the compiler portable, `config` writes and reads the folder that
  ``OFFLOAD_DIST`` names
- `cluster` talks to the scheduler and to the local sccache server
- `eligibility` says which compiles may leave this machine, and in which form
- `fallback` runs a compile; one that failed for the engine's reasons runs again here
- `session` joins these for one build, and says at the end what was distributed
"""
