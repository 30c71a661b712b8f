"""The two stages of a pass, and when to skip the second.

::

    k.hip  --front end-->  unoptimised bitcode  --backend-->  object  --linker-->  k.gfx906.co
                                   |                            (= k.host.o for the host)
                        its digest is in the manifest: if it, the command and all other inputs
                        of the key are unchanged, the output stays untouched, mtime included

A comment, or a function that nothing calls, changes the source but no bitcode; host code changes no
device's, and a kernel's body not the host's. With a precompiled header, the bitcode may differ for
the same code object; the first pass with one therefore runs to its end.

Two stages write the bytes of one: 8 of 8 code objects of llama.cpp, and 81 of 85 sets of flags,
with clang 21 and 22. They differ if contraction is ``fast``, as the backend then fuses despite
``#pragma clang fp contract(off)`` if it compiles a source, and for host code with
``-fsanitize=address`` or ``-fpseudo-probe-for-profiling``. Such passes, those without optimisation
or with further files, and those whose backend prints (it would name no place in the source) or
numbers names run in one stage.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from offload_tool.clang.options import (
    ELSEWHERE,
    EMBEDS,
    FAST_MATH,
    FRONT_END,
    NO_HEADERS,
    READS,
    SIBLING,
    does,
    prefixes,
    without_values,
)
from offload_tool.errors import CodeObjectError, ContentError, UsageError
from offload_tool.io.file_digests import digest_of
from offload_tool.io.process import written_bytes

if TYPE_CHECKING:
    from offload_tool.manifest.manifest import PassRecord

_OPTIMISED = re.compile(r"-O[1-3sz]")
_ONE_STAGE = (
    *(
        name
        for name in prefixes(SIBLING | ELSEWHERE | READS | EMBEDS)
        if name not in ("@", "-mlink-builtin-bitcode", "-include-pch", "-fcuda-include-gpubinary")
    ),
    *("-fsanitize", "-fprofile", "-fpseudo-probe", "-fcoverage-mapping"),
)
_EMIT = "-emit-obj"
_EMIT_BITCODE = ("-emit-llvm-bc", "-emit-llvm-uselists")
"""The uses of a block are its predecessors. With another order, the backend makes other code."""
_SHORT = "short"
"""Replaces the digest of the bitcode if the pass is too short for two stages."""
CUTOFF = "OFFLOAD_CUTOFF"
CHECK = "OFFLOAD_CUTOFF_CHECK"
"""Variables of commands, 0 or 1: whether backends may be left out; run all, and compare."""
_PRINTS = "prints"
"""Replaces it if the backend prints."""
_NUMBERS = "numbers"
"""Replaces it if the backend numbers names."""
_NUMBERED = rb"\.[0-9]+(?![^.])"
_TOO_SHORT = 0.2
"""Seconds. The extra process takes a fifth of shorter passes, and a tenth of longer ones."""


class Stages:
    """The stages of one pass, and their results."""

    def __init__(self, *, is_on: bool = True, is_checked: bool = False) -> None:
        """`is_checked`: the backend always runs, and `check` compares what it makes."""
        self._is_on, self._is_checked = is_on, is_checked
        self._must_equal = False
        self.known_digest = ""
        """The digest of the output's bitcode; "" if the output must be rebuilt."""
        self.is_cut_off = False
        """Whether the backend was skipped and the output kept."""
        self.must_repeat = False
        """Whether the pass must run again as one job."""
        self.front_end_seconds = 0.0
        self._may_split = False
        self._one_job = ""
        """Why two stages would differ from one job: what the record has for the digest."""
        self._digest = ""
        self._printed = 0
        self._began = self._started = 0.0

    def begin(self, before: PassRecord | None, args: Sequence[str], *, is_unchanged: bool) -> None:
        """Start a pass that follows the recorded pass `before`.

        It runs in two stages if the recorded pass took long enough and can be reused; a first pass
        does unless it excludes HIP's headers. `is_unchanged`: the output is intact, and the
        backend's other dependencies are unchanged.
        """
        if before is None:
            bitcode, is_short = "", any(does(arg, NO_HEADERS) for arg in args)
        else:
            bitcode, is_short = before.bitcode, not before.output or before.bitcode == _SHORT
        self._one_job = bitcode if bitcode in (_PRINTS, _NUMBERS) else ""
        self._may_split = self._is_on and not is_short
        self.known_digest = bitcode if is_unchanged else ""
        self._began = time.perf_counter()
        self.reset()

    def reset(self) -> None:
        """Reset the results: the output is made in another way."""
        self._digest, self.front_end_seconds = "", 0.0
        self.is_cut_off = self.must_repeat = self._must_equal = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Stages:
        """Return the stages of a pass of a command, by its environment; raise UsageError."""
        given = {name: environ.get(name) or value for name, value in ((CUTOFF, "1"), (CHECK, "0"))}
        for name, switch in given.items():
            if switch not in {"0", "1"}:
                raise UsageError(f"{name}: expected 0 or 1, found {switch!r}")
        return cls(is_on=given[CUTOFF] == "1", is_checked=given[CHECK] == "1")

    def check(self, before: str, made: str, output: str) -> None:
        """Raise CodeObjectError for an output that must be as before, by digests, but is not."""
        if self._must_equal and before != made:
            raise CodeObjectError(
                f"'{output}': without the backend the output before stays, which has other bytes, "
                f"although the bitcode is equal; this is an error of this tool: turn {CUTOFF} off, "
                "and report it"
            )

    def printed_nothing(self) -> None:
        """Note that the one job has printed nothing: the next run may have two stages."""
        if self._one_job == _PRINTS:
            self._one_job = ""

    def bitcode(self) -> str:
        """Return the value for the record of the finished pass; "" forces a rebuild."""
        if self._one_job:
            return self._one_job
        is_short = time.perf_counter() - self._began < _TOO_SHORT
        return _SHORT if is_short and not self.is_cut_off else self._digest

    def jobs(self, job: Sequence[str], bitcode: str) -> tuple[tuple[str, ...], ...]:
        """Return a cc1 job's front end, which writes `bitcode`, and backend; () for one stage.

        That is where two stages would write different bytes, or other files.
        """
        args = [*job]
        self.reset()
        if (
            not self._may_split
            or self._one_job
            or args.count(_EMIT) != 1
            or args[-3:-1] != ["-x", "hip"]
            or not any(map(_OPTIMISED.fullmatch, args))
            or any(does(arg, FAST_MATH) or arg.startswith(_ONE_STAGE) for arg in args)
        ):
            return ()
        emit, out = args.index(_EMIT), args.index("-o") + 1
        first = [*args]
        first[out] = bitcode
        first[emit : emit + 1] = [*_EMIT_BITCODE, "-disable-llvm-passes"]
        second = without_values(args[:-2], FRONT_END)
        self._started = time.perf_counter()
        return tuple(first), (*second, "ir", bitcode)

    def stops_after(
        self, number: int, bitcode: IO[bytes], errors: IO[bytes], read_object: Callable[[], bytes]
    ) -> bool:
        """Return True if the jobs after job `number`, which `jobs` has returned, need not run.

        They write `bitcode` and `errors`; `read_object` returns the backend's object.
        """
        printed = os.fstat(errors.fileno()).st_size
        if not number:
            self._digest = digest_of(written_bytes(bitcode))
            self._printed = printed
            self.front_end_seconds = time.perf_counter() - self._started
            is_equal = self._digest == self.known_digest
            self.is_cut_off = is_equal and not self._is_checked
            self._must_equal = is_equal and self._is_checked
        elif printed > self._printed:
            self._digest = ""  # each run must repeat the messages
            if number == 1:
                self._one_job, self.must_repeat = _PRINTS, True
        elif number == 1 and _backend_numbers_names(written_bytes(bitcode), read_object()):
            self._digest, self._one_job, self.must_repeat = "", _NUMBERS, True
        return self.is_cut_off or self.must_repeat


def _backend_numbers_names(bitcode: bytes, output: bytes) -> bool:
    """Return whether an object of `bitcode` has numbered names that are not the bitcode's.

    LLVM gives a second symbol of one name a number (``str.21``), from a counter of the module.
    Compiling a source, the backend continues to count where the front end has stopped; compiling
    bitcode, which does not contain the counter, it begins with 1.
    """
    # Not if the pass is cut off.
    from offload_tool.formats.bitcode.module import bitcode_names
    from offload_tool.formats.objects.elf.reader import SHT_SYMTAB, STT_FILE, ElfTables

    if not output:  # of a backend that failed
        return False
    try:
        tables, numbered = ElfTables(memoryview(output)), set[bytes]()
        for index in tables.of_type(SHT_SYMTAB):
            strings = tables.strings(tables.linked(index))
            symbols = (symbol for symbol in tables.symbols(index) if symbol.type != STT_FILE)
            names = (strings[symbol.st_name] for symbol in symbols)
            numbered.update(name for name in names if re.search(_NUMBERED, name))
        return bool(numbered) and not numbered <= bitcode_names(memoryview(bitcode))
    except ContentError:
        return True  # not ELF: nothing is known of its names
