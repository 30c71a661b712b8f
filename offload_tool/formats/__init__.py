"""The formats of offload code: names, layouts and rules, without operations on files.

Target IDs, triples and bundle entry IDs are values with one canonical spelling; bundles, offload
binaries and archives are byte layouts. This layer is independent of SCons, command lines and
compilers; all higher layers build on it.
"""

FORMAT_VERSION = 5
"""Version of all bytes that this package writes: part of the signature of each operation in builds.

Increment it only if the bytes for equal inputs change (see `docs/versioning.md`): it makes all
bundles, archives, packages and objects with them again, in every user's build.
"""
