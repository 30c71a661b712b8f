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
    """A hashable copy of a mapping; no caller changes it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def _hashable(argument: Any) -> Any:
    if isinstance(argument, list):
        return tuple(argument)
    return _Content(argument) if isinstance(argument, Mapping) else argument


def memoized(size: int) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    """Cache the `size` latest results by arguments, working directory and PATH; not errors.

    Arguments are hashable, or lists and mappings of hashable values.
    """

    def decorate(function: Callable[P, R]) -> Memoized[P, R]:
        @functools.lru_cache(maxsize=size)
        def result(_directory: str, _path: str, *arguments: Any, **options: Any) -> R:
            return function(*arguments, **options)

        @functools.wraps(function)
        def wrapper(*arguments: Any, **options: Any) -> R:
            hashable = map(_hashable, arguments)
            return result(os.getcwd(), os.environ.get("PATH", ""), *hashable, **options)

        memoized: Any = wrapper
        memoized.cache_clear = result.cache_clear
        return memoized  # type: ignore[no-any-return]

    return decorate
