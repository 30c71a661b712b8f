"""Cache results about the machine while this process runs.

Arguments may contain relative paths, and programs are looked up on PATH. So the cache key includes
the working directory and PATH. Lists and mappings, such as commands and their environments, count
by their content.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    P = ParamSpec("P")
    R = TypeVar("R")
    S_co = TypeVar("S_co", covariant=True)

    class Memoized(Protocol[P, S_co]):
        """A function with cached results."""

        def __call__(self, *arguments: P.args, **options: P.kwargs) -> S_co:
            """Return the cached or new result."""

        def cache_clear(self) -> None:
            """Clear the cache."""


class _Content(dict[Any, Any]):
    """A copy of a mapping, which nobody changes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _hashable(argument: Any) -> Any:
    if isinstance(argument, list):
        return tuple(argument)
    return _Content(argument) if isinstance(argument, Mapping) else argument


def memoized(most: int) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    """Cache results per arguments, working directory and PATH.

    The cache keeps the `most` recent results. Arguments are hashable, or lists and mappings of
    hashable values. Errors are not cached.
    """

    def decorate(find: Callable[P, R]) -> Memoized[P, R]:
        @functools.lru_cache(maxsize=most)
        def result(_place: str, _path: str, *arguments: Any, **options: Any) -> R:
            return find(*arguments, **options)

        @functools.wraps(find)
        def ask(*arguments: Any, **options: Any) -> R:
            here = os.getcwd()
            given = map(_hashable, arguments)
            return result(here, os.environ.get("PATH", ""), *given, **options)

        asked: Any = ask
        asked.cache_clear = result.cache_clear
        return asked  # type: ignore[no-any-return]

    return decorate
