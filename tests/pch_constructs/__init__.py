"""Constructs of headers, composed at random, compiled with a precompiled header and without.

::

    python -m tests.pch_constructs --count 5000 --seed 7              # any number, by hand
    python -m tests.pch_constructs --alone                            # each construct by itself
    python -m tests.pch_constructs --seed 7 --only 1234 --keep DIR    # one of them, with its files

The constructs are data: `standard.txt`, `gnu.txt`, `offload.txt` and `pragmas.txt`. A composition
puts one to six of them into nested headers of several folders, with a search path, a standard and
flags. ``offload-tool compile`` compiles its source with and without the precompiled header: the
outputs are the same bytes and the messages the same text, or the header is refused with a reason.
`projects` does the same through SCons, with a second checkout that has a CacheDir in common.
"""
