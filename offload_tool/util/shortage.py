"""Which errors mean that memory, or another of the machine's resources, was not enough.

They come in many forms: Python, the kernel, the dynamic loader and libzstd each have their own.
"""

from __future__ import annotations

import errno

_MEMORY = "this needs more memory than there is"
_FILES = "this needs more open files than there may be (ulimit -n)"
_OF_NUMBERS = {errno.ENOMEM: _MEMORY, errno.EMFILE: _FILES, errno.ENFILE: _FILES}
_OF_WORDS = {
    "failed to map segment from shared object": _MEMORY,  # glibc's loader, of a module
    "cannot allocate memory": _MEMORY,
    "not enough memory": _MEMORY,  # libzstd
    "can't start new thread": _MEMORY,
}


def shortage(error: BaseException) -> str | None:
    """Return the line for a user if `error`, or what it was raised from, is a shortage."""
    seen: set[int] = set()
    reason: BaseException | None = error
    while reason is not None and id(reason) not in seen:
        seen.add(id(reason))
        if isinstance(reason, MemoryError):
            return _MEMORY
        number = reason.errno if isinstance(reason, OSError) else None
        if number in _OF_NUMBERS:
            return _OF_NUMBERS[number]
        text = str(reason).lower()
        for words, line in _OF_WORDS.items():
            if words in text:
                return line
        reason = reason.__cause__ or reason.__context__
    return None
