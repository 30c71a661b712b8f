"""Answers that are remembered while this process runs, of questions about the machine.

A name in a question may be relative, and a bare program is looked for on PATH: the folder in
which it was asked, and PATH, are part of each question, so that one spelling that means two
things in two folders has two answers.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["remembered"]

P = ParamSpec("P")
R = TypeVar("R")


class _Remembered(Generic[P, R]):
    """A function whose answers are remembered."""

    def __init__(self, find: Callable[P, R], most: int) -> None:
        functools.update_wrapper(self, find)

        @functools.lru_cache(maxsize=most)
        def answer(_place: str, _path: str, *arguments: Any, **options: Any) -> R:
            return find(*arguments, **options)

        self._answer = answer

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        known: Any = self._answer
        here = os.getcwd()  # noqa: PTH109 - called for each pass
        found: R = known(here, os.environ.get("PATH", ""), *arguments, **options)
        return found

    def cache_clear(self) -> None:
        """Forget all answers."""
        self._answer.cache_clear()


def remembered(most: int) -> Callable[[Callable[P, R]], _Remembered[P, R]]:
    """Let a function be asked once for the same arguments, folder and PATH.

    The `most` last answers are kept; arguments can be hashed. Errors are raised each time anew.
    """

    def decorate(find: Callable[P, R]) -> _Remembered[P, R]:
        return _Remembered(find, most)

    return decorate
