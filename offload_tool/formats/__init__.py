"""The formats of offload code: names, layouts and rules, without operations on files.

Target IDs, triples and bundle entry IDs are values with one canonical spelling; bundles, offload
binaries and archives are byte layouts. This layer is independent of SCons, command lines and
compilers; all higher layers build on it.
"""
