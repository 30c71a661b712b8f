"""Paths as they are given, those of the standard streams, and errors that name them."""

from __future__ import annotations

from contextlib import contextmanager

from offload_tool.errors import FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from typing import TypeAlias

StrPath: TypeAlias = "str | os.PathLike[str]"

STDIN = "/dev/stdin"
STDOUT = "/dev/stdout"


@contextmanager
def naming(path: StrPath) -> Iterator[None]:
    """Make errors of the operating system such that name `path`."""
    try:
        yield
    except OSError as error:
        raise FileError(path, error) from error
