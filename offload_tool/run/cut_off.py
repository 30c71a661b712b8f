"""The two stages of a device pass, and when the second need not run.

::

    k.hip  --front end-->  unoptimised bitcode  --backend-->  object  --linker-->  k.gfx906.co
                                   |
                        its digest is in the manifest: where it, the command and all that the
                        key names are as they were, the output stays as it is, its time too

A comment, host code, or a function that no kernel calls changes the source and not the bitcode.
Device libraries are linked into the bitcode.

The bytes are those of one stage: 8 of 8 code objects of llama.cpp, and 81 of 85 sets of flags, with
clang 21 and 22. Not where contraction is ``fast``: of a source, the backend then fuses what
``#pragma clang fp contract(off)`` forbids, of bitcode it does not. Such passes, those without
optimisation, and those that write more files have one stage.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from offload_tool.clang.options import BESIDE, ELSEWHERE, READS, beginnings
from offload_tool.io.file_digests import digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

__all__ = ["Stages"]

_OPTIMISED = re.compile(r"-O[1-3sz]")
_FAST = ("-ffast-math", "-ffp-contract=fast", "-funsafe-math-optimizations")
_ONE_STAGE = tuple(
    name
    for name in beginnings(BESIDE | ELSEWHERE | READS)
    if name not in ("@", "-mlink-builtin-bitcode")
)
_FRONT_END_ALONE = {
    "-mlink-builtin-bitcode": 2,
    "-dependency-file": 2,
    "-MT": 2,
    "-include": 2,
    "-sys-header-deps": 1,
    "-MP": 1,
}
"""Words that the backend's job does not have, with how many they are."""
_EMIT = "-emit-obj"


class Stages:
    """What one pass is to do in two stages, and what became of it."""

    def __init__(self, known: str = "") -> None:
        self.known = known
        """The digest of the bitcode of which the output is; "" where it is to be made anew."""
        self.digest = ""
        """The digest of the bitcode; "" where the output must be made anew the next time."""
        self.is_cut_off = False
        """Whether the output was left as it is."""
        self._files: tuple[IO[bytes], ...] = ()
        self._printed = 0
        self._started = time.perf_counter()
        self.front_end_seconds = 0.0

    def jobs(self, job: Sequence[str], bitcode: str) -> tuple[tuple[str, ...], ...]:
        """Return the commands of the front end and of the backend for a job of cc1.

        `bitcode` is between them. There are none where the two would not give the bytes of the one,
        or write other files.
        """
        words = [*job]
        if (
            words.count(_EMIT) != 1
            or words[-3:-1] != ["-x", "hip"]
            or not any(map(_OPTIMISED.fullmatch, words))
            or any(word in _FAST or word.startswith(_ONE_STAGE) for word in words)
        ):
            return ()
        at, out = words.index(_EMIT), words.index("-o") + 1
        first = [*words]
        first[out] = bitcode
        first[at : at + 1] = ["-emit-llvm-bc", "-disable-llvm-passes"]
        second: list[str] = []
        position = 0
        while position < len(words) - 2:
            skipped = _FRONT_END_ALONE.get(words[position], 0)
            if not skipped:
                second.append(words[position])
            position += skipped or 1
        return tuple(first), (*second, "ir", bitcode)

    def watch(self, bitcode: IO[bytes], errors: IO[bytes]) -> None:
        """Set the files that the jobs write."""
        self._files = bitcode, errors

    def end_with(self, number: int) -> bool:
        """Return whether the jobs behind that of a number need not run."""
        bitcode, errors = (os.fstat(file.fileno()).st_size for file in self._files)
        if not number:
            self.digest = digest_of(os.pread(self._files[0].fileno(), bitcode, 0))
            self._printed = errors
            self.front_end_seconds = time.perf_counter() - self._started
            self.is_cut_off = self.digest == self.known
        elif errors > self._printed:
            self.digest = ""  # the backend has something to print, in each run
        return self.is_cut_off
