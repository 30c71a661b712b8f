"""The version of all bytes that this package writes."""

FORMAT_VERSION = 4
"""Part of the signature of each operation in SCons builds: see `docs/versioning.md`.

Increment it only if the bytes for equal inputs change: it makes all bundles, archives, packages and
objects with them again, in every user's build.
"""
