"""The options of clang and lld: one table that the whole package queries.

A name stands for all arguments that begin with it, so that it covers all spellings with a value;
with WHOLE, for that argument alone. Queries err on the safe side: an argument wrongly taken for an
option costs a rebuild, or a local compile. Source: clang 22.1.8 and 19.1.7, and lld. A test checks
each name with them: the program completes the name (``--autocomplete``) or accepts it, and shows
which options take a next argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

HOST_IR = "-fopenmp-host-ir-file-path"
"""The front end's option that names the host IR for a device."""

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
- LIBRARY: libraries that a linker searches for, or a list of other inputs
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
CONFIGURATION_FOLDER, MODULE_FOLDER, OVERLAY, UNLISTED, PRECOMPILED, VERSION_SCRIPT = (
    1 << bit for bit in range(47, 53)
)
"""What it names:

- CONFIGURATION_FOLDER: a directory of configuration files
- MODULE_FOLDER: a directory of compiled modules
- OVERLAY: an overlay of clang's virtual file system
- UNLISTED: files that no depfile lists, or not by their own names
- PRECOMPILED: a precompiled header, or a header beside which there may be one
- LINKER_SCRIPT: a linker script
- VERSION_SCRIPT: a version script, which a linker searches for as for libraries
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

_BY_EFFECT: tuple[tuple[int, str], ...] = (
    # -- files -----------------------------------------------------------------------------
    (SIBLING | LINKED, "--coverage"),
    (READS, "--load-pass-plugin -fauto-profile -fbasic-block-sections=list -fpass-plugin -fplugin"),
    (READS, "-fprofile-instr-use -fprofile-sample-use -fprofile-use -fsanitize-blacklist"),
    (READS, "-fsanitize-ignorelist -fthinlto-index -load"),
    (SIBLING | DRIVER | TEMPORARIES, "--save-temps -save-temps"),
    (ELSEWHERE | DRIVER | NEXT | REMOVED, "--serialize-diagnostics -serialize-diagnostics"),
    (HEADERS | OVERLAY | NEXT, "--vfsoverlay"),
    (ELSEWHERE | DRIVER | REPORTS | NEXT | REMOVED, "-MJ"),
    (WRITES, "-coverage-notes-file= -fthin-link-bitcode= -stats-file="),
    (WRITES | NEXT, "-dependency-dot -diagnostic-log-file -header-include-file -opt-record-file"),
    (WRITES, "-dump-minimization-hints= -fverify-debuginfo-preserve-export= --symbol-graph-dir="),
    (WRITES | NEXT, "-module-dependency-dir"),
    (WRITES | NEXT, "-serialize-diagnostic-file -split-dwarf-output -stack-usage-file"),
    (ELSEWHERE | DRIVER | REPORTS | NEXT, "-dumpdir -gen-cdb-fragment-path"),
    (ELSEWHERE | OTHER_JOB, "-emit-pch"),
    (READS | HEADERS, "-fbuild-session -fmodule -fprebuilt-module"),
    (READS | HEADERS | MODULE_FOLDER, "-fprebuilt-module-path="),
    (ELSEWHERE | REPORTS, "-fcrash-diagnostics-dir -fmodule-output"),
    (EMBEDS | NEXT, "-fcuda-include-gpubinary"),
    (EMBEDS, "-fembed-offload-object="),
    (ELSEWHERE, "-fmodules -serialize-diagnostic"),
    (SIBLING | NO_FILE, "-foptimization-record-file"),
    (ELSEWHERE | DRIVER | REPORTS, "-fproc-stat-report"),
    (SIBLING, "-fsave-optimization-record -fstack-usage -ftest-coverage -ftime-trace"),
    (SIBLING, "-gsplit-dwarf"),
    (WRITES | NO_FILE, "-ftime-trace="),
    (READS | FRONT_END | PRECOMPILED | NEXT, "-include-pch"),
    (READS | FRONT_END | NEXT, "-mlink-builtin-bitcode"),
    (REPORTS, "-save-stats --save-stats"),
    (READS | DRIVER | TRIPLE, "@"),
    # -- headers ---------------------------------------------------------------------------
    (FOLDER, "--embed-dir= -c-isystem -internal-externc-isystem -internal-iframework"),
    (FOLDER, "-internal-isystem --include-directory= --include-directory-after="),
    (HEADERS | NEXT, "-F -iframework"),
    (HEADERS | OVERLAY | ATTACHED_FILE | NEXT, "-ivfsoverlay"),
    (HEADERS | UNLISTED | NEXT, "-remap-file"),
    (HEADERS | UNLISTED, "-fapinotes"),
    (UNLISTED | NEXT, "-chain-include"),
    (FOLDER | NEXT | NO_FILE, "-I"),
    (FOLDER | NEXT, "-cxx-isystem -idirafter -iquote -isystem"),
    (HEADERS | OVERLAY | ATTACHED_FILE | DRIVER | NEXT, "-vfsoverlay"),
    # -- depfiles --------------------------------------------------------------------------
    (DEPFILE | WHOLE, "--print-missing-file-dependencies"),
    (DEPFILE | WHOLE | DEPFILE_ON, "--write-dependencies --write-user-dependencies -MD -MMD"),
    (DEPFILE | NEXT, "-MF"),
    (DEPFILE | WHOLE | FRONT_END | JOB_DEPFILE, "-MG -MP -MV"),
    (DEPFILE | NEXT | FRONT_END | JOB_DEPFILE, "-MQ -MT"),
    (WHOLE | FRONT_END | JOB_DEPFILE, "-sys-header-deps"),
    # -- linkers ---------------------------------------------------------------------------
    (LINKER | FOR_LINKER | FOR_OTHERS, "-Wl,"),
    (LINKER | NEXT | FRONT_END | JOB_DEPFILE, "-dependency-file"),
    (LINKER_SCRIPT | ATTACHED_FILE | NEXT, "-T"),
    (FOR_LINKER | NEXT | BEGINS, "-Xlinker -Xoffload-linker"),
    (FOR_LINKER | NEXT, "--for-linker"),
    (FOR_OTHERS, "-Wa, -Wp,"),
    (LINKER_SCRIPT | OF_LLD, "--default-script --script -dT"),
    (LINKER | JOB_DEPFILE | OF_LLD, "--dependency-file"),
    (LIBRARY | OF_LLD, "--library --remap-inputs-file"),
    (VERSION_SCRIPT | OF_LLD, "--version-script"),
    (LIBRARY | NEXT, "-l"),
    (LINKER | OF_LLD, "--Map -Map --lto-obj-path= -lto-obj-path= --opt-remarks-filename"),
    (LINKER | OF_LLD, "-opt-remarks-filename --print-archive-stats= --print-symbol-order"),
    (LINKER | OF_LLD, "-print-symbol-order --reproduce --time-trace --why-extract="),
    (LINKER | WRITES | OF_LLD, "-plugin-opt=opt-remarks-filename= -plugin-opt=stats-file="),
    (DEVICE_LINK | OF_LLD, "--no-undefined -shared --lto- --whole-archive --strip-"),
    (DEVICE_LINK | OF_LLD, "--no-whole-archive --gc-sections --no-gc-sections --build-id"),
    (DEVICE_LINK | OF_LLD, "--hash-style= --icf= --threads= --error-limit="),
    (FOR_LLVM | OF_LLD, "--mllvm --plugin-opt="),
    (FOR_LLVM | DEVICE_LINK | OF_LLD, "-plugin-opt="),
    (FOR_LLVM | DEVICE_LINK | NEXT, "-mllvm"),
    (DEVICE_LINK | NEXT, "-z"),
    # -- targets and what is installed for them --------------------------------------------
    (SIDE | WHOLE, "--cuda-compile-host-device --cuda-host-only --offload-host-device"),
    (SIDE | WHOLE, "--offload-host-only"),
    (SIDE | WHOLE | DEVICE_ALONE, "--cuda-device-only --offload-device-only"),
    (TARGETS, "--cuda-gpu-arch --no-cuda-gpu-arch --no-offload-arch"),
    (INSTALLED, "--cuda-path --gcc-triple --hip- --no-gpu- --no-standard-includes --offload-inc"),
    (INSTALLED, "--offloadlib --rocm-"),
    (INSTALLED, "-fgpu-sanitize -fno-gpu-sanitize -mcode-object-version -mno-wavefrontsize64"),
    (INSTALLED, "-mwavefrontsize64 -nobuiltininc -nohipwrapperinc -nostdinc -nostdlibinc"),
    (INSTALLED | ROOT, "--gcc-install-dir --gcc-toolchain"),
    (INSTALLED | NO_HEADERS, "--no-offload-inc -nocudainc -nogpuinc"),
    (INSTALLED | NO_LIBRARIES, "--no-offloadlib -nocudalib -nogpulib"),
    (TARGETS | NO_FILE, "--offload-arch"),
    (SHOWN, "--offload-arch=amdgcnspirv"),
    (INSTALLED | NEXT | ROOT, "--sysroot"),
    (INSTALLED | LINKED, "-fsanitize= -stdlib="),
    (INSTALLED | LINKED | NEXT, "--stdlib"),
    (INSTALLED | NEXT, "-isysroot -resource-dir"),
    # -- the driver ------------------------------------------------------------------------
    (DRIVER | NEXT | BEGINS, "-Xarch_"),
    (NEXT | BEGINS, "-Xopenmp-target="),
    (PROGRAMS | ATTACHED_FILE | NEXT, "-B"),
    (PROGRAMS | NEXT, "--prefix"),
    (NATIVE | WHOLE, "-march=native -mcpu=native -mtune=native"),
    (COMPILE_FOLDER, "-fdebug-compilation-dir= -fcoverage-compilation-dir="),
    (REPORTS | WHOLE, "-dD -dM -verify"),
    (REPORTS, "-emit- --emit- -ccc- -fno-crash-diagnostics"),
    (STAGE | WHOLE, "-c --compile -emit-llvm"),
    (READS | DRIVER | CONFIGURATION | REPORTS | NEXT | TRIPLE, "--config"),
    (CONFIGURATION_FOLDER, "--config-system-dir= --config-user-dir="),
    (DRIVER | REPORTS, "--driver-mode --verbose -gen-reproducer -time"),
    (DRIVER, "-fcrash- -ftime-"),
    (SHOWN | REPORTS, "-fembed-bitcode -frecord- -grecord-"),
    (DRIVER | REPORTS | WHOLE, "-v"),
    (DRIVER | REPORTS | NEXT, "-working-directory"),
    # -- other jobs than objects -----------------------------------------------------------
    (OTHER_JOB | WHOLE, "--analyze --precompile --preprocess --version -### -E -dumpmachine"),
    (OTHER_JOB | WHOLE, "-dumpversion -fsyntax-only -help"),
    (OTHER_JOB | WHOLE | STAGE, "--assemble -S"),
    (OTHER_JOB, "--autocomplete --help --print- -cc1 -print-"),
    (OTHER_JOB, "-ast-dump -ast-list -ast-print -ast-view -code-completion-at -extract-api -fixit"),
    (OTHER_JOB, "-rewrite-"),
    (OTHER_JOB | WHOLE, "-analyze -compiler-options-dump -dump-raw-tokens -dump-tokens -Eonly"),
    (OTHER_JOB | WHOLE, "-init-only -module-file-info -templight-dump -verify-pch"),
    (OTHER_JOB | WHOLE | DEPFILE, "--dependencies --user-dependencies -M -MM"),
    (OTHER_JOB | WHOLE | NEXT, "-V"),
    (OTHER_JOB | DRIVER, "-fdriver-only"),
    # -- what is compiled ------------------------------------------------------------------
    (NO_FILE, "-W -std="),
    (NO_FILE | NEXT, "-D -U --define-macro --undefine-macro"),
    (NO_FILE | DEVICE_LINK, "-O"),
    (CUID | NO_FILE, "-cuid="),
    (CUID, "-fuse-cuid="),
    (ATTACHED_FILE | FRONT_END | PRECOMPILED | NEXT, "-include --include"),
    (ATTACHED_FILE | FRONT_END | NEXT, "-imacros --imacros"),
    (FAST_MATH | WHOLE, "-ffast-math -ffp-contract=fast -funsafe-math-optimizations"),
    (OPENMP | LINKED, "-fopenmp"),
    (OPENMP | REPORTS, "-fopenacc"),
    (LINKED, "-fprofile-generate -fprofile-instr-generate -fprofile-arcs -flto -pthread -pg -m16"),
    (LINKED, "-m32 -m64 -mx32"),
    (LINKED | TRIPLE, "--target"),
    (TRIPLE | NEXT, "-target"),
    (TRIPLE, "-m -EB -EL"),
    # -- others that take the next argument ------------------------------------------------
    (NEXT, "-A --analyzer-output -arch -b -ccc-gcc-name -ccc-install-dir -darwin-target-variant"),
    (NEXT, "-darwin-target-variant-triple -dsym-dir -e -fdebug-compilation-dir"),
    (NEXT, "-fexperimental-openacc-macro-override -filelist -fmodules-user-build-path -framework"),
    (NEXT, "-ftrapv-handler -G -hlsl-entry -iapinotes-modules -iframeworkwithsysroot"),
    (NEXT, "-imultilib -iprefix -isystem-after -iwithprefix -iwithprefixbefore"),
    (NEXT, "-iwithsysroot -L -meabi -mmlir -mthread-model -o --param"),
    (NEXT, "-rpath -stdlib++-isystem -u -undefined -validator-version -x -Xanalyzer -Xassembler"),
    (NEXT, "-Xclang -Xclangas -Xcuda-fatbinary -Xcuda-ptxas -Xopenmp-target -Xpreprocessor"),
    (NEXT, "--assert --force-link --include-directory --include-directory-after --include-prefix"),
    (NEXT, "--include-with-prefix --include-with-prefix-after --include-with-prefix-before"),
    (NEXT, "--language --library-directory --no-system-header-prefix --output --rtlib --std"),
    (NEXT, "--system-header-prefix"),
)
_OPTIONS = {name: bits for bits, names in _BY_EFFECT for name in names.split()}
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
        *("-include-pch", "-emit-pch", "-fpch-", "-fno-validate-pch", "-fallow-pch-"),
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
    names = prefixes(bits)
    for arg, following in itertools.pairwise((*args, "")):
        if not arg.startswith(names):  # most are none of them
            continue
        for name in names:
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
