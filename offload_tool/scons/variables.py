"""The users' construction variables: the table of their types and defaults, and their parser.

A builder call parses all of them once, so that all further code finds values of the right type. A
boolean is then True or False, whatever its text on a command line or in a file of variables.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, NamedTuple

import SCons.Node
import SCons.Util
from SCons.Variables.BoolVariable import FALSE_STRINGS, TRUE_STRINGS

from offload_tool.clang.environment import MACHINE_VARIABLES, OWN_INSTALLATIONS, unread_variables
from offload_tool.errors import UsageError
from offload_tool.scons import compat
from offload_tool.scons.state.build_log import warn
from offload_tool.scons.types import Environment
from offload_tool.scons.values import reads

Reader = Callable[[Environment, Any], Any]
_WRONG = object()


class Variable(NamedTuple):
    """The type and the default of a construction variable."""

    default: Any
    expected: str
    read: Reader
    """Returns a value converted to its type; `_WRONG` for others."""


def _boolean_or(other: Reader) -> Reader:
    def read(env: Environment, given: Any) -> Any:
        if given is None or given in (False, True):
            return bool(given)
        text = env.subst(given).lower() if isinstance(given, str) else None
        if text in TRUE_STRINGS:
            return True
        return False if text in FALSE_STRINGS else other(env, given)

    return read


def _text(env: Environment, given: Any) -> Any:
    return given if given is None or _is_item(given) else _WRONG


def _json_file(env: Environment, given: Any) -> Any:
    text = env.subst(str(given)) if _is_item(given) else ""
    return text if text.endswith(".json") else _WRONG


def _texts(env: Environment, given: Any) -> Any:
    if SCons.Util.is_Sequence(given):
        return given if all(map(_is_item, SCons.Util.flatten([given]))) else _WRONG
    return _text(env, given)


def _flags(env: Environment, given: Any) -> Any:
    """Read flags, which SCons also takes as a function, and numbers in a list of them."""
    if SCons.Util.is_Sequence(given):
        items = SCons.Util.flatten([given])
        return given if all(map(_is_flag, items)) else _WRONG
    return given if callable(given) else _text(env, given)


def _mapping(env: Environment, given: Any) -> Any:
    return given if given is None or hasattr(given, "items") else _WRONG


def _flags_of_targets(env: Environment, given: Any) -> Any:
    found = _mapping(env, given)
    is_right = found in (None, _WRONG) or all(
        value is not None and _flags(env, value) is not _WRONG for value in found.values()
    )
    return found if is_right else _WRONG


def _is_item(value: Any) -> bool:
    is_node = isinstance(value, (os.PathLike, SCons.Node.Node, SCons.Util.Proxy))
    return is_node or bool(SCons.Util.is_String(value))


def _is_flag(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number or _is_item(value) or callable(value)


def _integer(least: int | None = None, *, optional: bool = False) -> Reader:
    def read(env: Environment, given: Any) -> Any:
        if optional and (given is None or given == ""):
            return None
        if isinstance(given, bool) or not isinstance(given, (int, str)):
            return _WRONG
        try:
            number = int(env.subst(str(given)))
        except ValueError:
            return _WRONG
        return number if least is None or number >= least else _WRONG

    return read


def _one_of(*values: Any) -> Reader:
    by_text = {str(value): value for value in values}

    def read(env: Environment, given: Any) -> Any:
        if given is None or given == "":
            return None
        is_typed = isinstance(given, (int, str)) and not isinstance(given, bool)
        return by_text.get(env.subst(str(given)), _WRONG) if is_typed else _WRONG

    return read


def _name(env: Environment, given: Any) -> Any:
    text = env.subst(given) if isinstance(given, str) else ""
    return text if text and not text.isspace() else _WRONG


def _headers(env: Environment, given: Any) -> Any:
    return _texts(env, given) if given else _WRONG


def _boolean(default: bool) -> Variable:
    return Variable(default, "True or False", _boolean_or(lambda *_: _WRONG))


_TEXT = Variable("", "a text", _text)
_LIST = Variable([], "a text, a node, or a list of them", _texts)
# As SCons's own flags: ``env.Append`` splits a text.
_FLAGS = Variable(SCons.Util.CLVar(), "flags: a text or a list", _flags)
_PATH = Variable("", "a path: a text or a node", _text)
_COMMAND = Variable("", "a command: a text, a node, or a list of them", _flags)

VARIABLES: dict[str, Variable] = {
    "OFFLOAD_ARCH": _LIST,
    "OFFLOAD_ALLOW_MISSING_BUNDLES": _boolean(False),
    "OFFLOAD_ALLOW_UNKNOWN_ARCH": _boolean(False),
    "OFFLOAD_KIND": _TEXT,
    "OFFLOAD_KPACK": Variable(False, "True, False or the name of a group", _boolean_or(_name)),
    "OFFLOAD_KPACK_COMPRESS": _TEXT._replace(default="zstd-per-kernel"),
    "OFFLOAD_KPACK_INTERFACE": _boolean(False),
    "OFFLOAD_KPACK_PATHS": _LIST,
    "OFFLOAD_CLANG": _PATH,
    "OFFLOAD_CLANGD_ARCH": _TEXT,
    "OFFLOAD_EXTRACT_ARCHIVE": _boolean(False),
    "OFFLOAD_FLAGS": _FLAGS,
    "OFFLOAD_HOST_FLAGS": _FLAGS,
    "OFFLOAD_ARCH_FLAGS": Variable({}, "a dictionary {target ID: flags}", _flags_of_targets),
    "OFFLOAD_ARCHIVE_FORMAT": _TEXT,
    "OFFLOAD_BUNDLE_ALIGN": Variable(4096, "a positive integer", _integer(1)),
    "OFFLOAD_BUNDLE_HOST": _boolean(False),
    "OFFLOAD_BUNDLE_TYPE": _TEXT,
    "OFFLOAD_CHECK_INPUT_ARCHIVE": _boolean(False),
    "OFFLOAD_COMPRESS": Variable(None, "None, 'zstd' or 'zlib'", _one_of("zstd", "zlib")),
    "OFFLOAD_COMPRESS_LEVEL": Variable(None, "an integer", _integer(optional=True)),
    "OFFLOAD_COMPRESS_VERSION": Variable(None, "2 or 3", _one_of(2, 3)),
    "OFFLOAD_CUDA_PATH": _PATH,
    "OFFLOAD_CUID": _TEXT,
    "OFFLOAD_CUTOFF": _boolean(True),
    "OFFLOAD_CUTOFF_CHECK": _boolean(False),
    "OFFLOAD_DEVICE_LIB_PATH": _PATH,
    "OFFLOAD_DEVICE_LINK": _boolean(False),
    "OFFLOAD_DEVICE_RUNTIME": _LIST._replace(default=None),
    "OFFLOAD_DIRECT": _boolean(True),
    "OFFLOAD_DIST": _PATH,
    "OFFLOAD_HIP_OPENMP_COMPATIBLE": _boolean(False),
    "OFFLOAD_LAUNCHER": _COMMAND,
    "OFFLOAD_LIBS": _LIST,
    "OFFLOAD_LINK_FLAGS": _FLAGS,
    "OFFLOAD_NVLINK": _PATH,
    "OFFLOAD_PACKAGE_BASE": _LIST,
    "OFFLOAD_PACKAGE_KEYS": Variable(
        {}, "a dictionary {key: text}, or {file: {key: text}}", _mapping
    ),
    "OFFLOAD_PCH": Variable(False, "True, False or a list of headers", _boolean_or(_headers)),
    "OFFLOAD_PCH_CHECK": Variable(0, "a number of compiles", _integer(0)),
    "OFFLOAD_PTXAS": _PATH,
    "OFFLOAD_PTXAS_FLAGS": _FLAGS,
    "OFFLOAD_RDC": _boolean(False),
    "OFFLOAD_REPORT_BEFORE": _LIST,
    "OFFLOAD_REPORT_FLAGS": _FLAGS,
    "OFFLOAD_ROCM_PATH": _PATH,
    "OFFLOAD_SUMMARY": Variable(
        False,
        "True, False or the name of a .json file ('offload-tool diff' says which kernels changed)",
        _boolean_or(_json_file),
    ),
    "OFFLOAD_TARGETS": _LIST,
    "OFFLOAD_WRAPPER_LLVM": Variable(22, "15, 22 or 23", _one_of(15, 22, 23)),
}
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

COMMAND_LINES: dict[str, Any] = {
    # Commands and the messages shown instead; an empty message shows the command.
    "OFFLOADDEVICECOM": _COMPILE.format(flags="$OFFLOAD_FLAGS $_OFFLOAD_ARCH_FLAGS"),
    "OFFLOADDEVICECOMSTR": "$_OFFLOAD_LANGUAGE [$_OFFLOAD_TARGET_ID] $_OFFLOAD_SHOWN",
    "OFFLOADHOSTCOM": _COMPILE.format(flags="$_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS"),
    "OFFLOADHOSTCOMSTR": "$_OFFLOAD_LANGUAGE [host] $_OFFLOAD_SHOWN",
    "OFFLOADHOSTIRCOM": (
        "$_OFFLOAD_PROGRAM $_OFFLOAD_PASS_FLAGS "
        "$_OFFLOAD_LANGUAGE_FLAGS $CCFLAGS $_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS "
        "$_OFFLOAD_LAST_FLAGS -o $TARGET $SOURCE"
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
    "CFLAGS": SCons.Util.CLVar(),
    "LIBPREFIX": "lib",
    "LIBSUFFIX": ".a",
    "OBJSUFFIX": ".o",
    "SHLIBSUFFIX": ".so",
    "SHOBJSUFFIX": ".os",
    "_OFFLOAD_INCLUDES": reads("CPPPATH", "INCPREFIX", "INCSUFFIX")(compat.include_flags),
    "_OFFLOAD_SHOWN": "$SOURCE",
    "INCPREFIX": "-I",
    "INCSUFFIX": "",
    "CPPDEFPREFIX": "-D",
    "CPPDEFSUFFIX": "",
}
DEFAULTS = {**{name: each.default for name, each in VARIABLES.items()}, **COMMAND_LINES}
_OTHERS = {
    "OFFLOAD_ARCH": (
        *("CMAKE_HIP_ARCHITECTURES", "HIP_ARCHITECTURES", "CMAKE_CUDA_ARCHITECTURES"),
        *("CUDA_ARCHITECTURES", "AMDGPU_TARGETS", "GPU_TARGETS"),
    ),
    "OFFLOAD_FLAGS": (
        *("HIPFLAGS", "HIPCCFLAGS", "HIPCC_FLAGS", "NVCCFLAGS", "NVCC_FLAGS", "CUDAFLAGS"),
    ),
    "OFFLOAD_CUDA_PATH": ("CUDA_PATH", "CUDA_TOOLKIT_PATH", "CUDA_HOME"),
    "OFFLOAD_ROCM_PATH": ("ROCM_PATH", "HIP_PATH"),
    "OFFLOAD_CLANG": ("HIPCC", "NVCC", "HIPCXX", "CUDACXX"),
}
"""Of our variables, those of other build systems."""
_OURS = {other: ours for ours, others in _OTHERS.items() for other in others}
_IN_LISTS = (*("LINKFLAGS", "SHLINKFLAGS", "LDMODULEFLAGS"), *("CXXFLAGS", "CCFLAGS", "CPPFLAGS"))
"""Flags that this package puts into lists with others."""


def read_variables(env: Environment) -> dict[str, Any]:
    """Return the variables that parsing changes; warn of useless ones. Raise UsageError."""
    check_names(env.Dictionary())
    _warn_of_flags(env)
    _warn_of_environment(env)
    texts = ((name, env.get(name)) for name in _IN_LISTS)
    # In a list, a variable of several words would be one argument.
    read: dict[str, Any] = {
        name: SCons.Util.CLVar(text) for name, text in texts if isinstance(text, str)
    }
    for name, variable in VARIABLES.items():
        given = env[name]
        found = variable.read(env, given)
        if name in MACHINE_VARIABLES and not found and (text := _of_environment(env, name)):
            found = variable.read(env, text)
        if found is _WRONG:
            shown = env.subst(given) if isinstance(given, str) else given
            raise UsageError(f"{name}: expected {variable.expected}, found {shown!r}")
        if type(found) is not type(given) or found != given:
            read[name] = found
    return read


def _of_environment(env: Environment, name: str) -> str:
    """Return a variable of the OS environment; a relative folder is one of the top folder."""
    text = str(env["ENV"].get(name) or os.environ.get(name, ""))
    if text and name in (*OWN_INSTALLATIONS, "OFFLOAD_DIST"):
        text = os.path.join(env.fs.Top.get_abspath(), text)
    return text.replace("$", "$$")


def set_defaults(env: Environment, overrides: dict[str, Any]) -> None:
    """Set every variable that the user has not set; `overrides` came with ``env.Tool``."""
    env.SetDefault(**{name: copy(value) for name, value in DEFAULTS.items()})
    env.Replace(**overrides)


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError, with a similar name, for an unknown variable with our prefix."""
    for name in sorted(names):
        if name.startswith("OFFLOAD") and name not in DEFAULTS:
            begins = [known for known in VARIABLES if name.startswith(known)]
            near = sorted(begins, key=len)[-1:] or difflib.get_close_matches(name, DEFAULTS, n=1)
            hint = f"did you mean {near[0]}?" if near else "see the list of variables"
            raise UsageError(f"unknown construction variable {name}; {hint}")


def check_overrides(env: Environment, overrides: dict[str, Any]) -> None:
    """Raise UsageError, with our name, for another build system's variable in a call."""
    for name in sorted(overrides):
        ours = _OURS.get(name.upper(), name.upper())
        is_ours = name in VARIABLES or ours not in VARIABLES
        if not is_ours and not _is_referred_to(env, name, overrides):
            raise UsageError(f"{name} among the variables of a builder means nothing; write {ours}")


def _warn_of_flags(env: Environment) -> None:
    given = env.Dictionary()
    if not {"NVCC", "HIPCC"}.isdisjoint(given):
        return
    for name in _OTHERS["OFFLOAD_FLAGS"]:
        if name in given and not _is_referred_to(env, name, {}):
            warn(env, f"{name} means nothing to this tool; write OFFLOAD_FLAGS, or CCFLAGS")


def _warn_of_environment(env: Environment) -> None:
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
