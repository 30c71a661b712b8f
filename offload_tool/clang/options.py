"""What options of clang do, for whoever asks: one table, and one question, `does`.

A name stands for all words that begin with it, so that all spellings with a value are meant; with
WHOLE, for that word alone. Who asks is careful: where a word is taken for an option in error, a
compile runs again, or on this machine. Source: clang 22.1.8 and 19.1.7, which a test asks about
each row: it completes the name (``--autocomplete``) or takes it, and says which take a next word.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

BESIDE, ELSEWHERE, LINKER, READS, HEADERS, DRIVER, TALK, OTHER_JOB, SIDE, DEVICE_ALONE = (
    1 << bit for bit in range(10)
)
"""What an option does:

- BESIDE: the compile writes files beside its output, named after it
- ELSEWHERE: it writes a file that the option names, or that other runs write to as well
- LINKER: the linker does
- READS: the compile reads a file that no depfile lists
- HEADERS: headers are found under other names than theirs, or by maps that name further files
- DRIVER: the driver itself heeds it, or it names files by rules of the driver
- TALK: the driver says or records more about the compile as a whole
- OTHER_JOB: no object is made, but something else, or nothing
- SIDE: it says whether host code, device code or both are compiled; DEVICE_ALONE: device code
"""
TARGETS, DEPFILE, CONFIGURATION, LIBRARY, FOLDER, INSTALLED, NO_LIBRARIES, NO_HEADERS, SHOWN = (
    1 << bit for bit in range(10, 19)
)
"""What it is about:

- TARGETS: for which processors device code is made
- DEPFILE: whether a depfile is written, and how
- CONFIGURATION: configuration files
- LIBRARY: libraries that a linker looks for
- FOLDER: where headers are looked for
- INSTALLED: what must be installed, or where it is; NO_LIBRARIES and NO_HEADERS: that those of
  the device are not
- SHOWN: the command's words are put into the output
"""
WRITES, NEXT, WHOLE = (1 << bit for bit in range(19, 22))
"""WRITES: a job of the driver's plan writes the file that it names. NEXT: it takes the next word.
WHOLE: the name is the whole word."""

_BOTH_SIDES = SIDE | WHOLE
_ONE_WORD = OTHER_JOB | WHOLE
_OPTIONS: dict[str, int] = {
    # -- files ---------------------------------------------------------------------------
    "--coverage": BESIDE,
    "--load-pass-plugin": READS,
    "--save-temps": BESIDE | DRIVER,
    "--serialize-diagnostics": ELSEWHERE | DRIVER | NEXT,
    "--vfsoverlay": HEADERS | NEXT,
    "-MJ": ELSEWHERE | DRIVER | TALK | NEXT,
    "-coverage-notes-file=": WRITES,
    "-dependency-dot": WRITES | NEXT,
    "-diagnostic-log-file": WRITES | NEXT,
    "-dumpdir": ELSEWHERE | DRIVER | TALK | NEXT,
    "-emit-pch": ELSEWHERE | OTHER_JOB,
    "-fauto-profile": READS,
    "-fbasic-block-sections=list": READS,
    "-fbuild-session": READS | HEADERS,
    "-fcrash-diagnostics-dir": ELSEWHERE | TALK,
    "-fmodule": READS | HEADERS,
    "-fmodule-output": ELSEWHERE | TALK,
    "-fmodules": ELSEWHERE,
    "-foptimization-record-file": BESIDE,
    "-fpass-plugin": READS,
    "-fplugin": READS,
    "-fprebuilt-module": READS | HEADERS,
    "-fproc-stat-report": ELSEWHERE | DRIVER | TALK,
    "-fprofile-instr-use": READS,
    "-fprofile-sample-use": READS,
    "-fprofile-use": READS,
    "-fsanitize-blacklist": READS,
    "-fsanitize-ignorelist": READS,
    "-fsave-optimization-record": BESIDE,
    "-fstack-usage": BESIDE,
    "-ftest-coverage": BESIDE,
    "-fthin-link-bitcode=": WRITES,
    "-fthinlto-index": READS,
    "-ftime-trace": BESIDE,
    "-ftime-trace=": WRITES,
    "-gen-cdb-fragment-path": ELSEWHERE | DRIVER | TALK | NEXT,
    "-gsplit-dwarf": BESIDE,
    "-header-include-file": WRITES | NEXT,
    "-include-pch": READS | NEXT,
    "-load": READS,
    "-mlink-builtin-bitcode": READS,
    "-opt-record-file": WRITES | NEXT,
    "-save-stats": TALK,
    "--save-stats": TALK,
    "-save-temps": BESIDE | DRIVER,
    "-serialize-diagnostic": ELSEWHERE,
    "-serialize-diagnostic-file": WRITES | NEXT,
    "-serialize-diagnostics": ELSEWHERE | DRIVER | NEXT,
    "-split-dwarf-output": WRITES | NEXT,
    "-stack-usage-file": WRITES | NEXT,
    "-stats-file=": WRITES,
    "@": READS | DRIVER,
    # -- headers -------------------------------------------------------------------------
    "-F": HEADERS | NEXT,
    "-I": FOLDER | NEXT,
    "-c-isystem": FOLDER,
    "-cxx-isystem": FOLDER | NEXT,
    "-idirafter": FOLDER | NEXT,
    "-iframework": HEADERS | NEXT,
    "-internal-externc-isystem": FOLDER,
    "-internal-iframework": FOLDER,
    "-internal-isystem": FOLDER,
    "-iquote": FOLDER | NEXT,
    "-isystem": FOLDER | NEXT,
    "-ivfsoverlay": HEADERS | NEXT,
    "-vfsoverlay": HEADERS | DRIVER | NEXT,
    # -- depfiles ------------------------------------------------------------------------
    "--print-missing-file-dependencies": DEPFILE | WHOLE,
    "--write-dependencies": DEPFILE | WHOLE,
    "--write-user-dependencies": DEPFILE | WHOLE,
    "-MD": DEPFILE | WHOLE,
    "-MF": DEPFILE | NEXT,
    "-MG": DEPFILE | WHOLE,
    "-MMD": DEPFILE | WHOLE,
    "-MP": DEPFILE | WHOLE,
    "-MQ": DEPFILE | NEXT,
    "-MT": DEPFILE | NEXT,
    "-MV": DEPFILE | WHOLE,
    # -- linkers -------------------------------------------------------------------------
    "--Map": LINKER,
    "--dependency-file": LINKER,
    "--library": LIBRARY,
    "--time-trace": LINKER,
    "-Map": LINKER,
    "-Wl,": LINKER,
    "-dependency-file": LINKER | NEXT,
    "-l": LIBRARY | NEXT,
    # -- targets and what is installed for them ------------------------------------------
    "--cuda-compile-host-device": _BOTH_SIDES,
    "--cuda-device-only": _BOTH_SIDES | DEVICE_ALONE,
    "--cuda-gpu-arch": TARGETS,
    "--cuda-host-only": _BOTH_SIDES,
    "--cuda-path": INSTALLED,
    "--gcc-install-dir": INSTALLED,
    "--gcc-toolchain": INSTALLED,
    "--gcc-triple": INSTALLED,
    "--hip-": INSTALLED,
    "--no-cuda-gpu-arch": TARGETS,
    "--no-gpu-": INSTALLED,
    "--no-offload-arch": TARGETS,
    "--no-offload-inc": INSTALLED | NO_HEADERS,
    "--no-offloadlib": INSTALLED | NO_LIBRARIES,
    "--offload-arch": TARGETS,
    "--offload-device-only": _BOTH_SIDES | DEVICE_ALONE,
    "--offload-host-device": _BOTH_SIDES,
    "--offload-host-only": _BOTH_SIDES,
    "--offload-inc": INSTALLED,
    "--offloadlib": INSTALLED,
    "--rocm-": INSTALLED,
    "--sysroot": INSTALLED | NEXT,
    "-fgpu-sanitize": INSTALLED,
    "-fno-gpu-sanitize": INSTALLED,
    "-fsanitize=": INSTALLED,
    "-isysroot": INSTALLED | NEXT,
    "-mcode-object-version": INSTALLED,
    "-mno-wavefrontsize64": INSTALLED,
    "-mwavefrontsize64": INSTALLED,
    "-nobuiltininc": INSTALLED,
    "-nocudainc": INSTALLED | NO_HEADERS,
    "-nocudalib": INSTALLED | NO_LIBRARIES,
    "-nogpuinc": INSTALLED | NO_HEADERS,
    "-nogpulib": INSTALLED | NO_LIBRARIES,
    "-nohipwrapperinc": INSTALLED,
    "-nostdinc": INSTALLED,
    "-nostdlibinc": INSTALLED,
    "-resource-dir": INSTALLED | NEXT,
    "-stdlib=": INSTALLED,
    # -- the driver ----------------------------------------------------------------------
    "--config": READS | DRIVER | CONFIGURATION | TALK | NEXT,
    "--driver-mode": DRIVER | TALK,
    "--verbose": DRIVER | TALK,
    "-Xarch": DRIVER,
    "-ccc-": TALK,
    "-fcrash-": DRIVER,
    "-fno-crash-diagnostics": TALK,
    "-frecord-": SHOWN | TALK,
    "-ftime-": DRIVER,
    "-gen-reproducer": DRIVER | TALK,
    "-grecord-": SHOWN | TALK,
    "-time": DRIVER | TALK,
    "-v": DRIVER | TALK | WHOLE,
    "-working-directory": DRIVER | TALK | NEXT,
    # -- other jobs than objects ---------------------------------------------------------
    "--analyze": _ONE_WORD,
    "--assemble": _ONE_WORD,
    "--autocomplete": OTHER_JOB,
    "--dependencies": _ONE_WORD | DEPFILE,
    "--help": OTHER_JOB,
    "--precompile": _ONE_WORD,
    "--preprocess": _ONE_WORD,
    "--print-": OTHER_JOB,
    "--user-dependencies": _ONE_WORD | DEPFILE,
    "--version": _ONE_WORD,
    "-###": _ONE_WORD,
    "-E": _ONE_WORD,
    "-M": _ONE_WORD | DEPFILE,
    "-MM": _ONE_WORD | DEPFILE,
    "-S": _ONE_WORD,
    "-V": _ONE_WORD | NEXT,
    "-cc1": OTHER_JOB,
    "-dumpmachine": _ONE_WORD,
    "-dumpversion": _ONE_WORD,
    "-fdriver-only": OTHER_JOB | DRIVER,
    "-fsyntax-only": _ONE_WORD,
    "-help": _ONE_WORD,
    "-print-": OTHER_JOB,
    # -- others that take the next word --------------------------------------------------
    **dict.fromkeys(
        (
            *("-A", "--analyzer-output", "-arch", "-B", "-b", "-ccc-gcc-name", "-ccc-install-dir"),
            *("-D", "-darwin-target-variant", "-darwin-target-variant-triple", "-dsym-dir", "-e"),
            *("-fdebug-compilation-dir", "-fexperimental-openacc-macro-override", "-filelist"),
            *("-fmodules-user-build-path", "-framework", "-ftrapv-handler", "-G", "-hlsl-entry"),
            *("-iapinotes-modules", "-iframeworkwithsysroot", "--imacros", "-imacros"),
            *("-imultilib", "--include", "-include", "-iprefix", "-isystem-after", "-iwithprefix"),
            *("-iwithprefixbefore", "-iwithsysroot", "-L", "-meabi", "-mllvm", "-mmlir"),
            *(
                "-module-dependency-dir",
                "-mthread-model",
                "-o",
                "--param",
                "-rpath",
                "-stdlib++-isystem",
            ),
            *("-T", "-target", "-U", "-u", "-undefined", "-validator-version", "-x", "-Xanalyzer"),
            *("-Xassembler", "-Xclang", "-Xclangas", "-Xcuda-fatbinary", "-Xcuda-ptxas"),
            *("-Xlinker", "-Xoffload-linker", "-Xopenmp-target", "-Xpreprocessor", "-z"),
        ),
        NEXT,
    ),
}


_SPELLINGS: dict[int, tuple[frozenset[str], tuple[str, ...]]] = {}
"""What was asked for: whole words, and beginnings. (`functools` takes as long to load as this.)"""


def _spellings(what: int) -> tuple[frozenset[str], tuple[str, ...]]:
    if what not in _SPELLINGS:
        names = [(name, bits & WHOLE) for name, bits in _OPTIONS.items() if bits & what]
        whole = frozenset(name for name, is_whole in names if is_whole)
        _SPELLINGS[what] = whole, tuple(name for name, is_whole in names if not is_whole)
    return _SPELLINGS[what]


def beginnings(what: int) -> tuple[str, ...]:
    """Return the names of all options that have one of the bits, but for whole words."""
    return _spellings(what)[1]


def does(word: str, what: int) -> bool:
    """Return whether a word is an option with one of the bits."""
    whole, begins = _spellings(what)
    return word in whole or word.startswith(begins)


def takes_next(word: str) -> bool:
    """Return whether the word behind this one is its value."""
    return bool(_OPTIONS.get(word, 0) & NEXT)


def values(words: Sequence[str], what: int) -> Iterator[str]:
    """Yield the values that words of a job of the driver's plan give to options with the bits.

    The driver writes each option in one way: as it is in the table.
    """
    attached = tuple(name for name in beginnings(what) if not _OPTIONS[name] & NEXT)
    for word, behind in itertools.pairwise((*words, "")):
        if _OPTIONS.get(word, 0) & what and takes_next(word):
            yield behind
        yield from (word.removeprefix(name) for name in attached if word.startswith(name))
