"""The options of clang and lld: one table that the whole package queries.

A name stands for all arguments that begin with it, so that it covers all spellings with a value;
with WHOLE, for that argument alone. Queries err on the safe side: an argument wrongly taken for an
option costs a rebuild, or a local compile. Source: clang 22.1.8 and 19.1.7, and lld. A test checks
each row with them: the program completes the name (``--autocomplete``) or accepts it, and shows
which options take a next argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

SIBLING, ELSEWHERE, LINKER, READS, HEADERS, DRIVER, REPORTS, OTHER_JOB, SIDE, DEVICE_ALONE = (
    1 << bit for bit in range(10)
)
"""The effect of an option:

- SIBLING: the compile writes files next to its output, named after it
- ELSEWHERE: it writes a file that the option names, or to which other runs write as well
- LINKER: the linker writes one
- READS: the compile reads a file that no depfile lists
- HEADERS: headers are found under other names than theirs, or by maps that name further files
- DRIVER: the driver itself uses it, or it names files by rules of the driver
- REPORTS: the driver prints or records more about the compile as a whole, or has another result
- OTHER_JOB: the compile makes something else than an object, or nothing
- SIDE: it selects host code, device code or both; DEVICE_ALONE: device code
"""
TARGETS, DEPFILE, CONFIGURATION, LIBRARY, FOLDER, INSTALLED, NO_LIBRARIES, NO_HEADERS, SHOWN = (
    1 << bit for bit in range(10, 19)
)
"""Its subject:

- TARGETS: the processors of device code
- DEPFILE: whether and how a depfile is written
- CONFIGURATION: configuration files
- LIBRARY: libraries that a linker searches for
- FOLDER: the header search path
- INSTALLED: required installations, or their paths; NO_LIBRARIES and NO_HEADERS: the device's
  are not required
- SHOWN: the command line is put into the output
"""
TEMPORARIES, REMOVED, STAGE, DEPFILE_ON, CUID, FAST_MATH, OPENMP, LINKED, TRIPLE = (
    1 << bit for bit in range(19, 28)
)
"""Further effects:

- TEMPORARIES: the files between the jobs are kept
- REMOVED: the driver removes the file that it names, in queries (``-###``), too
- STAGE: the stage at which the compile stops
- DEPFILE_ON: a depfile is written
- CUID: the ID of the compilation unit
- FAST_MATH: floating-point options that are decided as late as in the backend
- OPENMP: the source is one of OpenMP or OpenACC
- LINKED: the link of the objects needs it, too
- TRIPLE: it may set the target triple of host code
"""
LINKER_SCRIPT, PROGRAMS, ROOT, NATIVE, COMPILE_FOLDER, NO_FILE, ATTACHED_FILE, DEVICE_LINK = (
    1 << bit for bit in range(28, 36)
)
CONFIGURATION_FOLDER = 1 << 47
"""What it names:

- CONFIGURATION_FOLDER: a directory of configuration files
- LINKER_SCRIPT: a linker script
- PROGRAMS: a directory of programs
- ROOT: a directory of GCC installations
- NATIVE: the processor of this machine
- COMPILE_FOLDER: the working directory of the compile
- NO_FILE: no file that is read
- ATTACHED_FILE: a file that is read, in the same argument
- DEVICE_LINK: how device code is linked, and no other file
"""
FOR_LINKER, FOR_OTHERS, FOR_LLVM, FRONT_END, JOB_DEPFILE, EMBEDS, OF_LLD = (
    1 << bit for bit in range(36, 43)
)
"""Its consumer, if not the driver. Its value is an argument for a linker (FOR_LINKER), for linker,
assembler or preprocessor (FOR_OTHERS), or for LLVM (FOR_LLVM). FRONT_END: only the front end's job
has it, not the backend's. There, JOB_DEPFILE requests a depfile, and EMBEDS names a file that is
embedded unchanged. OF_LLD: an option of lld."""
WRITES, NEXT, BEGINS, WHOLE = (1 << bit for bit in range(43, 47))
"""WRITES: a job of the driver's plan writes the file that it names. NEXT: it takes the next
argument; with BEGINS, so does each argument that begins with it. WHOLE: the name is the whole
argument."""

_BOTH_SIDES = SIDE | WHOLE
_OTHER_JOB = OTHER_JOB | WHOLE
_OPTIONS: dict[str, int] = {
    # -- files ---------------------------------------------------------------------------
    "--coverage": SIBLING | LINKED,
    "--load-pass-plugin": READS,
    "--save-temps": SIBLING | DRIVER | TEMPORARIES,
    "--serialize-diagnostics": ELSEWHERE | DRIVER | NEXT | REMOVED,
    "--vfsoverlay": HEADERS | NEXT,
    "-MJ": ELSEWHERE | DRIVER | REPORTS | NEXT | REMOVED,
    "-coverage-notes-file=": WRITES,
    "-dependency-dot": WRITES | NEXT,
    "-diagnostic-log-file": WRITES | NEXT,
    "-dumpdir": ELSEWHERE | DRIVER | REPORTS | NEXT,
    "-emit-pch": ELSEWHERE | OTHER_JOB,
    "-fauto-profile": READS,
    "-fbasic-block-sections=list": READS,
    "-fbuild-session": READS | HEADERS,
    "-fcrash-diagnostics-dir": ELSEWHERE | REPORTS,
    "-fcuda-include-gpubinary": EMBEDS | NEXT,
    "-fembed-offload-object=": EMBEDS,
    "-fmodule": READS | HEADERS,
    "-fmodule-output": ELSEWHERE | REPORTS,
    "-fmodules": ELSEWHERE,
    "-foptimization-record-file": SIBLING | NO_FILE,
    "-fpass-plugin": READS,
    "-fplugin": READS,
    "-fprebuilt-module": READS | HEADERS,
    "-fproc-stat-report": ELSEWHERE | DRIVER | REPORTS,
    "-fprofile-instr-use": READS,
    "-fprofile-sample-use": READS,
    "-fprofile-use": READS,
    "-fsanitize-blacklist": READS,
    "-fsanitize-ignorelist": READS,
    "-fsave-optimization-record": SIBLING,
    "-fstack-usage": SIBLING,
    "-ftest-coverage": SIBLING,
    "-fthin-link-bitcode=": WRITES,
    "-fthinlto-index": READS,
    "-ftime-trace": SIBLING,
    "-ftime-trace=": WRITES | NO_FILE,
    "-gen-cdb-fragment-path": ELSEWHERE | DRIVER | REPORTS | NEXT,
    "-gsplit-dwarf": SIBLING,
    "-header-include-file": WRITES | NEXT,
    "-include-pch": READS | NEXT | FRONT_END,
    "-load": READS,
    "-mlink-builtin-bitcode": READS | FRONT_END | NEXT,
    "-opt-record-file": WRITES | NEXT,
    "-save-stats": REPORTS,
    "--save-stats": REPORTS,
    "-save-temps": SIBLING | DRIVER | TEMPORARIES,
    "-serialize-diagnostic": ELSEWHERE,
    "-serialize-diagnostic-file": WRITES | NEXT,
    "-serialize-diagnostics": ELSEWHERE | DRIVER | NEXT | REMOVED,
    "-split-dwarf-output": WRITES | NEXT,
    "-stack-usage-file": WRITES | NEXT,
    "-stats-file=": WRITES,
    "@": READS | DRIVER | TRIPLE,
    # -- headers -------------------------------------------------------------------------
    "--embed-dir=": FOLDER,
    "-F": HEADERS | NEXT,
    "-I": FOLDER | NEXT | NO_FILE,
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
    "--write-dependencies": DEPFILE | WHOLE | DEPFILE_ON,
    "--write-user-dependencies": DEPFILE | WHOLE | DEPFILE_ON,
    "-MD": DEPFILE | WHOLE | DEPFILE_ON,
    "-MF": DEPFILE | NEXT,
    "-MG": DEPFILE | WHOLE | FRONT_END | JOB_DEPFILE,
    "-MMD": DEPFILE | WHOLE | DEPFILE_ON,
    "-MP": DEPFILE | WHOLE | FRONT_END | JOB_DEPFILE,
    "-MQ": DEPFILE | NEXT | FRONT_END | JOB_DEPFILE,
    "-MT": DEPFILE | NEXT | FRONT_END | JOB_DEPFILE,
    "-MV": DEPFILE | WHOLE | FRONT_END | JOB_DEPFILE,
    "-sys-header-deps": WHOLE | FRONT_END | JOB_DEPFILE,
    # -- linkers -------------------------------------------------------------------------
    "-Wl,": LINKER | FOR_LINKER | FOR_OTHERS,
    "-dependency-file": LINKER | NEXT | FRONT_END | JOB_DEPFILE,
    "-T": LINKER_SCRIPT | ATTACHED_FILE | NEXT,
    **dict.fromkeys(("-Xlinker", "-Xoffload-linker"), FOR_LINKER | NEXT | BEGINS),
    **dict.fromkeys(("-Wa,", "-Wp,"), FOR_OTHERS),
    "--default-script": LINKER_SCRIPT | OF_LLD,
    "--dependency-file": LINKER | JOB_DEPFILE | OF_LLD,
    "--library": LIBRARY | OF_LLD,
    "--script": LINKER_SCRIPT | OF_LLD,
    "-dT": LINKER_SCRIPT | OF_LLD,
    "-l": LIBRARY | NEXT,
    **dict.fromkeys(
        (
            *("--Map", "-Map", "--lto-obj-path=", "-lto-obj-path=", "--opt-remarks-filename"),
            *("-opt-remarks-filename", "--print-archive-stats=", "--print-symbol-order"),
            *("-print-symbol-order", "--reproduce", "--time-trace", "--why-extract="),
        ),
        LINKER | OF_LLD,
    ),
    **dict.fromkeys(
        ("-plugin-opt=opt-remarks-filename=", "-plugin-opt=stats-file="), LINKER | WRITES | OF_LLD
    ),
    **dict.fromkeys(
        (
            *("--no-undefined", "-shared", "--lto-", "--whole-archive", "--strip-"),
            *("--no-whole-archive", "--gc-sections", "--no-gc-sections", "--build-id"),
            *("--hash-style=", "--icf=", "--threads=", "--error-limit="),
        ),
        DEVICE_LINK | OF_LLD,
    ),
    **dict.fromkeys(("--mllvm", "--plugin-opt="), FOR_LLVM | OF_LLD),
    "-plugin-opt=": FOR_LLVM | DEVICE_LINK | OF_LLD,
    "-mllvm": FOR_LLVM | DEVICE_LINK | NEXT,
    "-z": DEVICE_LINK | NEXT,
    # -- targets and what is installed for them ------------------------------------------
    "--cuda-compile-host-device": _BOTH_SIDES,
    "--cuda-device-only": _BOTH_SIDES | DEVICE_ALONE,
    "--cuda-gpu-arch": TARGETS,
    "--cuda-host-only": _BOTH_SIDES,
    "--cuda-path": INSTALLED,
    "--gcc-install-dir": INSTALLED | ROOT,
    "--gcc-toolchain": INSTALLED | ROOT,
    "--gcc-triple": INSTALLED,
    "--hip-": INSTALLED,
    "--no-cuda-gpu-arch": TARGETS,
    "--no-gpu-": INSTALLED,
    "--no-offload-arch": TARGETS,
    "--no-offload-inc": INSTALLED | NO_HEADERS,
    "--no-offloadlib": INSTALLED | NO_LIBRARIES,
    "--offload-arch": TARGETS | NO_FILE,
    "--offload-device-only": _BOTH_SIDES | DEVICE_ALONE,
    "--offload-host-device": _BOTH_SIDES,
    "--offload-host-only": _BOTH_SIDES,
    "--offload-inc": INSTALLED,
    "--offloadlib": INSTALLED,
    "--rocm-": INSTALLED,
    "--sysroot": INSTALLED | NEXT | ROOT,
    "-fgpu-sanitize": INSTALLED,
    "-fno-gpu-sanitize": INSTALLED,
    "-fsanitize=": INSTALLED | LINKED,
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
    "-stdlib=": INSTALLED | LINKED,
    # -- the driver ----------------------------------------------------------------------
    "-Xarch_": DRIVER | NEXT | BEGINS,
    "-Xopenmp-target=": NEXT | BEGINS,
    "-B": PROGRAMS | ATTACHED_FILE | NEXT,
    "--prefix": PROGRAMS | NEXT,
    **dict.fromkeys(("-march=native", "-mcpu=native", "-mtune=native"), NATIVE | WHOLE),
    **dict.fromkeys(("-fdebug-compilation-dir=", "-fcoverage-compilation-dir="), COMPILE_FOLDER),
    **dict.fromkeys(("-dD", "-dM", "-verify"), REPORTS | WHOLE),
    **dict.fromkeys(("-emit-", "--emit-"), REPORTS),
    **dict.fromkeys(("-c", "--compile", "-emit-llvm"), STAGE | WHOLE),
    "--config": READS | DRIVER | CONFIGURATION | REPORTS | NEXT | TRIPLE,
    **dict.fromkeys(("--config-system-dir=", "--config-user-dir="), CONFIGURATION_FOLDER),
    "--driver-mode": DRIVER | REPORTS,
    "--verbose": DRIVER | REPORTS,
    "-ccc-": REPORTS,
    "-fcrash-": DRIVER,
    "-fno-crash-diagnostics": REPORTS,
    "-frecord-": SHOWN | REPORTS,
    "-ftime-": DRIVER,
    "-gen-reproducer": DRIVER | REPORTS,
    "-grecord-": SHOWN | REPORTS,
    "-time": DRIVER | REPORTS,
    "-v": DRIVER | REPORTS | WHOLE,
    "-working-directory": DRIVER | REPORTS | NEXT,
    # -- other jobs than objects ---------------------------------------------------------
    "--analyze": _OTHER_JOB,
    "--assemble": _OTHER_JOB | STAGE,
    "--autocomplete": OTHER_JOB,
    "--dependencies": _OTHER_JOB | DEPFILE,
    "--help": OTHER_JOB,
    "--precompile": _OTHER_JOB,
    "--preprocess": _OTHER_JOB,
    "--print-": OTHER_JOB,
    "--user-dependencies": _OTHER_JOB | DEPFILE,
    "--version": _OTHER_JOB,
    "-###": _OTHER_JOB,
    "-E": _OTHER_JOB,
    "-M": _OTHER_JOB | DEPFILE,
    "-MM": _OTHER_JOB | DEPFILE,
    "-S": _OTHER_JOB | STAGE,
    "-V": _OTHER_JOB | NEXT,
    "-cc1": OTHER_JOB,
    "-dumpmachine": _OTHER_JOB,
    "-dumpversion": _OTHER_JOB,
    "-fdriver-only": OTHER_JOB | DRIVER,
    "-fsyntax-only": _OTHER_JOB,
    "-help": _OTHER_JOB,
    "-print-": OTHER_JOB,
    # -- what is compiled ----------------------------------------------------------------
    **dict.fromkeys(("-W", "-std="), NO_FILE),
    **dict.fromkeys(("-D", "-U"), NO_FILE | NEXT),
    "-O": NO_FILE | DEVICE_LINK,
    "-cuid=": CUID | NO_FILE,
    "-fuse-cuid=": CUID,
    **dict.fromkeys(("-include", "-imacros"), ATTACHED_FILE | FRONT_END | NEXT),
    **dict.fromkeys(("-ffast-math", "-ffp-contract=fast"), FAST_MATH | WHOLE),
    "-funsafe-math-optimizations": FAST_MATH | WHOLE,
    "-fopenmp": OPENMP | REPORTS | LINKED,
    "-fopenacc": OPENMP | REPORTS,
    **dict.fromkeys(
        (
            *("-fprofile-generate", "-fprofile-instr-generate", "-fprofile-arcs"),
            *("-flto", "-pthread", "-pg"),
        ),
        LINKED,
    ),
    **dict.fromkeys(("-m16", "-m32", "-m64", "-mx32"), LINKED),
    "--target": LINKED | TRIPLE,
    "-target": TRIPLE | NEXT,
    **dict.fromkeys(("-m", "-EB", "-EL"), TRIPLE),
    # -- others that take the next argument --------------------------------------------------
    **dict.fromkeys(
        (
            *("-A", "--analyzer-output", "-arch", "-b", "-ccc-gcc-name", "-ccc-install-dir"),
            *("-darwin-target-variant", "-darwin-target-variant-triple", "-dsym-dir", "-e"),
            *("-fdebug-compilation-dir", "-fexperimental-openacc-macro-override", "-filelist"),
            *("-fmodules-user-build-path", "-framework", "-ftrapv-handler", "-G", "-hlsl-entry"),
            *("-iapinotes-modules", "-iframeworkwithsysroot", "--imacros"),
            *("-imultilib", "--include", "-iprefix", "-isystem-after", "-iwithprefix"),
            *("-iwithprefixbefore", "-iwithsysroot", "-L", "-meabi", "-mmlir"),
            *("-module-dependency-dir", "-mthread-model", "-o", "--param", "-rpath"),
            *("-stdlib++-isystem", "-u", "-undefined", "-validator-version", "-x", "-Xanalyzer"),
            *("-Xassembler", "-Xclang", "-Xclangas", "-Xcuda-fatbinary", "-Xcuda-ptxas"),
            *("-Xopenmp-target", "-Xpreprocessor"),
        ),
        NEXT,
    ),
}
WITHOUT_PCH: dict[str, tuple[str, ...]] = {
    "debug information (-g)": ("-debug-info-kind=",),
    "relocatable device code (-fgpu-rdc)": ("-fgpu-rdc",),
    "bitcode output (-emit-llvm, -flto)": ("-emit-llvm",),
    "sanitizers (-fsanitize)": ("-fsanitize",),
    "coverage (--coverage)": ("-coverage-", "-fcoverage-mapping"),
    "profiles (-fprofile...)": ("-fprofile",),
    "modules (-fmodules)": ("-fmodule", "-fcxx-modules", "-fprebuilt-"),
    "implicit device code (-foffload-implicit-...)": ("-foffload-implicit-host-device-templates",),
    "other names of files (-fmacro-prefix-map)": ("-fmacro-prefix-map",),
    "other names of files (-ffile-reproducible)": ("-ffile-reproducible",),
    "a precompiled header in its flags (-include-pch)": (
        "-include-pch",
        "-emit-pch",
        "-fpch-",
        "-fno-validate-pch",
        "-fallow-pch-",
        "-preamble-bytes",
    ),
    "virtual files (-ivfsoverlay, -working-directory)": ("-ivfsoverlay", "-working-directory"),
    "a plugin (-fplugin, -fpass-plugin, -load)": (
        "-load",
        "-add-plugin",
        "-plugin",
        "-fpass-plugin",
    ),
    "Microsoft's extensions (-fms-...)": ("-fms-",),
    "static variables that are kept (-fkeep-...)": (
        "-fkeep-static-consts",
        "-fkeep-persistent-storage-variables",
    ),
    "further output files (-fsave-optimization-record)": ("-opt-record-file",),
    "further output files (-gsplit-dwarf)": ("-split-dwarf",),
    "further output files (-fstack-usage)": ("-stack-usage-file",),
    "further output files (-ftime-trace)": ("-ftime-trace",),
    "further output files (--serialize-diagnostics)": ("-serialize-diagnostic-file",),
    "further output files (-MD, -MMD)": ("-dependency-file",),
    "further output files (-H)": ("-header-include-file",),
    "it only preprocesses (-E)": ("-E",),
    "it only checks (-fsyntax-only)": ("-fsyntax-only",),
}
"""Front-end options that rule out precompiled headers: by the user options from which the driver
makes them, the prefixes of their names. ``-E`` and ``-load`` are whole arguments."""


_SPELLINGS: dict[int, tuple[frozenset[str], tuple[str, ...]]] = {}
"""Cached names for bits: whole arguments, prefixes. (Importing `functools` takes as long.)"""


def _spellings(bits: int) -> tuple[frozenset[str], tuple[str, ...]]:
    if bits not in _SPELLINGS:
        names = [(name, has & WHOLE) for name, has in _OPTIONS.items() if has & bits]
        whole = frozenset(name for name, is_whole in names if is_whole)
        _SPELLINGS[bits] = whole, tuple(name for name, is_whole in names if not is_whole)
    return _SPELLINGS[bits]


def prefixes(bits: int) -> tuple[str, ...]:
    """Return the names of all options that have one of the bits, except those with WHOLE."""
    return _spellings(bits)[1]


def does(arg: str, bits: int) -> bool:
    """Return whether an argument is an option with one of the bits."""
    whole, begins = _spellings(bits)
    return arg in whole or arg.startswith(begins)


def is_one_of(arg: str, bits: int) -> bool:
    """Return whether an argument is an option with the bit, alone or with ``=`` and a value."""
    name, is_given, _ = arg.partition("=")
    return bool((_OPTIONS.get(name, 0) | _OPTIONS.get(f"{name}{is_given}", 0)) & bits)


def takes_next(arg: str) -> bool:
    """Return whether the next argument is the value of this one."""
    return bool(_OPTIONS.get(arg, 0) & NEXT) or does(arg, BEGINS)


def values(args: Sequence[str], bits: int) -> Iterator[str]:
    """Yield the values of options with a bit: the next argument, or the rest of the same one."""
    for arg, following in itertools.pairwise((*args, "")):
        for name in prefixes(bits):
            if arg == name and following and not name.endswith("="):
                yield following
            elif arg != name and arg.startswith(name):
                value = arg.removeprefix(name)
                # Otherwise this is an option with a longer name.
                if name.endswith("=") or value.startswith("=") or not value.startswith("-"):
                    yield value.removeprefix("=")


def without_values(args: Iterable[str], bits: int) -> Iterator[str]:
    """Yield the arguments except options with a bit and their values."""
    rest = iter(args)
    for arg in rest:
        if not does(arg, bits):
            yield arg
        elif takes_next(arg):
            next(rest, "")


def with_values(args: Iterable[str], bits: int) -> Iterator[str]:
    """Yield the options with a bit, and their values, also after options such as -Xarch_host."""
    rest = iter(args)
    for arg in rest:
        if does(arg, bits):
            yield from (arg, *itertools.islice(rest, takes_next(arg)))


def relevant_flags(args: Iterable[str]) -> tuple[str, ...]:
    """Return the flags of a compile that determine the required installations."""
    return tuple(with_values(args, INSTALLED))


def trial_flags(args: Iterable[str]) -> tuple[str, ...]:
    """Return all flags of a compile for a trial of the compiler; none if they write files."""
    flags, output = tuple(args), SIBLING | ELSEWHERE | DEPFILE | OTHER_JOB
    writes = any(arg.startswith(("-o", "-Xclang=-dep")) or does(arg, output) for arg in flags)
    return () if writes else flags


def reason_against_pch(job: Sequence[str]) -> str:
    """Return the options of a front-end job that rule out a precompiled header; "" if none."""
    for reason, names in WITHOUT_PCH.items():
        for name in names:
            is_whole = name in ("-E", "-load")
            if any(arg == name if is_whole else arg.startswith(name) for arg in job):
                return reason
    return ""
