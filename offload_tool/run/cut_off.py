"""The two stages of a device pass, and when the second need not run.

::

    k.hip  --front end-->  unoptimised bitcode  --backend-->  object  --linker-->  k.gfx906.co
                                   |
                        its digest is in the manifest: where it, the command and all that the
                        key names are as they were, the output stays as it is, its time too

A comment, host code, or a function that no kernel calls changes the source and not the bitcode.
Device libraries are linked into the bitcode. With a precompiled header
it may be another one of the same code object; then the first pass with one runs to its end.

The bytes are those of one stage: 8 of 8 code objects of llama.cpp, and 81 of 85 sets of flags, with
clang 21 and 22. Not where contraction is ``fast``: of a source, the backend then fuses what
``#pragma clang fp contract(off)`` forbids, of bitcode it does not. Such passes, those without
optimisation, and those that write more files have one stage.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from offload_tool.clang.options import (
    BESIDE,
    ELSEWHERE,
    FAST_MATH,
    FRONT_END,
    NO_HEADERS,
    READS,
    beginnings,
    does,
    without_values,
)
from offload_tool.io.file_digests import digest_of

if TYPE_CHECKING:
    from offload_tool.manifest.manifest import PassRecord

_OPTIMISED = re.compile(r"-O[1-3sz]")
_ONE_STAGE = tuple(
    name
    for name in beginnings(BESIDE | ELSEWHERE | READS)
    if name not in ("@", "-mlink-builtin-bitcode", "-include-pch")
)
_EMIT = "-emit-obj"
_SHORT = "short"
"""In the place of a digest of bitcode: the pass is too short for two stages."""
_TOO_SHORT = 0.2
"""Seconds; one more process takes a fifth of shorter passes, and a tenth of longer ones."""


class Stages:
    """What one pass is to do in two stages, and what became of it."""

    def __init__(self, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self.known = ""
        """The digest of the bitcode of which the output is; "" where it is to be made anew."""
        self.is_cut_off = False
        """Whether the output was left as it is."""
        self.front_end_seconds = 0.0
        self._is_taken = False
        self._digest = ""
        self._files: tuple[IO[bytes], ...] = ()
        self._printed = 0
        self._began = self._started = 0.0

    def begin(self, before: PassRecord | None, words: Sequence[str], *, is_whole: bool) -> None:
        """Begin a pass with some flags, behind the one that has left a record.

        It has two stages where the last one took long enough. The first one does, unless it is
        without the headers of HIP. `is_whole` is whether the output is what was made, and all that
        the backend depends on beside the bitcode is as it was.
        """
        is_short = (
            any(does(w, NO_HEADERS) for w in words) if before is None else before.bitcode == _SHORT
        )
        self._is_taken = self._is_on and not is_short
        self.known = before.bitcode if before is not None and is_whole else ""
        self._began = time.perf_counter()
        self.forget()

    def forget(self) -> None:
        """Forget what became of the stages: the output is made in another way."""
        self._digest, self.is_cut_off, self.front_end_seconds = "", False, 0.0

    def bitcode(self) -> str:
        """Return what the record of the pass, which has ended, keeps of its bitcode.

        It is "" where the output must be made anew the next time.
        """
        is_short = time.perf_counter() - self._began < _TOO_SHORT
        return _SHORT if is_short and not self.is_cut_off else self._digest

    def jobs(self, job: Sequence[str], bitcode: str) -> tuple[tuple[str, ...], ...]:
        """Return the commands of the front end and of the backend for a job of cc1.

        `bitcode` is between them. There are none where the two would not give the bytes of the one,
        or write other files.
        """
        words = [*job]
        self.forget()
        if (
            not self._is_taken
            or words.count(_EMIT) != 1
            or words[-3:-1] != ["-x", "hip"]
            or not any(map(_OPTIMISED.fullmatch, words))
            or any(does(word, FAST_MATH) or word.startswith(_ONE_STAGE) for word in words)
        ):
            return ()
        at, out = words.index(_EMIT), words.index("-o") + 1
        first = [*words]
        first[out] = bitcode
        first[at : at + 1] = ["-emit-llvm-bc", "-disable-llvm-passes"]
        second = without_values(words[:-2], FRONT_END)
        return tuple(first), (*second, "ir", bitcode)

    def watch(self, bitcode: IO[bytes], errors: IO[bytes]) -> None:
        """Set the files that the jobs write."""
        self._files = bitcode, errors
        self._started = time.perf_counter()

    def end_with(self, number: int) -> bool:
        """Return whether the jobs behind that of a number need not run."""
        bitcode, errors = (os.fstat(file.fileno()).st_size for file in self._files)
        if not number:
            self._digest = digest_of(os.pread(self._files[0].fileno(), bitcode, 0))
            self._printed = errors
            self.front_end_seconds = time.perf_counter() - self._started
            self.is_cut_off = self._digest == self.known
        elif errors > self._printed:
            self._digest = ""  # the backend has something to print, in each run
        return self.is_cut_off
