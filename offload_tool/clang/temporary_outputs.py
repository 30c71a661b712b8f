"""What a driver removes that is only asked (``-###``): reports that it begins anew for each run.

A question about a compile that runs, or has run, would take away what that has written. Source:
clang 22.1.8, observed: the files of ``-MJ`` and ``--serialize-diagnostics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offload_tool.clang.argument_files import all_words

_ATTACHED = "-MJ"
_WITH_NEXT = (_ATTACHED, "--serialize-diagnostics", "-serialize-diagnostics")


def without_removed(words: Sequence[str]) -> list[str]:
    """Return words without those that let the driver remove a file, for a question.

    Where such words are in a response file, the words in it come in the place of its name.
    """
    given = list(words)
    expanded = all_words(given)
    if not any(map(_removes, expanded)):
        return given
    return list(_kept(expanded))


def _removes(word: str) -> bool:
    return word in _WITH_NEXT or word.startswith(_ATTACHED)


def _kept(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in _WITH_NEXT:
            next(rest, "")
        elif not _removes(word):
            yield word
