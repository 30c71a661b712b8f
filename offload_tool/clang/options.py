"""Options of clang that are about files, or that only its driver heeds: one table, by beginning.

A word is an option's if it begins with the option's name, so that all spellings with a value are
meant. Where an option is asked for in error, what asks is careful: it runs a compile again, or on
this machine. Source: clang 22.1.8 and 19.1.7, whose ``--autocomplete`` a test asks about each row.
"""

from __future__ import annotations

import functools

__all__ = ["BESIDE", "DRIVER", "ELSEWHERE", "HEADERS", "LINKER", "READS", "beginnings"]

BESIDE, ELSEWHERE, LINKER, READS, HEADERS, DRIVER = (1 << bit for bit in range(6))
"""What an option does:

- BESIDE: the compile writes files beside its output, named after it
- ELSEWHERE: it writes a file that the option names, or that other runs write to as well
- LINKER: the linker does
- READS: the compile reads a file that no depfile lists
- HEADERS: headers are found under other names than theirs, or by maps that name further files
- DRIVER: the driver itself heeds it, or it names files by rules of the driver
"""
_OPTIONS: dict[str, int] = {
    "--config": READS | DRIVER,
    "--coverage": BESIDE,
    "--dependency-file": LINKER,
    "--driver-mode": DRIVER,
    "--load-pass-plugin": READS,
    "--Map": LINKER,
    "--save-temps": BESIDE | DRIVER,
    "--serialize-diagnostics": ELSEWHERE | DRIVER,
    "--time-trace": LINKER,
    "--verbose": DRIVER,
    "--vfsoverlay": HEADERS,
    "-F": HEADERS,
    "-MJ": ELSEWHERE | DRIVER,
    "-Map": LINKER,
    "-Wl,": LINKER,
    "-Xarch": DRIVER,
    "-dependency-file": LINKER,
    "-dumpdir": ELSEWHERE | DRIVER,
    "-emit-pch": ELSEWHERE,
    "-fauto-profile": READS,
    "-fbasic-block-sections=list": READS,
    "-fcrash-": DRIVER,
    "-fcrash-diagnostics-dir": ELSEWHERE,
    "-fdriver-only": DRIVER,
    "-fmodule": READS | HEADERS,
    "-fmodules": ELSEWHERE,
    "-fmodule-output": ELSEWHERE,
    "-foptimization-record-file": BESIDE,
    "-fpass-plugin": READS,
    "-fplugin": READS,
    "-fproc-stat-report": ELSEWHERE | DRIVER,
    "-fprofile-instr-use": READS,
    "-fprofile-sample-use": READS,
    "-fprofile-use": READS,
    "-fsanitize-blacklist": READS,
    "-fsanitize-ignorelist": READS,
    "-fsave-optimization-record": BESIDE,
    "-fstack-usage": BESIDE,
    "-ftest-coverage": BESIDE,
    "-fthinlto-index": READS,
    "-ftime-": DRIVER,
    "-ftime-trace": BESIDE,
    "-gen-cdb-fragment-path": ELSEWHERE | DRIVER,
    "-gen-reproducer": DRIVER,
    "-gsplit-dwarf": BESIDE,
    "-iframework": HEADERS,
    "-include-pch": READS,
    "-ivfsoverlay": HEADERS,
    "-load": READS,
    "-mlink-builtin-bitcode": READS,
    "-save-temps": BESIDE | DRIVER,
    "-serialize-diagnostic": ELSEWHERE,
    "-time": DRIVER,
    "-v": DRIVER,
    "-vfsoverlay": HEADERS,
    "-working-directory": DRIVER,
    "@": READS | DRIVER,
}


@functools.cache
def beginnings(does: int) -> tuple[str, ...]:
    """Return the names of all options that do one of `does`, for ``str.startswith``."""
    return tuple(name for name, bits in _OPTIONS.items() if bits & does)
