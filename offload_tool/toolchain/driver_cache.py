"""Queries of clang's driver, cached from one build to the next: see `disk_cache`.

The key of a ``-###`` query is the command, its environment and its working directory. Its
dependencies are:

- the files that the result names, such as configuration files, installations of GCC and GPU
  libraries, and their directories
- the versions of CUDA's installations, and the directories of C++ libraries and of lists for
  sanitizers that may appear beside what was found
- the files that the driver looks up for options, such as precompiled headers and profiles

So are, for every query of a compiler (`cached_compiler_result`), even where a path is missing:

- the programs of the command, their shared libraries, and where the loader looked before
- directories in which a program may appear that would run instead: those of PATH,
  COMPILER_PATH and ``-B``, and the compiler's own
- configuration files, and the directories in which others may appear
- the directories of GCC's installations

Environment variables that affect compilers are part of the key: `environment.KEY_VARIABLES`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from offload_tool.clang.argument_files import looked_up
from offload_tool.clang.driver import option_values, query, query_front_end
from offload_tool.clang.environment import (
    INSTALLATIONS,
    KEY_VARIABLES,
    ImplicitInputs,
    front_end_of,
    origins,
    processor_of,
    with_language,
)
from offload_tool.clang.options import (
    CONFIGURATION,
    CONFIGURATION_FOLDER,
    NO_LIBRARIES,
    PROGRAMS,
    ROOT,
    WRITES,
    does,
    relevant_flags,
    values,
)
from offload_tool.clang.response_file import expand_command
from offload_tool.errors import CompilerError
from offload_tool.formats.magic import ELF
from offload_tool.io.file_digests import content_of, digest_of
from offload_tool.io.paths import is_same_file, names_in
from offload_tool.toolchain.disk_cache import cached_result
from offload_tool.toolchain.identity import (
    CONFIGURATION_FOLDERS,
    LIBRARY_PATH,
    program_dependencies,
)
from offload_tool.util.memoize import memoized
from offload_tool.util.which import program_folders, which

_CONFIGURATION = ".cfg"
_GCC = ("lib/gcc", "lib64/gcc", "lib/gcc-cross")
_LOOKED_UP = ("include/cuda.h", "include", "include/c++", "share")
"""In a prefix such as ``/usr``, the driver reads the version of CUDA and looks up C++ libraries; in
its resource directory, it looks up lists for sanitizers (``share``). Source: clang 22.1.8,
observed: its system calls."""
_PER_CALL_VARIABLES = frozenset(
    (
        *("_", "OLDPWD", "SHLVL", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKE_TERMOUT"),
        *("MAKE_TERMERR", "INVOCATION_ID", "JOURNAL_STREAM", "STY", "WINDOWID"),
    )
)
"""Variables that make, or each command, login or terminal sets anew; no driver reads them."""
_NOT_READ = (
    *("OFFLOAD_LAUNCH_", "OFFLOAD_CUTOFF"),
    *("DBUS_SESSION_", "SSH_", "TERM_SESSION_", "TMUX", "VSCODE_", "XDG_SESSION_"),
)
"""Prefixes of others, and of our own that change no query. All that remain count: new ones may
change queries at any time."""


def program_of(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return the program of a command; None for a script, which may do more."""
    program: str | None = command[0]
    if "/" not in command[0]:
        program = which(command[0], environment.get("PATH", os.defpath))
    return program if program is not None and _is_executable(program) else None


def is_program(front_end: str, command: str, environment: Mapping[str, str]) -> bool:
    """Return True if the front end is the called program, not, for example, wrapped by a cache."""
    called = program_of([command], environment)
    return called is not None and is_same_file(front_end, called)


@memoized(16)
def _is_executable(program: str) -> bool:
    return content_of(program, len(ELF)) == ELF and os.access(program, os.X_OK)


def cached_query(
    what: str,
    program: str,
    args: Sequence[str],
    environment: Mapping[str, str],
    find: Callable[[], Any],
    args_in: Callable[[Any], Iterable[str] | None],
    *,
    local: bool = False,
    more: Callable[[], Iterable[str]] = tuple,
) -> Any:
    """Return the result of a query of the driver `program` about `args`, cached or from `find`.

    `args_in` returns the arguments in a result, of which paths are dependencies, or None for a
    result that must not be stored. In the working directory, files come and go. Paths there are
    dependencies only with `local`, in an installation that an option or a variable names there, or
    if the driver looks them up for an option. `more` returns further dependencies.
    """
    directory = os.getcwd()
    given = expand_command(args).args
    machine, variables = processor_of(given), _digest_of_variables(environment)
    # The file for ``-ftime-trace=F`` is in F if that is a directory.
    outputs = [name for name in values(given, WRITES) if os.path.isdir(name)]
    key = [what, program, directory, *args, machine, variables, *outputs]

    def dependencies(result: Any) -> list[str] | None:
        named = args_in(result)
        if named is None:
            return None
        found = tuple(named)
        roots = {os.path.join(directory, root) for root in _installations(given, environment)}
        here = f"{directory}/"
        begins = (f"{root.rstrip('/')}/" for root in roots)
        within = tuple(begin for begin in begins if begin.startswith(here))
        paths = (os.path.join(directory, arg) for arg in found if "/" in arg and arg[0] != "-")
        files = tuple(
            path for path in paths if local or not path.startswith(here) or path.startswith(within)
        )
        programs = os.path.abspath(program), os.path.realpath(program)
        folders = {*map(os.path.dirname, files)}
        above = map(os.path.dirname, (*folders, *map(os.path.dirname, programs)))
        prefixes = {*roots, *folders, *above}
        beside = (f"{prefix}/{name}" for prefix in prefixes for name in _LOOKED_UP)
        sought = looked_up((*given, *found))
        # Of folders for device libraries, the first that has one counts.
        searched = roots - {directory}
        return [*files, *folders, *searched, *beside, *origins(files), *sought, *more()]

    return cached_compiler_result(key, [program, *args], environment, find, dependencies)


def _installations(args: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the folders of installations that options and variables name."""
    for flag in relevant_flags(args):
        yield flag.partition("=")[2] or flag.removeprefix("-isysroot") or flag
    for name in INSTALLATIONS:  # HIP_DEVICE_LIB_PATH may be a list
        yield from filter(None, environment.get(name, "").split(os.pathsep))


def cached_args(
    what: str,
    args: Sequence[str],
    environment: Mapping[str, str],
    find: Callable[[], list[str]],
    *,
    front_end: Sequence[str] = (),
    local: bool = False,
) -> list[str]:
    """Return a list of arguments from a command's driver, cached or from `find`.

    Not stored are empty results, which may change any time, and those of scripts, configuration
    or response files. Nor is a result if the driver refuses the command `front_end`.
    `local`: see `cached_query`.
    """
    program = program_of(args, environment)
    if program is None or any(does(arg, CONFIGURATION) or arg.startswith("@") for arg in args):
        return find()

    def args_in(found: list[str]) -> list[str] | None:
        is_refused = front_end and not query_front_end(front_end, environment).is_accepted
        return None if is_refused else found or None

    result: list[str] = cached_query(what, program, args, environment, find, args_in, local=local)
    return result


def _digest_of_variables(environment: Mapping[str, str]) -> str:
    """Return a digest of the environment: its values may be passwords, so the cache stores none."""
    names = sorted(name for name in environment if not name.startswith(_NOT_READ))
    names = [name for name in names if name not in _PER_CALL_VARIABLES]
    text = "\0".join(f"{name}={environment[name]}" for name in names)
    return digest_of(os.fsencode(text))


def cached_front_end(args: Sequence[str], environment: Mapping[str, str]) -> ImplicitInputs:
    """Return the result of `environment.front_end_of`, cached."""

    def find() -> list[str]:
        found = front_end_of(args, environment)
        return [*found.folders, "yes" if found.embeds_folder else ""] if found.folders else []

    cached = cached_args("front end", args, environment, find, front_end=with_language(args))
    *folders, embeds = cached or [""]
    if not folders:
        return front_end_of(args, environment)
    return ImplicitInputs(tuple(folders), bool(embeds))


def cached_triple(args: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the triple of a compiler's host code, as in a plan of the driver; "" for none."""

    def find() -> list[str]:
        result = query([*args, "-print-effective-triple"], environment)
        return result.output.split() if result.status == 0 else []

    return "".join(cached_args("triple", args, environment, find))


@memoized(64)
def linker_writes_depfile(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether the linker that a link's command selects has ``--dependency-file``.

    GNU ld has it since 2.35; its help, gold's, lld's and mold's say so.
    """
    asked = [*command, "-Wl,--help"]

    def find() -> list[str]:
        try:
            result = query(asked, environment)
        except CompilerError:
            return []
        found = "--dependency-file" in result.output
        return [] if result.status else ["yes" if found else "no"]

    return cached_args("linker's help", asked, environment, find) == ["yes"]


def device_libraries(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the device libraries that clang links into device code: ROCm's, CUDA's libdevice.

    The result is empty if flags leave them out, or if none are found. `command` is a device compile
    up to its input. No depfile lists the libraries; flags, variables and the processor select them.
    Source: clang 22.1.8, observed: ``-###`` prints each front end's command, with
    ``-mlink-builtin-bitcode FILE`` for each library.
    """
    if any(does(arg, NO_LIBRARIES) for arg in command):
        return ()

    what = "device libraries"

    def find() -> list[str]:
        jobs = query_front_end(command, environment).jobs
        named = (file for job in jobs for file in option_values(job, "-mlink-builtin-bitcode"))
        return [what, *dict.fromkeys(named)]  # an empty list would not be stored

    found = cached_args(what, command, environment, find, front_end=command, local=True)
    return tuple(found[1:])


# -- all queries of compilers -------------------------------------------------------------


def cached_compiler_result(
    key: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    find: Callable[[], Any],
    dependencies: Callable[[Any], Iterable[str] | None] = lambda _: (),
) -> Any:
    """Return a result as `cached_result`; it also depends on the compiler that begins `command`."""

    def all_dependencies(result: Any) -> list[str] | None:
        own = dependencies(result)
        return None if own is None else [*own, *compiler_files(command, environment)]

    texts = [environment.get(name, "") for name in KEY_VARIABLES]
    paths = (path for value in filter(None, texts) for path in value.split(os.pathsep))
    is_relative = not all(path.startswith("/") for path in paths)
    whole_key = [*key, *texts, os.getcwd() if is_relative else ""]
    return cached_result(whole_key, find, all_dependencies)


def compiler_files(args: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the files and folders on which all queries of a compiler depend."""
    expanded = expand_command(args)
    yield from expanded.files
    args = expanded.args
    yield from program_folders(environment)
    # Source: clang 22.1.8, ``Driver::GetProgramPath``: values of ``-B`` and COMPILER_PATH may be
    # prefixes of file names, too.
    named = filter(None, environment.get("COMPILER_PATH", "").split(os.pathsep))
    for prefix in (*named, *values(args, PROGRAMS)):
        yield prefix
        if not os.path.isdir(prefix):
            yield os.path.dirname(prefix) or "."
    folders = [*map(os.path.expanduser, CONFIGURATION_FOLDERS)]
    for arg in itertools.takewhile(lambda arg: not arg.startswith(("-", "@")), args):
        is_name = "/" not in arg
        yield from (f"{x}/{arg}" for x in program_folders(environment)) if is_name else [arg]
        if program := which(arg, environment.get("PATH", os.defpath)):
            yield from program_dependencies(program, environment.get(LIBRARY_PATH, ""))
            real = os.path.realpath(program)
            yield real
            folders += (os.path.dirname(name) for name in (program, real))
    folders += values(args, CONFIGURATION_FOLDER)
    for folder in folders:
        yield folder
        names = names_in(folder)
        yield from (f"{folder}/{name}" for name in names if name.endswith(_CONFIGURATION))
    yield from values(args, CONFIGURATION)
    for root in ("/usr", *values(args, ROOT)):
        for folder in (f"{root}/{below}{name}" for below in ("", "usr/") for name in _GCC):
            yield folder
            # Of a triple, and in it of a version: clang takes the newest that has a crtbegin.o.
            triples = [f"{folder}/{triple}" for triple in names_in(folder)]
            yield from triples
            yield from (f"{triple}/{name}" for triple in triples for name in names_in(triple))
        yield root
