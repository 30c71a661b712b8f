"""Random projects and random changes, each judged by a clean build and a count of compiles.

::

    python -m tests.driver --seeds 60 --changes 10          # any number, by hand
    python -m tests.driver --seed 17 --changes 10 --shrink  # one of them, made smaller

A trial is a project that `projects` writes from a seed, and changes from `changes`. After each,

1. scons runs, and every output is compared, byte for byte, with a clean build of the same
   files, in the same place (names of OpenMP regions hold inode numbers), without a CacheDir;
2. the compiles that ran are compared with the least that `oracle` finds necessary, and nothing
   follows compiles that all gave the bytes of before;
3. scons runs again, and must do nothing.

The compiler is `counting_clang`, a script before clang, by several names, and behind a program with
a shared library; `surroundings` has those, and what else is around a project. What a pass reads is
what clang says in that clean build, asked by the script with options of its own; nothing is taken
from the tool.

Trials use `random.Random` and not Hypothesis: an example costs seconds per step, so that what is
wanted is a number for each, and a shrinker that tries a few dozen builds at most.
"""
