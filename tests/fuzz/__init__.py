"""Hostile files for every command: ``python -m tests.fuzz``.

::

    seeds.py      a small file of each format
    mutations.py  changes of fields, ranges and what is packed in it, from a random number alone
    commands.py   what is done with a file, and what may be there afterwards
    worker.py     cases in a forked process with limits of memory and time
    corpus/       files in which something was found
    guided.py     readers of formats under Atheris, which sees what code an input reaches
    reached/      inputs that it made, each of which reached code that others did not
"""
