"""The construction variables of the tool: defaults and parsing.

Invalid variables raise errors of `offload_tool.errors` while the SConscript is read, and SCons
shows them with the SConscript's line.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import SCons.Node.FS
import SCons.Script
import SCons.Util

from offload_tool.clang.environment import (
    INSTALLATIONS,
    MACHINE_VARIABLES,
    OWN_INSTALLATIONS,
    RESULT_VARIABLES,
    unread_variables,
)
from offload_tool.clang.options import (
    LINKED,
    TRIPLE,
    is_one_of,
    relevant_flags,
    trial_flags,
    with_values,
)
from offload_tool.containers.open_bundle import FILE_TYPES
from offload_tool.errors import CompilerError, TargetIDError, UsageError
from offload_tool.formats.targets.compile_target import CompileTarget, parse_target, parse_targets
from offload_tool.formats.targets.processors import find_processor
from offload_tool.formats.targets.target_id import TargetID, split_list
from offload_tool.passes import cuda, hip, openmp
from offload_tool.passes.capability_check import Job, supported_targets
from offload_tool.passes.cuda import Ptxas, find_ptxas
from offload_tool.run.validate_flags import check_flags
from offload_tool.scons import compat
from offload_tool.scons.graph.call_cache import KINDS, Call, cached, cached_call, results_of
from offload_tool.scons.types import Environment, Node
from offload_tool.scons.variables import (
    OTHERS_VARIABLES,
    VARIABLES,
    read_variables,
)
from offload_tool.toolchain.installations import cuda_installations, rocm_installations
from offload_tool.toolchain.probe import Toolchain
from offload_tool.toolchain.programs import LIBRARY_PATH
from offload_tool.toolchain.runtime_library import RuntimeLibrary, find_runtime
from offload_tool.toolchain.select import ADVICE, find_toolchain
from offload_tool.toolchain.supported_processors import (
    NATIVE,
    native_targets,
    refusal,
    targets_of_compiler,
)
from offload_tool.util.frozen import replaced

if TYPE_CHECKING:
    from offload_tool.nvidia.nvlink import NvLinker

# Part of every in-process action's signature. Increment it only if the bytes that we write for the
# same inputs change: it rebuilds every user's bundles.
FORMAT_VERSION = 3

_COMPILE = (
    "$_OFFLOAD_PROGRAM $_OFFLOAD_PASS_FLAGS "
    "$_OFFLOAD_LANGUAGE_FLAGS $CCFLAGS $CPPFLAGS $_CPPDEFFLAGS $_OFFLOAD_INCLUDES {flags} "
    "$_OFFLOAD_LAST_FLAGS $_OFFLOAD_DEPENDENCY_FLAGS -o $TARGET $SOURCE"
)

_SHOWN_AS_NAMED = (
    *("ARCHIVE", "BUNDLE", "EMBED", "EXTRACT", "FATBIN", "MARK", "MARKER", "MERGE"),
    *("PACKAGE", "REGISTER", "REPACK", "REPORT", "UNBUNDLE", "WRAP"),
)
"""Actions whose message is their name and the output."""

_DEFAULTS: dict[str, Any] = {
    **{name: variable.default for name, variable in VARIABLES.items()},
    # Commands and the messages shown instead; an empty message shows the command.
    "OFFLOADDEVICECOM": _COMPILE.format(flags="$OFFLOAD_FLAGS $_OFFLOAD_ARCH_FLAGS"),
    "OFFLOADDEVICECOMSTR": "$_OFFLOAD_LANGUAGE [$_OFFLOAD_TARGET_ID] $_OFFLOAD_SHOWN",
    "OFFLOADHOSTCOM": _COMPILE.format(flags="$_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS"),
    "OFFLOADHOSTCOMSTR": "$_OFFLOAD_LANGUAGE [host] $_OFFLOAD_SHOWN",
    "OFFLOADHOSTIRCOM": (
        "$_OFFLOAD_PROGRAM $_OFFLOAD_PASS_FLAGS "
        "$_OFFLOAD_LANGUAGE_FLAGS $CCFLAGS $_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS "
        "-o $TARGET $SOURCE"
    ),
    "OFFLOADHOSTIRCOMSTR": "$_OFFLOAD_LANGUAGE [host code] $_OFFLOAD_SHOWN",
    "OFFLOADLINKCOM": (
        "$( $_OFFLOAD_LINKER $) $_OFFLOAD_LINK_ARGUMENTS $OFFLOAD_LINK_FLAGS -o $TARGET "
        "$_OFFLOAD_LINK_INPUTS"
    ),
    "OFFLOADLINKCOMSTR": "LINK [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADPTXASCOM": (
        "$( $_OFFLOAD_PTXAS $) $_OFFLOAD_PTXAS_ARGUMENTS $_OFFLOAD_PTXAS_FLAGS "
        "$OFFLOAD_PTXAS_FLAGS -o $TARGET $SOURCE"
    ),
    "OFFLOADCUDALINKCOMSTR": "LINK [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADPTXASCOMSTR": "PTXAS [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADREGISTERCOM": "$( $_OFFLOAD_CC $) $_OFFLOAD_REGISTER_FLAGS -o $TARGET $( $SOURCE $)",
    "OFFLOADMERGECOM": "$( $_OFFLOAD_LLD $) -r -o $TARGET $SOURCES",
    **{f"OFFLOAD{name}COMSTR": f"{name} $TARGET" for name in _SHOWN_AS_NAMED},
    "OFFLOADCOMPILECOMMANDSCOMSTR": "COMMANDS $TARGET",
    "OFFLOADDEVICEARCHIVECOMSTR": "ARCHIVE [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADKPACKCOMSTR": "KPACK [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADREPORTCOM": (
        "$( $_OFFLOAD_PYTHON $) -m offload_tool report $SOURCES -o $TARGET "
        "$_OFFLOAD_REPORT_COMPARE $OFFLOAD_REPORT_FLAGS"
    ),
    # File names: <stem>.<target ID><suffix>
    "OFFLOADDEVICESUFFIX": ".co",
    "OFFLOADHOSTSUFFIX": ".host.o",
    "OFFLOADSHHOSTSUFFIX": ".host.pic.o",
    "OFFLOADBUNDLESUFFIX": ".hipfb",
    "OFFLOADEMBEDSUFFIX": ".fatbin.o",
    "OFFLOADPACKAGESUFFIX": ".offload",
    "OFFLOADMARKERSUFFIX": ".kpackref",
    # Variables of SCons's C tools that the compile commands above use, if those are not loaded.
    "CFLAGS": [],
    "LIBPREFIX": "lib",
    "LIBSUFFIX": ".a",
    "OBJSUFFIX": ".o",
    "SHLIBSUFFIX": ".so",
    "SHOBJSUFFIX": ".os",
    "_OFFLOAD_INCLUDES": compat.include_flags,
    "_OFFLOAD_SHOWN": "$SOURCE",
    "INCPREFIX": "-I",
    "INCSUFFIX": "",
    "CPPDEFPREFIX": "-D",
    "CPPDEFSUFFIX": "",
}


def set_defaults(env: Environment, overrides: dict[str, Any]) -> None:
    """Set every variable that the user has not set; `overrides` came with ``env.Tool``."""
    env.SetDefault(**{name: copy(value) for name, value in _DEFAULTS.items()})
    env.Replace(**overrides)


def spec(**values: Any) -> str:
    """Return the text that represents an in-process action's options in its signature."""
    return json.dumps({"format": FORMAT_VERSION, **values}, sort_keys=True)


def check_names(names: Iterable[str]) -> None:
    """Reject unknown variables with our prefix.

    :raises UsageError: there is one; the message suggests a similar name.
    """
    for name in sorted(names):
        if name.startswith("OFFLOAD") and name not in _DEFAULTS:
            begins = [known for known in VARIABLES if name.startswith(known)]
            near = sorted(begins, key=len)[-1:] or difflib.get_close_matches(name, _DEFAULTS, n=1)
            hint = f"did you mean {near[0]}?" if near else "see the list of variables"
            raise UsageError(f"unknown construction variable {name}; {hint}")


def check_overrides(env: Environment, overrides: dict[str, Any]) -> None:
    """Reject variables of a builder call that nothing reads.

    :raises UsageError: one is another build system's; the message names ours.
    """
    for name in sorted(overrides):
        ours = OTHERS_VARIABLES.get(name.upper(), name.upper())
        is_ours = name in VARIABLES or ours not in VARIABLES
        if not is_ours and not _is_referred_to(env, name, overrides):
            raise UsageError(f"{name} among the variables of a builder means nothing; write {ours}")


def _warn_of_flags(env: Environment) -> None:
    """Warn of flags for a tool of HIP or CUDA that the environment does not have."""
    given = env.Dictionary()
    if not {"NVCC", "HIPCC"}.isdisjoint(given):
        return
    for name, ours in OTHERS_VARIABLES.items():
        if ours == "OFFLOAD_FLAGS" and name in given and not _is_referred_to(env, name, {}):
            warn(env, f"{name} means nothing to this tool; write OFFLOAD_FLAGS, or CCFLAGS")


def _warn_of_environment(env: Environment) -> None:
    """Warn of variables of the OS environment that a build does not read."""
    environ = {*os.environ, *env["ENV"]}
    ours = environ.intersection(VARIABLES).difference(MACHINE_VARIABLES)
    for name in sorted(ours.union(unread_variables(environ))):
        if name in VARIABLES:
            what = f"set the construction variable: Environment({name}=...)"
        else:
            near = difflib.get_close_matches(name, MACHINE_VARIABLES, n=1, cutoff=0.8)
            what = f"did you mean {near[0]}?" if near else "unset it"
        warn(env, f"{name} of the environment has no effect on a build; {what}")


def _is_referred_to(env: Environment, name: str, overrides: dict[str, Any]) -> bool:
    texts = map(str, (*env.Dictionary().values(), *overrides.values()))
    return any(f"${name}" in text or f"${{{name}" in text for text in texts)


def devices(env: Environment, kind: str) -> tuple[CompileTarget, ...]:
    """Return ``OFFLOAD_ARCH`` in canonical form, sorted, so that its order has no effect.

    :raises TargetIDError: invalid or conflicting target IDs; the message lists all problems.
    :raises UsageError: the list is empty, or OFFLOAD_ARCH_FLAGS names a target that is not built.
    """
    try:
        return _devices(env, kind)
    except TargetIDError as error:
        raise error.of("OFFLOAD_ARCH") from None


def _devices(env: Environment, kind: str) -> tuple[CompileTarget, ...]:
    given = _given_targets(env, kind)
    if not is_build():
        known = [item for item in given if item not in (NATIVE, *cuda.ALL)]
        return parse_targets(known, kind, allow_unknown=True)
    if NATIVE in given:
        here = native_targets(toolchain(env), kind)
        given = [name for item in given for name in (here if item == NATIVE else [item])]
    given = [name for item in given for name in _all_processors(env, kind, item)]
    if env["OFFLOAD_ALLOW_UNKNOWN_ARCH"]:
        found = parse_targets(given, kind, allow_unknown=True)
    else:
        found = targets_of_compiler(given, kind, lambda: toolchain(env))
    if not found:
        raise UsageError("OFFLOAD_ARCH is empty; set it to target IDs, such as ['gfx90a:xnack+']")
    _check_arch_flags(env, found)
    return found


def _check_arch_flags(env: Environment, found: Iterable[CompileTarget]) -> None:
    """Check that all of ``OFFLOAD_ARCH_FLAGS`` are for devices that are built.

    :raises UsageError: some are not.
    """
    built = {name for device in found for name in names_of(device)}
    try:
        unused = sorted(set(_flags_by_name(env, built)) - built)
    except TargetIDError as error:
        raise UsageError(f"OFFLOAD_ARCH_FLAGS: {error}") from None
    if unused:
        raise UsageError(
            f"OFFLOAD_ARCH_FLAGS has flags for {', '.join(unused)}, but OFFLOAD_ARCH builds "
            f"{', '.join(device.name for device in found)} only; "
            "remove them, or add the target"
        )


def _all_processors(env: Environment, kind: str, item: str) -> list[str]:
    """Return the expansion of ``all`` and ``all-major``, as in CMake; return other items unchanged.

    :raises UsageError: there is no ptxas to query, or the sources are not CUDA's.
    """
    if item not in cuda.ALL:
        return [item]
    found = ptxas(env) if kind == "cuda" else None
    if found is None:
        raise UsageError(
            f"OFFLOAD_ARCH: '{item}' is for CUDA with a ptxas, which lists its processors; give "
            "target IDs, such as gfx90a or sm_80"
        )
    names, compiler = cuda.all_processors(found), toolchain(env)
    environment = {**env["ENV"], **dict(compiler.environment)}
    with compat.at_top(env):
        made = supported_targets(compiler, kind, names, environment)
    if omitted := [name for name in names if name not in made]:
        warn(
            env,
            f"OFFLOAD_ARCH: '{item}' leaves out {', '.join(omitted)}, for which clang "
            f"{compiler.version} makes no code",
        )
    return made if item == "all" else cuda.first_of_majors(made)


def knows_processor(env: Environment, target_id: TargetID) -> bool:
    """Return True if a processor missing in the table is allowed: the compiler decides."""
    if env["OFFLOAD_ALLOW_UNKNOWN_ARCH"] or not is_build():
        return True
    try:
        device = CompileTarget(str(target_id), target_id.triple, target_id)
        return refusal(toolchain(env), device) is None
    except (CompilerError, TargetIDError):
        return False


def warn(env: Environment, text: str) -> None:
    """Print a warning to standard error, once in a build."""
    show = partial(print, file=sys.stderr)
    compat.of_build(env, _Toolchains).announce(f"offload: warning: {text}", show)


def _given_targets(env: Environment, kind: str) -> list[str]:
    """Return the items of ``OFFLOAD_ARCH``; those for CUDA as processors, without their images."""
    given = _items_of_arch(env)
    return given if kind != "cuda" else [cuda.requested_images(item)[0] for item in given]


def _items_of_arch(env: Environment) -> list[str]:
    items = SCons.Util.flatten([env["OFFLOAD_ARCH"] or []])
    return [arg for item in items for arg in split_list(env.subst(str(item)))]


def cuda_images(env: Environment, device: CompileTarget) -> frozenset[str]:
    """Return the images to embed for a CUDA device: `cuda.CUBIN`, `cuda.PTX` or both.

    Several items of ``OFFLOAD_ARCH`` for one processor are taken together.
    """
    found = [cuda.requested_images(item) for item in _items_of_arch(env)]
    names = {device.name, NATIVE, *cuda.ALL}
    return frozenset(image for name, images in found if name in names for image in images)


def shared_suffix(env: Environment) -> str:
    """Return the suffix of objects for shared libraries, which no compiler changes.

    The embedded compiler's link recognises objects by ``.o``, which rules out SCons's ``.os``.
    """
    given = str(env.subst("$SHOBJSUFFIX"))
    return ".pic.o" if given == ".os" else given


_HOST_FLAGS = "$CFLAGS $CXXFLAGS $CCFLAGS $OFFLOAD_HOST_FLAGS"


def substituted(env: Environment, text: str, source: Any = None) -> list[str]:
    """Return the arguments of a text after substitution of variables."""
    return [str(arg) for line in env.subst_list(text, source=source) for arg in line]


def machine_flags(env: Environment) -> list[str]:
    """Return the flags of host passes that may set the target machine."""
    return [*with_values(substituted(env, _HOST_FLAGS), TRIPLE)]


def host_triple(env: Environment) -> str:
    """Return the triple of host code, queried from the driver with the flags of host passes."""
    found, flags = toolchain(env), machine_flags(env)
    if not flags or not is_build():
        return found.host_triple
    from offload_tool.toolchain.driver_cache import cached_triple

    environment = {**env["ENV"], **dict(found.environment)}
    with compat.at_top(env):
        return cached_triple([*found.clang, *flags], environment) or found.host_triple


def link_flags(env: Environment) -> list[str]:
    """Return the flags of host compiles that the link also needs.

    A user of the compiler's driver would write them in both places.

    :raises UsageError: a flag of the link would make the compiler's driver link device code.
    """
    there = host_link_flags(env)
    if "-fgpu-rdc" in there:
        raise UsageError(
            "'-fgpu-rdc' in LINKFLAGS would link device code twice: OFFLOAD_RDC=True does so; "
            "remove it from LINKFLAGS"
        )
    args = dict.fromkeys(substituted(env, _HOST_FLAGS))
    return [arg for arg in args if is_one_of(arg, LINKED) and arg not in there]


def host_link_flags(env: Environment) -> list[str]:
    """Return the user's flags for links of host code."""
    return substituted(env, "$LINKFLAGS $SHLINKFLAGS")


def arch_flags(env: Environment, device: CompileTarget) -> list[Any]:
    """Return the flags of ``OFFLOAD_ARCH_FLAGS`` for a device: its processor's, then its own."""

    def find() -> list[Any]:
        flags = _flags_by_name(env)
        return [flag for name in names_of(device) for flag in flags.get(name, ())]

    return cached(env, f"flags of {device.name}", find)


def names_of(device: CompileTarget) -> tuple[str, ...]:
    """Return the names that select a device: its processor's, then its own."""
    if device.target_id is None:
        return (device.name,)
    return tuple(dict.fromkeys((device.target_id.processor, device.name)))


def _flags_by_name(env: Environment, built: Container[str] | None = None) -> dict[str, list[Any]]:
    """Return ``OFFLOAD_ARCH_FLAGS`` with canonical keys.

    If `built` is given, other keys with processors missing in the table are errors.

    :raises TargetIDError: a key is not a target ID.
    """
    given = env["OFFLOAD_ARCH_FLAGS"] or {}
    flags: dict[str, list[Any]] = {}
    for key, value in given.items():
        name = parse_target(str(key), allow_unknown=True).name
        if built is not None and name not in built and not env["OFFLOAD_ALLOW_UNKNOWN_ARCH"]:
            parse_target(str(key))
        flags.setdefault(name, []).extend(env.Split(value))
    return flags


_ARCHIVE_FORMATS = {"hip": ("object-bundle", "offload-binary"), "cuda": tuple(cuda.ARCHIVE_FORMATS)}


def archive_format(env: Environment, kind: str) -> str:
    """Return ``OFFLOAD_ARCHIVE_FORMAT``; empty for that of the compiler's offload driver.

    :raises UsageError: the offload kind has no such format, or the compiler cannot write it.
    """
    given = str(env.subst(str(env["OFFLOAD_ARCHIVE_FORMAT"] or "")))
    if given not in ("", *_ARCHIVE_FORMATS[kind]):
        raise UsageError(
            f"OFFLOAD_ARCHIVE_FORMAT: expected {' or '.join(_ARCHIVE_FORMATS[kind])} for "
            f"{kind.upper()} sources, found {given!r}"
        )
    is_new = kind == "hip" and given == "offload-binary"
    if is_new and is_build() and hip.driver_flags(toolchain(env).major, rdc=True):
        raise UsageError(
            f"OFFLOAD_ARCHIVE_FORMAT: clang {toolchain(env).version} cannot make {given}; "
            "expected clang 21 or later"
        )
    return given


def bundle_type(env: Environment, default: str) -> str:
    """Return ``OFFLOAD_BUNDLE_TYPE``: a file type of clang-offload-bundler, or `default`.

    :raises UsageError: there is no such type.
    """
    given = env.subst(env["OFFLOAD_BUNDLE_TYPE"] or "") or default
    if given not in (*FILE_TYPES, "a"):
        types = ", ".join((*FILE_TYPES, "a"))
        raise UsageError(f"OFFLOAD_BUNDLE_TYPE: expected one of {types}, found {given!r}")
    return str(given)


def unbundling(env: Environment, *, archive: bool = False) -> dict[str, bool]:
    """Return the options that are set for unbundling, also of archives."""
    variables = {
        "allow_missing": "OFFLOAD_ALLOW_MISSING_BUNDLES",
        "hip_openmp": "OFFLOAD_HIP_OPENMP_COMPATIBLE",
        **({"check": "OFFLOAD_CHECK_INPUT_ARCHIVE"} if archive else {}),
    }
    return {option: True for option, variable in variables.items() if env[variable]}


def compression(env: Environment) -> tuple[str | int | None, ...]:
    """Return the compression of bundles: (method or None, level or None), and a version unless 3.

    They come from ``OFFLOAD_COMPRESS``, ``OFFLOAD_COMPRESS_LEVEL`` and
    ``OFFLOAD_COMPRESS_VERSION``, or clang's variable for the version in the environment of
    commands. (Omitting the usual version keeps older builds up to date.)

    :raises UsageError: clang's variable is another version.
    """
    method, level = env["OFFLOAD_COMPRESS"], env["OFFLOAD_COMPRESS_LEVEL"]
    if method is None:
        return method, level
    version = env["OFFLOAD_COMPRESS_VERSION"]
    if version is None:
        name = "COMPRESSED_BUNDLE_FORMAT_VERSION"
        given = str(env["ENV"].get(name, 3))
        if given not in ("2", "3"):
            raise UsageError(f"{name}: expected 2 or 3, found {given!r}")
        version = int(given)
    return (method, level) if version == 3 else (method, level, version)


class _SearchKey(NamedTuple):
    """The cache key of the search for a compiler, without names relative to a SConscript."""

    clang: str
    jobs: tuple[Job, ...]
    is_optional: bool
    """Whether a compiler that cannot do the jobs is acceptable if there is no other."""
    shell: tuple[tuple[str, str], ...]


def _is_new(text: str) -> bool:
    """Return True if a text has not been printed on this machine since the package changed."""
    from offload_tool.toolchain.disk_cache import cached_result

    found: list[str] = []
    cached_result(["told", text], lambda: found.append(text), lambda _: [])
    return bool(found)


class _Toolchains:
    """The compilers that a build has found and printed."""

    def __init__(self) -> None:
        self._found: dict[tuple[_SearchKey, bool], Toolchain] = {}
        self._announced: set[str] = set()

    def find(
        self, key: _SearchKey, given: Callable[[], tuple[str, ...]], *, lenient: bool
    ) -> Toolchain:
        """Return the compiler for `key`, and print it once.

        `given` returns all flags of device passes, which may compensate for a compiler's defects.
        With `lenient`, a named compiler is used even if it still lacks something.
        """
        found = self._found.get((key, lenient))
        if found is None:
            try:
                found = _search(key)
            except CompilerError:
                jobs = tuple(
                    replaced(job, all_flags=given(), source="source.cpp") for job in key.jobs
                )
                key = key._replace(jobs=jobs)
                found = self._found.get((key, lenient)) or _search(key, lenient=lenient)
            self._found[key, lenient] = found
            self.announce(f"offload: using {found.used}")
            if found.passed_over and _is_new(str(found)):
                self.announce(
                    f"offload: skipped: {'; '.join(found.passed_over)} (once; "
                    "'offload-tool doctor' prints it again)"
                )
            for doubt in found.doubts:
                self.announce(f"offload: warning: {doubt}; used all the same")
        return found

    def announce(self, text: str, show: Callable[[str], None] = SCons.Util.display) -> None:
        """Show a text once."""
        if text not in self._announced and is_build():
            show(text)
        self._announced.add(text)


def call(env: Environment, overrides: dict[str, Any]) -> Call:
    """Return the environment of a builder call with these overrides.

    :raises UsageError: a variable with our prefix is unknown, or has the wrong type.
    """
    check_overrides(env, overrides)
    # Names of files are relative to the SConscript's folder.
    context = (env.fs.getcwd(), _shell(env))
    return cached_call(env, overrides, context, _read)


def _read(env: Environment) -> dict[str, Any]:
    check_names(env.Dictionary())
    _warn_of_flags(env)
    _warn_of_environment(env)
    return read_variables(env)


def is_build() -> bool:
    """Return False for ``scons -c`` and ``scons -h``: they search and query no compiler."""
    return not (SCons.Script.GetOption("clean") or SCons.Script.GetOption("help"))


_NO_COMPILER = Toolchain(
    *(("clang",), ("clang++",), ("clang",), ("lld",), ()),
    version="22.0.0",
    identity="",
    origin="",
    host_triple="x86_64-unknown-linux-gnu",
)
"""Takes the place of the compiler where nothing is built: no name of a node depends on one."""


def toolchain(env: Environment, *, lenient: bool = True) -> Toolchain:
    """Return the compiler for this environment, and print it once.

    :raises CompilerError: no usable compiler; without `lenient`, a named one fails its trial.
    """
    if lenient and not is_build():
        return _NO_COMPILER
    results = results_of(env)
    if results is not None and results.compiler is not None:
        return results.compiler
    installations = {name: path for name in OWN_INSTALLATIONS if (path := folder_path(env, name))}
    with compat.at_top(env):
        found = compat.of_build(env, _Toolchains).find(
            _search_key(env, installations), lambda: _device_args(env), lenient=lenient
        )
    if results is not None:
        results.compiler = found
    return found


def runtime_library(env: Environment, kind: str) -> RuntimeLibrary:
    """Return the runtime of ``hip`` or ``cuda`` in the installation that its sources use.

    If they use none, it is the first that is installed: flags may leave out its headers, and may
    be set later.

    :raises CompilerError: there is no installation, or no runtime library in it.
    """
    used = ""
    with suppress(CompilerError):
        found = toolchain(env.Override({KINDS: kind}))
        used = found.cuda if kind == "cuda" else found.rocm
    with compat.at_top(env):
        if not used:
            own = {name: path for name in OWN_INSTALLATIONS if (path := folder_path(env, name))}
            search = rocm_installations if kind == "hip" else cuda_installations
            used = next((one.path for one in search({**_shell(env), **own})), "")
        if not used:
            name = "ROCm" if kind == "hip" else "CUDA toolkit"
            raise CompilerError(f"no {name} is installed; {ADVICE[kind]}")
        return find_runtime(kind, os.path.abspath(used))


def _shell(env: Environment) -> dict[str, str]:
    """Return the variables that locate programs and installations: the commands', or the shell's.

    The loader's path is the commands'; for PATH see `_search_path`.
    """
    given = env["ENV"]
    return {
        name: str(given[name]) if name in given else os.environ.get(name, "")
        for name in sorted({*INSTALLATIONS, *MACHINE_VARIABLES})
    } | {"PATH": _search_path(env), LIBRARY_PATH: str(given.get(LIBRARY_PATH, ""))}


def _search_path(env: Environment) -> str:
    """Return PATH for searches: what the user added to that of commands, then the shell's."""
    given = env["ENV"].get("PATH", "")
    folders = given if SCons.Util.is_List(given) else str(given).split(os.pathsep)
    usual = compat.usual_path().split(os.pathsep)
    added = [str(folder) for folder in folders if folder and str(folder) not in usual]
    shell = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*added, *shell]))


def _search_key(env: Environment, installations: Mapping[str, str]) -> _SearchKey:
    kinds = [kind for kind in env.get(KINDS, "").split(",") if kind]
    args = substituted(env, "$CFLAGS $CXXFLAGS $CCFLAGS $CPPFLAGS $OFFLOAD_FLAGS")
    flags = relevant_flags(args)
    return _SearchKey(
        env.subst(str(env["OFFLOAD_CLANG"] or "")),
        tuple(_job(env, kind, flags) for kind in kinds or _likely_kinds(env)),
        not kinds,  # e.g. a link: prefers the compiler of the sources
        tuple({**_shell(env), **installations}.items()),
    )


def _job(env: Environment, kind: str, flags: tuple[str, ...]) -> Job:
    named = env.subst("$OFFLOAD_PTXAS")
    if kind == "openmp" and named and (ptxas := find_ptxas(named)) is not None:
        flags += (openmp.ptxas_flag(ptxas),)
    return Job(kind, _targets_of(env, kind), flags)


def _search(key: _SearchKey, *, lenient: bool = False) -> Toolchain:
    environ = {**os.environ, **dict(key.shell)}
    is_optional = lenient and key.is_optional
    try:
        return find_toolchain(environ, key.clang, key.jobs, lenient=lenient and not is_optional)
    except CompilerError:
        if not is_optional:
            raise
    return find_toolchain(environ, key.clang)


def _device_args(env: Environment) -> tuple[str, ...]:
    """Return all user flags of C++ device passes.

    :raises UsageError: see `check_flags`.
    """
    text = "$CXXFLAGS $CCFLAGS $CPPFLAGS $_CPPDEFFLAGS $_OFFLOAD_INCLUDES $OFFLOAD_FLAGS"
    args = [arg for arg in substituted(env, text) if arg not in ("$(", "$)")]
    check_flags(args, rdc=env["OFFLOAD_RDC"])
    return trial_flags(args)


def launcher(env: Environment, folder: str = "") -> list[str]:
    """Return the arguments of ``OFFLOAD_LAUNCHER``, as in commands.

    :raises UsageError: it is not a command, or `folder`, that of OFFLOAD_DIST, is given too.
    """
    from offload_tool.sccache_dist.fallback import launcher_args

    with compat.at_top(env):
        return launcher_args(env.subst("$OFFLOAD_LAUNCHER"), folder)


def folder_path(env: Environment, name: str) -> str:
    """Return the absolute path of the folder in variable `name`; empty if it is not set.

    A relative name is relative to the SConscript being read, ``#`` is the top folder. With a
    variant folder, the path is in the source folder; if missing, it is in a Repository.
    """
    given = env[name]
    if not isinstance(given, SCons.Node.FS.Base):
        text = env.subst(str(given or ""))
        if not text:
            return ""
        given = env.Dir(text)
    candidates = [folder.rdir() for folder in (given.srcnode(), given)]
    found = next((folder for folder in candidates if folder.isdir()), given)
    return str(found.get_abspath())


def _targets_of(env: Environment, kind: str) -> tuple[str, ...]:
    """Return the target IDs that the compiler must know; invalid ones are reported elsewhere."""
    given = [name for name in _given_targets(env, kind) if name != NATIVE]
    try:
        found = parse_targets(given, kind, allow_unknown=env["OFFLOAD_ALLOW_UNKNOWN_ARCH"])
    except TargetIDError:
        return ()
    ids = [device.target_id for device in found if device.target_id is not None]
    return tuple(str(each) for each in ids if find_processor(each.processor) is not None)


def given_kind(env: Environment) -> str:
    """Return ``OFFLOAD_KIND`` in lower case; users' flags and names have it as it was given."""
    return str(env.subst("$OFFLOAD_KIND")).lower()


def likely_kind(env: Environment) -> str:
    """Return the likely kind of a library's device code, by the targets of ``OFFLOAD_ARCH``."""
    return next(iter(_likely_kinds(env)), "openmp" if _items_of_arch(env) else "hip")


def _likely_kinds(env: Environment) -> list[str]:
    """Return the likely kinds of an environment's sources."""
    given = given_kind(env)
    return [kind for kind in ("hip", "cuda") if given in ("", kind) and _targets_of(env, kind)]


def ptxas(env: Environment, kind: str = "cuda") -> Ptxas | None:
    """Return NVIDIA's assembler: ``OFFLOAD_PTXAS``, the toolkit's, or any other, in this order.

    The toolkit is that of the passes of `kind`.

    :raises CompilerError: the one named cannot be run.
    """
    if not is_build():
        return Ptxas(("ptxas",), "")
    toolkit = _toolkit(env) if kind == "cuda" else openmp.toolkit_of(toolchain(env))
    with compat.at_top(env):
        return find_ptxas(env.subst("$OFFLOAD_PTXAS"), toolkit, _shell(env))


def _toolkit(env: Environment) -> str:
    """Return the folder of the CUDA toolkit in use, or of the one that the user names."""
    return toolchain(env).cuda or folder_path(env, "OFFLOAD_CUDA_PATH")


def nvlink(env: Environment) -> NvLinker:
    """Return NVIDIA's device linker: ``OFFLOAD_NVLINK``, then the toolkit's, then any other.

    :raises CompilerError: the one named cannot be run, or there is none.
    """
    from offload_tool.nvidia.nvlink import NvLinker, find_nvlink

    if not is_build():
        return NvLinker(("nvlink",), "")
    assembler, toolkit = ptxas(env), _toolkit(env)
    sibling = assembler.command[0] if assembler is not None else ""
    with compat.at_top(env):
        return find_nvlink(env.subst("$OFFLOAD_NVLINK"), toolkit, sibling, _shell(env))


def result_variables(env: Environment) -> dict[str, str]:
    """Return the variables in ``env['ENV']`` that affect compiles' outputs."""
    return {name: str(env["ENV"][name]) for name in RESULT_VARIABLES if name in env["ENV"]}


def add_environment(env: Environment, node: Node) -> None:
    """Make a compile depend on the variables in ``env['ENV']`` that affect its output."""
    found = cached(env, "environment variables", lambda: result_variables(env))
    if found:
        env.Depends(node, env.Value(json.dumps(found, sort_keys=True)))


def device_runtimes(env: Environment, device: CompileTarget) -> list[str]:
    """Return the libraries that are linked into OpenMP images: ``OFFLOAD_DEVICE_RUNTIME``.

    The default is the compiler's runtime for the device, if any. Names are absolute, or relative to
    the top folder.
    """
    given = env["OFFLOAD_DEVICE_RUNTIME"]
    if not is_build():
        return []
    if given is not None:
        nodes = [env.File(name) for name in env.Split(given)]
        with compat.at_top(env):
            return [str(node) for node in nodes]
    return list(openmp.device_runtimes(toolchain(env), device))


def needed_runtimes(env: Environment, device: CompileTarget) -> list[str]:
    """Return `device_runtimes`, without which OpenMP images for a GPU do not link.

    :raises CompilerError: there are none, although the link needs them.
    """
    found = device_runtimes(env, device)
    is_other = env["OFFLOAD_DEVICE_RUNTIME"] is not None or device.target_id is None
    excused = is_other or not is_build()
    if found or excused or "--unresolved-symbols" in env.subst("$OFFLOAD_LINK_FLAGS"):
        return found
    raise CompilerError(openmp.no_device_runtime(toolchain(env), device))
