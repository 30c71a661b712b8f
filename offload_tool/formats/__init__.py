"""The formats of offload code: names, layouts and rules, and nothing that acts on files.

Target IDs, triples and bundle entry IDs are values with one canonical spelling; bundles,
offload binaries and archives are byte layouts. The modules here know neither SCons nor
command lines nor compilers: everything above them does its work in their terms.
"""
