"""The disk cache of compilers' queries: the files on which every query of a compiler depends.

They are dependencies of each result, beside those of the query; a missing path counts, too:

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

from offload_tool.clang.environment import KEY_VARIABLES
from offload_tool.clang.options import CONFIGURATION, CONFIGURATION_FOLDER, PROGRAMS, ROOT, values
from offload_tool.toolchain.disk_cache import cached_result
from offload_tool.util.which import program_folders, which

CONFIGURATION_FOLDERS = ("/etc/clang", "~/.config/clang")
"""Clang's directories of configuration files, besides its own."""
_CONFIGURATION = ".cfg"
_GCC = ("lib/gcc", "lib64/gcc", "lib/gcc-cross")


def cached_compiler_result(
    key: Sequence[str],
    find: Callable[[], Any],
    dependencies: Callable[[Any], Iterable[str] | None],
    compiler: Callable[[Any], Sequence[str]],
    environment: Mapping[str, str] = os.environ,
) -> Any:
    """Return the result of a query as `cached_result`, which also depends on the compiler.

    `compiler` returns the command of the queried compiler, in an `environment`.
    """

    def all_dependencies(result: Any) -> list[str] | None:
        own = dependencies(result)
        return None if own is None else [*own, *_compiler_files(compiler(result), environment)]

    return cached_result([*key, *_variables_in(environment)], find, all_dependencies)


def _variables_in(environment: Mapping[str, str]) -> list[str]:
    """Return the values of variables on which all queries of a compiler depend."""
    texts = [environment.get(name, "") for name in KEY_VARIABLES]
    paths = (path for value in filter(None, texts) for path in value.split(os.pathsep))
    relative = not all(path.startswith("/") for path in paths)
    return [*texts, os.getcwd() if relative else ""]


def _compiler_files(args: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    from offload_tool.clang.response_file import expand_command
    from offload_tool.toolchain.programs import LIBRARY_PATH, program_dependencies

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
        if os.path.isdir(folder):
            names = os.listdir(folder)
            yield from (f"{folder}/{name}" for name in names if name.endswith(_CONFIGURATION))
    yield from values(args, CONFIGURATION)
    for root in ("/usr", *values(args, ROOT)):
        yield from (f"{root}/{below}{name}" for below in ("", "usr/") for name in _GCC)
        yield root
