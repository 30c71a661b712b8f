"""Compiles on other machines: an sccache-dist cluster, or any launcher that can lose a node.

Its users are the SCons tool and the command line; it imports neither.

- `pack_toolchain` makes the compiler portable, `config` writes and reads the directory that
  ``OFFLOAD_DIST`` names
- `cluster` talks to the scheduler and to the local sccache server
- `eligibility` decides which compiles may leave this machine, and in which form
- `fallback` runs a compile, and runs it again here after a failure of the engine
- `session` joins these for one build, and reports at the end what was distributed
"""
